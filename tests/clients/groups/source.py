"""Numbered records, written slowly to all partitions of a topic while groups read them.

A round is a record in each partition, in an order of chance, and the wait for every ack.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import confluent_kafka

from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.drivers.driver import KEEP_FOR_EVER

PARTITIONS = 50

#: Between rounds, which pass in pieces of so many records.
REST_S, PIECE, PIECE_S = 0.5, 10, 0.1

#: For the acks of everything, a restart of the server included.
PATIENCE_S = 90


def value_of(partition: int, number: int) -> str:
    return f"{partition}-{number}"


class Source:
    """Writes from its making to `close`."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.topic = topic
        #: Per partition: the records acknowledged, whose numbers are their offsets.
        self._written = [0] * PARTITIONS
        self._produced = [0] * PARTITIONS
        self._faults: list[str] = []
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        ConfluentDriver().create_topic(
            bootstrap, topic, partitions=PARTITIONS, configs=KEEP_FOR_EVER
        )
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": PATIENCE_S * 1_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._rounds_begun = 0
        self._rounds_done = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.next_round()

    def next_round(self) -> list[int]:
        """After a round that begins from now on: the counts of what is acknowledged."""
        with self._changed:
            wanted = self._rounds_begun + 1
            done = self._changed.wait_for(
                lambda: bool(self._faults) or self._rounds_done >= wanted, PATIENCE_S
            )
            assert self._faults == []
            assert done, f"{sum(self._produced) - sum(self._written)} records are without an ack"
            return list(self._written)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(REST_S):
            with self._changed:
                self._rounds_begun += 1
            order = self._chance.sample(range(PARTITIONS), PARTITIONS)
            for number, partition in enumerate(order, 1):
                self._produce(partition)
                if number % PIECE == 0:
                    self._producer.poll(PIECE_S)
            while self._producer.flush(PIECE_S) and not self._stopping.is_set():
                pass
            with self._changed:
                self._rounds_done += 1
                self._changed.notify_all()

    def _produce(self, partition: int) -> None:
        number = self._produced[partition]
        self._produced[partition] += 1
        value = value_of(partition, number)
        self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: Any) -> None:
        partition = message.partition()
        if error is not None:
            self._faults.append(str(error))
        elif value_of(partition, message.offset()) != message.value().decode():
            self._faults.append(f"{message.value()!r} is at {message.offset()} of {partition}")
        else:
            self._written[partition] = max(self._written[partition], message.offset() + 1)
