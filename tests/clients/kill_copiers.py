"""Copiers: each moves numbered records from one topic to another, exactly once.

A copier reads some records, writes them to the destination, adds its offsets to the transaction and
commits. Whatever happens to the broker meanwhile, a reader of committed records finds each number
once and in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import aiokafka
import aiokafka.errors
import confluent_kafka
from confluent_kafka import KafkaException

from tests.clients.drivers.driver import Refused
from tests.clients.kill_loads import PATIENCE_S, number_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.transactions.hosts import JavaHost

#: Of transactions whose copier is gone; the abort lets the others read on.
TIMEOUT_MS = 20_000

#: After so long aiokafka is taken for stuck, and its producer is made anew: one that meets the
#: broker in the midst of its start may wait for ever for the coordinator that it knew.
STUCK_S = 15

#: Records of one transaction at most: few, so that there are many ends to be killed in.
AT_ONCE = 20

QUICK = {
    # Else librdkafka forgets all brokers when none can be reached, and since 2.12 waits for good
    # for the coordinator of a group that was one of them (librdkafka issue 5511).
    "metadata.recovery.strategy": "none",
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "log_level": 0,
}


class Copier:
    """Runs in a thread from its making to `finish`."""

    def __init__(
        self, bootstrap: str, number: int, *, group: str, source: str, target: str
    ) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._source = source
        self._target = target
        self._stopping = threading.Event()
        self.transactional_id = f"copier-{number}"
        self.commits = 0
        self.aborts = 0
        self.restarts = 0
        """Producers that could not go on."""
        self.error: BaseException | None = None
        self.last_failure: BaseException | None = None
        self.doing = "begin"
        self._thread = threading.Thread(target=self._watched, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.transactional_id} does not end"

    def _watched(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.error = error

    def _run(self) -> None:
        raise NotImplementedError


class ConfluentCopier(Copier):
    """librdkafka, as a member of a group that others are in, too (KIP-447)."""

    def _run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                **QUICK,
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
                "fetch.wait.max.ms": 50,
            }
        )
        consumer.subscribe([self._source])
        producer = None
        while not self._stopping.is_set():
            producer = producer or self._producer()
            self.doing = "read"
            messages = [one for one in consumer.consume(AT_ONCE, 0.05) if one.error() is None]
            if messages and not self._copy(consumer, producer, messages):
                producer = None
        consumer.close()

    def _producer(self) -> Any:
        producer = confluent_kafka.Producer(
            {
                **QUICK,
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 1,
            }
        )
        self.doing = "init"
        _again(lambda: producer.init_transactions(PATIENCE_S))
        return producer

    def _copy(self, consumer: Any, producer: Any, messages: list[Any]) -> bool:
        """One transaction. Returns whether the producer can go on."""
        next_offsets: dict[int, int] = {}
        try:
            producer.begin_transaction()
            for one in messages:
                next_offsets[one.partition()] = one.offset() + 1
                producer.produce(self._target, one.value(), one.key(), partition=one.partition())
            offsets = [
                confluent_kafka.TopicPartition(self._source, partition, offset)
                for partition, offset in next_offsets.items()
            ]
            self.doing = "add offsets"
            _again(
                lambda: producer.send_offsets_to_transaction(
                    offsets, consumer.consumer_group_metadata(), PATIENCE_S
                )
            )
            self.doing = "commit"
            _again(lambda: producer.commit_transaction(PATIENCE_S))
        except KafkaException as error:
            self.last_failure, self.doing = error, "abort"
            may_go_on = self._abort(producer, error)
            self.doing = "rewind"
            _again(lambda: _rewind(consumer))
            return may_go_on
        self.commits += 1
        return True

    def _abort(self, producer: Any, error: KafkaException) -> bool:
        try:
            if not error.args[0].fatal():
                _again(lambda: producer.abort_transaction(PATIENCE_S))
                self.aborts += 1
                return True
        except KafkaException:
            pass
        self.restarts += 1
        return False


def _again(call: Callable[[], object]) -> None:
    """Call until it succeeds or fails for good."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)
        else:
            return


def _rewind(consumer: Any) -> None:
    """Back to what is committed."""
    assigned = consumer.assignment()
    deadline_s = time.monotonic() + PATIENCE_S
    while assigned:
        try:
            committed = consumer.committed(assigned, timeout=5)
            for one in committed:
                if one.offset < 0:
                    one.offset = confluent_kafka.OFFSET_BEGINNING
                consumer.seek(one)
        except KafkaException:
            assert time.monotonic() < deadline_s, "the committed offsets are not told"
            time.sleep(0.05)
        else:
            return


