"""kill -9 under load: what was acknowledged with acks=all is there, once, and in order.

`TEST_KILL_ROUNDS` sets how often the server is killed (3), `TEST_KILL_SEED` the moments.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.drivers.driver import KEEP_FOR_EVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.clients

ROUNDS = int(os.environ.get("TEST_KILL_ROUNDS", "3"))
ROUND_TIMEOUT_S = 90
PARTITIONS = 6

#: A round is worth its name when this many records were acknowledged before the kill.
ACKS_BEFORE_KILL = 500

#: Between bursts the producer rests, which makes some ten thousand records in a second: enough to
#: have requests under way at any moment, and few enough to read them all in the end.
BURST = 60
REST_S = 0.005


class Load:
    """Numbered records, written without a pause by an idempotent producer in a thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._stopping = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 100,
                "message.timeout.ms": ROUND_TIMEOUT_S * 1_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        #: Per partition: how many records were produced, and (offset, number) of each ack.
        self.produced = [0] * PARTITIONS
        self.acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        self.ack_count = 0
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_acks(self, count: int) -> None:
        """Wait until this many more records are acknowledged."""
        wanted = self.ack_count + count
        deadline = time.monotonic() + ROUND_TIMEOUT_S
        while self.ack_count < wanted:
            assert not self.errors, self.errors[:3]
            assert time.monotonic() < deadline, f"{wanted - self.ack_count} acks are missing"
            time.sleep(0.01)

    def finish(self) -> int:
        """Stop, and the count of records that are neither acknowledged nor refused."""
        self._stopping.set()
        self._thread.join()
        return self._producer.flush(ROUND_TIMEOUT_S)

    def _run(self) -> None:
        chance = random.Random(0)
        while not self._stopping.is_set():
            for _ in range(BURST):
                self._produce(chance.randrange(PARTITIONS))
            self._producer.poll(0)
            time.sleep(REST_S)

    def _produce(self, partition: int) -> None:
        number = self.produced[partition]
        try:
            self._producer.produce(
                self._topic,
                b"%d %s" % (number, b"x" * (number % 300)),
                partition=partition,
                on_delivery=self._delivered,
            )
        except BufferError:
            self._producer.poll(0.05)  # full while the server is away; the number is used later
        else:
            self.produced[partition] += 1

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        acknowledged = (message.offset(), _number(message.value()))
        self.acknowledged[message.partition()].append(acknowledged)
        self.ack_count += 1


@pytest.mark.timeout(60 + ROUNDS * ROUND_TIMEOUT_S)
def test_kill_9_under_load_loses_doubles_and_reorders_nothing(
    new_server: Callable[..., ServerProcess], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("TEST_KILL_SEED", random.randrange(1_000_000)))
    chance = random.Random(seed)
    server = new_server()
    client = ConfluentDriver()
    client.create_topic(server.bootstrap, topic, partitions=PARTITIONS, configs=KEEP_FOR_EVER)
    load = Load(server.bootstrap, topic)
    for _ in range(ROUNDS):
        load.wait_for_acks(ACKS_BEFORE_KILL)
        time.sleep(chance.uniform(0, 1.0))
        server.kill()
        server.start()
    load.wait_for_acks(ACKS_BEFORE_KILL)
    left = load.finish()

    stored = client.consume(server.bootstrap, topic)

    faults = [str(error) for error in load.errors]
    for partition in range(PARTITIONS):
        found = [(offset, _number(record.value)) for offset, record in stored[partition]]
        faults += _faults(partition, load.acknowledged[partition], found)
    verdict = "; ".join(faults[:10]) or "nothing lost, doubled or out of order"
    with capsys.disabled():
        print(f"\nkill -9: {ROUNDS} rounds, {load.ack_count} records acknowledged, {verdict}")
    assert faults == [], f"seed {seed}"
    assert left == 0
    assert load.ack_count == sum(load.produced)


def _faults(
    partition: int, acknowledged: list[tuple[int, int]], stored: list[tuple[int, int]]
) -> list[str]:
    """What is wrong with a partition, in words; each list holds (offset, number)."""
    faults = []
    numbers = [number for _, number in stored]
    lost = set(acknowledged) - set(stored)
    if lost:
        faults.append(f"partition {partition}: {len(lost)} not at their offset: {sorted(lost)[:3]}")
    if len(set(numbers)) != len(numbers):
        faults.append(f"partition {partition}: {len(numbers) - len(set(numbers))} doubled")
    if numbers != sorted(numbers):
        faults.append(f"partition {partition}: out of order")
    return faults


def _number(value: bytes | None) -> int:
    assert value is not None
    return int(value.split(b" ")[0])
