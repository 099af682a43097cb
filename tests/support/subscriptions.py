"""The subscription of a member that joins a classic consumer group, as clients write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.membership import NEWEST, ConsumerProtocolSubscription

if TYPE_CHECKING:
    from protocol.logdata.membership import Subscription


def encode_subscription(subscription: Subscription, version: int = NEWEST) -> bytes:
    """The bytes of `version`; what it has no field for is left out."""
    pair = ConsumerProtocolSubscription.TopicPartition
    body = ConsumerProtocolSubscription(
        topics=subscription.topics,
        user_data=subscription.user_data,
        owned_partitions=[pair(topic=t, partitions=list(p)) for t, p in subscription.owned],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return version.to_bytes(2) + body.encode(version)
