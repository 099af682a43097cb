"""What a broker of a test has around it: files that are not synced, with a bound in memory."""

from __future__ import annotations

from broker.surroundings import SURROUNDINGS, Surroundings
from storage.bounded_filesystem import BoundedFilesystem
from storage.unsynced_filesystem import UnsyncedFilesystem


def surroundings(data: str, bytes_max: int | None) -> Surroundings:
    """Those of any broker, but for the files: of those in its data directory `bytes_max` may be
    written."""
    files = UnsyncedFilesystem() if bytes_max is None else BoundedFilesystem(data, bytes_max)
    return SURROUNDINGS._replace(files=files)
