"""The topic in which groups and offsets are kept, and how it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config import BrokerSettings

NAME = "__consumer_offsets"


def overrides(settings: BrokerSettings) -> dict[str, str]:
    """Its settings, those that Kafka gives it and in the same order."""
    return {
        "compression.type": "producer",
        "cleanup.policy": "compact",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }
