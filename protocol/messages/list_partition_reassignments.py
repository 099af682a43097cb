"""ListPartitionReassignments (46): the moves that are going on.

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, string


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
    class Topic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    timeout_ms: int = int32(default=60000)
    # Null is all.
    topics: list[Topic] | None = array(Topic, nullable="", default=None)


class ListPartitionReassignmentsResponse(Message, key=46, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            replicas: list[int] = array(int32)
            adding_replicas: list[int] = array(int32)
            removing_replicas: list[int] = array(int32)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    topics: list[Topic] = array(Topic)


def refused(
    request: ListPartitionReassignmentsRequest, code: int
) -> ListPartitionReassignmentsResponse:
    """An answer of an error and nothing else."""
    return ListPartitionReassignmentsResponse(error_code=code, topics=[])
