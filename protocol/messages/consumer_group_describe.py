"""ConsumerGroupDescribe (69): groups of the newer protocol, with what each member has and is
to have (KIP-848).

0  the first
1  which members speak the classic protocol
"""

from __future__ import annotations

from protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class ConsumerGroupDescribeRequest(Message, key=69, versions="0-1", flexible="0+"):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ConsumerGroupDescribeResponse(Message, key=69, versions="0-1", flexible="0+"):
    class Group(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: bytes = uuid()
                    topic_name: str = string()
                    partitions: list[int] = array(int32)

                topic_partitions: list[TopicPartitions] = array(TopicPartitions)

            member_id: str = string()
            instance_id: str | None = string(nullable="", default=None)
            rack_id: str | None = string(nullable="", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            subscribed_topic_regex: str | None = string(nullable="", default=None)
            assignment: Assignment = struct(Assignment)
            target_assignment: Assignment = struct(Assignment)
            # 0 classic, 1 consumer, -1 unknown.
            member_type: int = int8("1+", default=-1)

        error_code: int = int16()
        error_message: str | None = string(nullable="", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[Member] = array(Member)
        authorized_operations: int = int32(default=-2147483648)

    throttle_time_ms: int = int32(default=0)
    groups: list[Group] = array(Group)


def refused(request: ConsumerGroupDescribeRequest, code: int) -> ConsumerGroupDescribeResponse:
    """The answer in which every group asked for meets the same error."""
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeResponse.Group(
                error_code=code,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group_id in request.group_ids
        ]
    )
