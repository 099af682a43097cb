"""The time by which the broker deletes for age: records, tombstones, offsets, producers.

It is the wall clock, held back where that has jumped (`storage.trusted_time`). A jump and its end
are one log line each; `triglot_clock_jump_seconds` is how far the two are apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock, logs
from storage.layout import CLOCK
from storage.trusted_time import TrustedTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.workers import Worker
    from storage.filesystem import Filesystem
    from storage.trusted_time import ClockState

LOOK_EVERY_S = 60.0


class DeletionClock:
    """Belongs to the loop. `wall_ms` and `elapsed_ms` are the clocks, `wait_ms` the setting
    clock.jump.wait.ms; the state is noted in the data directory at `path` by `worker`."""

    def __init__(
        self,
        stored: ClockState | None,
        files: Filesystem,
        path: str,
        worker: Worker,
        wait_ms: Callable[[], int],
        *,
        wall_ms: Callable[[], int],
        elapsed_ms: Callable[[], int],
    ) -> None:
        """`path` is that of the file in which is noted what is believed."""
        self._files = files
        self._path = path
        self._worker = worker
        self._wait_ms = wait_ms
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._time = TrustedTime(
            stored, wall_ms=wall_ms(), elapsed_ms=elapsed_ms(), wait_ms=wait_ms()
        )
        self._said_jump = False

    @property
    def jump_ms(self) -> int:
        """Lead of the wall clock over the time that is believed, in ms; 0 while it is believed."""
        return self._time.jump_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        wait_ms = self._wait_ms()
        now_ms = self._time.now_ms(
            wall_ms=self._wall_ms(), elapsed_ms=self._elapsed_ms(), wait_ms=wait_ms
        )
        if bool(self.jump_ms) != self._said_jump:
            self._said_jump = bool(self.jump_ms)
            if self._said_jump:
                logs.warning(
                    "the clock has jumped; nothing is deleted for its age by it yet",
                    seconds=self.jump_ms // 1000,
                    clock=clock.utc_text(self._wall_ms()),
                    believed=clock.utc_text(self._wall_ms() - self.jump_ms),
                    until=clock.utc_text(self._time.state().since_ms + wait_ms),
                    confirm="clock.jump.wait.ms=0",
                )
            else:
                logs.info("the clock is believed", clock=clock.utc_text(self._wall_ms()))
        return now_ms

    def look(self) -> None:
        """Notice a jump, and note on the disk what is believed."""
        self.now_ms()
        data = self._time.state().encode()
        self._worker.run(lambda: self._store(data), lambda _: None)

    def stop(self) -> None:
        """Note what is believed, in this thread: the worker has stopped."""
        self.now_ms()
        self._store(self._time.state().encode())

    def _store(self, data: bytes) -> None:
        try:
            self._files.write_atomic(self._path, data)
        except OSError as error:
            # An older one, or none, holds back for longer, no more.
            logs.warn_once_a_minute("the clock was not noted", error.strerror or str(error), CLOCK)
