"""`__consumer_offsets`: made when a group is first looked for, and then as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.caller import batch
from tests.support.group_caller import OFFSETS_TOPIC, Found, GroupCaller

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

TOPIC = 2
GROUP, TRANSACTION = 0, 1


def overrides(groups: GroupCaller) -> dict[str, str]:
    """What was set for the topic itself."""
    resource = DescribeConfigsRequest.Resource(
        resource_type=TOPIC, resource_name=OFFSETS_TOPIC, configuration_keys=None
    )
    (result,) = groups.call(DescribeConfigsRequest(resources=[resource]), 4).results
    return {entry.name: entry.value for entry in result.configs if entry.config_source == 1}


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_who_looks_for_the_coordinator_of_a_group_has_it_made(
    own_broker: BrokerProcess, version: int
) -> None:
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        asked = FindCoordinatorRequest(key="g", coordinator_keys=["g"], key_type=TRANSACTION)
        if version:
            groups.call(asked, version)
            missing = groups.describe(OFFSETS_TOPIC).error_code
            assert missing == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        groups.call(FindCoordinatorRequest(key="g", coordinator_keys=["g"]), version)

        made = groups.describe(OFFSETS_TOPIC)
        assert (made.error_code, made.is_internal, len(made.partitions)) == (0, True, 50)
        assert overrides(groups) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }


def test_its_size_and_its_segments_can_be_configured(own_broker: BrokerProcess) -> None:
    own_broker.settings = {
        "offsets.topic.num.partitions": "7",
        "offsets.topic.segment.bytes": "1048576",
    }
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.create_topic("t")
        assert groups.commit("g", {("t", 0): 5}) == {("t", 0): 0}
        assert len(groups.describe(OFFSETS_TOPIC).partitions) == 7
        assert overrides(groups)["segment.bytes"] == "1048576"


def test_the_number_that_it_was_made_with_counts_after_the_setting_has_changed(
    own_broker: BrokerProcess,
) -> None:
    own_broker.settings = {"offsets.topic.num.partitions": "3"}
    own_broker.start()
    names = [f"group-{number}" for number in range(20)]
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.create_topic("t")
        for number, name in enumerate(names):
            groups.commit(name, {("t", 0): number})
    own_broker.stop()
    own_broker.settings = {"offsets.topic.num.partitions": "9"}

    own_broker.start()

    with GroupCaller(own_broker.host, own_broker.port) as groups:
        for number, name in enumerate(names):
            assert groups.committed(name, None) == {("t", 0): Found(number)}


@pytest.mark.parametrize("version", range(1, 7))
def test_it_is_not_deleted(groups: GroupCaller, topic: str, group: str, version: int) -> None:
    groups.create_topic(topic)
    groups.commit(group, {(topic, 0): 5})
    request = DeleteTopicsRequest(
        topic_names=[OFFSETS_TOPIC],
        topics=[DeleteTopicsRequest.Topic(name=OFFSETS_TOPIC, topic_id=bytes(16))],
        timeout_ms=1000,
    )

    (answered,) = groups.call(request, version).responses

    disabled = ErrorCode.TOPIC_DELETION_DISABLED
    assert answered.error_code == (disabled if version >= 3 else ErrorCode.INVALID_REQUEST)
    assert groups.committed(group, None) == {(topic, 0): Found(5)}


def test_it_does_not_grow(groups: GroupCaller, topic: str, group: str) -> None:
    """In another number of partitions each group would have another place."""
    groups.create_topic(topic)
    groups.commit(group, {(topic, 0): 5})
    grown = CreatePartitionsRequest.Topic(name=OFFSETS_TOPIC, count=100, assignments=None)

    request = CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False)

    (answered,) = groups.call(request, 3).results

    assert answered.error_code == ErrorCode.INVALID_PARTITIONS
    assert OFFSETS_TOPIC in answered.error_message
    assert len(groups.describe(OFFSETS_TOPIC).partitions) == 50
    assert groups.committed(group, None) == {(topic, 0): Found(5)}


def test_nobody_produces_to_it(groups: GroupCaller, topic: str, group: str) -> None:
    groups.create_topic(topic)
    groups.commit(group, {(topic, 0): 5})

    produced = groups.produce(OFFSETS_TOPIC, batch(b"a"))

    assert produced.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
