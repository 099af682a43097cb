"""AlterShareGroupOffsets (91): a share group is to start somewhere else (KIP-932).

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class AlterShareGroupOffsetsRequest(Message, key=91, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            start_offset: int = int64()

        topic_name: str = string()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class AlterShareGroupOffsetsResponse(Message, key=91, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="", default=None)

        topic_name: str = string()
        topic_id: bytes = uuid()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    responses: list[Topic] = array(Topic)


def refused(request: AlterShareGroupOffsetsRequest, code: int) -> AlterShareGroupOffsetsResponse:
    """An answer of an error and nothing else."""
    return AlterShareGroupOffsetsResponse(error_code=code, responses=[])
