"""kill -9 under load: what was acknowledged with acks=all is there, once, and in order.

`TEST_KILL_ROUNDS` sets how often the server is killed (6), `TEST_KILL_SEED` the moments. Rounds
come in chapters: a topic, a client that writes to it, some kills, and a reading of all it holds.
Logs are kept whole, or retention or compaction take away from them meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.kill_faults import FAULTS, POLICIES, stored_numbers
from tests.clients.kill_loads import LOADS, PARTITIONS, PATIENCE_S, Load
from tests.support.broker_process import CHECKOUT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.server_process import ServerProcess

    #: (offset, number) of each record of a partition.
    Numbered = list[tuple[int, int]]

pytestmark = pytest.mark.clients

ROUNDS = int(os.environ.get("TEST_KILL_ROUNDS", "6"))

#: A topic of many rounds would take long to read, and memory.
ROUNDS_IN_CHAPTER = 10 if ROUNDS >= 30 else max(1, ROUNDS // 3)

#: A round is worth its name when this many records were acknowledged before the kill.
ACKS_BEFORE_KILL = 500

#: Retention and cleaning in every second of a round, not in every hour.
SETTINGS = {
    "log_initial_task_delay_ms": "100",
    "log_retention_check_interval_ms": "300",
    "log_cleaner_backoff_ms": "100",
}


class Chapter(NamedTuple):
    """The results of a load and its rounds."""

    load: Load
    policy: str
    stored: list[Numbered]
    left: int

    def faults(self) -> Iterator[str]:
        for partition in range(PARTITIONS):
            acknowledged, stored = self.load.acknowledged[partition], self.stored[partition]
            for fault in FAULTS[self.policy](acknowledged, stored):
                yield f"{self.load.name}, {self.policy}, partition {partition}: {fault}"


# kafka-python leaves sockets behind, and some of them are collected while it is at work.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(120 + ROUNDS * PATIENCE_S)
def test_kill_9_under_load_loses_doubles_and_reorders_nothing(
    new_server: Callable[..., ServerProcess], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("TEST_KILL_SEED", random.randrange(1_000_000)))
    chance = random.Random(seed)
    server = new_server(**SETTINGS)
    starts_s: list[float] = []
    chapters: list[Chapter] = []
    findings: list[str] = []
    policies = list(POLICIES)
    while len(starts_s) < ROUNDS:
        number = len(chapters)
        rounds = min(ROUNDS_IN_CHAPTER, ROUNDS - len(starts_s))
        policy = policies[number % len(policies)]
        name, load_of = f"{topic}-{number}", LOADS[number % len(LOADS)]
        chapter = _chapter(server, name, policy, load_of, rounds, chance, starts_s, findings)
        chapters.append(chapter)
        findings += _after_a_clean_stop(server)
        ConfluentDriver().delete_topic(server.bootstrap, name)

    faults = [fault for chapter in chapters for fault in chapter.faults()] + findings
    errors = [error for chapter in chapters for error in chapter.load.errors]
    _tell(capsys, chapters, starts_s, faults)
    assert faults == [], f"seed {seed}"
    assert errors == []
    assert sum(chapter.left for chapter in chapters) == 0


def _chapter(
    server: ServerProcess,
    topic: str,
    policy: str,
    load_of: type[Load],
    rounds: int,
    chance: random.Random,
    starts_s: list[float],
    findings: list[str],
) -> Chapter:
    client = ConfluentDriver()
    client.create_topic(server.bootstrap, topic, partitions=PARTITIONS, configs=POLICIES[policy])
    load = load_of(server.bootstrap, topic)
    for _ in range(rounds):
        load.wait_for_acks(ACKS_BEFORE_KILL)
        time.sleep(chance.uniform(0, 1.0))
        server.kill()
        findings += _check(server, after="a kill", wanted=(0, 1))
        start_s = time.monotonic()
        server.start()
        starts_s.append(time.monotonic() - start_s)
    load.wait_for_acks(ACKS_BEFORE_KILL)
    left = load.finish()
    chapter = Chapter(load, policy, stored_numbers(server.bootstrap, topic), left)
    # Where rounds are short, the cleaner may not have come to it: kills stop it like all else. And
    # what retention takes away from under a reader is not read, but what is lost stays lost.
    deadline_s = time.monotonic() + PATIENCE_S
    while policy != "kept" and time.monotonic() < deadline_s and any(chapter.faults()):
        time.sleep(1)
        chapter = chapter._replace(stored=stored_numbers(server.bootstrap, topic))
    return chapter


def _after_a_clean_stop(server: ServerProcess) -> list[str]:
    assert server.stop() in (0, 143)  # Java ends with 143 after a clean stop
    findings = _check(server, after="a clean stop", wanted=(0,))
    server.start()
    return findings


def _check(server: ServerProcess, *, after: str, wanted: tuple[int, ...]) -> list[str]:
    """What `triglot check` has against the directory. A crash may leave warnings: what a start
    puts right. It never leaves errors."""
    if not isinstance(server, BrokerProcess):
        return []
    command = [sys.executable, "-m", "tools", "check", "--json", str(server.data.resolve())]
    ran = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    faults = [line for line in found if line.get("severity") == "error"]
    if ran.returncode not in wanted or faults:
        text = [str(line) for line in faults or found][:5]
        return [f"after {after} check ended with {ran.returncode}: {text} {ran.stderr[-500:]}"]
    return []


def _tell(
    capsys: pytest.CaptureFixture[str],
    chapters: list[Chapter],
    starts_s: list[float],
    faults: list[str],
) -> None:
    written = dict.fromkeys(sorted({chapter.load.name for chapter in chapters}), 0)
    for chapter in chapters:
        written[chapter.load.name] += chapter.load.ack_count
    by_client = ", ".join(f"{count} by {name}" for name, count in written.items())
    verdict = "; ".join(faults[:10]) or "nothing lost, doubled or out of order"
    with capsys.disabled():
        print(
            f"\nkill -9: {len(starts_s)} rounds, records acknowledged: {by_client}; restarts took "
            f"{statistics.median(starts_s):.2f} s, at most {max(starts_s):.2f} s; {verdict}"
        )
