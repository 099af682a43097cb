"""Events of a group, read from its records other than offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.logdata.offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
)

if TYPE_CHECKING:
    from protocol.records.record import Record
    from protocol.schema import Struct

    Facts = dict[str, object]


class GroupEvent(NamedTuple):
    """Something that happened to the group: a sentence, and the same for machines.

    `topics` are (topic id, partitions) that the sentence ends in, for who knows the names.
    """

    time_ms: int
    log_offset: int
    text: str
    facts: Facts
    topics: list[tuple[bytes, list[int]]]


def group_event(record: Record, key: Struct, value: Struct | None) -> GroupEvent | None:
    """None for records that tell nothing to a reader of a history: computed assignments, and what
    partitions the topics of a consumer group had."""
    topics: list[tuple[bytes, list[int]]] = []
    text, facts = "", dict[str, object]()
    if isinstance(key, GroupMetadataKey):
        assert value is None or isinstance(value, GroupMetadataValue)
        text, facts = _classic_group(value)
    elif isinstance(key, ConsumerGroupMetadataKey):
        assert value is None or isinstance(value, ConsumerGroupMetadataValue)
        text = "group removed" if value is None else f"group epoch {value.epoch}"
        facts = {"event": "group", "epoch": value.epoch if value else None}
    elif isinstance(key, ConsumerGroupMemberMetadataKey):
        assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
        text, facts = _member(key.member_id, value)
    elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey) and value is not None:
        assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
        topics = [(pair.topic_id, pair.partitions) for pair in value.assigned_partitions]
        text = f"member {key.member_id} at epoch {value.member_epoch} has"
        facts = {
            "event": "assignment",
            "member_id": key.member_id,
            "member_epoch": value.member_epoch,
        }
    if not text:
        return None
    return GroupEvent(record.timestamp_ms, record.offset, text, facts, topics)


def _classic_group(value: GroupMetadataValue | None) -> tuple[str, Facts]:
    if value is None:
        return "group removed", {"event": "group", "generation": None, "members": []}
    facts: Facts = {
        "event": "group",
        "generation": value.generation,
        "protocol_type": value.protocol_type,
        "protocol": value.protocol,
        "leader": value.leader,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
            }
            for member in value.members
        ],
    }
    if not value.members:
        return f"generation {value.generation}: no members", facts
    count = len(value.members)
    members = ", ".join(f"{member.member_id} {member.client_host}" for member in value.members)
    text = f"generation {value.generation}: {value.protocol}, {count} member{'s'[: count != 1]}"
    return f"{text}: {members}", facts


def _member(member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> tuple[str, Facts]:
    facts: Facts = {"event": "member", "member_id": member_id, "gone": value is None}
    if value is None:
        return f"member {member_id} is gone", facts
    facts |= {
        "instance_id": value.instance_id,
        "client_id": value.client_id,
        "host": value.client_host,
        "topics": value.subscribed_topic_names,
        "regex": value.subscribed_topic_regex or None,
    }
    wants = [*value.subscribed_topic_names, *filter(None, [value.subscribed_topic_regex])]
    return f"member {member_id} {value.client_host} subscribes to {', '.join(wants)}", facts
