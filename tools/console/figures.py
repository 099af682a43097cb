"""What grows, and how fast, and who is behind: figures that the broker is asked for every few
seconds.

All that is kept is bounded: of each topic the last figures, two older ones to take rates from, and
a number for each minute of an hour; of each group the last figures and its hour.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.console.lines import Lines, Totals, minute_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

LOOK_EVERY_S = 5.0
"""At topics; at groups every fourth time, for it takes the broker longer."""
LAGS_EVERY = 4
TOPICS_FRESH_S = 1.0
LAGS_FRESH_S = 5.0
"""What is older is asked for again before it is shown."""
RATE_OVER_S = 60.0
"""A rate is taken over this time to twice as long, or since the first look."""


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


RATED = ("bytes_in", "bytes_out", "end")
"""The figures whose growth `Rates` has, in its order."""
NOTHING = TopicFigures(0, 0, 0, 0, 0)


class Topics(Mapping[str, TopicFigures]):
    """The figures of topics by name: a column of numbers for each, since there may be thousands."""

    def __init__(self, index: dict[str, int], columns: Sequence[array[int]]) -> None:
        """`index` has the row of each topic, `columns` are those of TopicFigures."""
        self.index = index
        self.columns = columns

    @classmethod
    def told(cls, page: Mapping[str, Any], before: Topics) -> Topics:
        """Those of the broker's page."""
        names = page["names"]
        same = len(names) == len(before) and all(map(str.__eq__, names, before))
        index = before.index if same else {name: row for row, name in enumerate(names)}
        return cls(index, [array("q", page[name]) for name in TopicFigures._fields])

    def column(self, name: str) -> array[int]:
        """All numbers of a field of TopicFigures."""
        return self.columns[TopicFigures._fields.index(name)]

    def __getitem__(self, name: str) -> TopicFigures:
        row = self.index[name]
        return TopicFigures(*(column[row] for column in self.columns))

    def __iter__(self) -> Iterator[str]:
        return iter(self.index)

    def __len__(self) -> int:
        return len(self.index)


class Look(NamedTuple):
    """All topics at a time, in seconds on the clock of `Figures`."""

    at_s: float
    topics: Topics


class Figures:
    """The looks and what follows from them. For any thread."""

    def __init__(self, ask: Callable[[], Any], clock_s: Callable[[], float]) -> None:
        """`ask` brings the broker's page of figures; it raises `broker_port.NoAnswer`."""
        self._ask = ask
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._last = Look(-math.inf, Topics({}, [array("q") for _ in TopicFigures._fields]))
        self._references: tuple[Look, ...] = ()
        self._lines = Lines()
        self._totals = Totals()
        self.total = self._totals.last
        self.total_line = self._totals.line

    def look(self) -> None:
        """Ask the broker. Raises NoAnswer."""
        page = self._ask()["topics"]
        with self._lock:
            self._take(Look(self._clock_s(), Topics.told(page, self._last.topics)))

    def fresh(self, names: Collection[str] = ()) -> Mapping[str, TopicFigures]:
        """The figures of all topics, at most a second old; `names` are some that exist, and not
        younger. Raises NoAnswer."""
        is_old = self._clock_s() - self._last.at_s > TOPICS_FRESH_S
        if is_old or not all(name in self._last.topics.index for name in names):
            self.look()
        return self._last.topics

    def rates(self, name: str) -> Rates:
        """Those of a topic, over the last minute or two."""
        now, before = self._last, next(iter(self._references), None)
        if before is None or name not in now.topics.index or now.at_s <= before.at_s:
            return Rates()
        new, old = now.topics[name], before.topics.get(name, NOTHING)
        elapsed_s = now.at_s - before.at_s
        return Rates(*(_grown(getattr(new, one), getattr(old, one)) / elapsed_s for one in RATED))

    def line(self, name: str) -> list[float | None]:
        """Bytes a second into a topic, by minutes, the oldest first, the one that runs included."""
        return self._lines.points(name, minute_of(self._last.at_s))

    def _take(self, look: Look) -> None:
        self._last = look
        old = [one for one in self._references if look.at_s - one.at_s <= 2 * RATE_OVER_S]
        if not old or look.at_s - old[-1].at_s >= RATE_OVER_S:
            old.append(look)
        self._references = tuple(old)
        minute, before = minute_of(look.at_s), old[0]
        sums = {name: float(sum(look.topics.column(name))) for name in ("byte_size", "records")}
        sums["topics"] = len(look.topics)
        elapsed_s = look.at_s - before.at_s
        if elapsed_s > 0:
            self._lines.keep(look.topics.index)
            for rate, name in zip(Rates._fields, RATED, strict=True):
                grown = _growth(look.topics, before.topics, name)
                sums[rate] = sum(grown) / elapsed_s
                if rate == "bytes_in":
                    rates = (bytes_in / elapsed_s for bytes_in in grown)
                    self._lines.note(minute, zip(look.topics, rates, strict=True))
        self._totals.note(minute, sums)


def _growth(now: Topics, before: Topics, name: str) -> array[int]:
    """By how much a figure of each topic has grown, in the order of `now`."""
    new, old = now.column(name), before.column(name)
    if now.index is before.index:
        return array("q", map(_grown, new, old))
    rows = map(before.index.get, now.index)
    return array(
        "q",
        (
            _grown(value, 0 if row is None else old[row])
            for value, row in zip(new, rows, strict=True)
        ),
    )


def _grown(new: int, old: int) -> int:
    """A topic that was not there before has begun with nothing, as one that was made anew has."""
    return new - old if new >= old else new


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
        self._totals = Totals()
        self.total = self._totals.last
        self.total_line = self._totals.line

    def look(self) -> None:
        """Ask the broker. Raises NoAnswer."""
        told = self._ask()
        groups = {name: GroupFigures(*row) for name, row in told["groups"].items()}
        with self._lock:
            self._at_s, self._groups = self._clock_s(), groups
            minute = minute_of(self._at_s)
            self._lines.keep(groups)
            self._lines.note(minute, ((name, one.seconds) for name, one in groups.items()))
            sums = {
                "seconds": max((one.seconds for one in groups.values()), default=0.0),
                "lag": sum(one.records for one in groups.values()),
                "groups": len(groups),
            }
            self._totals.note(minute, sums)

    def fresh(self, names: Collection[str] = ()) -> Mapping[str, GroupFigures]:
        """Of all groups, a few seconds old. Raises NoAnswer."""
        is_old = self._clock_s() - self._at_s > LAGS_FRESH_S
        if is_old or not all(name in self._groups for name in names):
            self.look()
        return self._groups

    def line(self, name: str) -> list[float | None]:
        """How long a group was behind, in seconds, by minutes, the oldest first."""
        return self._lines.points(name, minute_of(self._at_s))
