"""ShareGroupDescribe (77): share groups and their members (KIP-932).

0  an early form of Kafka 4.0; not served
1  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, int16, int32, string, struct, uuid


class ShareGroupDescribeRequest(Message, key=77, versions="1", flexible="0+"):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ShareGroupDescribeResponse(Message, key=77, versions="1", flexible="0+"):
    class Group(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: bytes = uuid()
                    topic_name: str = string()
                    partitions: list[int] = array(int32)

                topic_partitions: list[TopicPartitions] = array(TopicPartitions)

            member_id: str = string()
            rack_id: str | None = string(nullable="", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            assignment: Assignment = struct(Assignment)

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


def refused(request: ShareGroupDescribeRequest, code: int) -> ShareGroupDescribeResponse:
    """The answer in which every group asked for meets the same error."""
    return ShareGroupDescribeResponse(
        groups=[
            ShareGroupDescribeResponse.Group(
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
