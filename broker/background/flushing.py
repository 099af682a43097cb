"""Flushing: syncs of written records, besides those that answers wait for (log.flush.policy).

    ack       acks=all waits for a sync; what others wrote is synced within a second
    interval  flush.messages and flush.ms of each topic say when; without them, every second
    os        the system decides

Under every policy a sealed segment is synced soon, as Kafka does: recovery never goes back far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.kinds import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.current_settings import CurrentSettings
    from broker.partitions.topic import Partition
    from broker.producing.appends import Appends
    from broker.producing.group_commit import GroupCommit
    from config import BrokerSettings
    from storage.data_dir import DataDirectory
    from storage.log import Log

EVERY_S = 1.0
"""Time that written records wait for a sync where no key says it."""
SHORTEST_S = 0.01
RECOVERED_AT_ONCE = 256
"""Logs synced with one look after a crash: answers that wait for a sync wait for these too."""


class Flushing:
    """Belongs to the loop; the syncs are group commits. `look` is a periodic task,
    every `period_s`."""

    __slots__ = (
        "_appends", "_directory", "_group_commit", "_last_s", "_policy", "_recovered", "_since",
        "_time_s", "counts_records", "period_changed", "period_s",
    )  # fmt: skip

    def __init__(
        self,
        settings: CurrentSettings,
        directory: DataDirectory,
        *,
        appends: Appends,
        group_commit: GroupCommit,
        time_s: Callable[[], float],
    ) -> None:
        """`time_s` is the loop's clock."""
        self._directory = directory
        self._appends = appends
        self._group_commit = group_commit
        self._time_s = time_s
        self._policy: str = settings.current.log_flush_policy
        self.counts_records = self._policy == "interval"
        """Whether answers may have to wait for flush.messages."""
        self.period_s = _period_s(settings.current)
        self.period_changed: Callable[[float], None] = lambda period_s: None
        """Called with `period_s` when it is another one."""
        self._last_s = time_s()
        self._since: dict[Log, tuple[float, Partition]] = {}
        """Earliest time at which the oldest record not yet synced may have been written."""
        self._recovered: list[Log] = []
        """Logs that recovery read; the next one should not have to read them again."""
        settings.subscribe(self._settings_changed)

    def _settings_changed(self, _: BrokerSettings, settings: BrokerSettings) -> None:
        period_s = _period_s(settings)
        if period_s != self.period_s:
            self.period_s = period_s
            self.period_changed(period_s)
        if settings.log_flush_policy != self._policy:
            self._policy = settings.log_flush_policy
            self.counts_records = self._policy == "interval"
            self._since.clear()
            self.start()  # what was left to the system, or to a time that is no longer kept

    def start(self) -> None:
        """Note what is not on the disk: what start-up recovered, or another policy left there."""
        if self._policy != "os":
            logs = self._directory.logs.values()
            self._recovered = [log for log in logs if log.recovery_point < log.written_offset]

    def is_due(self, partitions: Iterable[Partition]) -> bool:
        """Whether one of these has as many unsynced records as its flush.messages says.

        They are flushed before the answer then, whatever its acks, as Kafka does.
        """
        return any(
            partition.log.next_offset - partition.log.recovery_point
            >= partition.topic.settings.flush_messages
            for partition in partitions
        )

    def flush(self, partitions: Iterable[Partition]) -> None:
        """Have these logs synced without waiting for it."""
        self._sync(partition.log for partition in partitions)

    def look(self) -> None:
        """Have the logs synced whose time has come."""
        written, self._appends.unsynced = self._appends.unsynced, {}
        last_s, now_s = self._last_s, self._time_s()
        self._last_s = now_s
        if self._recovered:
            self._sync_recovered(self._recovered[-RECOVERED_AT_ONCE:])
            del self._recovered[-RECOVERED_AT_ONCE:]
        if self._policy == "ack":
            self._sync(written)
            return
        if self._policy == "os":
            self._sync(log for log in written if _has_sealed(log))
            return
        for log, partition in written.items():
            self._since.setdefault(log, (last_s, partition))
        due = [
            log
            for log, (since_s, partition) in self._since.items()
            if log.recovery_point >= log.written_offset
            or log.failed is not None
            or _has_sealed(log)
            or now_s - since_s + self.period_s / 2 >= _wait_s(partition)
        ]
        for log in due:
            del self._since[log]
        self._sync(due)

    def _sync_recovered(self, logs: list[Log]) -> None:
        """Sync what recovery read. It counts as written anew: a checkpoint is to cover it soon."""
        appends = self._appends

        def synced(failed: dict[Log, str]) -> None:
            appends.bytes_written += sum(log.active.written_size for log in logs)

        self._group_commit.wait([log for log in logs if log.failed is None], synced)

    def _sync(self, logs: Iterable[Log]) -> None:
        behind = [
            log for log in logs if log.recovery_point < log.written_offset and log.failed is None
        ]
        if behind:
            self._group_commit.wait(behind, _ignore)


def _has_sealed(log: Log) -> bool:
    """Whether a segment that takes no more appends is not synced yet."""
    return log.recovery_point < log.active.base_offset


def _wait_s(partition: Partition) -> float:
    flush_ms = partition.topic.settings.flush_ms
    return EVERY_S if flush_ms == LONG_MAX else flush_ms / 1000


def _period_s(settings: BrokerSettings) -> float:
    """Time between two looks: log.flush.scheduler.interval.ms, else what serves the broker's
    log.flush.interval.ms, and a second at most."""
    if settings.log_flush_policy != "interval":
        return EVERY_S
    given_ms = settings.log_flush_scheduler_interval_ms
    if given_ms < LONG_MAX:
        return max(SHORTEST_S, given_ms / 1000)
    flush_ms = settings.log_flush_interval_ms
    return EVERY_S if flush_ms is None else min(EVERY_S, max(SHORTEST_S, flush_ms / 1000))


def _ignore(failed: dict[Log, str]) -> None:
    """Nobody waits for this sync; a failure has been logged and has stopped the log."""
