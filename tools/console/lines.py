"""Numbers over the last hour, one for each minute, and the lines that are drawn of them."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

MINUTES = 60
POINTS_MIN = 10
"""Of a line, in minutes: of a shorter time it takes a part of the width."""
LINES_MAX = 5_000
"""Things of a kind whose last hour is kept; those that come later have none."""


class Line:
    """A number for each minute of the last hour; what was not seen is missing."""

    __slots__ = ("_last", "_values")

    def __init__(self) -> None:
        self._values = array("f", [math.nan] * MINUTES)
        self._last = -1

    def add(self, minute: int, value: float) -> None:
        """The number of a minute, which is counted from anywhere and never goes back."""
        for skipped in range(max(self._last + 1, minute - MINUTES + 1), minute):
            self._values[skipped % MINUTES] = math.nan
        self._values[minute % MINUTES] = value
        self._last = minute

    def points(self, minute: int) -> list[float | None]:
        """Those up to this minute, the oldest first."""
        return [self._point(one) for one in range(minute - MINUTES + 1, minute + 1)]

    def _point(self, minute: int) -> float | None:
        if minute < 0 or minute > self._last or minute <= self._last - MINUTES:
            return None
        value = self._values[minute % MINUTES]
        return None if math.isnan(value) else value


class Lines:
    """The last hour of many things by their names; at most `LINES_MAX`."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def note(self, minute: int, values: Iterable[tuple[str, float]]) -> None:
        """Those of a minute."""
        for name, value in values:
            line = self._lines.get(name)
            if line is None:
                if len(self._lines) >= LINES_MAX:
                    continue
                line = self._lines[name] = Line()
            line.add(minute, value)

    def keep(self, names: Collection[str]) -> None:
        """Forget all others."""
        for gone in [name for name in self._lines if name not in names]:
            del self._lines[gone]

    def points(self, name: str, minute: int) -> list[float | None]:
        """Those of one up to a minute; nothing if it has none."""
        line = self._lines.get(name)
        return [] if line is None else line.points(minute)


class Totals:
    """Figures of everything together, by their names: the last of each, and its line."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._lines = Lines()
        self._minute = 0

    def note(self, minute: int, values: Mapping[str, float]) -> None:
        """Those of a look."""
        self._last, self._minute = dict(values), minute
        self._lines.note(minute, values.items())

    def last(self, name: str) -> float | None:
        return self._last.get(name)

    def line(self, name: str) -> list[float | None]:
        return self._lines.points(name, self._minute)


def minute_of(at_s: float) -> int:
    """The minute of a moment on the clock of figures; before the first look, the first."""
    return max(0, int(at_s // 60)) if math.isfinite(at_s) else 0


def svg_points(
    values: Iterable[float | None], *, width: int, height: int
) -> Iterator[list[tuple[float, float]]]:
    """The stretches of a line, each as its points; gaps part them. It begins with what is known
    first, unless that is a few minutes old."""
    every = list(values)
    first = next((at for at, value in enumerate(every) if value is not None), len(every))
    known = every[min(first, max(0, len(every) - POINTS_MIN)) :]
    top = max((one for one in known if one is not None), default=0.0) or 1.0
    step = width / max(1, len(known) - 1)
    stretch: list[tuple[float, float]] = []
    for number, value in enumerate(known):
        if value is None:
            if stretch:
                yield stretch
            stretch = []
        else:
            at = (round(number * step, 1), round(height - 1 - value / top * (height - 2), 1))
            stretch.append(at)
    if stretch:
        yield stretch
