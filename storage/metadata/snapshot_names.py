"""Names of snapshot files.

    00000000000000000123-0000000004.checkpoint               a snapshot: end offset 123, epoch 4
    00000000000000000123-0000000004-<unique>.checkpoint.part one being written
    00000000000000000123-0000000004.checkpoint.part          one being fetched from another process
    00000000000000000123-0000000004.checkpoint.deleted       one that is to be removed
    bootstrap.checkpoint                                     what a new cluster begins with

The draft of KIP-630 wrote the epoch without leading zeros and the last offset; Kafka has ten
digits and the offset after it (storage.md 12.1, 12.4).
"""

from __future__ import annotations

import re

from protocol.logdata.metadata_names import CHECKPOINT as CHECKPOINT
from protocol.logdata.metadata_names import SnapshotId as SnapshotId
from storage.layout import DELETED, LARGEST_OFFSET

PART = ".part"
"""Appended to a whole name: not finished, of no use after a restart."""
BOOTSTRAP = "bootstrap.checkpoint"

LARGEST_EPOCH = 2**31 - 1

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_LEFT_OVER = re.compile(
    r"[0-9]{20}-[0-9]{10}(?:-[^/]*)?\.checkpoint"
    rf"(?:{re.escape(PART)}|{re.escape(DELETED)})"
)


def snapshot_id_of(name: str) -> SnapshotId | None:
    """The id in a file's name, without its folder; None if this is not a whole snapshot's."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    found = SnapshotId(int(match[1]), int(match[2]))
    if found.end_offset > LARGEST_OFFSET or found.epoch > LARGEST_EPOCH:
        return None
    return found


def is_left_over(name: str) -> bool:
    """Whether a start may remove this file: an unfinished snapshot, or one set aside for removal.

    (Kafka does the same: storage.md 12.3, M9.)
    """
    return _LEFT_OVER.fullmatch(name) is not None
