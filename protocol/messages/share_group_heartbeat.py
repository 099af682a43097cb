"""ShareGroupHeartbeat (76): a member of a share group joins, lives and leaves (KIP-932).

0  an early form of Kafka 4.0; not served
1  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, string, struct, uuid


class ShareGroupHeartbeatRequest(Message, key=76, versions="1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    # 0 to join, -1 to leave.
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="", default=None)


class ShareGroupHeartbeatResponse(Message, key=76, versions="1", flexible="0+"):
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
    assignment: Assignment | None = struct(Assignment, nullable="", default=None)


def refused(request: ShareGroupHeartbeatRequest, code: int) -> ShareGroupHeartbeatResponse:
    """An answer of an error and nothing else."""
    return ShareGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
