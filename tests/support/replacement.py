"""A replacement of segments in one go, which the broker makes in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import StorageError
from storage.replacing import Replacing

if TYPE_CHECKING:
    from storage.cleaning.cleaning import CleanedGroup
    from storage.log import Log


def replace_segments(log: Log, group: CleanedGroup) -> bool:
    """Put a finished group in the place of its sources, here and now, with all syncs.

    False, with the group's `.cleaned` files removed, if a source is gone: retention, DeleteRecords,
    or the topic was deleted. Raises OSError or StorageError if the disk refuses; then the log is
    what it was, unless that could not be undone and it has failed.
    """
    replacing = Replacing(log, group)
    if not replacing.is_possible():
        replacing.retract()
        return False
    try:
        replacing.commit()
        replacing.swap()
    except (OSError, StorageError):
        replacing.retract()
        raise
    replacing.finish()
    return True
