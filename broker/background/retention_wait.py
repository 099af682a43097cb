"""Retention that waits for groups (`retention.wait.groups`): the offset up to which they have
committed, what is held back for them, and what is said of it.

A group that has committed nothing for a partition wants all of it: one that does not exist yet, one
that was deleted, one whose offset has expired. So does one whose offset lies above the end of the
log, since it was committed for other records than those.

The log says it when a topic begins to be held back, when the groups or their reasons change, and
when it ends; that a bound is exceeded is an error, once until the groups have caught up. The
numbers are for the metrics and DescribeLogDirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker import logs
from protocol.errors import KafkaError
from storage.waiting_records import WaitBounds, waiting_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.coordinator.offset_coordinator import StoredOffset
    from broker.partitions.topic import Partition
    from config import TopicSettings
    from storage.log import Log

    StoredOffsetOf = Callable[[str, str, int], StoredOffset | None]
    """The offset that a group (by id) has committed for a topic (by name) and partition; None for
    none. Raises KafkaError while that is not known."""

TOPICS_SHOWN_MAX = 100
"""Topics that the metrics name, those that hold back most first."""

NOTHING = "nothing committed"
ABOVE_END = "committed above the log's end"
BEHIND = "behind"


class HeldBack(NamedTuple):
    """What is held back of a partition: records (by offsets), bytes of their batches, since when
    (ms since 1970, in this run of the broker), and the groups it is for, each with the reason."""

    records: int
    byte_size: int
    since_ms: int
    groups: dict[str, str]


class Kept(NamedTuple):
    """The offset from which a log is to be kept, and the logs that have the commits by which it is
    not a lower one."""

    start: int
    relied_on: list[Log]


class TopicHeld:
    """The same of a topic, and what it has lost above a bound since it is held back. Belongs to
    `RetentionWait`."""

    def __init__(self) -> None:
        self.records = self.byte_size = self.partitions = 0
        self.since_ms = 0
        self.reasons: set[tuple[str, str]] = set()
        self.lost = 0
        self.exceeded: set[str] = set()

    def add(self, held: HeldBack) -> None:
        self.since_ms = min(self.since_ms or held.since_ms, held.since_ms)
        self.records += held.records
        self.byte_size += held.byte_size
        self.partitions += 1
        self.reasons.update(held.groups.items())

    @property
    def groups(self) -> str:
        return ", ".join(f"{group} ({reason})" for group, reason in sorted(self.reasons))


class RetentionWait:
    """Belongs to the loop. `now_ms` gives ms since 1970; it is for telling since when."""

    def __init__(self, stored_offset: StoredOffsetOf, now_ms: Callable[[], int]) -> None:
        self._stored_offset = stored_offset
        self._now_ms = now_ms
        self._held: dict[Partition, HeldBack] = {}
        self._lost: dict[str, int] = {}
        """Offsets lost by topic in this round."""
        self._exceeded: dict[str, set[str]] = {}
        self._topics: dict[str, TopicHeld] = {}
        self.lost_records = 0
        """Records that were dropped above a bound before a group had committed them."""

    def keep(self, partition: Partition, due: int, now_ms: int) -> Kept:
        """What is to be kept of a partition of which retention would drop all below `due`, at this
        time of the clock for deletions: all of it while it is not known what a group has
        committed. Raises OSError."""
        log, settings = partition.log, partition.topic.settings
        if due <= log.start_offset:
            self._held.pop(partition, None)
            return Kept(due, [])
        wanted, reasons, relied_on = due, {}, []
        for group in settings.retention_wait_groups:
            try:
                stored = self._stored_offset(group, partition.topic.name, partition.index)
            except KafkaError:  # its offsets are being loaded
                return Kept(log.start_offset, [])
            offset, reason = _wanted(stored, log)
            if offset < due:
                reasons[group] = reason
            if stored is not None and stored.log is not None:
                relied_on.append(stored.log)
            wanted = min(wanted, offset)
        found = waiting_records(log, due, wanted, _bounds(settings), now_ms=now_ms)
        if found.kept_from < found.due:
            before = self._held.get(partition)
            self._held[partition] = HeldBack(
                found.due - found.kept_from,
                found.byte_size,
                self._now_ms() if before is None else before.since_ms,
                reasons,
            )
        else:
            self._held.pop(partition, None)
        if found.exceeded:
            self._exceed(partition.topic.name, found.exceeded, found.lost)
        return Kept(found.kept_from, relied_on)

    def _exceed(self, topic: str, bound: str, lost: int) -> None:
        self.lost_records += lost
        self._lost[topic] = self._lost.get(topic, 0) + lost
        self._exceeded.setdefault(topic, set()).add(f"retention.wait.max.{bound}")

    def held(self, partition: Partition) -> HeldBack | None:
        """What was held back of it at the last look; None for nothing."""
        return self._held.get(partition)

    def by_topic(self) -> list[tuple[str, TopicHeld]]:
        """What was held back at the end of the last round, most bytes first; `TOPICS_SHOWN_MAX` at
        most."""
        found = sorted(self._topics.items(), key=lambda one: -one[1].byte_size)
        return found[:TOPICS_SHOWN_MAX]

    def totals(self) -> tuple[int, int]:
        """Records and bytes of all topics."""
        held = self._topics.values()
        return sum(one.records for one in held), sum(one.byte_size for one in held)

    def end_round(self, existing: Iterable[Partition]) -> None:
        """All partitions have been looked at; these are there. Say what has changed."""
        there = {one for one in existing if one.topic.settings.retention_wait_groups}
        self._held = {one: held for one, held in self._held.items() if one in there}
        before, self._topics = self._topics, {}
        for partition, held in self._held.items():
            self._topics.setdefault(partition.topic.name, TopicHeld()).add(held)
        for name in self._lost:
            self._topics.setdefault(name, TopicHeld())
        for name, topic in self._topics.items():
            _say(name, topic, before.get(name), self._lost.get(name, 0), self._exceeded.get(name))
        for name in before.keys() - self._topics.keys():
            logs.info("retention waits no longer", topic=name, records_lost=before[name].lost)
        self._lost, self._exceeded = {}, {}


def _wanted(stored: StoredOffset | None, log: Log) -> tuple[int, str]:
    """The first offset that a group wants, and why that is not to be dropped."""
    if stored is None:
        return 0, NOTHING
    if stored.offset > log.written_offset:
        return 0, ABOVE_END
    return stored.offset, BEHIND


def _bounds(settings: TopicSettings) -> WaitBounds:
    return WaitBounds(
        settings.retention_wait_max_bytes,
        max(settings.retention_ms, 0) + settings.retention_wait_max_ms,
    )


def _say(
    name: str, topic: TopicHeld, before: TopicHeld | None, lost: int, exceeded: set[str] | None
) -> None:
    """Put what has changed of a topic into the log, and what it has lost into `topic`."""
    if before is not None:
        topic.lost, topic.exceeded = before.lost, before.exceeded
    topic.lost += lost
    if topic.partitions and (before is None or before.reasons != topic.reasons):
        logs.warning(
            "retention waits for groups",
            topic=name,
            groups=topic.groups,
            partitions=topic.partitions,
            records=topic.records,
            bytes=topic.byte_size,
        )
    if exceeded and not exceeded <= topic.exceeded:
        topic.exceeded = topic.exceeded | exceeded
        logs.error(
            "retention drops records that groups have not committed: a bound is exceeded",
            topic=name,
            bound=", ".join(sorted(exceeded)),
            groups=topic.groups or "unknown",
            records=lost,
        )
