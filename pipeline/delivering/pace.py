"""The pace of a replay: records come when their times say, a chosen multiple as fast.

All partitions follow one clock, on which a time of the records is due at a time of the world. The
driver keeps it in rounds of some seconds (`Schedule`); the tasks of a round wait for what is due in
it (`Paced`), and say how far they came and when the next is due. So what has been done is noted
each few seconds, and a pause of all partitions costs nothing but the driver's sleep. What is late
is sent at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pipeline.delivering.record_sets import RecordSet

ROUND_MS = 10_000
"""How long tasks wait for what is not due yet."""
LEAD_MS = 1_000
"""Spark begins a round so much before something is due."""
SLEEP_MAX_MS = 600_000
"""Between two rounds, so that a server of Spark Connect keeps the session."""
TOGETHER_MS = 100
"""Archived records are sent in batches of which each has times of one such stretch."""


class Clock(NamedTuple):
    """The time of the world, in ms since 1970, a sleep in seconds, and a time in ms that nobody
    sets. Picklable."""

    now_ms: Callable[[], int]
    sleep: Callable[[float], None]
    steady_ms: Callable[[], int]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _steady_ms() -> int:
    return time.monotonic_ns() // 1_000_000


SYSTEM_CLOCK = Clock(_now_ms, time.sleep, _steady_ms)


class Pace(NamedTuple):
    """The clock of one round. Picklable."""

    speed: float
    origin_ms: int | None
    """This time of the records is due ...; None: nothing is due, and the round only finds the first
    times."""
    world_ms: int
    """... at this time of the world."""
    until_ms: int
    """What is due later is not waited for."""

    def due_ms(self, time_ms: int) -> int:
        """When a record with this time is due, in the time of the world."""
        if self.origin_ms is None:
            return self.until_ms + 1
        return self.world_ms + round((time_ms - self.origin_ms) / self.speed)


@dataclass
class Paced:
    """The sets of one partition in one round, each when the last of its records is due."""

    pace: Pace
    begin: int
    """The source's offset of the first."""
    clock: Clock = SYSTEM_CLOCK
    reached: int | None = None
    """The source's offset to go on at, if something was left for later."""
    next_ms: int | None = None
    """The time of what was left."""
    behind_ms: int = 0
    """How late the last one was."""

    def sets(self, sets: Iterable[RecordSet]) -> Iterator[RecordSet]:
        """Those that are due in this round."""
        last = self.begin - 1
        for one in sets:
            # Several may have been made of what ends at one offset: those stay together.
            if one.max_timestamp != NO_TIMESTAMP and one.last > last:
                due_ms = self.pace.due_ms(one.max_timestamp)
                if due_ms > self.pace.until_ms:
                    self.reached, self.next_ms = last + 1, one.max_timestamp
                    return
                self._wait(due_ms)
            yield one
            last = one.last

    def _wait(self, due_ms: int) -> None:
        # Longer than a round would be only where the clock of the world was set back.
        until_ms = self.clock.steady_ms() + ROUND_MS
        while (left_ms := due_ms - self.clock.now_ms()) > 0:
            most_ms = until_ms - self.clock.steady_ms()
            if most_ms <= 0:
                break
            self.clock.sleep(min(left_ms, most_ms) / 1000)
        self.behind_ms = max(0, -left_ms)


class Schedule:
    """The driver's part: which round comes next, and when. It goes by steady time, so that a clock
    that is set disturbs no more than the round that it is set in."""

    def __init__(
        self, speed: float, *, longest_wait_ms: int | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._clock = clock
        self._speed = speed
        self._longest_wait_ms = longest_wait_ms
        self._round_ms = min(ROUND_MS, longest_wait_ms or ROUND_MS)
        self._origin_ms: int | None = None
        """This time of the records is due ..."""
        self._steady_ms = 0
        """... at this steady time."""

    def pace(self) -> Pace:
        """That of the round which begins now."""
        now_ms = self._clock.now_ms()
        world_ms = now_ms + self._steady_ms - self._clock.steady_ms()
        return Pace(self._speed, self._origin_ms, world_ms, now_ms + self._round_ms)

    def wait_for(self, next_ms: Iterable[int]) -> None:
        """Sleep until the first of these times of records is nearly due, or for SLEEP_MAX_MS.

        The first times of all are due now. A wait that would be longer than the longest becomes
        that, and all that follows comes so much earlier.
        """
        first_ms = min(next_ms, default=None)
        if first_ms is None:
            return
        now_ms = self._clock.steady_ms()
        if self._origin_ms is None:
            self._origin_ms, self._steady_ms = first_ms, now_ms
            return
        due_ms = Pace(self._speed, self._origin_ms, self._steady_ms, now_ms).due_ms(first_ms)
        most_ms = self._longest_wait_ms
        if most_ms is not None and due_ms - now_ms > most_ms:
            self._steady_ms -= due_ms - now_ms - most_ms
            due_ms = now_ms + most_ms
        wait_ms = min(due_ms - now_ms - LEAD_MS, SLEEP_MAX_MS)
        if wait_ms > 0:
            self._clock.sleep(wait_ms / 1000)
