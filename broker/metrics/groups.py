"""Groups: their states, their members, and how far behind they are, in records and in time.

The lag in seconds is the age of the oldest record that a group has not committed, by the broker's
own clock: how long ago it came in (`storage.receive_times`, to a second or 1/64 of what the log
holds). No record is read for it, and producers' clocks do not matter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.classic.group import ClassicGroup
from broker.metrics.text import Family, labels
from broker.neighbours import Committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.coordinator.consumer.group import ConsumerGroup
    from broker.coordinator.group_coordinator import GroupCoordinator
    from broker.coordinator.shard import Shard
    from broker.metrics.text import Row
    from broker.neighbours import GroupsElsewhere
    from broker.partitions.topic import Partition
    from broker.partitions.topics import Topics

LAGS_MAX = 10_000
"""Partitions of groups that have a row; those of groups that come later have none."""


class Lag(NamedTuple):
    """How far a group is behind in one partition. `seconds` is 0 where it has read all."""

    group: str
    topic: str
    partition: int
    records: int
    seconds: float


def lags(
    groups: GroupCoordinator,
    topics: Topics,
    now_ms: Callable[[], int],
    elsewhere: GroupsElsewhere | None = None,
) -> Iterator[Lag]:
    """The lag of every group in every partition that it has committed an offset of and that is led
    here, group by group. Groups may come and go meanwhile."""
    return _lags(_committed(groups, elsewhere), topics, now_ms)


def lags_of(
    group: str,
    groups: GroupCoordinator,
    topics: Topics,
    now_ms: Callable[[], int],
    elsewhere: GroupsElsewhere | None = None,
) -> Iterator[Lag]:
    """Those of one group."""
    return _lags(_committed(groups, elsewhere, group), topics, now_ms)


def _lags(
    committed: Iterator[Committed], topics: Topics, now_ms: Callable[[], int]
) -> Iterator[Lag]:
    found = (_lag(one, topics, now_ms) for one in committed)
    return (lag for lag in found if lag is not None)


def _committed(
    groups: GroupCoordinator, elsewhere: GroupsElsewhere | None, group: str | None = None
) -> Iterator[Committed]:
    """What all groups have committed, or one."""
    for shard in list(groups.loaded_shards()):
        for one in shard.state.offsets.groups() if group is None else (group,):
            yield from _committed_in(shard, one)
    for committed in () if elsewhere is None else elsewhere.committed:
        if group is None or committed.group == group:
            yield committed


def _committed_in(shard: Shard, group: str) -> Iterator[Committed]:
    for name, index, committed in shard.state.offsets.entries(group):
        yield Committed(group, name, index, committed.offset)


def _lag(committed: Committed, topics: Topics, now_ms: Callable[[], int]) -> Lag | None:
    """None for a partition that is not there, or that another process leads and tells of."""
    group, name, index, offset = committed
    partition = topics.partition(name, index)
    if partition is None or partition.led_elsewhere:
        return None
    records = max(0, partition.high_watermark - offset)
    seconds = _age_s(partition, offset, now_ms()) if records else 0.0
    return Lag(group, name, index, records, seconds)


def kind_and_state(group: ClassicGroup | ConsumerGroup) -> tuple[str, str]:
    """`classic` or `consumer`, and the name of its state."""
    if isinstance(group, ClassicGroup):
        return "classic", group.state.value
    return "consumer", group.state


def _age_s(partition: Partition, offset: int, now_ms: int) -> float:
    log = partition.log
    since_ms = log.received.since_ms(log, max(offset, log.start_offset), now_ms=now_ms)
    return max(0, now_ms - since_ms) / 1000


def group_families(
    groups: GroupCoordinator,
    topics: Topics,
    now_ms: Callable[[], int],
    elsewhere: GroupsElsewhere | None,
) -> Iterator[Family]:
    shards = list(groups.loaded_shards())
    yield from _state_families(shards)
    rebalances = "New generations of classic groups, and new epochs of consumer groups."
    rows = [("", groups.runtime.rebalances)]
    yield Family("group_rebalances_total", "counter", rebalances, rows)
    yield from _lag_families(groups, topics, now_ms, elsewhere)


def _state_families(shards: list[Shard]) -> Iterator[Family]:
    states: Counter[tuple[str, str]] = Counter()
    members: Counter[str] = Counter()
    for shard in shards:
        for group in shard.state.groups.values():
            kind, state = kind_and_state(group)
            states[kind, state] += 1
            members[kind] += len(group.members)
    rows = [(labels(type=kind, state=state), n) for (kind, state), n in sorted(states.items())]
    yield Family("group_states", "gauge", "Groups by type and state.", rows)
    rows = [(labels(type=kind), count) for kind, count in sorted(members.items())]
    yield Family("group_members", "gauge", "Members of groups, by type.", rows)


def _lag_families(
    groups: GroupCoordinator,
    topics: Topics,
    now_ms: Callable[[], int],
    elsewhere: GroupsElsewhere | None,
) -> Iterator[Family]:
    known = sum(len(shard.state.offsets) for shard in groups.loaded_shards())
    known += 0 if elsewhere is None else len(elsewhere.committed)
    shown: list[Lag] = []
    told_elsewhere = 0

    def record_rows() -> Iterator[Row]:
        nonlocal told_elsewhere
        for committed in _committed(groups, elsewhere):
            lag = _lag(committed, topics, now_ms)
            if lag is None:
                partition = topics.partition(committed.topic, committed.partition)
                told_elsewhere += partition is not None
            elif len(shown) == LAGS_MAX:
                return
            else:
                shown.append(lag)
                yield _place(lag), lag.records

    records = "Records that a group has not committed, by partition."
    yield Family("group_lag_records", "gauge", records, record_rows())
    seconds = "Age of the oldest of these, by the broker's clock."
    rows = ((_place(lag), lag.seconds) for lag in shown)
    yield Family("group_lag_seconds", "gauge", seconds, rows)
    left = "Committed offsets that have no row: there are too many, or their topic is gone."
    hidden = max(0, known - told_elsewhere - len(shown))
    yield Family("group_lags_left_out", "gauge", left, [("", hidden)])


def _place(lag: Lag) -> str:
    return labels(group=lag.group, topic=lag.topic, partition=lag.partition)
