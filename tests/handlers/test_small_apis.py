"""FindCoordinator, DescribeCluster, OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    pass

GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_this_broker_coordinates_every_group(
    broker: BrokerProcess, caller: Caller, version: int, key_type: int
) -> None:
    request = FindCoordinatorRequest(key="my-group", key_type=key_type)

    answer = caller.call(request, version)

    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.node_id, answer.host, answer.port) == (1, broker.host, broker.port)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_from_version_4_there_is_an_answer_for_each_key(
    broker: BrokerProcess, caller: Caller, version: int
) -> None:
    keys = ["b", "a", ""]

    answer = caller.call(FindCoordinatorRequest(coordinator_keys=keys), version)

    assert [found.key for found in answer.coordinators] == keys
    for found in answer.coordinators:
        assert (found.error_code, found.node_id) == (0, 1)
        assert (found.host, found.port) == (broker.host, broker.port)


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("key_type", [SHARE, 3, -1, 127])
def test_an_unknown_kind_of_coordinator_is_an_invalid_request_without_an_address(
    caller: Caller, version: int, key_type: int
) -> None:
    asked = FindCoordinatorRequest(key="k", key_type=key_type, coordinator_keys=["k"])

    answer = caller.call(asked, version)

    found = answer.coordinators[0] if version >= 4 else answer
    if key_type == SHARE and version >= 6:
        assert found.error_code == 0
        return
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert (found.node_id, found.host, found.port) == (-1, "", -1)


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_broker(broker: BrokerProcess, caller: Caller, version: int) -> None:
    metadata = caller.call(MetadataRequest(topics=[]), 12)

    plain = caller.call(
        DescribeClusterRequest(include_cluster_authorized_operations=False), version
    )
    asked = caller.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)

    assert (plain.error_code, plain.endpoint_type) == (0, 1)
    assert (plain.cluster_id, plain.controller_id) == (metadata.cluster_id, 1)
    (node,) = plain.brokers
    assert (node.broker_id, node.host, node.port) == (1, broker.host, broker.port)
    assert (node.rack, node.is_fenced) == (None, False)
    assert plain.cluster_authorized_operations == -(2**31)
    # As Kafka 3.9 and 4.3 answer without an authorizer.
    assert asked.cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_endpoints_other_than_brokers_are_refused(
    caller: Caller, version: int, endpoint_type: int, code: ErrorCode
) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=endpoint_type
    )

    answer = caller.call(request, version)

    assert (answer.error_code, answer.brokers) == (code, [])


Asked = OffsetForLeaderEpochRequest.Topic.Partition


def end_of(
    caller: Caller,
    topic: str,
    epoch: int,
    *,
    version: int = 4,
    partition: int = 0,
    current: int = -1,
) -> tuple[int, int, int]:
    asked = Asked(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderEpochRequest.Topic(topic=topic, partitions=[asked])],
    )
    entry = caller.call(request, version).topics[0].partitions[0]
    assert entry.partition == partition
    return entry.error_code, entry.leader_epoch, entry.end_offset


def test_an_epoch_ends_where_the_next_one_with_records_begins(own_broker: BrokerProcess) -> None:
    for starts, values in enumerate([(b"a", b"b"), (), (b"c",)]):
        own_broker.start()
        with Caller(own_broker.host, own_broker.port) as caller:
            if starts == 0:
                caller.create_topic("t")
            if values:
                caller.produce("t", batch(*values))
            if starts < 2:
                own_broker.stop()
                continue
            # A stop is an epoch as well, and a start.
            last = caller.describe("t").partitions[0].leader_epoch
            assert last == 4
            for version in range(5):
                known = version >= 1
                for epoch in range(last):
                    assert end_of(caller, "t", epoch, version=version) == (0, 0 if known else -1, 2)
                assert end_of(caller, "t", last, version=version) == (0, last if known else -1, 3)
                assert end_of(caller, "t", last + 1, version=version)[0] == 0
                assert end_of(caller, "t", -5, version=version) == (0, -1, -1)
            for version in (2, 3, 4):
                fenced = end_of(caller, "t", 0, version=version, current=last - 1)
                ahead = end_of(caller, "t", 0, version=version, current=last + 1)
                assert fenced == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
                assert ahead == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
                assert end_of(caller, "t", 0, version=version, current=last) == (0, 0, 2)
    own_broker.stop()


@pytest.mark.parametrize("version", range(5))
def test_the_epochs_of_what_does_not_exist_are_unknown(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)

    for name, partition in (("missing", 0), (topic, 1), (topic, -1)):
        assert end_of(caller, name, 0, version=version, partition=partition) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            -1,
            -1,
        )
