"""Uncleanable logs: compaction has failed for them, and leaves them alone for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock

if TYPE_CHECKING:
    from storage.log import Log

FIRST_S, LAST_S = 5.0, 600.0
"""The wait after the first failure, and the longest; each time it is twice as long."""
LOGS_MAX = 10_000


class UncleanableLogs:
    """Belongs to the loop. `log in uncleanable` tells whether one is known to have failed, also
    when it is due again."""

    __slots__ = ("_logs",)

    def __init__(self) -> None:
        self._logs: dict[Log, tuple[float, float]] = {}
        """Until when, and for how long the next time."""

    def __contains__(self, log: Log) -> bool:
        return log in self._logs

    def add(self, log: Log) -> None:
        if len(self._logs) >= LOGS_MAX:
            self._logs.clear()
        _, wait_s = self._logs.get(log, (0.0, FIRST_S))
        self._logs[log] = clock.monotonic_s() + wait_s, min(2 * wait_s, LAST_S)

    def is_due(self, log: Log) -> bool:
        """Whether it may be tried (again)."""
        until_s, _ = self._logs.get(log, (0.0, 0.0))
        return clock.monotonic_s() >= until_s

    def succeeded(self, log: Log) -> None:
        """Forget that it failed."""
        self._logs.pop(log, None)

    def forget_closed(self) -> None:
        """Forget logs that take no more appends."""
        self._logs = {log: one for log, one in self._logs.items() if log.failed is None}
