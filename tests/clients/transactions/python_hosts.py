"""Transactional producers of the clients in Python; `hosts.Host` says what they do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka

from tests.clients.drivers.driver import CALL_TIMEOUT_S, Refused
from tests.clients.transactions.hosts import TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors
    import kafka.structs

Result = TypeVar("Result")

NO_GROUP = "no-group"
"""librdkafka asks for a group id even when no group is joined."""


class KafkaPythonHost:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, Any] = {}

    def open(self, name: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self._producers[name] = producer
        with _kafka_python_errors():
            producer.init_transactions()

    def begin(self, name: str) -> None:
        with _kafka_python_errors():
            self._producers[name].begin_transaction()

    def send(self, name: str, topic: str, value: str) -> None:
        with _kafka_python_errors():
            sent = self._producers[name].send(topic, value.encode(), partition=0)
            sent.get(CALL_TIMEOUT_S)

    def copy(self, name: str, group: str, source: str, target: str, count: int) -> None:
        consumer = self._consumer("read_committed", group)
        try:
            # Else it may assign itself nothing, knowing no partitions, and leaves it at that.
            consumer.partitions_for_topic(source)
            consumer.subscribe([source])
            found: list[Any] = []
            deadline = time.monotonic() + CALL_TIMEOUT_S
            while len(found) < count and time.monotonic() < deadline:
                for messages in consumer.poll(200).values():
                    found += messages
            assert len(found) == count
            with _kafka_python_errors():
                for message in found:
                    self._producers[name].send(target, message.value, partition=0)
                partition = kafka.TopicPartition(source, 0)
                offset = kafka.structs.OffsetAndMetadata(found[-1].offset + 1, "", -1)
                self._producers[name].send_offsets_to_transaction(
                    {partition: offset}, consumer.group_metadata()
                )
        finally:
            consumer.close()

    def commit(self, name: str) -> None:
        with _kafka_python_errors():
            self._producers[name].commit_transaction()

    def abort(self, name: str) -> None:
        with _kafka_python_errors():
            self._producers[name].abort_transaction()

    def read(self, topic: str, isolation: str) -> list[str]:
        consumer = self._consumer(isolation, None)
        try:
            partition = kafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = consumer.end_offsets([partition])[partition]
            found: list[str] = []
            deadline = time.monotonic() + CALL_TIMEOUT_S
            while consumer.position(partition) < end:
                assert time.monotonic() < deadline, f"read {found}, the end is {end}"
                for messages in consumer.poll(200).values():
                    found += [message.value.decode() for message in messages]
            return found
        finally:
            consumer.close()

    def release(self) -> None:
        for producer in self._producers.values():
            producer.close(timeout=0)
        self._producers.clear()

    def end(self) -> None:
        """Nothing but producers was open."""

    def _consumer(self, isolation: str, group: str | None) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )


@contextlib.contextmanager
def _kafka_python_errors() -> Iterator[None]:
    try:
        yield
    except kafka.errors.KafkaError as error:
        raise Refused(getattr(error, "errno", -1), repr(error)) from error


class ConfluentHost:
    """confluent-kafka, which is librdkafka."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, Any] = {}

    def open(self, name: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producers[name] = producer
        with _confluent_errors():
            producer.init_transactions(CALL_TIMEOUT_S)

    def begin(self, name: str) -> None:
        with _confluent_errors():
            self._producers[name].begin_transaction()

    def send(self, name: str, topic: str, value: str) -> None:
        failures: list[Any] = []

        def delivered(error: Any, _message: object) -> None:
            if error is not None:
                failures.append(error)

        producer = self._producers[name]
        with _confluent_errors():
            producer.produce(topic, value.encode(), partition=0, on_delivery=delivered)
            left = producer.flush(CALL_TIMEOUT_S)
        if failures:
            raise Refused(failures[0].code(), failures[0])
        assert left == 0

    def copy(self, name: str, group: str, source: str, target: str, count: int) -> None:
        consumer = self._consumer("read_committed", group)
        try:
            consumer.subscribe([source])
            found: list[confluent_kafka.Message] = []
            deadline = time.monotonic() + CALL_TIMEOUT_S
            while len(found) < count and time.monotonic() < deadline:
                messages = consumer.consume(count, 0.2)
                found += [message for message in messages if message.error() is None]
            assert len(found) == count
            with _confluent_errors():
                for message in found:
                    self._producers[name].produce(target, message.value(), partition=0)
                partition = confluent_kafka.TopicPartition(source, 0, (found[-1].offset() or 0) + 1)
                self._producers[name].send_offsets_to_transaction(
                    [partition], consumer.consumer_group_metadata(), CALL_TIMEOUT_S
                )
        finally:
            consumer.close()

    def commit(self, name: str) -> None:
        with _confluent_errors():
            self._producers[name].commit_transaction(CALL_TIMEOUT_S)

    def abort(self, name: str) -> None:
        with _confluent_errors():
            self._producers[name].abort_transaction(CALL_TIMEOUT_S)

    def read(self, topic: str, isolation: str) -> list[str]:
        consumer = self._consumer(isolation, NO_GROUP)
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            found: list[str] = []
            deadline = time.monotonic() + CALL_TIMEOUT_S
            while time.monotonic() < deadline:
                message = consumer.poll(0.2)
                error = message.error() if message is not None else None
                if error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return found
                if message is not None and error is None:
                    found.append((message.value() or b"").decode())
            raise AssertionError(f"read {found} and no end")
        finally:
            consumer.close()

    def release(self) -> None:
        self._producers.clear()

    def end(self) -> None:
        """Nothing but producers was open."""

    def _consumer(self, isolation: str, group: str) -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": group == NO_GROUP,
            }
        )