class AiokafkaCopier(Copier):
    """aiokafka, alone in its group, for it does not say which member commits."""

    def _run(self) -> None:
        asyncio.run(self._copy_all())

    async def _copy_all(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self._source,
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
            session_timeout_ms=30_000,
        )
        await consumer.start()
        producer: Any = None
        while not self._stopping.is_set():
            self.doing = "read"
            found = await consumer.getmany(timeout_ms=50, max_records=AT_ONCE)
            if not found:
                continue
            try:
                if producer is None:
                    self.doing = "init"
                    producer = await asyncio.wait_for(self._producer(), STUCK_S)
                self.doing = "copy"
                await asyncio.wait_for(self._copy(producer, found), STUCK_S)
                self.commits += 1
            except (aiokafka.errors.KafkaError, TimeoutError, OSError) as error:
                self.last_failure, self.doing = error, "rewind"
                self.restarts += 1
                await _closed(producer)
                producer = None
                await self._rewind(consumer)
        await _closed(producer)
        await consumer.stop()

    async def _producer(self) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            retry_backoff_ms=20,
        )
        try:
            await producer.start()
        except BaseException:
            await _closed(producer)
            raise
        return producer

    async def _copy(self, producer: Any, found: dict[Any, list[Any]]) -> None:
        async with producer.transaction():
            for place, records in found.items():
                for one in records:
                    await producer.send(
                        self._target, one.value, key=one.key, partition=place.partition
                    )
            offsets = {place: records[-1].offset + 1 for place, records in found.items()}
            self.doing = "add offsets"
            await producer.send_offsets_to_transaction(offsets, self._group)
            self.doing = "commit"

    async def _rewind(self, consumer: Any) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                for place in consumer.assignment():
                    committed = await consumer.committed(place)
                    consumer.seek(place, committed or 0)
            except (aiokafka.errors.KafkaError, OSError):
                assert time.monotonic() < deadline_s, "the committed offsets are not told"
                await asyncio.sleep(0.05)
            else:
                return


class JavaCopier(Copier):
    """The Java client of 4.x, alone in its group: where `transaction.version` is 2 the only one of
    these whose transactions are of the second generation. It copies partition 0."""

    PRODUCER = "copier"

    def __init__(
        self, host: JavaHost, bootstrap: str, number: int, *, group: str, source: str, target: str
    ) -> None:
        self._host = host
        super().__init__(bootstrap, number, group=group, source=source, target=target)

    def finish(self) -> None:
        self._stopping.set()
        self._host.kill()  # it may wait for a record
        super().finish()

    def _run(self) -> None:
        opened = False
        while not self._stopping.is_set():
            try:
                if not opened:
                    self.doing = "init"
                    self._host.open(self.PRODUCER, self.transactional_id, TIMEOUT_MS)
                    opened = True
                self._copy()
                self.commits += 1
            except Refused as error:
                self.last_failure = error
                opened = self._abort()
            except (AssertionError, OSError, ValueError):
                if not self._stopping.is_set():
                    raise

    def _copy(self) -> None:
        """One transaction. The consumer is new each time: it begins at what is committed."""
        host, name = self._host, self.PRODUCER
        host.begin(name)
        self.doing = "copy"
        host.copy_some(name, self._group, self._source, self._target)
        self.doing = "commit"
        host.commit(name)

    def _abort(self) -> bool:
        """Whether the producer can go on."""
        self.doing = "abort"
        try:
            self._host.abort(self.PRODUCER)
        except Refused:
            self.restarts += 1
            return False
        self.aborts += 1
        return True


async def _closed(producer: Any) -> None:
    if producer is not None:
        with contextlib.suppress(aiokafka.errors.KafkaError, TimeoutError, OSError):
            await asyncio.wait_for(producer.stop(), 10)


class Source(threading.Thread):
    """Writes numbered records without a pause, each once, until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int) -> None:
        super().__init__(daemon=True)
        self.counts = [0] * partitions
        self.errors: list[str] = []
        self._topic = topic
        self._rest_s = partitions / per_second
        self._stopping = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": PATIENCE_S * 1000,
            }
        )
        self.start()

    def run(self) -> None:
        while not self._stopping.is_set():
            for partition, number in enumerate(self.counts):
                self._producer.produce(
                    self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered
                )
                self.counts[partition] = number + 1
            self._producer.poll(0)
            time.sleep(self._rest_s)
        self._producer.flush(PATIENCE_S)

    def finish(self) -> list[int]:
        """Stop; how many records each partition has."""
        self._stopping.set()
        self.join(PATIENCE_S)
        assert self.errors == []
        return self.counts

    def _delivered(self, error: Any, _message: object) -> None:
        if error is not None:
            self.errors.append(str(error))


def numbers_in(bootstrap: str, topic: str, partitions: int) -> list[list[int]]:
    """The numbers that a reader of committed records finds, by partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[list[int]] = [[] for _ in range(partitions)]
    left = set(range(partitions))
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in left])
    deadline_s = time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline_s, f"no end of partitions {left}"
        for one in consumer.consume(500, 0.2):
            error = one.error()
            if error is None:
                found[one.partition() or 0].append(number_of(one.value()))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                left.discard(one.partition())
    consumer.close()
    return found
