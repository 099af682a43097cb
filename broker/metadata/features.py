"""Features of the cluster (KIP-584): the levels that this node supports, and those that hold.

metadata.version can be raised as far as we know records, and lowered where no record is written or
read differently at the lower level.

transaction.version says how transactions are kept and ended: 0 as up to Kafka 3.9; 1 with records
that have room for more; 2 with an epoch for each transaction (KIP-890), which clients of Kafka 4 go
by. It goes with metadata.version as the next one does.

group.version says whether Apache Kafka serves consumer groups of KIP-848: 4 does at level 1 only,
and 3.9 does not start where a log names that level. So it goes with metadata.version, whose level
says which releases can open the directory. Here such groups are served at either level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.logdata.metadata_levels import (
    MAX_METADATA_VERSION,
    METADATA_VERSION,
    MIN_METADATA_VERSION,
    SINCE,
)
from storage.metadata.image import METADATA_VERSION_FEATURE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.releases import Release

KRAFT_VERSION_FEATURE = "kraft.version"
GROUP_VERSION_FEATURE = "group.version"
TRANSACTION_VERSION_FEATURE = "transaction.version"
GROUP_VERSION_SINCE = 22
"""4.0-IV0, the first metadata.version at which Kafka has group.version 1 by default."""
TRANSACTION_VERSION_SINCE = 24
"""4.0-IV2, the first metadata.version at which Kafka has transaction.version 2 by default."""
HIGHEST_TRANSACTION_VERSION = 2
LOWEST_SETTABLE = 4
"""3.3-IV0, the first level of which a log says that it is at it."""
LOWEST_ADVERTISED = 7
"""3.3-IV3, the lowest that Kafka 4 has a name for: its tools call what is below UNKNOWN."""
RANGES_IN_ACLS_SINCE = 32
"""4.4-IV1, from which on the host of an access control entry may be a range of addresses."""


class Levels(NamedTuple):
    """The lowest and the highest, both included."""

    lowest: int
    highest: int


def supported() -> dict[str, Levels]:
    """By the feature's name."""
    return {
        GROUP_VERSION_FEATURE: Levels(0, 1),
        KRAFT_VERSION_FEATURE: Levels(0, 1),
        METADATA_VERSION_FEATURE: Levels(MIN_METADATA_VERSION, MAX_METADATA_VERSION),
        TRANSACTION_VERSION_FEATURE: Levels(0, HIGHEST_TRANSACTION_VERSION),
    }


def advertised(metadata_version: int) -> dict[str, Levels]:
    """The part of `supported` that clients see, for a log at this level.

    Tools print UNKNOWN for a level newer or older than themselves. So metadata.version goes from
    what every tool since 3.9 can name to what a new directory gets, or as far as this log is; who
    asks for another that is supported gets it all the same.
    """
    lowest, highest = (
        min(LOWEST_ADVERTISED, metadata_version),
        max(METADATA_VERSION, metadata_version),
    )
    return {**supported(), METADATA_VERSION_FEATURE: Levels(lowest, highest)}


def in_release(
    release: Release, advertised: Mapping[str, Levels], finalized: Mapping[str, int]
) -> tuple[dict[str, Levels], dict[str, int]]:
    """Of these levels, advertised and finalized, what a release of Kafka could tell."""
    told = {name: levels for name, levels in advertised.items() if release.knows_feature(name)}
    hold = {name: level for name, level in finalized.items() if release.knows_feature(name)}
    if METADATA_VERSION_FEATURE in told:
        levels = Levels(*release.metadata_versions)
        told[METADATA_VERSION_FEATURE] = levels
        if METADATA_VERSION_FEATURE in hold:
            hold[METADATA_VERSION_FEATURE] = min(hold[METADATA_VERSION_FEATURE], levels.highest)
    return told, hold


def let_group_version_follow(before: Mapping[str, int], after: dict[str, int]) -> None:
    """Change group.version in the levels `after` as it goes with metadata.version: 1 where that is
    raised to a level whose Kafka has it, 0 where it is lowered to one that does not know it."""
    was, will_be = (
        levels[METADATA_VERSION_FEATURE] >= GROUP_VERSION_SINCE for levels in (before, after)
    )
    if was != will_be:
        after[GROUP_VERSION_FEATURE] = int(will_be)


def transaction_version(levels: Mapping[str, int]) -> int:
    """The level of transaction.version where these hold."""
    return levels.get(TRANSACTION_VERSION_FEATURE, 0)


def let_transaction_version_follow(before: Mapping[str, int], after: dict[str, int]) -> None:
    """Change transaction.version in the levels `after` as it goes with metadata.version: 2 where
    that is raised to a level whose Kafka begins with it, 0 where it is lowered to one of a Kafka
    that does not know it."""
    was, will_be = before[METADATA_VERSION_FEATURE], after[METADATA_VERSION_FEATURE]
    if was < TRANSACTION_VERSION_SINCE <= will_be:
        after[TRANSACTION_VERSION_FEATURE] = HIGHEST_TRANSACTION_VERSION
    elif was >= GROUP_VERSION_SINCE > will_be:
        after[TRANSACTION_VERSION_FEATURE] = 0


def records_differ(lower: int, higher: int) -> bool:
    """Whether some record says more at metadata.version `higher` than it can at `lower`, or is
    not there at all: going down could lose what it says."""
    changes = {RANGES_IN_ACLS_SINCE, *(level for levels in SINCE.values() for level in levels)}
    return any(lower < level <= higher for level in changes)
