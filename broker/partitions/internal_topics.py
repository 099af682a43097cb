"""Kafka's own topics: their names, and the settings that they are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata_names import METADATA_TOPIC

if TYPE_CHECKING:
    from config import BrokerSettings

OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL = frozenset({OFFSETS_TOPIC, "__transaction_state", METADATA_TOPIC})
"""Told apart in Metadata, never written to by Produce."""


def offsets_topic_overrides(settings: BrokerSettings) -> dict[str, str]:
    """The settings of the topic of groups and offsets, those that Kafka gives it and in the same
    order."""
    return {
        "compression.type": "producer",
        "cleanup.policy": "compact",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }
