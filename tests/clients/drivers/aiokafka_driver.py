"""aiokafka. Its calls run in a loop of their own, so that tests stay plain functions."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from tests.clients.drivers.driver import (
    CALL_TIMEOUT_S,
    At,
    ClusterFacts,
    Delivery,
    Refused,
    TopicFacts,
)
from tests.clients.records import Abilities, Record, Stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence


class AiokafkaDriver:
    name = f"aiokafka {aiokafka.__version__}"
    abilities = Abilities(nothing_at_all=False)
    changes_single_configs = False

    def create_topic(
        self, bootstrap: str, topic: str, *, partitions: int, configs: Mapping[str, str]
    ) -> None:
        wanted = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
        answer = _administer(bootstrap, "create_topics", [wanted])
        _check(answer.topic_errors[0][1], answer)

    def produce(
        self, bootstrap: str, topic: str, records: list[Record], *, codec: str, idempotent: bool
    ) -> None:
        asyncio.run(_within(_produce(bootstrap, topic, records, codec, idempotent)))

    def deliver(self, bootstrap: str, topic: str, value: bytes, *, give_up_ms: int) -> Delivery:
        async def deliver() -> str:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap, request_timeout_ms=give_up_ms
            ) as producer:
                try:
                    await producer.send_and_wait(topic, value)
                except KafkaError as error:
                    return type(error).__name__
            return ""

        return Delivery(asyncio.run(_within(deliver())), None)

    def begin_transactions(self, bootstrap: str, transactional_id: str) -> None:
        async def begin() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id
            )
            try:
                await producer.start()
            except KafkaError as error:
                raise Refused(error.errno, error) from error
            finally:
                await producer.stop()

        asyncio.run(_within(begin()))

    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int] | None = None
    ) -> Stored:
        stored: Stored = asyncio.run(_within(_consume(bootstrap, topic, partitions)))
        return stored

    def list_topics(self, bootstrap: str) -> set[str]:
        return set(_administer(bootstrap, "list_topics"))

    def describe_topic(self, bootstrap: str, topic: str) -> TopicFacts:
        (found,) = _administer(bootstrap, "describe_topics", [topic])
        if found["error_code"]:
            raise Refused(found["error_code"], found)
        return TopicFacts(
            None,
            sorted(partition["partition"] for partition in found["partitions"]),
            {partition["leader"] for partition in found["partitions"]},
        )

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = _administer(bootstrap, "describe_configs", [asked])
        ((code, text, _type, _name, entries),) = answer.resources
        _check(code, text)
        return {entry[0]: entry[1] for entry in entries}

    def alter_config(self, bootstrap: str, topic: str, key: str, value: str | None) -> None:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        (answer,) = _administer(bootstrap, "alter_configs", [wanted])
        _check(*answer.resources[0][:2])

    def create_partitions(self, bootstrap: str, topic: str, count: int) -> None:
        _administer(bootstrap, "create_partitions", {topic: NewPartitions(count)})

    def offset_at(self, bootstrap: str, topic: str, at: At) -> int | None:
        offset: int | None = asyncio.run(_within(_offset_at(bootstrap, topic, at)))
        return offset

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        partition = aiokafka.TopicPartition(topic, 0)
        _administer(bootstrap, "delete_records", {partition: RecordsToDelete(before)})

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        answer = _administer(bootstrap, "delete_topics", [topic])
        _check(answer.topic_error_codes[0][1], answer)

    def describe_cluster(self, bootstrap: str) -> ClusterFacts:
        found = _administer(bootstrap, "describe_cluster")
        brokers = [f"{broker['host']}:{broker['port']}" for broker in found["brokers"]]
        return ClusterFacts(found.get("cluster_id"), brokers)


def _administer(bootstrap: str, call: str, *arguments: Any) -> Any:
    """One call of the admin client."""

    async def work() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return await getattr(admin, call)(*arguments)
        except KafkaError as error:
            raise Refused(error.errno, error) from error
        finally:
            await admin.close()

    return asyncio.run(_within(work()))


def _check(code: int, text: object) -> None:
    """aiokafka hands most answers over as they are, errors and all."""
    if code:
        raise Refused(code, text)


async def _within(work: Any) -> Any:
    return await asyncio.wait_for(work, CALL_TIMEOUT_S)


async def _produce(
    bootstrap: str, topic: str, records: list[Record], codec: str, idempotent: bool
) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=idempotent,
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    await producer.start()
    try:
        acks = [
            await producer.send(
                topic,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
            )
            for record in records
        ]
        await asyncio.gather(*acks)
    finally:
        await producer.stop()


async def _consume(bootstrap: str, topic: str, partitions: Sequence[int] | None) -> Stored:
    async with _consumer(bootstrap, topic, partitions) as consumer:
        wanted = consumer.assignment()
        ends = await consumer.end_offsets(wanted)
        stored: Stored = {partition.partition: [] for partition in wanted}
        while any([await consumer.position(partition) < ends[partition] for partition in ends]):
            for partition, messages in (await consumer.getmany(timeout_ms=500)).items():
                stored[partition.partition].extend(map(_stored, messages))
        return stored


async def _offset_at(bootstrap: str, topic: str, at: At) -> int | None:
    partition = aiokafka.TopicPartition(topic, 0)
    async with _consumer(bootstrap, topic) as consumer:
        if at == "earliest":
            found = await consumer.beginning_offsets([partition])
            return int(found[partition])
        if at == "latest":
            found = await consumer.end_offsets([partition])
            return int(found[partition])
        later = (await consumer.offsets_for_times({partition: at}))[partition]
        return None if later is None else int(later.offset)


@asynccontextmanager
async def _consumer(
    bootstrap: str, topic: str, partitions: Sequence[int] | None = None
) -> AsyncIterator[Any]:
    """A consumer of these partitions; of all, the client without a group assigns itself."""
    consumer = aiokafka.AIOKafkaConsumer(
        *([topic] if partitions is None else []),
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        check_crcs=True,
    )
    await consumer.start()
    try:
        if partitions is not None:
            consumer.assign([aiokafka.TopicPartition(topic, number) for number in partitions])
        yield consumer
    finally:
        await consumer.stop()


def _stored(message: Any) -> tuple[int, Record]:
    return message.offset, Record(
        message.partition,
        # Format 0 has none; every other client shows that as -1.
        -1 if message.timestamp is None else message.timestamp,
        message.key,
        message.value,
        tuple((name, value) for name, value in message.headers),
    )
