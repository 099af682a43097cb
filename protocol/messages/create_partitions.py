"""CreatePartitions (37): more partitions for topics that exist.

0  the first
1  a throttled client waits by itself
2  flexible
3  THROTTLING_QUOTA_EXCEEDED may be answered
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int16, int32, string


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    class Topic(Struct):
        class Assignment(Struct):
            broker_ids: list[int] = array(int32)

        name: str = string()
        # How many there are to be, not how many to add.
        count: int = int32()
        assignments: list[Assignment] | None = array(Assignment, nullable="")

    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsResponse(Message, key=37, versions="0-3", flexible="2+"):
    class Topic(Struct):
        name: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)

    throttle_time_ms: int = int32(default=0)
    results: list[Topic] = array(Topic)


def refused(request: CreatePartitionsRequest, code: int) -> CreatePartitionsResponse:
    """The answer in which every topic named meets the same error."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponse.Topic(name=asked.name, error_code=code)
            for asked in request.topics
        ]
    )
