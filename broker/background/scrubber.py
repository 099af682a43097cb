"""The duty that reads old data again, before somebody needs it and it is not there.

Every sealed segment is read once in `log.scrub.interval.ms`, some MB a second, on a thread. What is
found damaged is said once, counted in the metrics, and not served: a fetch gets what lies before
it and then CORRUPT_MESSAGE, whatever the client itself would have checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from storage.scrubbing import Scrub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.server import Broker
    from storage.log import Log
    from storage.segment import Segment

LOOK_EVERY_S = 1.0
"""Between two steps of up to `storage.scrubbing.STEP_BYTES`."""
REST_LOOKS_MAX = 60
"""Looks between two rounds over all logs, unless the interval is shorter."""
TOLD_MAX = 20
"""Places of damage that are told of one segment."""
LOGS_AT_ONCE = 256
"""Logs gone through in one look."""


class Scrubber:
    """Belongs to the loop; `look` is a periodic duty. One segment at a time."""

    __slots__ = (
        "_broker", "_current", "_interval_ms", "_log", "_resting", "_round", "_running",
        "bytes_read", "damaged",
    )  # fmt: skip

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._interval_ms: int = broker.settings.log_scrub_interval_ms
        self._round = self._due()
        self._resting = 0
        self._current: Scrub | None = None
        self._log: Log | None = None
        self._running = False
        self.bytes_read = 0
        """Since the start, for the metrics."""
        self.damaged = 0
        """Segments found damaged since the start."""

    def configure(self, interval_ms: int) -> None:
        """Read everything within this time from now on; -1 nothing any more."""
        if interval_ms != self._interval_ms:
            self._interval_ms = interval_ms
            self._round = self._due()
            self._resting = 0

    def look(self) -> None:
        """Take one step on a thread, if anything is due."""
        if self._running or self._interval_ms < 0:
            return
        if self._current is None:
            self._choose()
        scrub = self._current
        if scrub is None:
            return
        self._running = True
        self._broker.readers.run(lambda: _tried(scrub), self._stepped)

    def _choose(self) -> None:
        if self._resting:
            self._resting -= 1
            return
        for _ in range(LOGS_AT_ONCE):
            try:
                found = next(self._round)
            except StopIteration:
                self._round = self._due()
                self._resting = min(REST_LOOKS_MAX, self._interval_ms // 1000)
                return
            if found is not None and self._begin(*found):
                return

    def _begin(self, log: Log, segment: Segment) -> bool:
        if log.failed is not None or segment not in log.segments.sealed():
            return False  # deleted, dropped or compacted since the round began
        try:
            self._current = Scrub(log.files, segment)
        except OSError as error:
            segment.scrubbed_ms = self._broker.now_ms()
            self._broker.disk.read_failed(log, error)
            return False
        self._log = log
        return True

    def _due(self) -> Iterator[tuple[Log, Segment] | None]:
        """Sealed segments that were not read for too long; None for a log without (more)."""
        for log in list(self._broker.directory.logs.values()):
            for segment in log.segments.sealed():
                if segment.scrubbed_ms <= self._broker.now_ms() - self._interval_ms:
                    yield log, segment
            yield None

    def _stepped(self, result: int | OSError) -> None:
        self._running = False
        scrub, log = self._current, self._log
        assert scrub is not None
        assert log is not None
        segment = scrub.segment
        if isinstance(result, OSError):
            self._current = None
            segment.scrubbed_ms = self._broker.now_ms()
            if segment in log.segments.sealed():
                self._broker.disk.read_failed(log, result)
            return
        self.bytes_read += result
        if not scrub.done:
            return
        self._current = None
        segment.scrubbed_ms = self._broker.now_ms()
        if not scrub.damages or segment not in log.segments.sealed():
            return  # whole, or compacted or dropped meanwhile
        self.damaged += not segment.verified.damages
        segment.verified.found(scrub.damages)
        log.segments.places.clear()  # they may lead to what is not to be served any more
        for damage in scrub.damages[:TOLD_MAX]:
            logs.error(
                "damaged records: they are not served; stop the broker and run `triglot repair`",
                file=segment.path(),
                position=damage.position,
                offset=damage.first_offset,
                reason=damage.reason,
                more=max(len(scrub.damages) - TOLD_MAX, 0),
            )


def _tried(scrub: Scrub) -> int | OSError:
    try:
        return scrub.step()
    except OSError as error:
        return error
