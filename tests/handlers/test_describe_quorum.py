"""DescribeQuorum, versions 0 to 2, as Apache Kafka 3.9.1 answers it on both kinds of listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.metadata import VotersRecord
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.schema import ZERO_UUID
from tests.handlers.test_fetch_snapshot import asking as asking_snapshot
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.metadata_fetches import asking
from tests.support.running_controller import HOST, RunningController

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSIONS = range(3)
METADATA = "__cluster_metadata"
NOW_MS = 1_800_000_000_000
Entry = DescribeQuorumResponse.Topic.Partition


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningController]:
    with RunningController(tmp_path_factory.mktemp("node") / "data") as controller:
        controller.append(5)
        yield controller


def question(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    topic = DescribeQuorumRequest.Topic
    return DescribeQuorumRequest(
        topics=[
            topic(
                topic_name=name,
                partitions=[topic.Partition(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ]
    )


def asked(node: RunningController, version: int = 2, *, as_client: bool = False) -> Entry:
    """What is said of the metadata log."""
    with node.connect_as_client() if as_client else node.connect() as caller:
        answer = caller.call(question((METADATA, [0])), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    ((entry,),) = [topic.partitions for topic in answer.topics]
    assert answer.topics[0].topic_name == METADATA
    found: Entry = entry
    return found


def rows(states: list[Entry.ReplicaState]) -> list[tuple[int, bytes, int, int, int]]:
    return [
        (
            one.replica_id,
            one.replica_directory_id,
            one.log_end_offset,
            one.last_fetch_timestamp,
            one.last_caught_up_timestamp,
        )
        for one in states
    ]


@pytest.mark.parametrize("as_client", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_this_node_leads_and_votes_alone(
    node: RunningController, version: int, as_client: bool
) -> None:
    node.set_clock(NOW_MS)

    entry = asked(node, version, as_client=as_client)

    assert (entry.partition_index, entry.error_code, entry.error_message) == (0, 0, None)
    assert (entry.leader_id, entry.leader_epoch) == (1, node.epoch)
    assert entry.high_watermark == node.end_offset
    time_ms = NOW_MS if version >= 1 else -1
    assert rows(entry.current_voters) == [(1, ZERO_UUID, node.end_offset, time_ms, time_ms)]
    assert entry.observers == []


@pytest.mark.parametrize("as_client", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_from_version_2_clients_are_told_where_the_controller_listens(
    node: RunningController, version: int, as_client: bool
) -> None:
    with node.connect_as_client() if as_client else node.connect() as caller:
        answer = caller.call(question((METADATA, [0])), version)

    told = [
        (one.node_id, [(where.name, where.host, where.port) for where in one.listeners])
        for one in answer.nodes
    ]
    assert told == ([(1, [("CONTROLLER", HOST, node.port)])] if version >= 2 else [])


def test_without_a_listener_of_its_own_the_controller_is_named_without_an_address(
    broker: BrokerProcess, caller: Caller
) -> None:
    answer = caller.call(question((METADATA, [0])), 2)

    assert answer.topics[0].partitions[0].leader_id == 1
    assert [(one.node_id, one.listeners) for one in answer.nodes] == [(1, [])]


def test_what_is_advertised_is_told_and_else_what_was_dialled(tmp_path: Path) -> None:
    listeners = {
        "listeners": (
            "PLAINTEXT://127.0.0.1:0,CONTROLLER://0.0.0.0:0,"
            "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"
        ),
        "controller.listener.names": "CONTROLLER,INSIDE,OUTSIDE",
        "advertised.listeners": "INSIDE://:19092,OUTSIDE://controller.example:19093",
    }
    with (
        RunningController(tmp_path / "data", **listeners) as node,
        node.connect_as_client() as client,
    ):
        answer = client.call(question((METADATA, [0])), 2)
        ports = node.broker.listening.ports
        fetched = []
        for name in ("CONTROLLER", "INSIDE", "OUTSIDE"):
            with Caller(HOST, ports[name]) as follower:
                fetched += follower.call(asking(0, 0, node.epoch), 17).node_endpoints

    told = [(HOST, ports["CONTROLLER"]), (HOST, 19092), ("controller.example", 19093)]
    assert [(where.host, where.port) for where in answer.nodes[0].listeners] == told
    assert [(where.host, where.port) for where in fetched] == told


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "topics",
    [
        [("orders", [0])],
        [("", [0])],
        [(METADATA, [1])],
        [(METADATA, [-1])],
        [(METADATA, [0, 1])],
        [(METADATA, [0, 0])],
        [(METADATA, [0]), ("orders", [0])],
        [(METADATA, [0]), ("orders", [])],
        [(METADATA, [0]), (METADATA, [])],
    ],
)
def test_anything_beside_the_one_partition_makes_all_unknown(
    node: RunningController, version: int, topics: list[tuple[str, list[int]]]
) -> None:
    with node.connect() as caller:
        answer = caller.call(question(*topics), version)

    assert (answer.error_code, answer.nodes) == (0, [])
    named = [
        (topic.topic_name, [one.partition_index for one in topic.partitions])
        for topic in answer.topics
    ]
    assert named == topics
    for entry in (one for topic in answer.topics for one in topic.partitions):
        assert entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert bool(entry.error_message) == (version >= 2)
        assert (entry.current_voters, entry.observers) == ([], [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topics", [[], [(METADATA, [])]])
def test_nothing_asked_is_nothing_answered(
    node: RunningController, version: int, topics: list[tuple[str, list[int]]]
) -> None:
    with node.connect() as caller:
        answer = caller.call(question(*topics), version)

    assert answer.error_code == 0
    assert [(topic.topic_name, topic.partitions) for topic in answer.topics] == topics


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_that_does_not_lead_does_not_know(tmp_path: Path, version: int) -> None:
    with RunningController(tmp_path / "data") as node:
        node.run(lambda: setattr(node.controller, "leader_id", 7))
        with node.connect() as caller:
            answer = caller.call(question((METADATA, [0])), version)

    assert (answer.error_code, answer.topics) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


def test_those_who_follow_are_listed_with_their_offsets_and_times(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as node, node.connect() as follower:
        end_offset, epoch = node.append(5), node.epoch

        node.set_clock(NOW_MS)
        follower.call(asking(end_offset, epoch, epoch, replica_id=5), 17)
        follower.call(asking(1, epoch, epoch, replica_id=6, directory_id=b"d" * 16), 17)
        node.set_clock(NOW_MS + 100)
        node.append(3)
        follower.call(asking(end_offset, epoch, epoch, replica_id=5), 17)

        assert rows(asked(node).observers) == [
            (5, ZERO_UUID, end_offset, NOW_MS + 100, NOW_MS),
            (6, b"d" * 16, 1, NOW_MS, -1),
        ]
        assert [one[0] for one in rows(asked(node, 0).observers)] == [5, 6]
        assert rows(asked(node, as_client=True).observers) == rows(asked(node).observers)


def test_voters_that_the_log_names_have_their_directories(tmp_path: Path) -> None:
    voter = VotersRecord.Voter(
        voter_id=1,
        voter_directory_id=b"d" * 16,
        endpoints=[],
        k_raft_version_feature=VotersRecord.Voter.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=1
        ),
    )
    with RunningController(tmp_path / "data") as node:
        node.run(lambda: setattr(node.metadata, "voters", VotersRecord(voters=[voter])))

        (found,) = asked(node).current_voters

    assert (found.replica_id, found.replica_directory_id) == (1, b"d" * 16)


def test_who_loads_a_snapshot_is_not_listed_until_it_fetches(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as node, node.connect() as follower:
        wanted = node.take_snapshot()
        follower.call(asking_snapshot(wanted, epoch=node.epoch, replica_id=5), 1)
        loading = asked(node).observers
        follower.call(asking(wanted.end_offset, wanted.epoch, node.epoch, replica_id=5), 17)
        following = asked(node).observers

    assert loading == []
    assert [(one.replica_id, one.log_end_offset) for one in following] == [(5, wanted.end_offset)]


def test_who_has_been_silent_for_five_minutes_is_gone(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as node, node.connect() as follower:
        node.set_clock(NOW_MS)
        follower.call(asking(1, node.epoch, node.epoch, replica_id=5), 17)
        node.set_clock(NOW_MS + 300_000)
        at_the_last_moment = len(asked(node).observers)
        node.set_clock(NOW_MS + 300_001)

        assert (at_the_last_moment, asked(node).observers) == (1, [])


# DescribeCluster on the controller's listener


@pytest.mark.parametrize("version", [1, 2])
def test_the_controllers_are_described_on_their_listener(
    node: RunningController, version: int
) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=2)
    with node.connect() as caller:
        answer = caller.call(request, version)

    assert (answer.error_code, answer.endpoint_type) == (0, 2)
    assert (answer.cluster_id, answer.controller_id) == (
        node.broker.directory.identity.cluster_id,
        1,
    )
    (one,) = answer.brokers
    assert (one.broker_id, one.host, one.port) == (1, HOST, node.port)
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"),
    [
        (0, 1, ErrorCode.INVALID_REQUEST),
        (1, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (2, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (1, 0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (2, 3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_the_brokers_are_not(
    node: RunningController, version: int, endpoint_type: int, code: ErrorCode
) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=endpoint_type
    )
    with node.connect() as caller:
        answer = caller.call(request, version)

    assert (answer.error_code, answer.brokers, answer.controller_id) == (code, [], -1)
