"""Lines on standard output, and how far it is on standard error."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TextIO

from broker.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Iterable


def print_lines(lines: Iterable[str]) -> None:
    """On standard output."""
    for line in lines:
        say(line, sys.stdout)


def print_json(content: object) -> None:
    """One line."""
    sys.stdout.write(json.dumps(content) + "\n")


def say(text: str, stream: TextIO) -> None:
    """One line. Ids and metadata may hold anything, also what a terminal would obey."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    encoding = stream.encoding or "utf-8"
    stream.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")


class ProgressLine:
    """Offsets gone through of all, on standard error: rewritten in place on a terminal, a line
    every few seconds elsewhere if that is wanted."""

    EVERY_S = 0.2
    EVERY_S_ELSEWHERE = 5.0

    def __init__(self, wanted: bool) -> None:
        self.total = 0
        self._done = 0
        self._clock = monotonic_s
        self._began = self._told = monotonic_s()
        self._in_place = sys.stderr.isatty()
        self._shown = False
        self._on = wanted or self._in_place

    def more(self, offsets: int) -> None:
        """So many more have been gone through."""
        self._done += offsets
        now = self._clock()
        every_s = self.EVERY_S if self._in_place else self.EVERY_S_ELSEWHERE
        if not self._on or now - self._told < every_s:
            return
        self._told = now
        left_s = (now - self._began) * (self.total - self._done) / max(self._done, 1)
        text = f"{self._done} of {self.total} offsets of the log, {left_s:.0f} s left"
        sys.stderr.write(f"\r{text}\x1b[K" if self._in_place else f"{text}\n")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        """Make room for an ordinary line."""
        if self._shown and self._in_place:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._shown = False
