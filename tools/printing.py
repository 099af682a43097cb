"""The output of commands: lines on standard output, and progress on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from broker.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOTHING = "-"
"""A cell of a table without content."""


def print_lines(lines: Iterable[str]) -> None:
    """On standard output."""
    for line in lines:
        say(line, sys.stdout)


def print_json(content: object) -> None:
    """One line."""
    import json  # for the few commands that want it, not for every start

    sys.stdout.write(json.dumps(content) + "\n")


def counted(count: int, name: str) -> str:
    """`1 offset`, `2 offsets`."""
    return f"{count} {name}{'s'[: count != 1]}"


def say(text: str, stream: TextIO) -> None:
    """One line. Names, ids and metadata may hold anything, also what a terminal would obey."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    encoding = stream.encoding or "utf-8"
    stream.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines with aligned columns, numbers to the right. A column without content is left out."""
    cells = [[NOTHING if cell in (None, "") else str(cell) for cell in row] for row in rows]
    columns = [
        [name, *column]
        for name, *column in zip(head, *cells, strict=True)
        if not column or any(cell != NOTHING for cell in column)
    ]
    aligned = []
    for column in columns:
        width = max(map(len, column))
        numbers = all(cell == NOTHING or _is_number(cell) for cell in column[1:])
        aligned.append([cell.rjust(width) if numbers else cell.ljust(width) for cell in column])
    return ["  ".join(line).rstrip() for line in zip(*aligned, strict=True)]


def _is_number(text: str) -> bool:
    return text.lstrip("+-").replace(".", "", 1).isdecimal()


def discard_output() -> None:
    """Drop what is left of standard output, whose reader has gone; the interpreter would complain
    of it at its end."""
    with suppress(BrokenPipeError):
        sys.stdout.close()


class ProgressLine:
    """Progress, and the time that is left of a total that is known, on standard error: rewritten in
    place on a terminal, a line every few seconds elsewhere if that is `wanted`."""

    EVERY_S = 0.2
    EVERY_S_ELSEWHERE = 5.0

    def __init__(self, wanted: bool, total: int = 0) -> None:
        self.total = total
        self.done = 0
        self._began = self._told = monotonic_s()
        self._in_place = sys.stderr.isatty()
        self._shown = False
        self._on = wanted or self._in_place

    def so_far(self) -> str:
        """The progress, without the time that is left."""
        raise NotImplementedError

    def more(self, count: int) -> None:
        """So much more is done."""
        self.done += count
        if not self._on:
            return
        now = monotonic_s()
        if now - self._told < (self.EVERY_S if self._in_place else self.EVERY_S_ELSEWHERE):
            return
        self._told = now
        text = self.so_far()
        if self.total:
            left_s = self.seconds() * (self.total - self.done) / max(self.done, 1)
            text += f", {left_s:.0f} s left"
        sys.stderr.write(f"\r{text}\x1b[K" if self._in_place else f"{text}\n")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        """Make room for an ordinary line."""
        if self._shown and self._in_place:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._shown = False

    def seconds(self) -> float:
        """Since the beginning."""
        return monotonic_s() - self._began


class BytesOfLogs(ProgressLine):
    """Bytes that have been looked at."""

    def so_far(self) -> str:
        return f"{_megabytes(self.done)} of {_megabytes(self.total)}, {self._speed()}"

    def summary(self) -> str:
        """The work done, in one phrase."""
        return f"{_megabytes(self.done)} of logs in {self.seconds():.1f} s, {self._speed()}"

    def _speed(self) -> str:
        return f"{self.done / max(self.seconds(), 1e-3) / 1e6:.0f} MB/s"


class OffsetsOfLog(ProgressLine):
    """Offsets that have been gone through."""

    def so_far(self) -> str:
        return f"{self.done} of {self.total} offsets of the log"


class Records(ProgressLine):
    """Records that have been written or read."""

    def so_far(self) -> str:
        of_total = f" of {self.total:,}" if self.total else ""
        rate = self.done / max(self.seconds(), 1e-3)
        return f"{self.done:,}{of_total} records, {rate:,.0f}/s"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
