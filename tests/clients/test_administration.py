"""The admin calls of every client."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from tests.clients.available import EVERY_CLIENT, every_client_but
from tests.clients.drivers.driver import KEEP_FOR_EVER, Refused
from tests.clients.records import Record

if TYPE_CHECKING:
    from tests.clients.drivers.driver import Driver

pytestmark = pytest.mark.clients

WITH_EVERY_CLIENT = pytest.mark.parametrize("client", EVERY_CLIENT, indirect=True)

FIRST_TIMESTAMP_MS = 1_700_000_000_000
STEP_MS = 1_000


def _ten_records() -> list[Record]:
    """One in each second, but for number 4, which is the latest of all."""
    return [
        Record(0, FIRST_TIMESTAMP_MS + STEP_MS * (100 if n == 4 else n), None, b"%d" % n)
        for n in range(10)
    ]


@WITH_EVERY_CLIENT
def test_a_topic_is_created_seen_and_deleted(client: Driver, bootstrap: str, topic: str) -> None:
    client.create_topic(bootstrap, topic, partitions=3, configs={})

    assert topic in client.list_topics(bootstrap)
    found = client.describe_topic(bootstrap, topic)
    assert found.partitions == [0, 1, 2]
    assert len(found.leaders) == 1
    assert -1 not in found.leaders

    client.delete_topic(bootstrap, topic)
    assert topic not in client.list_topics(bootstrap)


@WITH_EVERY_CLIENT
def test_a_topic_made_again_under_its_old_name_is_empty_and_has_another_id(
    client: Driver, bootstrap: str, topic: str
) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)
    first_id = client.describe_topic(bootstrap, topic).topic_id
    client.produce(bootstrap, topic, _ten_records(), codec="none", idempotent=False)
    client.delete_topic(bootstrap, topic)

    client.create_topic(bootstrap, topic, partitions=2, configs=KEEP_FOR_EVER)

    found = client.describe_topic(bootstrap, topic)
    assert found.partitions == [0, 1]
    assert client.offset_at(bootstrap, topic, "latest") == 0
    if first_id is not None:
        assert found.topic_id != first_id


@WITH_EVERY_CLIENT
def test_creating_a_topic_twice_is_refused(client: Driver, bootstrap: str, topic: str) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs={})

    # kafkajs makes `false` of this one error and raises nothing.
    if client.name.startswith("kafkajs"):
        client.create_topic(bootstrap, topic, partitions=2, configs={})
    else:
        with pytest.raises(Refused) as refusal:
            client.create_topic(bootstrap, topic, partitions=2, configs={})
        assert refusal.value.code == ErrorCode.TOPIC_ALREADY_EXISTS

    assert client.describe_topic(bootstrap, topic).partitions == [0]


@WITH_EVERY_CLIENT
def test_a_topic_name_that_kafka_forbids_is_refused(client: Driver, bootstrap: str) -> None:
    with pytest.raises(Refused) as refusal:
        client.create_topic(bootstrap, "no/slash", partitions=1, configs={})
    assert refusal.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


@WITH_EVERY_CLIENT
def test_deleting_an_unknown_topic_is_refused(client: Driver, bootstrap: str, topic: str) -> None:
    with pytest.raises(Refused) as refusal:
        client.delete_topic(bootstrap, topic)
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@WITH_EVERY_CLIENT
def test_partitions_can_be_added_and_used_and_not_taken_away(
    client: Driver, bootstrap: str, topic: str
) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)

    client.create_partitions(bootstrap, topic, 4)

    assert client.describe_topic(bootstrap, topic).partitions == [0, 1, 2, 3]
    record = Record(3, FIRST_TIMESTAMP_MS, b"key", b"value")
    client.produce(bootstrap, topic, [record], codec="none", idempotent=False)
    assert client.consume(bootstrap, topic).get(3) == [(0, record)]
    with pytest.raises(Refused) as refusal:
        client.create_partitions(bootstrap, topic, 2)
    assert refusal.value.code == ErrorCode.INVALID_PARTITIONS


@WITH_EVERY_CLIENT
def test_a_topic_config_is_given_at_creation_and_changed_later(
    client: Driver, bootstrap: str, topic: str
) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs={"retention.ms": "777000"})
    assert client.describe_configs(bootstrap, topic)["retention.ms"] == "777000"

    client.alter_config(bootstrap, topic, "segment.bytes", "1048576")

    found = client.describe_configs(bootstrap, topic)
    assert found["segment.bytes"] == "1048576"
    # The older call replaces all settings by those that it names.
    kept = client.changes_single_configs
    assert (found.get("retention.ms") == "777000") is kept


# The other two have no call for it.
@pytest.mark.parametrize("client", every_client_but("aiokafka", "kafkajs"), indirect=True)
def test_a_topic_config_goes_back_to_its_default(
    client: Driver, bootstrap: str, topic: str
) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs={"retention.ms": "777000"})

    client.alter_config(bootstrap, topic, "retention.ms", None)

    # kafka-python shows only what is set.
    assert client.describe_configs(bootstrap, topic).get("retention.ms") in (None, "604800000")


@WITH_EVERY_CLIENT
def test_an_invalid_config_value_is_refused_and_changes_nothing(
    client: Driver, bootstrap: str, topic: str
) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs={"retention.ms": "777000"})

    with pytest.raises(Refused) as refusal:
        client.alter_config(bootstrap, topic, "segment.bytes", "-7")

    assert refusal.value.code == ErrorCode.INVALID_CONFIG
    assert client.describe_configs(bootstrap, topic)["retention.ms"] == "777000"


@WITH_EVERY_CLIENT
def test_an_invalid_config_at_creation_is_refused_and_creates_nothing(
    client: Driver, bootstrap: str, topic: str
) -> None:
    with pytest.raises(Refused) as refusal:
        client.create_topic(bootstrap, topic, partitions=1, configs={"cleanup.policy": "burn"})

    assert refusal.value.code == ErrorCode.INVALID_CONFIG
    assert topic not in client.list_topics(bootstrap)


@WITH_EVERY_CLIENT
def test_offsets_are_found_by_time(client: Driver, bootstrap: str, topic: str) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)
    client.produce(bootstrap, topic, _ten_records(), codec="none", idempotent=False)

    assert client.offset_at(bootstrap, topic, "earliest") == 0
    assert client.offset_at(bootstrap, topic, "latest") == 10
    assert client.offset_at(bootstrap, topic, FIRST_TIMESTAMP_MS) == 0
    assert client.offset_at(bootstrap, topic, FIRST_TIMESTAMP_MS + 2 * STEP_MS) == 2
    assert client.offset_at(bootstrap, topic, FIRST_TIMESTAMP_MS + 2 * STEP_MS + 1) == 3
    # Records 5 to 9 are earlier than number 4, and what is asked for is the first as late.
    assert client.offset_at(bootstrap, topic, FIRST_TIMESTAMP_MS + 6 * STEP_MS) == 4
    assert client.offset_at(bootstrap, topic, FIRST_TIMESTAMP_MS + 101 * STEP_MS) is None


# The other two have no call for it.
@pytest.mark.parametrize("client", every_client_but("aiokafka", "kafkajs"), indirect=True)
def test_the_latest_record_is_found_by_its_timestamp(
    client: Driver, bootstrap: str, topic: str
) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)
    client.produce(bootstrap, topic, _ten_records(), codec="none", idempotent=False)

    assert client.offset_at(bootstrap, topic, "max-timestamp") == 4


@WITH_EVERY_CLIENT
def test_records_below_an_offset_are_deleted(client: Driver, bootstrap: str, topic: str) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)
    records = _ten_records()
    client.produce(bootstrap, topic, records, codec="none", idempotent=False)

    client.delete_records(bootstrap, topic, 7)

    assert client.offset_at(bootstrap, topic, "earliest") == 7
    assert client.consume(bootstrap, topic)[0] == [(n, records[n]) for n in (7, 8, 9)]


@WITH_EVERY_CLIENT
def test_records_that_are_not_there_cannot_be_deleted(
    client: Driver, bootstrap: str, topic: str
) -> None:
    client.create_topic(bootstrap, topic, partitions=1, configs=KEEP_FOR_EVER)
    client.produce(bootstrap, topic, _ten_records(), codec="none", idempotent=False)

    with pytest.raises(Refused) as refusal:
        client.delete_records(bootstrap, topic, 11)

    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@WITH_EVERY_CLIENT
def test_the_cluster_is_described_by_the_address_that_was_dialled(
    client: Driver, bootstrap: str
) -> None:
    found = client.describe_cluster(bootstrap)

    assert found.brokers == [bootstrap]
    assert found.cluster_id is None or re.fullmatch(r"[A-Za-z0-9_-]{22}", found.cluster_id)
