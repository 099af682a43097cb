"""A consumer group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.consumer.members import NOTHING
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.coordinator.consumer.members import Member
    from broker.coordinator.consumer.state import ConsumerGroupState
    from broker.coordinator.effects import TopicsView

Group = ConsumerGroupDescribeResponse.Group

CLASSIC, CONSUMER = 0, 1
"""Types of members, by the protocol that they speak."""


def described(state: ConsumerGroupState, topics: TopicsView) -> Group:
    """Partitions of topics that are gone have no name to be shown by, and are left out."""
    return Group(
        error_code=0,
        group_id=state.group_id,
        group_state=state.state,
        group_epoch=state.group_epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=state.assignor(),
        members=[_member(state, member, topics) for member in state.members.values()],
    )


def _member(state: ConsumerGroupState, member: Member, topics: TopicsView) -> Group.Member:
    facts = member.facts
    return Group.Member(
        member_id=member.member_id,
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        member_epoch=member.current.epoch,
        client_id=facts.client_id,
        client_host=facts.client_host,
        subscribed_topic_names=list(facts.topic_names),
        subscribed_topic_regex=facts.regex,
        assignment=_assignment(member.current.assigned, topics),
        target_assignment=_assignment(state.targets.get(member.member_id, NOTHING), topics),
        member_type=CONSUMER if facts.classic is None else CLASSIC,
    )


def _assignment(
    partitions: Mapping[bytes, frozenset[int]], topics: TopicsView
) -> Group.Member.Assignment:
    entries = []
    for topic_id, numbers in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            entries.append(
                Group.Member.Assignment.TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(numbers)
                )
            )
    return Group.Member.Assignment(topic_partitions=entries)
