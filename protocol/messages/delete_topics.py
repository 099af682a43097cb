"""DeleteTopics (20): topics to be removed with all they hold.

0  by name
1  throttle time
2  a throttled client waits by itself
3  TOPIC_DELETION_DISABLED may be answered
4  flexible
5  an error message; THROTTLING_QUOTA_EXCEEDED may be answered
6  by name or by id
"""

from __future__ import annotations

from protocol.schema import ZERO_UUID, Message, Struct, array, int16, int32, string, uuid


class DeleteTopicsRequest(Message, key=20, versions="0-6", flexible="4+"):
    class Topic(Struct):
        name: str | None = string(nullable="", default=None)
        topic_id: bytes = uuid()

    topics: list[Topic] = array(Topic, "6+", default=())
    topic_names: list[str] = array(string, "0-5", default=())
    timeout_ms: int = int32()


class DeleteTopicsResponse(Message, key=20, versions="0-6", flexible="4+"):
    class Topic(Struct):
        name: str | None = string(nullable="6+")
        topic_id: bytes = uuid("6+", default=ZERO_UUID)
        error_code: int = int16()
        error_message: str | None = string("5+", nullable="5+", default=None)

    throttle_time_ms: int = int32("1+", default=0)
    responses: list[Topic] = array(Topic)


def refused(request: DeleteTopicsRequest, code: int) -> DeleteTopicsResponse:
    """The answer in which every topic named meets the same error."""
    topic = DeleteTopicsResponse.Topic
    return DeleteTopicsResponse(
        responses=[topic(name=name, error_code=code) for name in request.topic_names]
        + [
            topic(name=asked.name, topic_id=asked.topic_id, error_code=code)
            for asked in request.topics
        ]
    )
