"""What a broker of a test has around it: its data in memory has a bound."""

from __future__ import annotations

from broker.surroundings import SURROUNDINGS, Surroundings
from storage.bounded_filesystem import BoundedFilesystem


def surroundings(data: str, bytes_max: int | None) -> Surroundings:
    """Those of any broker, but for a bound of the bytes in its data directory."""
    if bytes_max is None:
        return SURROUNDINGS
    return SURROUNDINGS._replace(files=BoundedFilesystem(data, bytes_max))
