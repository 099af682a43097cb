"""The parts follow what is committed to the metadata log, whoever has written it.

The records here come from no handler: they are appended as those of a follower would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.logdata.metadata import (
    ClientQuotaRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from storage.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from storage.steps import run_here
from tests.broker.producing.test_failing_disk import ACKS_ALL, answers, produce
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker.assembly import Broker
    from protocol.logdata.metadata import MetadataRecord

TOPIC_ID = bytes(range(16))
QUOTA = "producer_byte_rate"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def broker(started: InProcessBroker) -> Broker:
    return started.running.broker


def commit(broker: Broker, *records: MetadataRecord) -> None:
    run_here(broker.controller.append(records))


def partition(number: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=TOPIC_ID,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )


def config(kind: int, name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def make_topic(broker: Broker, name: str = "told") -> None:
    commit(
        broker,
        TopicRecord(name=name, topic_id=TOPIC_ID),
        config(TOPIC_RESOURCE, name, "retention.ms", "77"),
        partition(0),
    )


def test_a_topic_of_the_log_is_there_with_its_settings_and_takes_records(
    started: InProcessBroker, broker: Broker
) -> None:
    make_topic(broker)

    client = started.connect()
    client.feed(produce(ACKS_ALL, "told"))
    started.turn_until(lambda: bool(client.writes))

    assert answers(client, 9) == [{"told": (0, 0)}]
    assert broker.topics.by_id[TOPIC_ID].settings.retention_ms == 77


def test_a_topic_grows_and_takes_other_settings(broker: Broker) -> None:
    make_topic(broker)

    commit(broker, partition(1), partition(2))
    commit(broker, config(TOPIC_RESOURCE, "told", "segment.bytes", "88888"))

    topic = broker.topics.by_name["told"]
    assert [one.index for one in topic.partitions] == [0, 1, 2]
    assert [one.log.settings.segment_bytes for one in topic.partitions] == [88888] * 3


def test_settings_of_a_topic_that_make_no_sense_leave_out_what_does_not(broker: Broker) -> None:
    make_topic(broker)

    commit(
        broker,
        config(TOPIC_RESOURCE, "told", "retention.ms", "soon"),
        config(TOPIC_RESOURCE, "told", "max.message.bytes", "99"),
    )

    settings = broker.topics.by_name["told"].settings
    assert (settings.max_message_bytes, settings.retention_ms) == (99, -1)


def test_a_partition_is_led_in_the_epoch_of_the_log(broker: Broker) -> None:
    make_topic(broker)

    commit(broker, PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))

    assert broker.topics.by_name["told"].partitions[0].log.leader_epoch == 1


def test_a_topic_that_is_removed_goes_and_another_of_its_name_comes(
    broker: Broker, tmp_path: Path
) -> None:
    make_topic(broker)

    commit(
        broker,
        config(TOPIC_RESOURCE, "told", "retention.ms", None),
        RemoveTopicRecord(topic_id=TOPIC_ID),
    )

    assert "told" not in broker.topics.by_name
    assert [one.name[-7:] for one in (tmp_path / "data").glob("told-0*")] == ["-delete"]
    assert list(broker.controller.store.deleted()) == []

    made = run_here(broker.topics.create("told", 1, {}))

    assert made.settings.retention_ms != 77


def test_quotas_and_the_settings_of_brokers_groups_and_subscriptions_hold(broker: Broker) -> None:
    entity = ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="slow")
    metrics = broker.client_metrics()
    version = metrics._version

    commit(
        broker,
        ClientQuotaRecord(entity=[entity], key=QUOTA, value=1.0, remove=False),
        config(BROKER_RESOURCE, "", "log.retention.ms", "123456"),
        config(GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "47000"),
        config(CLIENT_METRICS_RESOURCE, "s", "interval.ms", "1000"),
    )

    assert broker.quotas.produced(("ANONYMOUS", "slow"), 1000) > 0
    assert broker.settings.current.log_retention_ms == 123456
    assert broker.groups.runtime.rules.own_times["g"].session_timeout_ms == 47_000
    assert metrics._version == version + 1


def test_what_is_written_at_a_stop_is_not_followed(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data") as started:
        broker = started.running.broker
        make_topic(broker)
        log = broker.topics.by_name["told"].partitions[0].log
        epoch = log.leader_epoch

    assert broker.controller.store.leader_epoch("told", 0) == epoch + 1  # it leads no more
    assert log.leader_epoch == epoch
