"""OffsetDelete (47): offsets that a group committed are to go. Never flexible.

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, string


class OffsetDeleteRequest(Message, key=47, versions="0"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()

        name: str = string()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class OffsetDeleteResponse(Message, key=47, versions="0"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: list[Partition] = array(Partition)

    error_code: int = int16()
    # Comes after the error here; in most responses it comes first.
    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)


def refused(request: OffsetDeleteRequest, code: int) -> OffsetDeleteResponse:
    """An answer of an error and nothing else."""
    return OffsetDeleteResponse(error_code=code, topics=[])
