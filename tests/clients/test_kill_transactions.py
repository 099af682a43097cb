"""kill -9 under copiers with transactions: each record is in the destination once, and in order.

Four copiers at work: three in one group, with librdkafka, and one with aiokafka; then one of the
second generation, in Java. `TEST_KILL_ROUNDS` sets how often the server is killed under each (4),
`TEST_KILL_SEED` the moments.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker.coordinator.transactions.transaction import TV2
from tests.clients.available import end_of_test
from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.drivers.program_driver import JAVA_VERSIONS
from tests.clients.kill_copiers import (
    AiokafkaCopier,
    ConfluentCopier,
    Copier,
    JavaCopier,
    Source,
    numbers_in,
)
from tests.clients.kill_loads import PATIENCE_S
from tests.clients.test_kill_processes import move
from tests.clients.transactions.hosts import JavaHost
from tests.clients.transactions.telling import set_transaction_version
from tests.support.administrator import Administrator
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.long]

ROUNDS = int(os.environ.get("TEST_KILL_ROUNDS", "4"))
SHARED, ALONE, SHARDS = 6, 2, 50
PER_SECOND = 300
#: A round is worth its name when each copier has committed so often before the kill.
COMMITS_BEFORE_KILL = 5


class Way:
    """A source, its destination, and those who copy."""

    def __init__(self, server: ServerProcess, name: str, partitions: int) -> None:
        self.partitions = partitions
        self.source, self.target = f"{name}-source", f"{name}-target"
        for topic in (self.source, self.target):
            ConfluentDriver().create_topic(
                server.bootstrap, topic, partitions=partitions, configs={}
            )
        self.load = Source(server.bootstrap, self.source, partitions, PER_SECOND)

    def copier(self, kind: type[Copier], server: ServerProcess, number: int) -> Copier:
        group = f"copiers-of-{self.source}"
        return kind(server.bootstrap, number, group=group, source=self.source, target=self.target)

    def faults(self, server: ServerProcess) -> list[str]:
        """After all was copied, or so it should be."""
        wanted = self.load.finish()
        copied, deadline_s = -1, 0.0
        while True:
            found = numbers_in(server.bootstrap, self.target, self.partitions)
            if sum(map(len, found)) > copied:  # they may be far behind
                copied, deadline_s = sum(map(len, found)), time.monotonic() + PATIENCE_S
            faults = [
                fault
                for partition, numbers in enumerate(found)
                for fault in _faults(f"{self.target}-{partition}", numbers, wanted[partition])
            ]
            if not faults or time.monotonic() > deadline_s or any(map(_doubled, found)):
                return faults
            time.sleep(0.2)


def _doubled(numbers: list[int]) -> bool:
    return len(set(numbers)) < len(numbers)


def _faults(name: str, numbers: list[int], wanted: int) -> list[str]:
    faults = []
    if _doubled(numbers):
        faults.append(f"{name}: {len(numbers) - len(set(numbers))} doubled")
    missing = sorted(set(range(wanted)) - set(numbers))
    if missing:
        faults.append(f"{name}: {len(missing)} of {wanted} missing, {missing[:3]} and so on")
    if numbers != sorted(numbers):
        faults.append(f"{name}: out of order")
    return faults


@pytest.mark.linux
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(300 + ROUNDS * 30)
def test_kill_9_of_processes_under_copiers_doubles_and_loses_nothing(
    new_server: Callable[..., ServerProcess], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("TEST_KILL_SEED", random.randrange(1_000_000)))
    chance = random.Random(seed)
    server = new_server(group_initial_rebalance_delay_ms="0", broker_processes="2")
    shared, alone = Way(server, f"{topic}-shared", SHARED), Way(server, f"{topic}-alone", ALONE)
    copiers = [shared.copier(ConfluentCopier, server, number) for number in range(3)]
    copiers.append(alone.copier(AiokafkaCopier, server, 3))
    _kill_one_of_two(server, copiers, chance, shared)
    faults = shared.faults(server) + alone.faults(server)
    for copier in copiers:
        copier.finish()
    _tell(capsys, "copiers, of one process of two", copiers, [shared, alone], [0.0], faults)
    assert faults == [], f"seed {seed}"
    assert "a handler failed" not in server.output()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(300 + ROUNDS * 30)
def test_kill_9_under_copiers_doubles_and_loses_nothing(
    new_server: Callable[..., ServerProcess], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("TEST_KILL_SEED", random.randrange(1_000_000)))
    chance = random.Random(seed)
    server = new_server(group_initial_rebalance_delay_ms="0")
    shared, alone = Way(server, f"{topic}-shared", SHARED), Way(server, f"{topic}-alone", ALONE)
    copiers = [shared.copier(ConfluentCopier, server, number) for number in range(3)]
    copiers.append(alone.copier(AiokafkaCopier, server, 3))
    starts_s = _kill(server, copiers, chance)
    faults = shared.faults(server) + alone.faults(server)
    for copier in copiers:
        copier.finish()
    _tell(capsys, "copiers", copiers, [shared, alone], starts_s, faults)
    assert faults == [], f"seed {seed}"


@pytest.mark.java
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(300 + ROUNDS * 30)
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.linux)])
def test_kill_9_under_a_copier_of_the_second_generation_doubles_and_loses_nothing(
    new_server: Callable[..., ServerProcess],
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    processes: int,
) -> None:
    seed = int(os.environ.get("TEST_KILL_SEED", random.randrange(1_000_000)))
    server = new_server(group_initial_rebalance_delay_ms="0", broker_processes=str(processes))
    with Administrator(server.host, server.port) as admin:
        set_transaction_version(admin, TV2)
    try:
        host = JavaHost(JAVA_VERSIONS["java-4"], server.bootstrap, tmp_path)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    way = Way(server, f"{topic}-second", 1)
    copier = JavaCopier(
        host,
        server.bootstrap,
        0,
        group=f"copiers-of-{way.source}",
        source=way.source,
        target=way.target,
    )
    starts_s = [0.0]
    if processes > 1:
        _kill_one_of_two(server, [copier], random.Random(seed), way)
    else:
        starts_s = _kill(server, [copier], random.Random(seed))
    faults = way.faults(server)
    copier.finish()
    _tell(capsys, "a copier of the second generation", [copier], [way], starts_s, faults)
    assert faults == [], f"seed {seed}"


def _kill_one_of_two(
    server: ServerProcess, copiers: list[Copier], chance: random.Random, way: Way
) -> None:
    """Kill one of two processes, again and again, right after partitions have begun to move from
    one to the other: some that are written to, and those of the coordinators of groups and of
    transactions."""
    for _ in range(ROUNDS):
        _wait_for_commits(copiers)
        some = chance.sample(range(way.partitions), (way.partitions + 1) // 2)
        with Caller(server.host, server.port) as caller:
            move(caller, way.target, {one: chance.randrange(2) for one in some})
            for state in ("__consumer_offsets", "__transaction_state"):
                move(caller, state, {one: chance.randrange(2) for one in range(SHARDS)})
        time.sleep(chance.uniform(0, 0.3))
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
        os.kill(int(chance.choice(children.split())), signal.SIGKILL)
    _wait_for_commits(copiers)


def _kill(server: ServerProcess, copiers: list[Copier], chance: random.Random) -> list[float]:
    """Kill the server, and start it, again and again, while they copy; seconds of the starts."""
    starts_s = []
    for _ in range(ROUNDS):
        _wait_for_commits(copiers)
        time.sleep(chance.uniform(0, 0.3))
        server.kill()
        began_s = time.monotonic()
        server.start()
        starts_s.append(time.monotonic() - began_s)
    _wait_for_commits(copiers)
    return starts_s


def _tell(
    capsys: pytest.CaptureFixture[str],
    what: str,
    copiers: list[Copier],
    ways: list[Way],
    starts_s: list[float],
    faults: list[str],
) -> None:
    with capsys.disabled():
        counts = [(one.commits, one.aborts, one.restarts) for one in copiers]
        records = " and ".join(str(sum(way.load.counts)) for way in ways)
        print(
            f"\nkill -9 under {what}: {ROUNDS} rounds, {records} records; of each copier commits, "
            f"aborts, new producers: {counts}; starts took {statistics.median(starts_s):.2f} s, at "
            f"most {max(starts_s):.2f} s; {'; '.join(faults) or 'nothing doubled, nothing lost'}"
        )


def _wait_for_commits(copiers: list[Copier]) -> None:
    """Until each has committed some more."""
    wanted = [copier.commits + COMMITS_BEFORE_KILL for copier in copiers]
    deadline_s = time.monotonic() + PATIENCE_S
    while any(copier.commits < count for copier, count in zip(copiers, wanted, strict=True)):
        for copier in copiers:
            assert copier.error is None, (copier.transactional_id, copier.error)
        assert time.monotonic() < deadline_s, [
            (one.transactional_id, one.commits, one.aborts, one.restarts, one.doing)
            for one, count in zip(copiers, wanted, strict=True)
            if one.commits < count
        ]
        time.sleep(0.01)
