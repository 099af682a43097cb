"""Metadata, versions 0 to 13."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.schema import ZERO_UUID
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch

VERSIONS = range(14)
NOT_ASKED = -(2**31)


def ask(*names: str, create: bool = False, **options: bool) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.Topic(name=name) for name in names],
        allow_auto_topic_creation=create,
        **options,
    )


def topics_of(answer: MetadataResponse) -> dict[str | None, MetadataResponse.Topic]:
    return {topic.name: topic for topic in answer.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_one_broker_is_leader_and_controller_at_the_address_dialled(
    broker: BrokerProcess, caller: Caller, topic: str, version: int
) -> None:
    topic_id = caller.create_topic(topic, partitions=3)

    answer = caller.call(ask(topic), version)

    (node,) = answer.brokers
    assert (node.host, node.port, node.rack) == (broker.host, broker.port, None)
    assert answer.controller_id == (node.node_id if version >= 1 else -1)
    assert len(answer.cluster_id or "") == (22 if version >= 2 else 0)
    (found,) = answer.topics
    assert (found.error_code, found.name, found.is_internal) == (0, topic, False)
    assert found.topic_id == (topic_id if version >= 10 else ZERO_UUID)
    assert [partition.partition_index for partition in found.partitions] == [0, 1, 2]
    for partition in found.partitions:
        assert (partition.error_code, partition.leader_id) == (0, node.node_id)
        assert partition.replica_nodes == partition.isr_nodes == [node.node_id]
        assert partition.offline_replicas == []
        assert partition.leader_epoch == (0 if version >= 7 else -1)


def test_version_0_means_all_topics_by_an_empty_list(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    assert topic in topics_of(caller.call(ask(), 0))


@pytest.mark.parametrize("version", range(1, 14))
def test_null_is_all_topics_and_an_empty_list_is_none(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)

    assert topic in topics_of(caller.call(MetadataRequest(topics=None), version))
    assert caller.call(ask(), version).topics == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_topic_is_created_and_answered_with_a_leader_at_once(
    caller: Caller, topic: str, version: int
) -> None:
    answer = caller.call(ask(topic, create=True), version)

    (found,) = answer.topics
    assert (found.error_code, len(found.partitions)) == (0, 1)
    assert found.partitions[0].leader_id == answer.brokers[0].node_id
    assert caller.produce(topic, batch(b"a")).error_code == 0


@pytest.mark.parametrize("version", [0, 6, 12, 13])
def test_a_deleted_topic_is_told_to_be_gone_once_and_then_created_anew(
    caller: Caller, topic: str, version: int
) -> None:
    old_id = caller.create_topic(topic)
    caller.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=0), 4)

    (gone,) = caller.call(ask(topic, create=True), version).topics
    still_missing = caller.describe(topic).error_code
    (created,) = caller.call(ask(topic, create=True), version).topics

    assert (gone.error_code, gone.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert still_missing == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (created.error_code, len(created.partitions)) == (0, 1)
    assert caller.describe(topic).topic_id not in (old_id, ZERO_UUID)


def test_a_topic_that_came_back_after_its_deletion_and_is_missing_again_is_told_so_once(
    caller: Caller, topic: str
) -> None:
    for _ in range(2):
        caller.create_topic(topic)
        caller.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=0), 4)

    found = [caller.call(ask(topic, create=True), 12).topics[0].error_code for _ in range(2)]

    assert found == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


@pytest.mark.parametrize("version", range(4, 14))
def test_a_client_may_say_that_nothing_is_to_be_created(
    caller: Caller, topic: str, version: int
) -> None:
    (found,) = caller.call(ask(topic), version).topics

    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (found.name, found.partitions) == (topic, [])
    assert topic not in topics_of(caller.call(MetadataRequest(topics=None), version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "\udcff", "n" * 250])
def test_a_name_that_no_topic_can_have_is_invalid(caller: Caller, version: int, name: str) -> None:
    (found,) = caller.call(ask(name, create=True), version).topics

    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert found.name == name


def test_a_name_is_not_created_next_to_one_that_metrics_could_not_tell_apart(
    caller: Caller,
) -> None:
    caller.create_topic("metrics.name_one")

    (found,) = caller.call(ask("metrics_name.one", create=True), 12).topics

    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_is_found_by_its_id_and_an_unknown_id_is_told(
    caller: Caller, topic: str, version: int
) -> None:
    topic_id = caller.create_topic(topic)
    asked = [
        MetadataRequest.Topic(name=None, topic_id=topic_id),
        MetadataRequest.Topic(name=None, topic_id=b"\x05" * 16),
    ]

    found, missing = caller.call(MetadataRequest(topics=asked), version).topics

    assert (found.error_code, found.name, found.topic_id) == (0, topic, topic_id)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (missing.name, missing.topic_id) == (None, b"\x05" * 16)


@pytest.mark.parametrize("version", [10, 11])
def test_before_version_12_an_id_or_a_null_name_is_an_invalid_request(
    caller: Caller, topic: str, version: int
) -> None:
    topic_id = caller.create_topic(topic)
    for asked in (
        MetadataRequest.Topic(name=None, topic_id=topic_id),
        MetadataRequest.Topic(name=None),
        MetadataRequest.Topic(name=topic, topic_id=topic_id),
    ):
        answer = caller.call(MetadataRequest(topics=[asked]), version)
        assert [found.error_code for found in answer.topics] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("version", VERSIONS)
def test_operations_are_told_to_those_who_ask(caller: Caller, topic: str, version: int) -> None:
    caller.create_topic(topic)

    plain = caller.call(ask(topic), version)
    asked = caller.call(
        ask(
            topic,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        ),
        version,
    )

    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    assert plain.cluster_authorized_operations == NOT_ASKED
    assert (asked.topics[0].topic_authorized_operations == 3576) == (version >= 8)
    assert (asked.cluster_authorized_operations == 8096) == (8 <= version <= 10)


def test_version_3_begins_with_the_throttle_time(caller: Caller) -> None:
    caller.send_raw(caller.frame(ask(), 3, 5))

    body = caller.recv_frame()[4:]

    assert body[:8] == b"\0\0\0\0" + b"\0\0\0\1"


def test_the_address_that_is_configured_is_told_instead(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    settings = {
        "advertised.listeners": "PLAINTEXT://broker.example:7777",
        "broker.rack": "left",
        "auto.create.topics.enable": "false",
        "node.id": "5",
    }
    with (
        BrokerProcess(tmp_path_factory.mktemp("advertised") / "d", settings=settings) as broker,
        Caller(broker.host, broker.port) as caller,
    ):
        answer = caller.call(ask("missing", create=True), 12)

    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port, node.rack) == (5, "broker.example", 7777, "left")
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
