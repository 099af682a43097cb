"""Entries that cannot be what was written: each ends the work, or is left out and told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Callable

    LeftOut = Callable[[int, int, str], None]


class Faults:
    """The bad entries of a part of a partition: of the offsets from `start` up to, without, `end`.

    `left_out` is called for each with the first and last of its offsets in this range and the
    reason. Without it the first one raises CorruptData.
    """

    def __init__(
        self, topic: str, partition: int, start: int, end: int, left_out: LeftOut | None
    ) -> None:
        self.start = start
        self.end = end
        self.topic = topic
        self.partition = partition
        self._left_out = left_out
        self._found: list[tuple[int, int, int, str]] = []

    def add(self, position: int, first: int, last: int, reason: str) -> None:
        """Note an entry. Its offsets may be damaged too: what is out of the range is not told."""
        first = min(max(first, self.start), self.end - 1)
        self._found.append((position, first, min(max(first, last), self.end - 1), reason))

    def tell(self) -> None:
        """Raise for the first of those noted since the last call, or tell them all in order."""
        for _, first, last, reason in sorted(self._found):
            if self._left_out is None:
                raise CorruptData(f"{self.topic}-{self.partition} offset {first}: {reason}")
            self._left_out(first, last, reason)
        self._found.clear()
