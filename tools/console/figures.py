"""What grows, and how fast: figures that are read from the broker every few seconds, kept an hour.

All that is kept is bounded: of each topic the last figures, two older ones to take rates from, and
a number for each minute of an hour; of the broker as a whole a number for each look.
"""

from __future__ import annotations

import math
import threading
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

LOOK_EVERY_S = 5.0
"""At topics; at groups every fourth time, for it takes the broker longer."""
LAGS_EVERY = 4
TOPICS_FRESH_S = 1.0
LAGS_FRESH_S = 5.0
"""What is older is asked for again before it is shown."""
RATE_OVER_S = 60.0
"""A rate is taken over this time to twice as long, or since the first look."""
MINUTES = 60
LINES_MAX = 5_000
"""Topics whose last hour is kept, and groups; those that come later have none."""


class TopicFigures(NamedTuple):
    """A topic at one look, as the broker tells it (`broker.metrics.figures`)."""

    bytes_in: int
    bytes_out: int
    byte_size: int
    records: int
    end: int


class Rates(NamedTuple):
    """What goes into and out of a topic in a second; None while it is not known yet."""

    bytes_in: float | None = None
    bytes_out: float | None = None
    records_in: float | None = None


class Look(NamedTuple):
    """All topics at a time, in seconds on the clock of `Figures`."""

    at_s: float
    topics: Mapping[str, TopicFigures]


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

    def note(self, minute: int, values: Mapping[str, float]) -> None:
        """Those of a minute; what is not among them any more is forgotten."""
        for gone in self._lines.keys() - values.keys():
            del self._lines[gone]
        for name, value in values.items():
            line = self._lines.get(name)
            if line is None:
                if len(self._lines) >= LINES_MAX:
                    continue
                line = self._lines[name] = Line()
            line.add(minute, value)

    def points(self, name: str, minute: int) -> list[float | None]:
        """Those of one up to a minute; nothing if it has none."""
        line = self._lines.get(name)
        return [] if line is None else line.points(minute)


class Figures:
    """The looks and what follows from them. For any thread."""

    def __init__(self, ask: Callable[[], Any], clock_s: Callable[[], float]) -> None:
        """`ask` brings the broker's page of figures; it raises `broker_port.NoAnswer`."""
        self._ask = ask
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._last = Look(-math.inf, {})
        self._references: tuple[Look, ...] = ()
        self._lines = Lines()

    def look(self) -> None:
        """Ask the broker. Raises NoAnswer."""
        told = self._ask()
        topics = {name: TopicFigures(*row) for name, row in told["topics"].items()}
        with self._lock:
            self._take(Look(self._clock_s(), topics))

    def fresh(self, names: Collection[str] = ()) -> Mapping[str, TopicFigures]:
        """The figures of all topics, at most a second old; `names` are some that exist, and not
        younger. Raises NoAnswer."""
        is_old = self._clock_s() - self._last.at_s > TOPICS_FRESH_S
        if is_old or not self._last.topics.keys() >= set(names):
            self.look()
        return self._last.topics

    def rates(self, name: str) -> Rates:
        """Those of a topic, over the last minute or two."""
        now, before = self._last, self._reference()
        if before is None or name not in now.topics:
            return Rates()
        return _rates(now, before, name)

    def line(self, name: str) -> list[float | None]:
        """Bytes a second into a topic, by minutes, the oldest first, the one that runs included."""
        return self._lines.points(name, minute_of(self._last.at_s))

    def _reference(self) -> Look | None:
        return next(iter(self._references), None)

    def _take(self, look: Look) -> None:
        self._last = look
        old = [one for one in self._references if look.at_s - one.at_s <= 2 * RATE_OVER_S]
        if not old or look.at_s - old[-1].at_s >= RATE_OVER_S:
            old.append(look)
        self._references = tuple(old)
        grown = {name: _rates(look, old[0], name).bytes_in for name in look.topics}
        self._lines.note(
            minute_of(look.at_s), {name: one for name, one in grown.items() if one is not None}
        )


class GroupFigures(NamedTuple):
    """A group at one look, as the broker tells it (`broker.metrics.figures`)."""

    partitions: int
    records: int
    seconds: float
    members: int


class Lags:
    """How far groups are behind: the last look, and a line for each over an hour. For any
    thread."""

    def __init__(self, ask: Callable[[], Any], clock_s: Callable[[], float]) -> None:
        """`ask` brings the broker's page of groups; it raises `broker_port.NoAnswer`."""
        self._ask = ask
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._at_s = -math.inf
        self._groups: Mapping[str, GroupFigures] = {}
        self._lines = Lines()

    def look(self) -> None:
        """Ask the broker. Raises NoAnswer."""
        told = self._ask()
        groups = {name: GroupFigures(*row) for name, row in told["groups"].items()}
        with self._lock:
            self._at_s, self._groups = self._clock_s(), groups
            seconds = {name: one.seconds for name, one in groups.items()}
            self._lines.note(minute_of(self._at_s), seconds)

    def fresh(self, names: Collection[str]) -> Mapping[str, GroupFigures]:
        """Of all groups, a few seconds old. Raises NoAnswer."""
        is_old = self._clock_s() - self._at_s > LAGS_FRESH_S
        if is_old or not self._groups.keys() >= set(names):
            self.look()
        return self._groups

    def line(self, name: str) -> list[float | None]:
        """How long a group was behind, in seconds, by minutes, the oldest first."""
        return self._lines.points(name, minute_of(self._at_s))


def minute_of(at_s: float) -> int:
    """The minute on the clock of figures; before the first look, the first."""
    return max(0, int(at_s // 60)) if math.isfinite(at_s) else 0


def _rates(now: Look, before: Look, name: str) -> Rates:
    """A topic that was not there before has begun with nothing."""
    elapsed_s = now.at_s - before.at_s
    if elapsed_s <= 0:
        return Rates()
    new, old = now.topics[name], before.topics.get(name, TopicFigures(0, 0, 0, 0, 0))
    # After a restart of the broker counters begin again, and a topic may have been made anew.
    return Rates(
        *(
            max(0, grown) / elapsed_s
            for grown in (
                new.bytes_in - old.bytes_in,
                new.bytes_out - old.bytes_out,
                new.end - old.end,
            )
        )
    )


def svg_points(
    values: Iterable[float | None], *, width: int, height: int
) -> Iterator[list[tuple[float, float]]]:
    """The stretches of a line, each as its points; gaps part them."""
    known = list(values)
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