@contextlib.contextmanager
def _confluent_errors() -> Iterator[None]:
    try:
        yield
    except confluent_kafka.KafkaException as error:
        raise Refused(error.args[0].code(), error) from error
    except SystemError as error:
        # A fatal error, as of a zombie, that it raises in the midst of another callback.
        if not isinstance(error.__cause__, confluent_kafka.KafkaException):
            raise
        raise Refused(error.__cause__.args[0].code(), error.__cause__) from error


class AiokafkaHost:
    """aiokafka, in a loop on a thread of its own, for its producers live longer than a call."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self, name: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        async def opened() -> None:
            self._producers[name] = producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()

        self._run(opened())

    def begin(self, name: str) -> None:
        self._run(self._producers[name].begin_transaction())

    def send(self, name: str, topic: str, value: str) -> None:
        self._run(self._producers[name].send_and_wait(topic, value.encode(), partition=0))

    def copy(self, name: str, group: str, source: str, target: str, count: int) -> None:
        async def copied() -> None:
            producer = self._producers[name]
            consumer = self._consumer("read_committed", group)
            await consumer.start()
            try:
                consumer.subscribe([source])
                found = [await consumer.getone() for _ in range(count)]
                for message in found:
                    await producer.send(target, message.value, partition=0)
                offset = found[-1].offset + 1
                await producer.send_offsets_to_transaction(
                    {aiokafka.TopicPartition(source, 0): offset}, group
                )
            finally:
                await consumer.stop()

        self._run(copied())

    def commit(self, name: str) -> None:
        self._run(self._producers[name].commit_transaction())

    def abort(self, name: str) -> None:
        self._run(self._producers[name].abort_transaction())

    def read(self, topic: str, isolation: str) -> list[str]:
        async def found() -> list[str]:
            consumer = self._consumer(isolation, None)
            await consumer.start()
            try:
                partition = aiokafka.TopicPartition(topic, 0)
                consumer.assign([partition])
                await consumer.seek_to_beginning(partition)
                end = (await consumer.end_offsets([partition]))[partition]
                values: list[str] = []
                while await consumer.position(partition) < end:
                    for messages in (await consumer.getmany(timeout_ms=200)).values():
                        values += [message.value.decode() for message in messages]
                return values
            finally:
                await consumer.stop()

        return self._run(found())

    def release(self) -> None:
        for producer in self._producers.values():
            with contextlib.suppress(Refused):
                self._run(producer.stop())
        self._producers.clear()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _consumer(self, isolation: str, group: str | None) -> Any:
        return aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        async def within() -> Result:
            return await asyncio.wait_for(coroutine, CALL_TIMEOUT_S)

        try:
            return asyncio.run_coroutine_threadsafe(within(), self._loop).result()
        except aiokafka.errors.KafkaError as error:
            raise Refused(getattr(error, "errno", -1), repr(error)) from error
