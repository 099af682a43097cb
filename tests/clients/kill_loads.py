"""Numbered records, written without a pause to a server that comes and goes.

Each client numbers the records of a partition from 0 on and writes them with acks=all and
idempotence. What was acknowledged is kept: it must be found again, at its offset.
"""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = 6

#: Records of a key are so many numbers apart.
KEYS = 40

#: The longest that a server may be away, with all that a client does until it notices.
PATIENCE_S = 90

#: Between bursts the producer rests, which makes some ten thousand records in a second: enough to
#: have requests under way at any moment, and few enough to read them all in the end.
BURST = 60
REST_S = 0.005

#: Records that may be without an ack; more are not produced while the server is away.
UNACKNOWLEDGED_MAX = 20_000


def record_of(number: int) -> tuple[bytes, bytes]:
    """The key and the value of a partition's record."""
    return b"%d" % (number % KEYS), b"%d %s" % (number, b"x" * (number % 300))


def number_of(value: bytes | None) -> int:
    assert value is not None
    return int(value.split(b" ")[0])


class Load:
    """Runs in a thread from its making to `finish`."""

    name: str

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._stopping = threading.Event()
        #: Per partition: how many records were produced, and (offset, number) of each ack.
        self.produced = [0] * PARTITIONS
        self.acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        self.ack_count = 0
        self.errors: list[str] = []
        self._chance = random.Random(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_acks(self, count: int) -> None:
        """Wait until this many more records are acknowledged."""
        wanted = self.ack_count + count
        deadline = time.monotonic() + PATIENCE_S
        while self.ack_count < wanted:
            assert not self.errors, self.errors[:3]
            assert time.monotonic() < deadline, f"{wanted - self.ack_count} acks are missing"
            time.sleep(0.01)

    def finish(self) -> int:
        """Stop, and the count of records that are neither acknowledged nor refused."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        return sum(self.produced) - self.ack_count - len(self.errors)

    def _run(self) -> None:
        raise NotImplementedError

    def _burst(self, send: Callable[[int, bytes, bytes], None]) -> None:
        """Produce some records by `send`, which raises BufferError if it takes no more now."""
        for _ in range(BURST):
            if sum(self.produced) - self.ack_count >= UNACKNOWLEDGED_MAX:
                return
            partition = self._chance.randrange(PARTITIONS)
            try:
                send(partition, *record_of(self.produced[partition]))
            except BufferError:
                return  # the number is used later
            self.produced[partition] += 1

    def _acknowledge(self, partition: int, offset: int, number: int) -> None:
        self.acknowledged[partition].append((offset, number))
        self.ack_count += 1


class ConfluentLoad(Load):
    name = "confluent-kafka"

    def _run(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 100,
                "message.timeout.ms": PATIENCE_S * 1_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

        def send(partition: int, key: bytes, value: bytes) -> None:
            producer.produce(
                self._topic, value, key, partition=partition, on_delivery=self._delivered
            )

        while not self._stopping.is_set():
            self._burst(send)
            producer.poll(0)
            time.sleep(REST_S)
        producer.flush(PATIENCE_S)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self._acknowledge(message.partition(), message.offset(), number_of(message.value()))


class KafkaPythonLoad(Load):
    name = "kafka-python"

    def _run(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            delivery_timeout_ms=PATIENCE_S * 1_000,
            request_timeout_ms=10_000,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=20,
        )

        def send(partition: int, key: bytes, value: bytes) -> None:
            ack = producer.send(self._topic, value, key, partition=partition)
            number = number_of(value)
            ack.add_callback(lambda at: self._acknowledge(partition, at.offset, number))
            ack.add_errback(lambda error: self.errors.append(repr(error)))

        while not self._stopping.is_set():
            self._burst(send)
            time.sleep(REST_S)
        producer.flush(PATIENCE_S)
        producer.close(timeout=5)
        _close_left_sockets()


def _close_left_sockets() -> None:
    """kafka-python 3.0 leaves sockets open that could not be connected, and holds on to them."""
    for found in gc.get_objects():
        if isinstance(found, socket.socket) and found.fileno() >= 0:
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            try:
                found.getpeername()
            except OSError:
                found.close()


class AiokafkaLoad(Load):
    name = "aiokafka"

    def _run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            linger_ms=2,
            request_timeout_ms=PATIENCE_S * 1_000,
            retry_backoff_ms=20,
        )
        await producer.start()
        waiting: list[asyncio.Future[Any]] = []
        chosen: list[tuple[int, bytes, bytes]] = []
        while not self._stopping.is_set():
            chosen.clear()
            self._burst(lambda *record: chosen.append(record))
            for partition, key, value in chosen:
                ack = await producer.send(self._topic, value, key, partition=partition)
                ack.add_done_callback(self._done(partition, number_of(value)))
                waiting.append(ack)
            waiting = [ack for ack in waiting if not ack.done()]
            await asyncio.sleep(REST_S)
        await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE_S)
        await producer.stop()

    def _done(self, partition: int, number: int) -> Callable[[asyncio.Future[Any]], None]:
        def done(ack: asyncio.Future[Any]) -> None:
            error = ack.exception()
            if error is not None:
                self.errors.append(repr(error))
            else:
                self._acknowledge(partition, ack.result().offset, number)

        return done


LOADS = (ConfluentLoad, ConfluentLoad, KafkaPythonLoad, ConfluentLoad, AiokafkaLoad)
"""In turn: librdkafka, which has most requests in flight, more often than the others."""
