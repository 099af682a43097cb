"""AlterPartitionReassignments (45): partitions move to other replicas, or stop moving.

0  the first
1  a change of the number of replicas may be ruled out
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int16, int32, string


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            # Null to stop a move.
            replicas: list[int] | None = array(int32, nullable="", default=None)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[Topic] = array(Topic)


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="", default=None)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    responses: list[Topic] = array(Topic)


def refused(
    request: AlterPartitionReassignmentsRequest, code: int
) -> AlterPartitionReassignmentsResponse:
    """An answer of an error and nothing else."""
    return AlterPartitionReassignmentsResponse(error_code=code, responses=[])
