"""The only module that reads a clock: everything else is given the time. It also asks the system
how old and how large this process is."""

from __future__ import annotations

import sys
import time

from config.platforms import PORTABLE

_IMPORTED_S = time.monotonic()


def now_ms() -> int:
    """Wall-clock time in ms since 1970, as record timestamps count it."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds on a clock that never goes back, for durations and deadlines."""
    return time.monotonic()


def thread_s() -> float:
    """Seconds that this thread has been computing, for what its work costs."""
    return time.thread_time()


def process_s() -> float:
    """Seconds that the process has been computing."""
    return time.process_time()


def elapsed_ms() -> int:
    """Milliseconds on a clock that never jumps; on Linux it counts on while the machine sleeps."""
    if sys.platform == "linux":
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    else:
        now_ns = time.monotonic_ns()
    return now_ns // 1_000_000


def process_age_ms() -> int:
    """Time since the operating system started this process, in ms; where it does not say, since
    this module was imported.

    Used for the start-up time in the ready line: it includes what the interpreter needed before
    any of our lines ran.
    """
    if sys.platform == "linux" and not PORTABLE:
        try:
            with open("/proc/self/stat", "rb") as stat:  # noqa: PTH123 - pathlib costs start-up time
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            pass
        else:
            import os

            started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
            return max(0, int((time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) * 1000))
    return int((time.monotonic() - _IMPORTED_S) * 1000)


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM; None where the system does not say."""
    if sys.platform == "linux" and not PORTABLE:
        try:
            with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - as above
                pages = int(statm.read().split()[1])
        except OSError:
            pass
        else:
            import os

            return pages * os.sysconf("SC_PAGE_SIZE")
    return None


def utc_text(timestamp_ms: int) -> str:
    """A moment (ms since 1970) in ISO 8601 and UTC; the number itself if no year can hold it."""
    from datetime import UTC, datetime

    try:
        seconds, ms = divmod(timestamp_ms, 1000)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}Z"
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"


def ms_of_text(text: str) -> int:
    """The moment (ms since 1970) that an ISO 8601 text names; UTC where it names no zone.

    Raises ValueError.
    """
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def sleep(seconds: float) -> None:
    """Have this thread rest; never the loop's."""
    time.sleep(seconds)
