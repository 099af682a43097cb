"""kafka-python."""

from __future__ import annotations

import re
import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
    from collections.abc import Iterator, Mapping, Sequence

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec
    from kafka.errors import KafkaError


class KafkaPythonDriver:
    name = f"kafka-python {kafka.__version__}"
    abilities = Abilities(null_header_value=False, nothing_at_all=False)
    changes_single_configs = True

    def create_topic(
        self, bootstrap: str, topic: str, *, partitions: int, configs: Mapping[str, str]
    ) -> None:
        with _admin(bootstrap) as client:
            wanted = {
                "num_partitions": partitions,
                "replication_factor": 1,
                "configs": dict(configs),
            }
            client.create_topics({topic: wanted})

    def produce(
        self, bootstrap: str, topic: str, records: list[Record], *, codec: str, idempotent: bool
    ) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=idempotent,
            # Without idempotence only one request in flight keeps the order if one is repeated.
            max_in_flight_requests_per_connection=5 if idempotent else 1,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        try:
            acks = [
                producer.send(
                    topic,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                )
                for record in records
            ]
            producer.flush(CALL_TIMEOUT_S)
            for ack in acks:
                ack.get(CALL_TIMEOUT_S)
        finally:
            producer.close(timeout=1)  # all is acknowledged, or something is wrong

    def deliver(self, bootstrap: str, topic: str, value: bytes, *, give_up_ms: int) -> Delivery:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            delivery_timeout_ms=give_up_ms,
            request_timeout_ms=give_up_ms,
        )
        error = ""
        try:
            producer.send(topic, value).get(CALL_TIMEOUT_S)
        except KafkaError as raised:
            error = type(raised).__name__
        finally:
            throttle_ms = producer.metrics()["producer-metrics"]["throttle-time-max"]
            producer.close(timeout=1)
        return Delivery(error, throttle_ms)

    def begin_transactions(self, bootstrap: str, transactional_id: str) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id
        )
        try:
            producer.init_transactions()
        except KafkaError as error:  # a code that it has no class for is only in the text
            raise Refused(getattr(error, "errno", -1), error) from error
        finally:
            producer.close(0)

    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int] | None = None
    ) -> Stored:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            wanted = [
                kafka.TopicPartition(topic, partition)
                for partition in partitions or consumer.partitions_for_topic(topic)
            ]
            consumer.assign(wanted)
            consumer.seek_to_beginning(*wanted)
            ends = consumer.end_offsets(wanted)
            stored: Stored = {partition.partition: [] for partition in wanted}
            deadline = time.monotonic() + CALL_TIMEOUT_S
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                assert time.monotonic() < deadline, f"read {_counts(stored)} of {ends}"
                for partition, messages in consumer.poll(500, max_records=10_000).items():
                    stored[partition.partition].extend(map(_stored, messages))
            return stored
        finally:
            consumer.close()

    def list_topics(self, bootstrap: str) -> set[str]:
        with _admin(bootstrap) as client:
            return set(client.list_topics())

    def describe_topic(self, bootstrap: str, topic: str) -> TopicFacts:
        with _admin(bootstrap) as client:
            (found,) = client.describe_topics([topic])
        if found["error_code"]:
            raise Refused(found["error_code"], found)
        return TopicFacts(
            str(found["topic_id"]),
            sorted(partition["partition_index"] for partition in found["partitions"]),
            {partition["leader_id"] for partition in found["partitions"]},
        )

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        with _admin(bootstrap) as client:
            found = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return {key: entry["value"] for key, entry in found["topic"][topic].items()}

    def alter_config(self, bootstrap: str, topic: str, key: str, value: str | None) -> None:
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})]
        with _admin(bootstrap) as client:
            change = client.reset_configs if value is None else client.alter_configs
            outcome = change(resources)["topic"][topic]
        if outcome != "OK":
            code = re.match(r"\[Error (\d+)\]", outcome)
            raise Refused(int(code[1]) if code else -1, outcome)

    def create_partitions(self, bootstrap: str, topic: str, count: int) -> None:
        with _admin(bootstrap) as client:
            client.create_partitions({topic: count})

    def offset_at(self, bootstrap: str, topic: str, at: At) -> int | None:
        partition = kafka.TopicPartition(topic, 0)
        spec = at if isinstance(at, int) else OffsetSpec[at.upper().replace("-", "_")]
        with _admin(bootstrap) as client:
            offset: int = client.list_partition_offsets({partition: spec})[partition].offset
        return None if offset == -1 else offset

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        with _admin(bootstrap) as client:
            client.delete_records({kafka.TopicPartition(topic, 0): before})

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        with _admin(bootstrap) as client:
            client.delete_topics([topic])

    def describe_cluster(self, bootstrap: str) -> ClusterFacts:
        with _admin(bootstrap) as client:
            found = client.describe_cluster()
        brokers = [f"{broker['host']}:{broker['port']}" for broker in found["brokers"]]
        return ClusterFacts(found["cluster_id"], brokers)


@contextmanager
def _admin(bootstrap: str) -> Iterator[Any]:
    """An admin client, closed at the end; its errors in the words of the tests."""
    with KafkaAdminClient(bootstrap_servers=bootstrap) as client:
        try:
            yield client
        except KafkaError as error:
            raise Refused(error.errno, error) from error


def _stored(message: Any) -> tuple[int, Record]:
    return message.offset, Record(
        message.partition,
        # Format 0 has none; every other client shows that as -1.
        -1 if message.timestamp is None else message.timestamp,
        message.key,
        message.value,
        tuple((name, value) for name, value in message.headers),
    )


def _counts(stored: Stored) -> dict[int, int]:
    return {partition: len(records) for partition, records in stored.items()}
