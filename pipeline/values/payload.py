"""What a task has to know of a key or a value to have it decoded."""

from __future__ import annotations

from typing import NamedTuple


class Payload(NamedTuple):
    """How one of key and value is given to its decoder."""

    name: str
    header: bool
    """Whether it begins with Confluent's header."""
    by_spark: bool
    mark: bool
    known: frozenset[int]
    """Schema ids that need not be asked for."""
    missing: frozenset[int]
    """Those of them that the registry has not got."""
