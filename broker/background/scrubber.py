"""Scrubbing: old data is read again, before somebody needs it and it is not there.

Every sealed segment is read once in `log.scrub.interval.ms`, some MB a second, on a thread. What is
found damaged is said once, counted in the metrics, and not served: a fetch gets what lies before
it and then CORRUPT_MESSAGE, whatever the client itself would have checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from storage.scrubbing import Scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.current_settings import CurrentSettings
    from broker.partitions.disk_state import DiskState
    from broker.workers import Worker
    from config import BrokerSettings
    from storage.data_dir import DataDirectory
    from storage.log import Log
    from storage.segment import Segment

LOOK_EVERY_S = 1.0
"""Between two steps of up to `storage.scrubbing.STEP_BYTES`."""
IDLE_LOOKS_MAX = 60
"""Looks without work between two rounds over all logs, unless the interval is shorter."""
LOGGED_MAX = 20
"""Damaged places of one segment that get a line of their own."""
LOGS_AT_ONCE = 256
"""Logs gone through in one look."""


class Scrubber:
    """Belongs to the loop; `look` is a periodic task. One segment at a time."""

    __slots__ = (
        "_current", "_directory", "_disk", "_idle_looks", "_interval_ms", "_log", "_now_ms",
        "_readers", "_round", "_running", "bytes_read", "damaged",
    )  # fmt: skip

    def __init__(
        self,
        settings: CurrentSettings,
        directory: DataDirectory,
        *,
        disk: DiskState,
        readers: Worker,
        now_ms: Callable[[], int],
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._readers = readers
        self._now_ms = now_ms
        self._interval_ms: int = settings.current.log_scrub_interval_ms
        self._round = self._due()
        self._idle_looks = 0
        self._current: Scrub | None = None
        self._log: Log | None = None
        self._running = False
        self.bytes_read = 0
        """Since the start, for the metrics."""
        self.damaged = 0
        """Segments found damaged since the start."""
        settings.subscribe(self._settings_changed)

    def _settings_changed(self, _: BrokerSettings, settings: BrokerSettings) -> None:
        interval_ms = settings.log_scrub_interval_ms
        if interval_ms != self._interval_ms:
            self._interval_ms = interval_ms
            self._round = self._due()
            self._idle_looks = 0

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
        self._readers.run(scrub.step, self._stepped, self._not_read)

    def _choose(self) -> None:
        if self._idle_looks:
            self._idle_looks -= 1
            return
        for _ in range(LOGS_AT_ONCE):
            try:
                found = next(self._round)
            except StopIteration:
                self._round = self._due()
                self._idle_looks = min(IDLE_LOOKS_MAX, self._interval_ms // 1000)
                return
            if found is not None and self._begin(*found):
                return

    def _begin(self, log: Log, segment: Segment) -> bool:
        if log.failed is not None or segment not in log.segments.sealed():
            return False  # deleted, dropped or compacted since the round began
        try:
            self._current = Scrub(log.files, segment)
        except OSError as error:
            segment.scrubbed_ms = self._now_ms()
            self._disk.read_failed(log, error)
            return False
        self._log = log
        return True

    def _due(self) -> Iterator[tuple[Log, Segment] | None]:
        """Sealed segments that were not read for too long; None for a log without (more)."""
        for log in list(self._directory.logs.values()):
            for segment in log.segments.sealed():
                if segment.scrubbed_ms <= self._now_ms() - self._interval_ms:
                    yield log, segment
            yield None

    def _take_current(self) -> tuple[Log, Segment]:
        """End with the current segment."""
        scrub, log = self._current, self._log
        assert scrub is not None
        assert log is not None
        self._current = None
        scrub.segment.scrubbed_ms = self._now_ms()
        return log, scrub.segment

    def _not_read(self, error: Exception) -> None:
        self._running = False
        log, segment = self._take_current()
        if isinstance(error, OSError) and segment in log.segments.sealed():
            self._disk.read_failed(log, error)

    def _stepped(self, size: int) -> None:
        self._running = False
        self.bytes_read += size
        scrub = self._current
        assert scrub is not None
        if not scrub.done:
            return
        log, segment = self._take_current()
        if not scrub.damages or segment not in log.segments.sealed():
            return  # whole, or compacted or dropped meanwhile
        self.damaged += not segment.verified.damages
        segment.verified.found(scrub.damages)
        log.segments.places.clear()  # they may lead to what is not to be served any more
        for damage in scrub.damages[:LOGGED_MAX]:
            logs.error(
                "damaged records: they are not served; stop the broker and run `triglot repair`",
                file=segment.path(),
                position=damage.position,
                offset=damage.first_offset,
                reason=damage.reason,
                more=max(len(scrub.damages) - LOGGED_MAX, 0),
            )
