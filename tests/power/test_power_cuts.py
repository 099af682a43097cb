"""Power cuts under load: what was acknowledged is there, on a disk that keeps only what it must.

`TEST_CUTS` sets how often the power is cut (6), `TEST_CUT_SEED` when, and what the disk has kept.
The disk is a file system of our own, mounted by FUSE: what was written and not synced is gone, or
a part of it, and so are names whose folder was not synced. Rounds come in chapters as in
`tests/clients/test_kill.py`, and besides records there are commits, topics made and deleted.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.kill_faults import FAULTS, POLICIES, stored_numbers
from tests.clients.kill_loads import LOADS, PARTITIONS, PATIENCE_S, Load
from tests.power.commits import Commits
from tests.power.machine import Machine, missing
from tests.power.mounted_disk import KINDS
from tests.support.caller import Caller

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = int(os.environ.get("TEST_CUTS", "6"))
ROUNDS_IN_CHAPTER = 10 if ROUNDS >= 30 else max(1, ROUNDS // 3)

ACKS_BEFORE_CUT = 200
"""Records acknowledged in a round before a cut is armed."""
CUT_WITHIN_S = 1.5
COUNTS = {"any": 400, "write": 200, "sync": 60, "create": 4, "rename": 4, "remove": 4}
"""How many calls of a kind an armed cut may let pass."""

SETTINGS = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}
"""Every duty in every second of a round, not in every hour."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.slow,
    # kafka-python leaves sockets behind, and some of them are collected while it is at work.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Topics:
    """Topics that are made and deleted, one of either in each round."""

    def __init__(self) -> None:
        self._made: list[str] = []
        self._deleted: list[str] = []

    def change(self, broker: tuple[str, int]) -> None:
        with Caller(*broker) as caller:
            name = f"made-{len(self._made) + len(self._deleted)}"
            caller.create_topic(name)
            self._made.append(name)
            if len(self._made) > 3:
                caller.delete_topic(self._made[0])
                self._deleted.append(self._made.pop(0))

    def faults(self, broker: tuple[str, int]) -> list[str]:
        with Caller(*broker) as caller:
            lost = [name for name in self._made if caller.describe(name).error_code]
            back = [name for name in self._deleted if not caller.describe(name).error_code]
        return [f"topics lost: {lost}, deleted ones back: {back}"] if lost or back else []


class Cuts:
    """All rounds of a run, and what was found."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self._machine = machine
        self._rng = random.Random(seed)
        self._topics = Topics()
        self.rounds = self.acknowledged = self.committed = 0
        self.faults: list[str] = []

    def run(self) -> None:
        chapters = 0
        while self.rounds < ROUNDS:
            policy = list(POLICIES)[chapters % len(POLICIES)]
            self._chapter(f"chapter-{chapters}", policy, LOADS[chapters % len(LOADS)])
            chapters += 1

    def _chapter(self, topic: str, policy: str, load_of: type[Load]) -> None:
        bootstrap = self._machine.broker.bootstrap
        client = ConfluentDriver()
        client.create_topic(bootstrap, topic, partitions=PARTITIONS, configs=POLICIES[policy])
        load, commits = load_of(bootstrap, topic), Commits(bootstrap, topic)
        for _ in range(min(ROUNDS_IN_CHAPTER, ROUNDS - self.rounds)):
            self._round(load, commits, f"{topic}, {load.name}, {policy}")
        load.wait_for_acks(ACKS_BEFORE_CUT)
        left = load.finish()
        commits.close()
        self.acknowledged += load.ack_count
        self.committed += commits.acknowledged
        self.faults += load.errors[:3]
        if left:
            self.faults.append(f"{topic}: {left} records neither acknowledged nor refused")
        self.faults += self._stored_faults(topic, policy, load)
        client.delete_topic(bootstrap, topic)
        print(f"{self.rounds} cuts; {topic}, {load.name}, {policy}: {load.ack_count} records")

    def _round(self, load: Load, commits: Commits, where: str) -> None:
        machine, rng = self._machine, self._rng
        broker = machine.broker
        load.wait_for_acks(ACKS_BEFORE_CUT)
        self._topics.change((broker.host, broker.port))
        kind = rng.choice([kind for kind in KINDS if kind in COUNTS])
        machine.cut(kind, rng.randrange(1, COUNTS[kind]), within_s=rng.uniform(0.1, CUT_WITHIN_S))
        committed = commits.acknowledged
        machine.start_again(rng)
        found = commits.faults(broker.bootstrap, committed)
        found += self._topics.faults((broker.host, broker.port))
        self.faults += [f"round {self.rounds}, {where}, cut at {kind}: {fault}" for fault in found]
        self.rounds += 1

    def _stored_faults(self, topic: str, policy: str, load: Load) -> list[str]:
        """Where retention or compaction take away, until they have done it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            stored = stored_numbers(self._machine.broker.bootstrap, topic)
            found = [
                f"{topic}, {load.name}, {policy}, partition {partition}: {fault}"
                for partition in range(PARTITIONS)
                for fault in FAULTS[policy](load.acknowledged[partition], stored[partition])
            ]
            if not found or policy == "kept" or time.monotonic() > deadline_s:
                return found
            time.sleep(1)


@pytest.mark.timeout(300 + ROUNDS * PATIENCE_S)
def test_nothing_acknowledged_is_lost_when_the_power_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    seed = int(os.environ.get("TEST_CUT_SEED") or random.randrange(1_000_000))

    with Machine(tmp_path, SETTINGS) as machine:
        cuts = Cuts(machine, seed)
        cuts.run()

    with capsys.disabled():
        print(
            f"\npower cuts: {cuts.rounds}, seed {seed}; acknowledged: {cuts.acknowledged} records, "
            f"{cuts.committed} commits; {'; '.join(cuts.faults) or 'nothing lost'}"
        )
    assert cuts.faults == [], f"TEST_CUT_SEED={seed} make power-cuts"
