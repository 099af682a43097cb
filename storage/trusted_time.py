"""The limits within which the wall clock is believed when something is deleted for its age.

A clock that jumps ten years ahead makes every record old enough to go. So the wall clock is
believed as far as two others agree with it: a clock that only counts, while the broker runs, and
what was noted on the disk, across a restart. What it says beyond that is believed when it has said
so for `wait_ms`, which is long enough for a person to put it right.

    while it runs   the wall clock went on by what the other clock counted, give or take a minute
    at a start      it is not before the last time noted, and at most `wait_ms` after it: how long
                    a broker may have been off without that anything is held back
    else            a jump. Until it has lasted `wait_ms`, time goes on from where it was trusted;
                    a clock that went back is taken at its word, since that deletes less

File (`clock-checkpoint` in the data directory), text: `0`, the number of lines (1), then
`trusted_ms wall_ms since_ms`: the time that was trusted and what the wall clock said when the file
was written, and what it said just after the jump, -1 if there was none (docs/formats/clock.md).
What if it is lost: the newest modification time of the checkpoints stands in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.checkpoints import read_entries
from storage.errors import MalformedFile
from storage.layout import (
    CLEAN_SHUTDOWN,
    CLOCK,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
)

if TYPE_CHECKING:
    from storage.filesystem import Filesystem

SLACK_MS = 60_000
"""Largest difference of clocks that is no jump: a time server sets a clock by seconds."""
NO_JUMP = -1

STAMPS = (CLEAN_SHUTDOWN, RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, META_PROPERTIES)
"""Files that a broker, Apache Kafka's too, writes while it runs or when it stops."""


class ClockState(NamedTuple):
    """The content of the file. All are ms since 1970."""

    trusted_ms: int
    wall_ms: int
    since_ms: int = NO_JUMP

    def encode(self) -> bytes:
        return f"0\n1\n{self.trusted_ms} {self.wall_ms} {self.since_ms}\n".encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> ClockState:
        """Raises MalformedFile."""
        entries = read_entries(data, path, field_count=3)
        if len(entries) != 1 or not data.endswith(b"\n"):
            raise MalformedFile(path, f"{len(entries)} lines of times, wanted 1")
        if not entries[0][0].isdecimal():
            raise MalformedFile(path, f"line 3: {entries[0][0]!r} is not a time")
        state = cls(*map(int, entries[0]))
        if min(state.trusted_ms, state.wall_ms) < 0 or state.since_ms < NO_JUMP:
            raise MalformedFile(path, f"times before 1970: {' '.join(entries[0])}")
        return state


def read_clock_state(files: Filesystem, path: str) -> ClockState | None:
    """State noted in the data directory at `path`, else the time it was last written to; None for a
    new directory. To be read before the directory is opened, which writes to it. Raises OSError."""
    file = f"{path}/{CLOCK}"
    try:
        return ClockState.decode(files.read_bytes(file), file)
    except (FileNotFoundError, MalformedFile):
        pass
    stamps = [f"{path}/{name}" for name in STAMPS if files.exists(f"{path}/{name}")]
    newest_ms = max((files.modified_ms(stamp) for stamp in stamps), default=None)
    return None if newest_ms is None else ClockState(newest_ms, newest_ms)


class TrustedTime:
    """The wall clock, as far as it is believed. All times are ms.

    `wall_ms` counts since 1970 and may be anything; `elapsed_ms` counts from anywhere and never
    jumps. `jump_ms` is how far the wall clock is ahead of what is believed (behind: negative), 0
    while it is believed.
    """

    def __init__(
        self, stored: ClockState | None, *, wall_ms: int, elapsed_ms: int, wait_ms: int
    ) -> None:
        stored = stored or ClockState(wall_ms, wall_ms)
        self._trusted_ms = stored.trusted_ms
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._since_ms = NO_JUMP
        self.jump_ms = 0
        if -SLACK_MS <= wall_ms - stored.trusted_ms <= wait_ms:
            self._trusted_ms = wall_ms
        else:
            was_noted = stored.since_ms != NO_JUMP and 0 <= wall_ms - stored.wall_ms <= wait_ms
            self._since_ms = stored.since_ms if was_noted else wall_ms
            self.jump_ms = wall_ms - stored.trusted_ms

    def state(self) -> ClockState:
        """The state to be noted."""
        return ClockState(self._trusted_ms, self._wall_ms, self._since_ms)

    def now_ms(self, *, wall_ms: int, elapsed_ms: int, wait_ms: int) -> int:
        """The time by which something may be deleted for its age."""
        passed_ms = elapsed_ms - self._elapsed_ms
        expected_ms = self._trusted_ms + passed_ms
        jumped = abs(wall_ms - self._wall_ms - passed_ms) > SLACK_MS
        self._wall_ms, self._elapsed_ms = wall_ms, elapsed_ms
        if abs(wall_ms - expected_ms) > SLACK_MS:
            if jumped or self._since_ms == NO_JUMP:
                self._since_ms = wall_ms
            if wall_ms - self._since_ms < wait_ms:
                self._trusted_ms = expected_ms
                self.jump_ms = wall_ms - expected_ms
                return min(wall_ms, expected_ms)
        self._trusted_ms = wall_ms
        self._since_ms = NO_JUMP
        self.jump_ms = 0
        return wall_ms
