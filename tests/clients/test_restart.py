"""A server knows after a start what it knew before it ended, cleanly or not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import ConfigResource, OffsetSpec

from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import ProduceRequest
from protocol.records.builder import build_batch
from tests.clients.drivers.confluent_driver import ConfluentDriver, admin
from tests.clients.drivers.driver import CALL_TIMEOUT_S, KEEP_FOR_EVER
from tests.clients.records import (
    PARTITIONS,
    assert_stored,
    some_records,
)
from tests.support.kafka_process import KafkaProcess
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.clients

CONFIGS = {**KEEP_FOR_EVER, "segment.bytes": "2097152", "max.message.bytes": "900000"}


def _stop(server: ServerProcess) -> None:
    assert server.stop() in (0, 143)  # Java ends with 143 after a clean stop


def _kill(server: ServerProcess) -> None:
    server.kill()


EITHER_END = pytest.mark.parametrize("end", [_stop, _kill], ids=["SIGTERM", "kill -9"])


@EITHER_END
def test_records_and_their_offsets_survive(
    new_server: Callable[..., ServerProcess], topic: str, end: Callable[[ServerProcess], None]
) -> None:
    client = ConfluentDriver()
    first = some_records(2_000, client.abilities, seed=1)
    second = some_records(2_000, client.abilities, seed=2)
    server = new_server()
    client.create_topic(server.bootstrap, topic, partitions=PARTITIONS, configs=CONFIGS)
    client.produce(server.bootstrap, topic, first, codec="lz4", idempotent=True)

    end(server)
    server.start()

    assert_stored(first, client.consume(server.bootstrap, topic))
    client.produce(server.bootstrap, topic, second, codec="none", idempotent=True)
    assert_stored(first + second, client.consume(server.bootstrap, topic))


@EITHER_END
def test_topics_ids_partitions_and_configs_survive(
    new_server: Callable[..., ServerProcess], topic: str, end: Callable[[ServerProcess], None]
) -> None:
    server = new_server()
    client = ConfluentDriver()
    client.create_topic(server.bootstrap, topic, partitions=7, configs=CONFIGS)
    client.create_topic(server.bootstrap, f"{topic}-gone", partitions=1, configs={})
    admin_client = admin(server.bootstrap)
    admin_client.delete_topics([f"{topic}-gone"])[f"{topic}-gone"].result(CALL_TIMEOUT_S)
    before = _facts(server.bootstrap, topic)

    end(server)
    server.start()

    assert _facts(server.bootstrap, topic) == before
    assert before[1] == 7
    assert before[2].items() >= CONFIGS.items()
    assert f"{topic}-gone" not in admin(server.bootstrap).list_topics(timeout=10).topics


def test_the_cluster_is_the_same_after_a_restart(
    new_server: Callable[..., ServerProcess],
) -> None:
    server = new_server()
    before = admin(server.bootstrap).list_topics(timeout=10).cluster_id

    server.kill()
    server.start()

    assert admin(server.bootstrap).list_topics(timeout=10).cluster_id == before


@EITHER_END
def test_deleted_records_stay_deleted(
    new_server: Callable[..., ServerProcess], topic: str, end: Callable[[ServerProcess], None]
) -> None:
    server = new_server()
    if isinstance(server, KafkaProcess) and end is _kill:
        pytest.skip("Apache Kafka writes log starts down once in a minute, and forgets the rest")
    client = ConfluentDriver()
    records = some_records(300, client.abilities, partitions=1)
    client.create_topic(server.bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)
    client.produce(server.bootstrap, topic, records, codec="none", idempotent=True)
    first = confluent_kafka.TopicPartition(topic, 0, 120)
    admin_client = admin(server.bootstrap)
    admin_client.delete_records([first])[first].result(CALL_TIMEOUT_S)

    end(server)
    server.start()

    admin_client = admin(server.bootstrap)
    partition = confluent_kafka.TopicPartition(topic, 0)
    earliest = admin_client.list_offsets({partition: OffsetSpec.earliest()})[partition]
    assert earliest.result(CALL_TIMEOUT_S).offset == 120
    stored = client.consume(server.bootstrap, topic)
    assert stored[0] == list(enumerate(records))[120:]


@EITHER_END
def test_an_idempotent_producer_goes_on_without_doubles(
    new_server: Callable[..., ServerProcess], topic: str, end: Callable[[ServerProcess], None]
) -> None:
    server = new_server()
    ConfluentDriver().create_topic(server.bootstrap, topic, partitions=1, configs={})
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 50,
            "reconnect.backoff.max.ms": 200,
        }
    )
    errors: list[object] = []
    offsets: list[int] = []

    def delivered(error: object, message: Any) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(message.offset())

    for number in range(2_000):
        producer.produce(topic, str(number), partition=0, on_delivery=delivered)
    producer.flush(CALL_TIMEOUT_S)
    # These are on their way, some perhaps written and not acknowledged, when the server ends.
    for number in range(2_000, 4_000):
        producer.produce(topic, str(number), partition=0, on_delivery=delivered)
    producer.poll(0.002)
    end(server)
    server.start()
    for number in range(4_000, 5_000):
        producer.produce(topic, str(number), partition=0, on_delivery=delivered)
    left = producer.flush(CALL_TIMEOUT_S)

    stored = ConfluentDriver().consume(server.bootstrap, topic)[0]
    assert (left, errors) == (0, [])
    assert [record.value for _, record in stored] == [b"%d" % number for number in range(5_000)]
    assert offsets == list(range(5_000))


@EITHER_END
def test_a_batch_repeated_after_a_restart_is_known_and_not_written_again(
    new_server: Callable[..., ServerProcess], topic: str, end: Callable[[ServerProcess], None]
) -> None:
    server = new_server()
    client = ConfluentDriver()
    client.create_topic(server.bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)
    with WireClient(server.host, server.port) as wire:
        producer_id = _new_producer_id(wire)
        first = [_numbered(wire, topic, producer_id, number) for number in range(3)]

    end(server)
    server.start()

    # The producer did not hear of the last ack, say, and repeats what it sent.
    with WireClient(server.host, server.port) as wire:
        repeated = _numbered(wire, topic, producer_id, 2)
        gap = _numbered(wire, topic, producer_id, 5)
        following = _numbered(wire, topic, producer_id, 3)
    assert first == [(0, 0), (0, 1), (0, 2)]
    assert repeated == (ErrorCode.NONE, 2)
    assert gap[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert following == (ErrorCode.NONE, 3)
    stored = client.consume(server.bootstrap, topic)[0]
    assert [record.value for _, record in stored] == [b"0", b"1", b"2", b"3"]


def _new_producer_id(wire: WireClient) -> int:
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        # Apache Kafka is not ready to give ids as soon as it listens.
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = wire.call(asked, 4)
        if answer.error_code == ErrorCode.NONE:
            return int(answer.producer_id)
        assert time.monotonic() < deadline, ErrorCode(answer.error_code)
        time.sleep(0.1)


def _numbered(wire: WireClient, topic: str, producer_id: int, number: int) -> tuple[int, int]:
    """Write one record whose value and sequence are this number; the error code and offset."""
    batch = build_batch(
        # The present time: Apache Kafka forgets producers by the age of their timestamps.
        [(time.time_ns() // 1_000_000, None, b"%d" % number, ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=number,
    )
    partition = ProduceRequest.Topic.Partition(index=0, records=memoryview(batch))
    wanted = ProduceRequest.Topic(name=topic, partition_data=[partition])
    answer = wire.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[wanted]), 9)
    found = answer.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


def _facts(bootstrap: str, topic: str) -> tuple[str, int, dict[str, str | None]]:
    """The id of a topic, its count of partitions, and every value of its configuration."""
    client = admin(bootstrap)
    described = client.describe_topics(TopicCollection([topic]))[topic].result(CALL_TIMEOUT_S)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = client.describe_configs([resource])[resource].result(CALL_TIMEOUT_S)
    return (
        str(described.topic_id),
        len(described.partitions),
        {name: entry.value for name, entry in configs.items()},
    )
