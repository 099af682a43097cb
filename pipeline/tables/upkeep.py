"""What upkeep of a table is to do, and what it has done."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

    from pipeline.filesystem import Location


class Upkeep(NamedTuple):
    """The terms of it."""

    file_bytes: int
    """Smaller files are put together up to this size."""
    older_than: datetime
    """What was removed from the table, or superseded, before this moment (UTC) is deleted."""
    batch: int
    """The last micro-batch that the archive has."""
    staging: Location
    """A folder to write in, that is no part of the table."""
    dry_run: bool = False
    """Count only."""


class Done(NamedTuple):
    """A step that is done, or in a dry run would be."""

    step: str
    """As people call it: "files put together"."""
    count: int  # type: ignore[assignment]  # tuples have a method of this name
