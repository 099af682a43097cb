"""The names of the metadata log and of its snapshots.

The log has one partition, and a fixed id (KIP-516, KIP-595).
"""

from __future__ import annotations

from typing import NamedTuple

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\1"
METADATA_PARTITION = 0

CHECKPOINT = ".checkpoint"


class SnapshotId(NamedTuple):
    """A snapshot by its content: all records below `end_offset`, the last of them of this epoch."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name that it has once it is whole."""
        return f"{self}{CHECKPOINT}"

    def __str__(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}"

    @property
    def age(self) -> tuple[int, int]:
        """To sort by: Kafka compares epochs first."""
        return self.epoch, self.end_offset
