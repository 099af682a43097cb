"""A member of a consumer group (KIP-848) made of raw heartbeats.

member = ConsumerMember(caller, "readers", topics=["orders"])
member.join()
member.own()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.caller import Caller


class ConsumerMember:
    """One member of a consumer group. `epoch` and `assigned` are what it was last told."""

    def __init__(
        self,
        caller: Caller,
        group: str,
        *,
        topics: Sequence[str] | None = (),
        version: int = 1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> None:
        self.caller = caller
        self.group = group
        self.topics = None if topics is None else list(topics)
        self.version = version
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.assigned: dict[bytes, list[int]] = {}

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat; fields that are not named are unchanged, which is null or -1."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            **{
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "instance_id": self.instance_id if self.epoch <= 0 else None,
                **fields,
            },
        )
        answer: ConsumerGroupHeartbeatResponse = self.caller.call(request, self.version)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            self.member_id = answer.member_id or self.member_id
            if answer.assignment is not None:
                self.assigned = {
                    topic.topic_id: sorted(topic.partitions)
                    for topic in answer.assignment.topic_partitions
                }
        return answer

    def join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """The first heartbeat, with all that a member says of itself."""
        self.epoch = 0
        return self.beat(
            **{
                "rebalance_timeout_ms": 30_000,
                "subscribed_topic_names": self.topics,
                "topic_partitions": [],
                **fields,
            }
        )

    def own(self) -> ConsumerGroupHeartbeatResponse:
        """Say that it has what it was last assigned, and nothing else."""
        owned = ConsumerGroupHeartbeatRequest.TopicPartitions
        return self.beat(
            topic_partitions=[
                owned(topic_id=topic, partitions=partitions)
                for topic, partitions in self.assigned.items()
            ]
        )

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        return self.beat(member_epoch=epoch, instance_id=self.instance_id)
