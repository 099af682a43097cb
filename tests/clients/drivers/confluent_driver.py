"""confluent-kafka, which is librdkafka with a Python face."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

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
    from collections.abc import Mapping, Sequence


class ConfluentDriver:
    name = (
        f"confluent-kafka {confluent_kafka.__version__}"
        f" (librdkafka {confluent_kafka.libversion()[0]})"
    )
    abilities = Abilities()
    changes_single_configs = True

    def create_topic(
        self, bootstrap: str, topic: str, *, partitions: int, configs: Mapping[str, str]
    ) -> None:
        wanted = NewTopic(topic, partitions, 1, config=dict(configs))
        client = admin(bootstrap)
        _outcome(client, client.create_topics([wanted])[topic])

    def produce(
        self, bootstrap: str, topic: str, records: list[Record], *, codec: str, idempotent: bool
    ) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "compression.codec": codec,
                "linger.ms": 5,
                **({} if idempotent else {"max.in.flight.requests.per.connection": 1}),
            }
        )
        errors: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                errors.append(error)

        for record in records:
            producer.produce(
                topic,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=delivered,
            )
            producer.poll(0)
        left = producer.flush(CALL_TIMEOUT_S)
        assert (left, errors[:3]) == (0, [])

    def deliver(self, bootstrap: str, topic: str, value: bytes, *, give_up_ms: int) -> Delivery:
        throttled_s, errors = [0.0], []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.timeout.ms": give_up_ms,
                "throttle_cb": lambda event: throttled_s.append(event.throttle_time),
            }
        )
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(CALL_TIMEOUT_S) == 0
        (error,) = errors
        return Delivery("" if error is None else error.name(), max(throttled_s) * 1000)

    def begin_transactions(self, bootstrap: str, transactional_id: str) -> None:
        wanted = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
        producer = confluent_kafka.Producer(wanted)
        try:
            producer.init_transactions(CALL_TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise Refused(error.args[0].code(), error) from error

    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int] | None = None
    ) -> Stored:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                # librdkafka asks for a group id even when no group is joined.
                "group.id": "not-used",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "check.crcs": True,
            }
        )
        try:
            known = consumer.list_topics(topic, CALL_TIMEOUT_S).topics[topic].partitions
            partitions = list(partitions or known)
            consumer.assign(
                [
                    confluent_kafka.TopicPartition(
                        topic, partition, confluent_kafka.OFFSET_BEGINNING
                    )
                    for partition in partitions
                ]
            )
            stored: Stored = {partition: [] for partition in partitions}
            unfinished = set(partitions)
            deadline = time.monotonic() + CALL_TIMEOUT_S
            while unfinished:
                assert time.monotonic() < deadline, f"no end of {unfinished}"
                for message in consumer.consume(1_000, 0.1):
                    error = message.error()
                    if error is None:
                        offset, record = _stored(message)
                        stored[record.partition].append((offset, record))
                    elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                        unfinished.discard(message.partition())
                    else:
                        raise confluent_kafka.KafkaException(error)
            return stored
        finally:
            consumer.close()

    def list_topics(self, bootstrap: str) -> set[str]:
        return set(admin(bootstrap).list_topics(timeout=CALL_TIMEOUT_S).topics)

    def describe_topic(self, bootstrap: str, topic: str) -> TopicFacts:
        client = admin(bootstrap)
        asked = confluent_kafka.TopicCollection([topic])
        found = _outcome(client, client.describe_topics(asked)[topic])
        return TopicFacts(
            str(found.topic_id),
            sorted(partition.id for partition in found.partitions),
            {partition.leader.id for partition in found.partitions},
        )

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        client, resource = admin(bootstrap), ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = _outcome(client, client.describe_configs([resource])[resource])
        return {key: entry.value for key, entry in found.items()}

    def alter_config(self, bootstrap: str, topic: str, key: str, value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        client = admin(bootstrap)
        _outcome(client, client.incremental_alter_configs([resource])[resource])

    def create_partitions(self, bootstrap: str, topic: str, count: int) -> None:
        client = admin(bootstrap)
        _outcome(client, client.create_partitions([NewPartitions(topic, count)])[topic])

    def offset_at(self, bootstrap: str, topic: str, at: At) -> int | None:
        specs: dict[At, Any] = {
            "earliest": OffsetSpec.earliest,
            "latest": OffsetSpec.latest,
            "max-timestamp": OffsetSpec.max_timestamp,
        }
        spec = OffsetSpec.for_timestamp(at) if isinstance(at, int) else specs[at]()
        client, partition = admin(bootstrap), confluent_kafka.TopicPartition(topic, 0)
        offset: int = _outcome(client, client.list_offsets({partition: spec})[partition]).offset
        return None if offset == -1 else offset

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        client, partition = admin(bootstrap), confluent_kafka.TopicPartition(topic, 0, before)
        _outcome(client, client.delete_records([partition])[partition])

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        client = admin(bootstrap)
        _outcome(client, client.delete_topics([topic])[topic])

    def describe_cluster(self, bootstrap: str) -> ClusterFacts:
        client = admin(bootstrap)
        found = _outcome(client, client.describe_cluster())
        return ClusterFacts(found.cluster_id, [f"{node.host}:{node.port}" for node in found.nodes])


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def _outcome(client: AdminClient, future: Any) -> Any:
    """What the call came to. The client is held by the argument: without it calls are dropped."""
    try:
        return future.result(CALL_TIMEOUT_S)
    except confluent_kafka.KafkaException as error:
        raise Refused(error.args[0].code(), error) from error


def _stored(message: Any) -> tuple[int, Record]:
    kind, timestamp_ms = message.timestamp()
    return message.offset(), Record(
        message.partition(),
        # Format 0 has none; every other client shows that as -1.
        -1 if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
