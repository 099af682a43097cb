"""CreateTopics (19): new topics, with their partitions and settings.

0  the answer has a code for each topic
1  asking without doing; an error message for each topic
2  throttle time
3  a throttled client waits by itself
4  -1 partitions or replicas mean the default
5  flexible; the answer tells the topic's size and settings
6  THROTTLING_QUOTA_EXCEEDED may be answered
7  the answer tells the topic's id
"""

from __future__ import annotations

from protocol.schema import (
    ZERO_UUID,
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    uuid,
)


class CreateTopicsRequest(Message, key=19, versions="0-7", flexible="5+"):
    class Topic(Struct):
        class Assignment(Struct):
            partition_index: int = int32()
            broker_ids: list[int] = array(int32)

        class Config(Struct):
            name: str = string()
            value: str | None = string(nullable="")

        name: str = string()
        num_partitions: int = int32()
        replication_factor: int = int16()
        assignments: list[Assignment] = array(Assignment)
        configs: list[Config] = array(Config)

    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+", default=False)


class CreateTopicsResponse(Message, key=19, versions="0-7", flexible="5+"):
    class Topic(Struct):
        class Config(Struct):
            name: str = string()
            value: str | None = string(nullable="")
            read_only: bool = boolean()
            config_source: int = int8(default=-1)
            is_sensitive: bool = boolean()

        name: str = string()
        topic_id: bytes = uuid("7+", default=ZERO_UUID)
        error_code: int = int16()
        error_message: str | None = string("1+", nullable="1+", default=None)
        num_partitions: int = int32("5+", default=-1)
        replication_factor: int = int16("5+", default=-1)
        configs: list[Config] | None = array(Config, "5+", nullable="5+", default=())
        # Says why the settings of the topic are null.
        topic_config_error_code: int = int16("5+", tag=0, default=0)

    throttle_time_ms: int = int32("2+", default=0)
    topics: list[Topic] = array(Topic)


def refused(request: CreateTopicsRequest, code: int) -> CreateTopicsResponse:
    """The answer in which every topic named meets the same error."""
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.Topic(name=asked.name, error_code=code, configs=None)
            for asked in request.topics
        ]
    )
