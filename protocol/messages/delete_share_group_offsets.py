"""DeleteShareGroupOffsets (92): a share group forgets where it stands in some topics (KIP-932).

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequest(Message, key=92, versions="0", flexible="0+"):
    class Topic(Struct):
        topic_name: str = string()

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class DeleteShareGroupOffsetsResponse(Message, key=92, versions="0", flexible="0+"):
    class Topic(Struct):
        topic_name: str = string()
        topic_id: bytes = uuid()
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    responses: list[Topic] = array(Topic)


def refused(request: DeleteShareGroupOffsetsRequest, code: int) -> DeleteShareGroupOffsetsResponse:
    """An answer of an error and nothing else."""
    return DeleteShareGroupOffsetsResponse(error_code=code, responses=[])
