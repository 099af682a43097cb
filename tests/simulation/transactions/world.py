"""Transactions on a broker that dies at any call to its disk, and what may be seen of them then."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from broker.coordinator.transactions.transaction import TV1, TV2
from protocol.logdata.offsets import shard_of
from storage.steps import run_here
from tests.simulation.transactions.machine import Machine
from tests.simulation.transactions.model import Model, Status, Transaction
from tests.simulation.transactions.producers import (
    OFFSETS_TOPIC,
    PARTITIONS,
    SOURCE,
    TOPIC,
    Producer,
)
from tests.simulation.world import Violation
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut

if TYPE_CHECKING:
    from tests.simulation.transactions.model import Place

STATE_SHARDS, OFFSETS_SHARDS = 2, 2
IDS = ("a", "b", "c", "d")
SMALL_SEGMENT = "1500"
RETAINED = {"retention.bytes": "1000"}
SETTINGS = {
    "transaction.state.log.num.partitions": str(STATE_SHARDS),
    "transaction.state.log.segment.bytes": SMALL_SEGMENT,
    "offsets.topic.num.partitions": str(OFFSETS_SHARDS),
    "offsets.topic.segment.bytes": SMALL_SEGMENT,
    "log.segment.bytes": SMALL_SEGMENT,
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.delete.retention.ms": "0",
    "disk.reserve.bytes": "0",
    "transaction.two.phase.commit.enable": "true",
}


class Totals:
    """The sums of a run."""

    __slots__ = (
        "aborted", "clean_stops", "cleanings", "committed", "crashes", "kept", "kills",
        "operations", "places", "power_cuts", "retained",
    )  # fmt: skip

    def __init__(self) -> None:
        self.operations = self.crashes = self.power_cuts = self.kills = 0
        self.committed = self.aborted = self.cleanings = self.clean_stops = 0
        self.kept = self.retained = 0
        self.places: Counter[str] = Counter()
        """Calls to the disk at which it crashed, by kind and topic."""

    def add(self, other: Totals) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        places = ", ".join(f"{count:,} {place}" for place, count in self.places.most_common(12))
        return (
            f"{self.operations:,} operations, {self.committed:,} commits and {self.aborted:,} "
            f"aborts answered, {self.crashes:,} crash points ({self.power_cuts:,} power cuts, "
            f"{self.kills:,} kills), {self.kept:,} transactions kept by another instance, "
            f"{self.retained:,} log starts raised by retention, {self.cleanings:,} cleanings, "
            f"{self.clean_stops:,} clean stops; crashed at: {places}"
        )


class World:
    """See the module. `producers` are all instances that still do something, oldest first."""

    def __init__(self, seed: int, version: int | None = None) -> None:
        """`version` is the generation of all clients; else the seed says it."""
        self.seed = seed
        self.step = -1
        self.count = 0
        self.model = Model()
        self.producers: list[Producer] = []
        self.newest: dict[str, tuple[int, int]] = {}
        """Of each id the greatest producer id and epoch that an instance was told."""
        self.opened: dict[tuple[int, int], Transaction] = {}
        """The last transaction that each producer id and epoch has begun."""
        self.starts: dict[int, int] = {}
        """Log starts of the partitions when retention was last looked at."""
        self.refusals: dict[str, int] = {}
        self.totals = Totals()
        chance = random.Random(f"ids {seed}")
        self.version = chance.choice((TV1, TV2)) if version is None else version
        self.machine = Machine(
            MemoryFilesystem(recording=False),
            chance,
            SETTINGS,
            self.version,
            loads_at_once=chance.random() < 0.5,
        )
        self.is_up = True
        self.offsets_compacted = False
        """Whether records of superseded offsets may be gone."""

    def begin_first(self) -> None:
        """The first start, and the topics."""
        self.machine.start()
        topics = self.machine.broker.topics
        for name, count, configs in ((TOPIC, PARTITIONS, RETAINED), (SOURCE, 1, {})):
            run_here(topics.create(name, count, configs))
        for topic in self.machine.broker.topics:
            for partition in topic.partitions:
                partition.log.sync()

    # What producers tell

    def begun(self, producer: Producer) -> None:
        """An instance was given its id and epoch: all that have less are fenced."""
        name, given = producer.transactional_id, (producer.id, producer.epoch)
        self.newest[name] = max(given, self.newest.get(name, given))
        for other in self.producers:
            if other.transactional_id != name or other.id < 0 or other.fenced_at is not None:
                continue
            if (other.id, other.epoch) < self.newest[name]:
                other.fenced_at = self.count

    def told_end(self, transaction: Transaction, *, commit: bool) -> None:
        if commit:
            self.expect(transaction.status is not Status.ABORTED, f"{transaction} was committed")
            transaction.status = Status.COMMITTED
            self.totals.committed += 1
        else:
            self.expect(transaction.status is Status.OPEN, f"{transaction} was aborted")
            transaction.status = Status.ABORTED
            self.totals.aborted += 1

    def offsets_place(self, group: str) -> Place:
        return OFFSETS_TOPIC, shard_of(group, OFFSETS_SHARDS)

    def broken(self, what: str) -> NoReturn:
        raise Violation(f"seed {self.seed}, step {self.step}: {what}")

    def expect(self, true: bool, what: str) -> None:
        if not true:
            self.broken(what)

    # Instances

    def step_producer(self, rng: random.Random) -> None:
        self.count += 1
        name = rng.choice(IDS)
        mine = [one for one in self.producers if one.transactional_id == name]
        if not mine or rng.random() < 0.02:
            keeps = self.version == TV2 and rng.random() < 0.4
            mine.append(Producer(self, name, self.version, keeps=keeps))
            self.producers.append(mine[-1])
        producer = mine[-1] if rng.random() < 0.8 else rng.choice(mine)
        producer.step(rng)
        if producer.dead:
            self.producers.remove(producer)

    # The machine

    def note_crash(self, what: str) -> None:
        """Count at which call to the disk it happens, by kind of file."""
        call, _, path = what.partition(" ")
        folder = path.removeprefix("/data/").partition("/")[0]
        kind = f"{call} {folder.rpartition('-')[0] or 'control file'}"
        self.totals.places[kind] += 1

    def crash(self, rng: random.Random) -> None:
        """The machine or the process dies, and is started until it runs."""
        self.lose_connections()
        while True:
            self.totals.crashes += 1
            power = rng.random() < 0.65
            if power:
                self.totals.power_cuts += 1
            else:
                self.totals.kills += 1
            self.machine.crash(rng, power=power)
            if self.begin(rng.randrange(40) if rng.random() < 0.25 else None):
                return

    def lose_connections(self) -> None:
        """The broker is gone; answers that it gave before are taken."""
        self.is_up = False
        for producer in self.producers:
            producer.lose()

    def begin(self, cut_after: int | None = None) -> bool:
        """Start the broker. Returns whether it lives."""
        files = self.machine.files
        files.cut_at = None if cut_after is None else files.count + cut_after
        try:
            self.machine.start()
        except PowerCut:
            return False
        files.cut_at = None
        self.is_up = True
        return True
