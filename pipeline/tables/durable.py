"""The files of a table's log, on the disk: the packages leave that to the system."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.filesystem import sync

if TYPE_CHECKING:
    from pipeline.filesystem import Location


def keep(log: Location, kept: frozenset[str]) -> frozenset[str]:
    """Bring the files in a folder to the disk, but for those that are `kept` already; all that are
    there now. Raises OSError."""
    if not log.is_local or not log.exists():
        return kept
    names = frozenset(file.name for file in Path(log.path).iterdir())
    for name in names - kept:
        # Others clear away old ones.
        with contextlib.suppress(FileNotFoundError):
            sync(log.under(name).path)
    sync(log.path)
    return names
