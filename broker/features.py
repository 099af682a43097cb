"""Features of the cluster (KIP-584): which levels this node can work with, and which ones hold.

metadata.version can be raised as far as we know records, and lowered where no record is written or
read differently at the lower level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.logdata.metadata_levels import (
    MAX_METADATA_VERSION,
    MIN_METADATA_VERSION,
    SINCE,
)
from storage.metadata.image import METADATA_VERSION_FEATURE

if TYPE_CHECKING:
    from broker.controller import Controller

KRAFT_VERSION_FEATURE = "kraft.version"
LOWEST_SETTABLE = 4
"""3.3-IV0, the first level of which a log says that it is at it."""
RANGES_IN_ACLS_SINCE = 32
"""4.4-IV1, from which on the host of an access control entry may be a range of addresses."""


class Levels(NamedTuple):
    """The lowest and the highest, both included."""

    lowest: int
    highest: int


def supported() -> dict[str, Levels]:
    """By the feature's name."""
    return {
        KRAFT_VERSION_FEATURE: Levels(0, 1),
        METADATA_VERSION_FEATURE: Levels(MIN_METADATA_VERSION, MAX_METADATA_VERSION),
    }


def finalized(controller: Controller) -> dict[str, int]:
    """The levels that hold, as far as there are any: of all features that the log names, those too
    that mean nothing to this node."""
    found = dict(controller.image.features)
    kraft_version = controller.store.log.kraft_version
    if kraft_version:
        found[KRAFT_VERSION_FEATURE] = kraft_version
    return found


def records_differ(lower: int, higher: int) -> bool:
    """Whether some record says more at metadata.version `higher` than it can at `lower`, or is
    not there at all: going down could lose what it says."""
    changes = {RANGES_IN_ACLS_SINCE, *(level for levels in SINCE.values() for level in levels)}
    return any(lower < level <= higher for level in changes)
