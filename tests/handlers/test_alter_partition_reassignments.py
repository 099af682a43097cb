"""AlterPartitionReassignments, versions 0 and 1. The codes are what Apache Kafka 3.9 answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.metadata import PartitionChangeRecord
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.support.caller import Caller
from tests.support.running_controller import RunningController

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = range(2)
HERE, ELSEWHERE = 1, 2

Asked = AlterPartitionReassignmentsRequest.Topic
Replicas = list[int] | None


def reassign(
    caller: Caller,
    topics: dict[str, dict[int, Replicas]],
    *,
    version: int = 1,
    may_change_count: bool = True,
) -> AlterPartitionReassignmentsResponse:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            Asked(
                name=name,
                partitions=[
                    Asked.Partition(partition_index=index, replicas=replicas)
                    for index, replicas in partitions.items()
                ],
            )
            for name, partitions in topics.items()
        ],
        allow_replication_factor_change=may_change_count,
    )
    answer: AlterPartitionReassignmentsResponse = caller.call(request, version)
    assert answer.error_code == 0
    return answer


def codes(answer: AlterPartitionReassignmentsResponse) -> dict[str, dict[int, int]]:
    return {
        topic.name: {one.partition_index: one.error_code for one in topic.partitions}
        for topic in answer.responses
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_is_where_it_is_and_nowhere_else(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic, partitions=7)
    elsewhere: tuple[Replicas, ...] = ([ELSEWHERE], [HERE, ELSEWHERE], [HERE, HERE], [], [-1])
    wanted: dict[int, Replicas] = {0: [HERE], 1: None, 9: [HERE], -1: None}
    wanted |= dict(enumerate(elsewhere, start=2))

    answer = reassign(
        caller, {topic: wanted, "missing": {0: [HERE]}, "": {0: None}}, version=version
    )

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer) == {
        topic: {
            0: 0,
            1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            9: unknown,
            -1: unknown,
            **dict.fromkeys(range(2, 7), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        },
        "missing": {0: unknown},
        "": {0: unknown},
    }


def test_nothing_asked_for_is_nothing_answered(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    assert codes(reassign(caller, {})) == {}
    assert codes(reassign(caller, {topic: {}})) == {topic: {}}


def moving(
    node: RunningController, caller: Caller
) -> list[tuple[int, list[int], list[int], list[int]]]:
    """What is listed of the topic: partition, replicas, those that come, those that go."""
    asked = ListPartitionReassignmentsRequest.Topic(name="t", partition_indexes=[0, 1, 7])
    everything = caller.call(ListPartitionReassignmentsRequest(topics=None), 0)
    some = caller.call(ListPartitionReassignmentsRequest(topics=[asked]), 0)
    assert everything.topics == some.topics
    return [
        (one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in everything.topics
        for one in topic.partitions
    ]


def begin_a_move(node: RunningController, caller: Caller) -> None:
    """As in a directory that comes from a larger cluster: of both partitions node 2 had a copy, of
    the second a move to node 3 was under way."""
    caller.create_topic("t", partitions=2)
    topic_id = node.controller.image.topics["t"].topic_id
    here = node.controller.image.topics["t"].partitions[0].directories[0]
    change = PartitionChangeRecord
    node.run(
        lambda: node.controller.append(
            [
                change(
                    partition_id=0,
                    topic_id=topic_id,
                    replicas=[ELSEWHERE, HERE],
                    directories=[b"2" * 16, here],
                ),
                change(
                    partition_id=1,
                    topic_id=topic_id,
                    replicas=[HERE, ELSEWHERE, 3],
                    directories=[here, b"2" * 16, b"3" * 16],
                    adding_replicas=[3],
                    removing_replicas=[ELSEWHERE],
                ),
            ]
        )
    )


def test_replicas_that_a_larger_cluster_left_behind_are_ended(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as node, node.connect_as_client() as caller:
        begin_a_move(node, caller)
        assert moving(node, caller) == [(1, [HERE, ELSEWHERE, 3], [3], [ELSEWHERE])]

        refused = reassign(caller, {"t": {0: [HERE]}}, may_change_count=False)
        assert codes(refused) == {"t": {0: ErrorCode.INVALID_REPLICATION_FACTOR}}
        answer = reassign(caller, {"t": {0: [HERE], 1: [HERE]}})

        assert codes(answer) == {"t": {0: 0, 1: 0}}
        assert moving(node, caller) == []
        for state in node.controller.image.topics["t"].partitions.values():
            assert (state.replicas, state.isr, state.leader) == ((HERE,), (HERE,), HERE)
            assert len(state.directories) == 1
            assert state.directories[0] not in (b"2" * 16, b"3" * 16)


def test_a_move_that_a_larger_cluster_began_is_cancelled(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as node, node.connect_as_client() as caller:
        begin_a_move(node, caller)

        answer = reassign(caller, {"t": {1: None}})

        assert codes(answer) == {"t": {1: 0}}
        assert moving(node, caller) == []
        state = node.controller.image.topics["t"].partitions[1]
        assert state.replicas == (HERE, ELSEWHERE)
        assert state.directories[1] == b"2" * 16
