"""DescribeTopicPartitions, version 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from tests.support.caller import Caller

Cursor = DescribeTopicPartitionsRequest.Cursor


def ask(
    caller: Caller, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.Topic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer: DescribeTopicPartitionsResponse = caller.call(request, 0)
    return answer


def pages(caller: Caller, *names: str, limit: int) -> list[list[tuple[str | None, list[int]]]]:
    """Every page as a client sees it that follows the cursors."""
    found: list[list[tuple[str | None, list[int]]]] = []
    cursor = None
    while len(found) < 100:
        answer = ask(caller, *names, limit=limit, cursor=cursor)
        found.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        if answer.next_cursor is None:
            return found
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    raise AssertionError("the cursors never end")


@pytest.fixture
def three(caller: Caller, topic: str) -> list[str]:
    """Topics of 2, 1 and 3 partitions, in the order of their names."""
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name, partitions in zip(names, (2, 1, 3), strict=True):
        caller.create_topic(name, partitions=partitions)
    return names


def test_topics_come_sorted_by_name_with_their_partitions(caller: Caller, three: list[str]) -> None:
    answer = ask(caller, three[2], three[0], three[1], three[0])

    assert [found.name for found in answer.topics] == three
    assert answer.next_cursor is None
    for found, count in zip(answer.topics, (2, 1, 3), strict=True):
        assert found.topic_id == caller.topic_id(str(found.name))
        assert [p.partition_index for p in found.partitions] == list(range(count))
        for partition in found.partitions:
            assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
            assert partition.replica_nodes == partition.isr_nodes == [1]
            # The Java clients fail on null in these, which the schema allows.
            assert partition.eligible_leader_replicas == []
            assert partition.last_known_elr == []


def test_no_topics_named_means_all_of_them(caller: Caller, three: list[str]) -> None:
    assert set(three) <= {found.name for found in ask(caller).topics}


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
def test_following_the_cursors_visits_each_partition_once(
    caller: Caller, three: list[str], limit: int
) -> None:
    found = pages(caller, *three, limit=limit)

    visited = [(name, p) for page in found for name, partitions in page for p in partitions]
    a, b, c = three
    assert visited == [(a, 0), (a, 1), (b, 0), (c, 0), (c, 1), (c, 2)]
    assert all(sum(len(ps) for _, ps in page) <= limit for page in found)
    assert all(page for page in found), "no page is empty"


def test_an_unknown_topic_is_told_in_its_entry(caller: Caller, three: list[str]) -> None:
    missing, known = ask(caller, "aaa-missing", three[0]).topics

    assert (missing.name, missing.error_code) == (
        "aaa-missing",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert (missing.topic_id, missing.partitions) == (ZERO_UUID, [])
    assert known.error_code == 0


def test_a_cursor_at_a_topic_that_is_gone_goes_on_behind_it(
    caller: Caller, three: list[str]
) -> None:
    caller.delete_topic(three[1])

    answer = ask(caller, three[0], three[2], cursor=(three[1], 0))

    assert [found.name for found in answer.topics] == [three[2]]


def test_a_cursor_before_the_first_partition_is_refused(caller: Caller, three: list[str]) -> None:
    answer = ask(caller, three[0], cursor=(three[0], -1))

    assert [found.error_code for found in answer.topics] == [ErrorCode.INVALID_REQUEST]


def test_a_cursor_behind_the_last_partition_goes_on_with_the_next_topic(
    caller: Caller, three: list[str]
) -> None:
    answer = ask(caller, *three, cursor=(three[0], 2))

    described = [(t.name, len(t.partitions)) for t in answer.topics if t.partitions]
    assert described == [(three[1], 1), (three[2], 3)]


@pytest.mark.parametrize("limit", [0, -1, 2**31 - 1])
def test_a_limit_that_makes_no_sense_is_ours(caller: Caller, three: list[str], limit: int) -> None:
    assert [found.name for found in ask(caller, *three, limit=limit).topics] == three


def test_a_page_has_at_most_2000_partitions(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, partitions=2001)

    first, second = pages(caller, topic, limit=100_000)

    assert [len(partitions) for _, partitions in first + second] == [2000, 1]
    caller.delete_topic(topic)
