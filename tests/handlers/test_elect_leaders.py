"""ElectLeaders, versions 0 to 2. The codes and the form are what Apache Kafka 3.9 answers."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tests.support.caller import Caller

VERSIONS = range(3)
PREFERRED, UNCLEAN = 0, 1


def elect(
    caller: Caller,
    topics: dict[str, list[int]] | None,
    *,
    version: int = 2,
    election_type: int = PREFERRED,
) -> ElectLeadersResponse:
    asked = None
    if topics is not None:
        asked = [
            ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    request = ElectLeadersRequest(topic_partitions=asked, election_type=election_type)
    answer: ElectLeadersResponse = caller.call(request, version)
    return answer


def codes(answer: ElectLeadersResponse) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.topic: [(one.partition_id, one.error_code) for one in topic.partition_result]
        for topic in answer.replica_election_results
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_partition_is_led_already_and_unknown_ones_are_unknown(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic, partitions=3)

    answer = elect(caller, {topic: [0, 2, 0, 9, -1], "missing": [0, 1], "": [0]}, version=version)

    needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == 0
    assert codes(answer) == {
        topic: [(0, needless), (2, needless), (0, needless), (9, unknown), (-1, unknown)],
        "missing": [(0, unknown), (1, unknown)],
        "": [(0, unknown)],
    }
    assert all(
        one.error_message
        for each in answer.replica_election_results
        for one in each.partition_result
    )


@pytest.mark.parametrize("election_type", [PREFERRED, UNCLEAN])
def test_of_all_partitions_none_needs_an_election(
    caller: Caller, topic: str, election_type: int
) -> None:
    caller.create_topic(topic, partitions=2)

    answer = elect(caller, None, election_type=election_type)

    assert answer.error_code == 0
    found = codes(answer)
    assert found[topic] == []
    assert not any(found.values())
    assert codes(elect(caller, {})) == {}


def test_an_unknown_kind_of_election_is_refused_as_a_whole(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    answer = elect(caller, {topic: [0]}, election_type=7)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert codes(answer) == {topic: [(0, ErrorCode.INVALID_REQUEST)]}
