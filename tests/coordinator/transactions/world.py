"""A coordinator over the parts of a broker in the test's process, with partitions that obey.

with World(tmp_path / "data") as world:
    producer = world.begin("x")
    world.write(producer, 0)              # a batch in partition 0 of the topic, added before
    world.end("x", producer)
    after = world.crashed(tmp_path / "after", {0: 1})     # partition 0 keeps its first batch
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

from broker.coordinator.needs import NeededFirst
from broker.coordinator.transactions.coordinator import TransactionCoordinator
from broker.coordinator.transactions.runtime import TransactionRuntime
from broker.coordinator.transactions.transaction import TV1
from protocol.errors import ErrorCode
from protocol.logdata.transactions import TransactionState, glance
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.layout import HEADER
from protocol.records.markers import decode_marker
from protocol.records.walk import walk
from storage.steps import run_here
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from broker.assembly import Broker
    from broker.partitions.topic import Partition

    Place = tuple[str, int]
    Producer = tuple[int, int]

TOPIC = "t"
STATE_TOPIC = "__transaction_state"
SETTINGS = {"transaction.state.log.num.partitions": "1", "log.flush.interval.ms": "1000000"}
SEGMENT = "00000000000000000000.log"
TIMEOUT_MS = 60_000


class Obedient:
    """Writes markers, but for those to partitions that are to refuse; keeps what it was asked."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.refusing: set[Place] = set()
        self.asked: list[tuple[Producer, bool, list[Place]]] = []
        self.before: Callable[[], None] = lambda: None

    def write_markers(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        partitions: Sequence[Place],
    ) -> list[Place]:
        self.asked.append(((producer_id, epoch), commit, list(partitions)))
        left = []
        for place in partitions:
            self.before()
            if place in self.refusing:
                left.append(place)
            else:
                left += self._broker.markers.write_markers(
                    producer_id,
                    epoch,
                    commit=commit,
                    coordinator_epoch=coordinator_epoch,
                    partitions=[place],
                )
        return left


