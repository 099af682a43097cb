"""Checks of a ConsumerGroupHeartbeat before its group is looked at (KIP-848).

The texts are close to Kafka's, as people search for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.consumer.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    MemberFacts,
)
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.coordinator.effects import Caller, GroupRules
    from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MEMBER_ID_MAX_BYTES = 32_767
"""The request could carry more; the keys of the records cannot."""

MEMBER_CHOOSES_ITS_ID = 1
"""The first version in which a member comes with an id of its own making (KIP-1082)."""


def check_request(
    request: ConsumerGroupHeartbeatRequest, caller: Caller, rules: GroupRules
) -> None:
    """Raises KafkaError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if caller.version >= MEMBER_CHOOSES_ITS_ID or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _not_empty(request.member_id, "MemberId")
    if len(request.member_id.encode(errors="surrogateescape")) > MEMBER_ID_MAX_BYTES:
        raise _invalid(f"MemberId can't be longer than {MEMBER_ID_MAX_BYTES} bytes.")
    _not_empty(request.group_id, "GroupId")
    _not_empty(request.instance_id, "InstanceId")
    _not_empty(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_FOR_A_WHILE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in rules.assignors:
        raise KafkaError(
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(rules.assignors)}.",
            code=ErrorCode.UNSUPPORTED_ASSIGNOR,
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms < 0:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    # Either may be empty: such a member belongs to the group and reads nothing.
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything, as it does when it may have missed an answer."""
    return (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def updated_facts(
    facts: MemberFacts, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> MemberFacts:
    """All that the member has said so far, and now. Null is: as before."""
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    return MemberFacts(
        facts.instance_id if request.instance_id is None else request.instance_id,
        facts.rack_id if request.rack_id is None else request.rack_id,
        caller.client_id,
        caller.client_host,
        facts.topic_names if names is None else tuple(sorted(set(names))),
        facts.regex if regex is None else regex,
        facts.rebalance_timeout_ms
        if request.rebalance_timeout_ms < 0
        else request.rebalance_timeout_ms,
        facts.assignor if request.server_assignor is None else request.server_assignor,
    )


def _not_empty(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(message, code=ErrorCode.INVALID_REQUEST)
