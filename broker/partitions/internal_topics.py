"""Kafka's own topics: their names, and the settings that they are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata_names import METADATA_TOPIC

if TYPE_CHECKING:
    from config import BrokerSettings

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, METADATA_TOPIC})
"""Told apart in Metadata, never written to by Produce."""


def offsets_topic_overrides(settings: BrokerSettings) -> dict[str, str]:
    """The settings of the topic of groups and offsets, those that Kafka gives it and in the same
    order."""
    return {
        "compression.type": "producer",
        "cleanup.policy": "compact",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }


def transaction_topic_overrides(settings: BrokerSettings) -> dict[str, str]:
    """The same of the topic of transactional ids."""
    return {
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": str(settings.transaction_state_log_min_isr),
        "segment.bytes": str(settings.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