class World:
    """The broker's own coordinator is not used: it would load the same topic."""

    def __init__(self, data: Path, *, version: int = 0, **settings: str) -> None:
        self.data = data
        self.version = version
        self._settings = settings
        self._broker = InProcessBroker(data, **{**SETTINGS, **settings})

    def __enter__(self) -> Self:
        with patch.object(TransactionCoordinator, "start"):
            self._broker.__enter__()
        self.parts = parts = self._broker.running.broker
        self.now_ms = parts.now_ms()
        self.participants = Obedient(parts)
        self.runtime = TransactionRuntime(
            settings=parts.settings,
            loop=parts.loop,
            topics=parts.topics,
            disk=parts.disk,
            appends=parts.appends,
            group_commit=parts.group_commit,
            participants=self.participants,
            producer_ids=parts.producer_ids,
            transaction_version=lambda: self.version,
            wall_ms=lambda: self.now_ms,
        )
        self.coordinator = TransactionCoordinator(parts.topics, lambda _: self.runtime)
        assert self.coordinator.runtime is self.runtime
        if TOPIC not in parts.topics.by_name:
            run_here(parts.topics.create(TOPIC, 3, {}))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.coordinator.stop()
        self._broker.__exit__(kind, error, trace)

    def turn_until(self, condition: Callable[[], bool]) -> None:
        self._broker.turn_until(condition)

    def turn(self) -> None:
        self._broker.turn(3)

    # What clients ask

    def begin(
        self,
        transactional_id: str = "x",
        expected: Producer | None = None,
        *,
        two_phase: bool = False,
        keep: bool = False,
    ) -> Producer:
        """The id and epoch of an instance that begins."""

        def initialize() -> Any:
            return self.runtime.initialize(
                transactional_id,
                timeout_ms=TIMEOUT_MS,
                expected=expected,
                aborted=codes.append,
                two_phase=two_phase,
                keep=keep,
            )

        codes: list[ErrorCode] = []
        try:
            found = initialize()
        except NeededFirst as needed:
            found = run_here(needed.need.met(initialize))
        if found is None:
            self.turn_until(lambda: bool(codes))
            assert codes == [ErrorCode.CONCURRENT_TRANSACTIONS]
            return self.begin(transactional_id, expected, two_phase=two_phase, keep=keep)
        return cast("Producer", found[1].client)

    def add(self, producer: Producer, *indexes: int, transactional_id: str = "x") -> None:
        places = [(TOPIC, index) for index in indexes]
        self.runtime.add(transactional_id, *producer, places, client_version=TV1)

    def append(
        self, producer: Producer, index: int, value: bytes = b"v", sequence: int = 0
    ) -> None:
        """A batch of a transaction, whatever the coordinator knows of it."""
        batch = bytearray(
            build_batch(
                [(self.now_ms, None, value, ())],
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=sequence,
                transactional=True,
            )
        )
        log = self.partition(index).log
        log.append(memoryview(batch), HEADER.unpack_from(batch), now_ms=self.now_ms)
        log.write()

    def write(self, producer: Producer, *indexes: int, sequence: int = 0) -> None:
        """Partitions are added, and a batch is written to each."""
        self.add(producer, *indexes)
        for index in indexes:
            self.append(producer, index, sequence=sequence)

    def ask_end(
        self, producer: Producer, *, commit: bool = True, version: int = TV1, name: str = "x"
    ) -> list[tuple[ErrorCode, int, int]]:
        """EndTxn; the answer is in the list when it has come."""
        told: list[tuple[ErrorCode, int, int]] = []
        self.runtime.end(
            name,
            *producer,
            commit=commit,
            client_version=version,
            done=lambda *outcome: told.append(outcome),
        )
        return told

    def end(
        self, producer: Producer, *, commit: bool = True, version: int = TV1, name: str = "x"
    ) -> Producer:
        """The id and epoch after the end."""
        told = self.ask_end(producer, commit=commit, version=version, name=name)
        self.turn_until(lambda: bool(told))
        ((code, producer_id, epoch),) = told
        assert code is ErrorCode.NONE
        return producer_id, epoch

    # What has come of it

    def state(self, transactional_id: str = "x") -> str:
        return self.runtime.known(transactional_id)[1].state.title

    def is_in(self, state: str, transactional_id: str) -> bool:
        return self.state(transactional_id) == state

    def partition(self, index: int, topic: str = TOPIC) -> Partition:
        found = self.parts.topics.partition(topic, index)
        assert found is not None
        return found

    def content(self, index: int) -> list[str]:
        """The batches of a partition: "data", or what their marker says."""
        data = self.partition(index).log.read(0, 1 << 20)
        return [] if data is None else [_named(batch) for batch in batches(bytes(data.read()))]

    def written(self) -> list[str]:
        """The states of all records of the state topic; None for a tombstone."""
        data = self.partition(0, STATE_TOPIC).log.read(0, 1 << 20)
        assert data is not None
        values = [one.value for batch in batches(bytes(data.read())) for one in batch.records()]
        return [
            "None" if value is None else TransactionState(glance(value)[1]).title
            for value in values
        ]

    def is_open(self, index: int) -> bool:
        """Whether something in the partition waits for its end."""
        log = self.partition(index).log
        return log.last_stable_offset < log.written_offset

    def crashed(
        self, path: Path, kept: Mapping[int, int] | None = None, *, states: int | None = None
    ) -> World:
        """A world as after a crash now, begun with `start`. Of the partitions in `kept` only so
        many batches are left, of the state topic only so many records."""
        # A checkpoint may be on its way under another name.
        shutil.copytree(self.data, path, ignore=shutil.ignore_patterns("*.tmp"))
        (path / ".lock").unlink(missing_ok=True)
        for index, count in (kept or {}).items():
            cut(path / f"{TOPIC}-{index}" / SEGMENT, count)
        if states is not None:
            cut(path / f"{STATE_TOPIC}-0" / SEGMENT, states)
        return World(path, version=self.version, **self._settings)

    def start(self) -> None:
        """Load what is there, and settle it."""
        self.coordinator.start()
        self.turn_until(lambda: not self.runtime.is_loading)


def batches(data: bytes) -> Iterable[Batch]:
    return [Batch(memoryview(data)[at : at + size]) for at, size, _ in walk(data)]


def cut(path: Path, count: int) -> None:
    """Only the first batches of a log file are left."""
    found = list(batches(path.read_bytes()))
    path.write_bytes(b"".join(bytes(batch.view) for batch in found[:count]))


def _named(batch: Batch) -> str:
    marker = decode_marker(batch.view)
    return "data" if marker is None else "commit" if marker.commit else "abort"
