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
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller

if TYPE_CHECKING:
    from confluent_kafka import Message

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
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,  # else it waits longer after each kill
            }
        )
        self.sent = 0
        self.acked = [0] * PARTITIONS
        self.failed: list[KafkaError] = []
        self._last_s = [time.monotonic()] * PARTITIONS
        self.silent_s = [0.0] * PARTITIONS
        """The longest time between two acknowledgements in this round."""

    def turn(self) -> None:
        """Send one to each partition."""
        for partition in range(PARTITIONS):
            value = b"%d" % self.sent
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
        self.sent += 1
        self._producer.poll(PAUSE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        partition, now_s = message.partition(), time.monotonic()
        assert partition is not None
        silent_s, self._last_s[partition] = now_s - self._last_s[partition], now_s
        self.silent_s[partition] = max(self.silent_s[partition], silent_s)
        self.acked[partition] += 1

    def round(self) -> list[float]:
        """Send until it is over; how long each partition was silent."""
        wanted = [count + ACKS_OF_A_ROUND for count in self.acked]
        self.silent_s = [0.0] * PARTITIONS
        while any(now < least for now, least in zip(self.acked, wanted, strict=True)):
            assert not self.failed, str(self.failed[0])
            self.turn()
        return self.silent_s

    def end(self) -> None:
        self._producer.flush()
        assert not self.failed, str(self.failed[0])


def processes_of(broker: BrokerProcess) -> list[int]:
    """In the order in which they were begun."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text()
    return sorted(map(int, children.split()))


def stored(bootstrap: str) -> list[list[int]]:
    """What each partition has."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(1000, timeout=0.5):
            error, partition, value = message.error(), message.partition(), message.value()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, str(error)
                ended.add(partition)
            elif partition is not None and value is not None:
                found[partition].append(int(value))
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


def test_nothing_is_lost_or_doubled_when_partitions_move(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"TEST_KILL_SEED={SEED}")
    settings = {"broker.processes": str(PROCESSES)}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic(TOPIC, PARTITIONS)
            load = Load(broker.bootstrap)
            load.round()
            silent_s = []
            for number in range(ROUNDS):
                some = chance.sample(range(PARTITIONS), 3)
                wanted = [chance.randrange(PROCESSES) for _ in some]
                move(caller, TOPIC, dict(zip(some, wanted, strict=True)))
                if number % 2:
                    os.kill(processes_of(broker)[1], signal.SIGKILL)
                silence = load.round()
                silent_s.append(max(silence))
        load.end()
        found = stored(broker.bootstrap)
    print(f"silent: median {statistics.median(silent_s):.2f} s, longest {max(silent_s):.2f} s")

    assert found == [list(range(load.sent))] * PARTITIONS


def move(caller: Caller, topic: str, to: dict[int, int]) -> None:
    """Have partitions led by other processes; those that can't be moved now stay."""
    partition = AlterPartitionReassignmentsRequest.Topic.Partition
    asked = [partition(partition_index=index, replicas=[1 + to[index]]) for index in to]
    of_topic = AlterPartitionReassignmentsRequest.Topic(name=topic, partitions=asked)
    request = AlterPartitionReassignmentsRequest(timeout_ms=60_000, topics=[of_topic])
    (answered,) = caller.call(request, 0).responses
    codes = {one.error_code for one in answered.partitions}
    away = {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert codes <= {ErrorCode.NONE, *away}
