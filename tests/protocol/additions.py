"""Fields of our messages and records that Kafka does not have: each tagged, so that others step
over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import PartitionChangeRecord, PartitionRecord
from protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from protocol.messages.offset_commit import OffsetCommitRequest

if TYPE_CHECKING:
    from protocol.fields import Field, StructType

FIRST_TAG = 10_000
"""Kafka counts its tags from 0, and will hardly come here."""

ADDITIONS: dict[StructType, dict[str, int]] = {
    OffsetCommitRequest.Topic.Partition: {"expected_offset": 10_000},
    PartitionRecord: {"process": 10_000},
    PartitionChangeRecord: {"process": 10_000},
    DescribeLogDirsResponse.Result.Topic.Partition: {
        "held_records": 10_000,
        "held_bytes": 10_001,
        "held_since_ms": 10_002,
        "held_for": 10_003,
    },
}
"""By struct: the names of the fields and their tags."""


def kafkas_fields(cls: StructType, version: int) -> list[Field]:
    """The fields of a struct in a version, less those that are ours alone."""
    ours = ADDITIONS.get(cls, {})
    return [f for f in cls._fields if f.versions.holds(version) and f.name not in ours]
