"""A partition that another process leads: it is known, and nothing is done with it here."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker.partitions.internal_topics import OFFSETS_TOPIC
from protocol.errors import ErrorCode
from protocol.logdata.offsets import shard_of
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from storage.layout import partition_directory
from storage.unavailable import log_elsewhere
from tests.support.caller import Target, batch, fetch_request, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC, HERE, ELSEWHERE = "t", 0, 1
ALL, LEADER = -1, 1
WANTED = {HERE: ErrorCode.NONE, ELSEWHERE: ErrorCode.NOT_LEADER_OR_FOLLOWER}
EPOCH = 5


@contextmanager
def one_of_two(data: Path) -> Iterator[InProcessBroker]:
    """A broker of which another process leads one of two partitions."""
    with InProcessBroker(data) as broker:
        topic = CreateTopicsRequest.Topic(
            name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        Asker(broker).call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 4)
        parts = broker.running.broker
        partition = parts.topics.by_name[TOPIC].partitions[ELSEWHERE]
        parts.directory.logs.pop((TOPIC, ELSEWHERE)).close(clean=False)
        folder = f"{parts.directory.path}/{partition_directory(TOPIC, ELSEWHERE)}"
        partition.log = log_elsewhere(
            parts.files, folder, partition.topic.settings, leader_epoch=EPOCH
        )
        yield broker


@pytest.fixture
def asker(tmp_path: Path) -> Iterator[Asker]:
    with one_of_two(tmp_path / "data") as broker:
        yield Asker(broker)


def codes(entries: Any, index: str = "partition_index") -> dict[int, int]:
    return {getattr(one, index): one.error_code for one in entries}


@pytest.mark.parametrize("acks", [ALL, LEADER])
@pytest.mark.parametrize("version", [3, 9, 12])
def test_produce_is_told_to_look_for_the_leader(asker: Asker, version: int, acks: int) -> None:
    asker.call(produce_request((TOPIC, HERE, batch(b"a")), acks=LEADER), 9)
    both = [(TOPIC, number, batch(b"b")) for number in (HERE, ELSEWHERE)]

    answer = asker.call(produce_request(*both, acks=acks), version)
    alone = asker.call(produce_request(both[1], acks=acks), version)

    told = [one for topic in answer.responses for one in topic.partition_responses]
    assert codes(told, "index") == WANTED
    assert codes(alone.responses[0].partition_responses, "index").popitem()[1] == WANTED[ELSEWHERE]


@pytest.mark.parametrize("version", [0, 4, 11, 12])
def test_a_fetch_is_told_to_look_for_the_leader(asker: Asker, version: int) -> None:
    asker.call(produce_request((TOPIC, HERE, batch(b"a")), acks=LEADER), 9)

    both = asker.call(fetch_request(Target(TOPIC, 0, HERE), Target(TOPIC, 0, ELSEWHERE)), version)
    alone = asker.call(fetch_request(Target(TOPIC, 0, ELSEWHERE)), version)

    assert codes(both.responses[0].partitions) == WANTED
    assert codes(alone.responses[0].partitions) == {ELSEWHERE: WANTED[ELSEWHERE]}


@pytest.mark.parametrize("version", [0, 1, 5])
@pytest.mark.parametrize("timestamp", [-1, -2, 0])
def test_offsets_are_the_leaders_to_tell(asker: Asker, version: int, timestamp: int) -> None:
    asked = [
        ListOffsetsRequest.Topic.Partition(
            partition_index=number, timestamp=timestamp, max_num_offsets=1
        )
        for number in (HERE, ELSEWHERE)
    ]
    answer = asker.call(
        ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.Topic(name=TOPIC, partitions=asked)]
        ),
        version,
    )

    assert codes(answer.topics[0].partitions) == WANTED


def test_so_are_the_ends_of_epochs(asker: Asker) -> None:
    asked = [
        OffsetForLeaderEpochRequest.Topic.Partition(
            partition=number, leader_epoch=0, current_leader_epoch=-1
        )
        for number in (HERE, ELSEWHERE)
    ]
    answer = asker.call(
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderEpochRequest.Topic(topic=TOPIC, partitions=asked)]
        ),
        3,
    )

    assert codes(answer.topics[0].partitions, "partition") == WANTED


def test_so_is_the_deletion_of_records(asker: Asker) -> None:
    asked = [
        DeleteRecordsRequest.Topic.Partition(partition_index=number, offset=0)
        for number in (HERE, ELSEWHERE)
    ]
    answer = asker.call(
        DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.Topic(name=TOPIC, partitions=asked)], timeout_ms=1000
        )
    )

    assert codes(answer.topics[0].partitions) == WANTED


def test_so_are_the_producers(asker: Asker) -> None:
    answer = asker.call(
        DescribeProducersRequest(
            topics=[DescribeProducersRequest.Topic(name=TOPIC, partition_indexes=[HERE, ELSEWHERE])]
        )
    )

    assert codes(answer.topics[0].partitions) == WANTED


def test_who_stops_writes_nothing_of_it_and_leaves_a_clean_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    folder = data / partition_directory(TOPIC, ELSEWHERE)
    with one_of_two(data):
        before = {path.name: path.read_bytes() for path in folder.iterdir()}

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert (data / ".kafka_cleanshutdown").exists()


GROUPS = 4
"""Partitions of the topic of groups, which all are led elsewhere but the first."""


def groups_of(count: int) -> list[str]:
    """A group of each partition, in their order."""
    found: dict[int, str] = {}
    for number in range(100):
        found.setdefault(shard_of(f"g{number}", count), f"g{number}")
    return [found[index] for index in range(count)]


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Asker]:
    settings = {"offsets.topic.num.partitions": str(GROUPS)}
    with InProcessBroker(tmp_path / "data", **settings) as broker:
        asker = Asker(broker)
        asker.call(FindCoordinatorRequest(key="g", key_type=0), 1)
    with InProcessBroker(tmp_path / "data", **settings) as broker:
        parts = broker.running.broker
        topic = parts.topics.by_name[OFFSETS_TOPIC]
        parts.groups.runtime.shards.clear()
        for partition in topic.partitions[1:]:
            parts.directory.logs.pop((topic.name, partition.index)).close(clean=False)
            folder = f"{parts.directory.path}/{partition_directory(topic.name, partition.index)}"
            partition.log = log_elsewhere(parts.files, folder, topic.settings, leader_epoch=EPOCH)
        yield Asker(broker)


def test_a_group_is_coordinated_by_whoever_leads_its_partition(groups: Asker) -> None:
    here, *elsewhere = groups_of(GROUPS)
    told = []
    for group in (here, *elsewhere):
        beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
        leave = LeaveGroupRequest(group_id=group, member_id="m")
        commit = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequest.Topic(
                    name=OFFSETS_TOPIC,
                    partitions=[
                        OffsetCommitRequest.Topic.Partition(
                            partition_index=0, committed_offset=0, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        fetch = OffsetFetchRequest(group_id=group, topics=None)
        told.append(
            (
                groups.call(beat, 2).error_code,
                groups.call(leave, 1).error_code,
                groups.call(commit, 2).topics[0].partitions[0].error_code,
                groups.call(fetch, 2).error_code,
            )
        )

    assert told[0] == (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, 0, 0)
    assert told[1:] == [(ErrorCode.NOT_COORDINATOR,) * 4] * (GROUPS - 1)


def test_groups_led_elsewhere_are_not_waited_for(groups: Asker) -> None:
    answer = groups.call(ListGroupsRequest(), 1)

    assert answer.error_code == ErrorCode.NONE
