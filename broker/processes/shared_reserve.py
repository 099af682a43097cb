"""The reserve of a directory that several processes serve: their supervisor keeps it.

A process that finds no room takes no more records at once, and tells the supervisor, which gives up
the reserve and has all of them take none. All begin again when the supervisor says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.partitions.disk_state import nobody_asks
from broker.supervision.line import FULL, RESERVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.supervision.line import Line

REASON_CHARS_MAX = 500
"""A word has to fit a line."""


class SharedReserve:
    """What one of the processes has of it."""

    def __init__(self, line: Line, *, decides_size: bool) -> None:
        """`decides_size` is the process whose settings hold for it."""
        self._line = line
        self._decides_size = decides_size
        self._unanswered: str | None = None
        """What the supervisor was told and has not answered."""
        self.changed: Callable[[bool], None] = nobody_asks
        self.full = False

    def noticed(self, reason: str) -> None:
        """Something found no room here."""
        if self.full:
            return
        self._unanswered = reason[:REASON_CHARS_MAX]
        self._set(full=True)
        self.look()

    def told(self, *, full: bool) -> None:
        """The supervisor says how it is in all of them."""
        self._unanswered = None
        if full != self.full:
            self._set(full=full)

    def look(self) -> None:
        """Tell the supervisor, until it answers: a word is lost when the line is full."""
        if self._unanswered is not None:
            self._line.say(FULL, reason=self._unanswered)

    def configure(self, size: int) -> None:
        """Have the supervisor keep a reserve of so many bytes."""
        if self._decides_size:
            self._line.say(RESERVE, bytes=size)

    def release(self) -> None:
        """Nothing: the supervisor gives it up before it asks any of them to stop."""

    def _set(self, *, full: bool) -> None:
        self.full = full
        self.changed(full)
