"""ConsumerGroupHeartbeat (68): a member of a group of the newer protocol joins, lives and
leaves by this one request (KIP-848).

0  the broker may choose the id of the member
1  the member chooses its id; topics may be named by a regular expression
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, string, struct, uuid


class ConsumerGroupHeartbeatRequest(Message, key=68, versions="0-1", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    group_id: str = string()
    member_id: str = string()
    # 0 to join, -1 to leave, -2 for a static member that leaves for a while.
    member_epoch: int = int32()
    # Null, or -1 for the time, means from here on: as said before.
    instance_id: str | None = string(nullable="", default=None)
    rack_id: str | None = string(nullable="", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="", default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable="", default=None
    )


class ConsumerGroupHeartbeatResponse(Message, key=68, versions="0-1", flexible="0+"):
    class Assignment(Struct):
        class TopicPartitions(Struct):
            topic_id: bytes = uuid()
            partitions: list[int] = array(int32)

        topic_partitions: list[TopicPartitions] = array(TopicPartitions)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    member_id: str | None = string(nullable="", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    # Null means: as before. A struct that may be null is led by one byte.
    assignment: Assignment | None = struct(Assignment, nullable="", default=None)


def refused(request: ConsumerGroupHeartbeatRequest, code: int) -> ConsumerGroupHeartbeatResponse:
    """An answer of an error and nothing else."""
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
