"""Levels of the feature metadata.version, and what each allows in the metadata log.

A log that names no level is at 1. What is written must fit the level that the log is at: a Kafka of
that level must be able to read it.
"""

from __future__ import annotations

from bisect import bisect_right

from protocol.logdata.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from protocol.schema import Struct

METADATA_VERSION = 21
"""Level of a new directory: that of Kafka 3.9, which every 4.x opens too."""

RELEASES: dict[int, str] = {
    1: "3.0-IV1",
    2: "3.1-IV0",
    3: "3.2-IV0",
    4: "3.3-IV0",
    5: "3.3-IV1",
    6: "3.3-IV2",
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
}
"""Kafka's names of the levels."""

MIN_METADATA_VERSION = min(RELEASES)
MAX_METADATA_VERSION = max(RELEASES)
"""The newest level whose records are all known here."""

SINCE: dict[type[Struct], tuple[int, ...]] = {
    RegisterBrokerRecord: (1, 7, 8, 17, 30),
    PartitionRecord: (1, 17, 23),
    PartitionChangeRecord: (1, 17, 23),
    BrokerRegistrationChangeRecord: (6, 7, 17, 30),
    NoOpRecord: (5,),
    ZkMigrationStateRecord: (8,),
    UserScramCredentialRecord: (11,),
    RemoveUserScramCredentialRecord: (11,),
    BeginTransactionRecord: (13,),
    EndTransactionRecord: (13,),
    AbortTransactionRecord: (13,),
    DelegationTokenRecord: (14,),
    RemoveDelegationTokenRecord: (14,),
    RegisterControllerRecord: (15,),
    ClearElrRecord: (23,),
    UnregisterControllerRecord: (33,),
}
"""The lowest level of each version, from 0 on. All others have version 0 since level 1."""

_ALWAYS = (1,)


def release_of(level: int) -> str:
    """Kafka's name of the level, or its number if no release is known to have it."""
    return RELEASES.get(level, str(level))


def version_at(kind: type[Struct], level: int) -> int:
    """The highest version of this kind of record that the level allows, which Kafka writes.

    Raises ValueError where the level has no such record.
    """
    since = SINCE.get(kind, _ALWAYS)
    version = bisect_right(since, level) - 1
    if version < 0:
        raise _needs(kind, 0, level)
    return version


def fits(record: Struct, level: int) -> bool:
    """Whether the level has such a record at all."""
    return level >= SINCE.get(type(record), _ALWAYS)[0]


def record_version(record: Struct, level: int) -> int:
    """The version in which a record is written at this level of metadata.version.

    It is `version_at`, but of a BrokerRegistrationChangeRecord the lowest that has all of the
    change. Raises ValueError where the level has no such record, or not all of the change.
    """
    if not isinstance(record, BrokerRegistrationChangeRecord):
        return version_at(type(record), level)
    version = 0
    if record.cordoned_log_dirs is not None:
        version = 3
    elif record.log_dirs:
        version = 2
    elif record.in_controlled_shutdown:
        version = 1
    if level < SINCE[BrokerRegistrationChangeRecord][version]:
        raise _needs(BrokerRegistrationChangeRecord, version, level)
    return version


def _needs(kind: type[Struct], version: int, level: int) -> ValueError:
    since = SINCE.get(kind, _ALWAYS)[version]
    return ValueError(
        f"{kind.__name__} v{version} needs metadata.version {since} ({release_of(since)}), "
        f"it is {level} ({release_of(level)})"
    )
