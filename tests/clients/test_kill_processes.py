"""kill -9 of any of the processes of a directory, under load: what was acknowledged is there, once
and in order, and those that live go on.

`TEST_KILL_ROUNDS` sets how often one is killed (4), `TEST_KILL_SEED` which. How long the partitions
of the one that was killed, and those of the others, were without an acknowledgement is printed.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = int(os.environ.get("TEST_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("TEST_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
PROCESSES, PARTITIONS, TOPIC = 2, 8, "killed"

#: A round is over when each partition has had so many acknowledgements since the kill.
ACKS_OF_A_ROUND = 100
PAUSE_S = 0.004

pytestmark = [
    pytest.mark.long,
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.linux,
    pytest.mark.timeout(120 + 30 * ROUNDS),
]


class Load:
    """A producer that numbers what it sends to each partition, and what came of it."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=120_000,
            linger_ms=1,
        )
        self.sent = 0
        self.acked = [0] * PARTITIONS
        self.failed: list[BaseException] = []
        self._last_s = [time.monotonic()] * PARTITIONS
        self.silent_s = [0.0] * PARTITIONS
        """The longest time between two acknowledgements in this round."""

    def turn(self) -> None:
        """Send one to each partition."""
        for partition in range(PARTITIONS):
            sent = self._producer.send(TOPIC, b"%d" % self.sent, partition=partition)
            sent.add_callback(self._acked(partition)).add_errback(self.failed.append)
        self.sent += 1
        time.sleep(PAUSE_S)

    def _acked(self, partition: int) -> Callable[[Any], None]:
        def note(_: Any) -> None:
            now_s = time.monotonic()
            silent_s, self._last_s[partition] = now_s - self._last_s[partition], now_s
            self.silent_s[partition] = max(self.silent_s[partition], silent_s)
            self.acked[partition] += 1

        return note

    def round(self) -> list[float]:
        """Send until it is over; how long each partition was silent."""
        wanted = [count + ACKS_OF_A_ROUND for count in self.acked]
        self.silent_s = [0.0] * PARTITIONS
        while any(now < least for now, least in zip(self.acked, wanted, strict=True)):
            assert not self.failed, self.failed[0]
            self.turn()
        return self.silent_s

    def end(self) -> None:
        self._producer.flush()
        self._producer.close()
        assert not self.failed, self.failed[0]


def processes_of(broker: BrokerProcess) -> list[int]:
    """In the order in which they were begun."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text()
    return sorted(map(int, children.split()))


def stored(bootstrap: str) -> list[list[int]]:
    """What each partition has."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    found: list[list[int]] = [[] for _ in partitions]
    while any(consumer.position(one) < ends[one] for one in partitions):
        for one, records in consumer.poll(timeout_ms=500).items():
            found[one.partition] += [int(record.value) for record in records]
    consumer.close()
    return found


def test_nothing_is_lost_or_doubled_when_processes_are_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"TEST_KILL_SEED={SEED}")
    settings = {"broker.processes": str(PROCESSES)}
    of_killed, of_others = [], []
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic(TOPIC, PARTITIONS)
        load = Load(broker.bootstrap)
        load.round()
        for _ in range(ROUNDS):
            # A round ends with acknowledgements of all: all of them are there.
            os.kill(chance.choice(processes_of(broker)), signal.SIGKILL)
            silent_s = load.round()
            halves = [max(silent_s[first::PROCESSES]) for first in range(PROCESSES)]
            of_killed.append(max(halves))
            of_others.append(min(halves))
        load.end()
        found = stored(broker.bootstrap)
    for what, times_s in (("killed", of_killed), ("others", of_others)):
        print(
            f"silent, {what}: median {statistics.median(times_s):.2f} s, max {max(times_s):.2f} s"
        )

    assert found == [list(range(load.sent))] * PARTITIONS
