"""ListPartitionReassignments, version 0. Moves under way: test_alter_partition_reassignments."""

from __future__ import annotations

import pytest

from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.support.caller import Caller


# What Apache Kafka 3.9 answers, also for what does not exist.
@pytest.mark.parametrize("named", [None, {}, {"missing": [0]}, {"": [-1]}, {"t": [0, 9]}])
def test_nothing_moves_on_a_single_node(
    caller: Caller, topic: str, named: dict[str, list[int]] | None
) -> None:
    caller.create_topic(topic)
    asked = ListPartitionReassignmentsRequest.Topic
    topics = None
    if named is not None:
        topics = [
            asked(name=topic if name == "t" else name, partition_indexes=indexes)
            for name, indexes in named.items()
        ]

    answer = caller.call(ListPartitionReassignmentsRequest(topics=topics), 0)

    assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
