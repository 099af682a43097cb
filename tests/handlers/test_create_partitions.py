"""CreatePartitions, versions 0 to 3."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from tests.support.caller import Caller, batch

VERSIONS = range(4)
Asked = CreatePartitionsRequest.Topic


def asked(name: str, count: int, *assigned: list[int]) -> Asked:
    assignments = [Asked.Assignment(broker_ids=ids) for ids in assigned]
    return Asked(name=name, count=count, assignments=assignments or None)


def grow(
    caller: Caller, *topics: Asked, version: int = 3, validate_only: bool = False
) -> list[CreatePartitionsResponse.Topic]:
    request = CreatePartitionsRequest(
        topics=list(topics), timeout_ms=0, validate_only=validate_only
    )
    found: list[CreatePartitionsResponse.Topic] = caller.call(request, version).results
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_new_partitions_can_be_used_at_once_and_old_data_stays(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"old"))

    (grown,) = grow(caller, asked(topic, 3), version=version)

    assert (grown.name, grown.error_code) == (topic, 0)
    assert [p.partition_index for p in caller.describe(topic).partitions] == [0, 1, 2]
    assert caller.values(topic) == [b"old"]
    assert caller.produce(topic, batch(b"new"), partition=2).base_offset == 0


@pytest.mark.parametrize("count", [2, 1, 0, -1, 2**31 - 1])
def test_a_count_that_does_not_grow_or_is_absurd_is_refused(
    caller: Caller, topic: str, count: int
) -> None:
    caller.create_topic(topic, partitions=2)

    (refused,) = grow(caller, asked(topic, count))

    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert refused.error_message
    assert len(caller.describe(topic).partitions) == 2


def test_assignments_must_fit_and_name_this_broker(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    for wrong in (asked(topic, 3, [1]), asked(topic, 2, [2]), asked(topic, 2, [1, 1])):
        (refused,) = grow(caller, wrong)
        assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    assert grow(caller, asked(topic, 3, [1], [1]))[0].error_code == 0


def test_unknown_and_repeated_topics_are_refused(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    answer = grow(caller, asked("missing", 2), asked(topic, 2), asked(topic, 3))

    assert {entry.name: entry.error_code for entry in answer} == {
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        topic: ErrorCode.INVALID_REQUEST,
    }


def test_validating_changes_nothing(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    (checked,) = grow(caller, asked(topic, 5), validate_only=True)

    assert checked.error_code == 0
    assert len(caller.describe(topic).partitions) == 1
