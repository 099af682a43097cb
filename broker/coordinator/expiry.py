"""Expiration of committed offsets.

As Kafka since 2.1 (KIP-211; storage.md 8.5): a group's offsets expire a retention time after it
lost its last member; those of a group that never had members, or of topics its members do not read,
a retention time after their commit. Members that read nobody knows what keep everything.
A time to expire that came with the commit (OffsetCommit v1 to v4) takes the place of the retention.
Unlike Kafka there may be no retention, and then only such a time lets an offset expire.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.classic.group import ClassicGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

    from broker.coordinator.consumer.group import ConsumerGroup
    from broker.coordinator.offsets.commit import Committed
    from broker.coordinator.offsets.committed import CommittedOffsets
    from broker.coordinator.shard_state import ShardState

#: Groups, or entries of one group, that are looked at in one step: about a millisecond.
STEP = 500


class Lapse(NamedTuple):
    """The expiration of a group's offsets, by the state of the group."""

    subscribed: Set[str] = frozenset()
    """Topics whose offsets stay."""
    since_ms: int = -1
    """From when the retention counts; -1: from each commit."""


def lapse_of(group: ClassicGroup | ConsumerGroup | None) -> Lapse | None:
    """None: nothing expires. The argument is None for a group of which only offsets are known."""
    if not isinstance(group, ClassicGroup):
        return Lapse() if group is None else Lapse(frozenset(group.subscribed_topics()))
    if not group.protocol_type:
        return Lapse()
    if group.state.value == "Empty":
        return Lapse(since_ms=group.current_state_timestamp)
    if group.protocol_type == "consumer" and group.state.value == "Stable":
        topics = group.subscribed_topics()
        return None if topics is None else Lapse(frozenset(topics))
    return None


def is_expired(committed: Committed, lapse: Lapse, now_ms: int, retention_ms: int) -> bool:
    """Times are ms since 1970, the retention ms; up to 0 there is none."""
    if committed.expire_ms >= 0:
        return now_ms >= committed.expire_ms
    since_ms = committed.commit_ms if lapse.since_ms < 0 else lapse.since_ms
    return retention_ms > 0 and now_ms - since_ms >= retention_ms


def expired(
    group: str,
    lapse: Lapse,
    offsets: CommittedOffsets,
    entries: Iterable[tuple[str, int, Committed]],
    *,
    now_ms: int,
    retention_ms: int,
) -> list[tuple[str, int]]:
    """Topic and partition of those entries that are to go."""
    return [
        (topic, partition)
        for topic, partition, committed in entries
        if is_expired(committed, lapse, now_ms, retention_ms)
        and topic not in lapse.subscribed
        and not offsets.is_pending(group, topic, partition)
    ]


def expired_groups(
    state: ShardState, now_ms: int, retention_ms: int
) -> Iterator[tuple[str, list[tuple[str, int]]] | None]:
    """Groups and what of theirs has expired: at most `STEP` entries at a time, so that a group may
    come more than once. None is given where there is nothing, after a millisecond or two of work;
    whoever drives this may change everything between two steps.
    """
    offsets = state.offsets
    if retention_ms > 0:
        looks = offsets.ages()
    else:
        looks = iter([[(group, now_ms) for group in offsets.groups_with_expire_times()]])
    number = 0
    for look in looks:
        for group, oldest_ms in look:
            number += 1
            lapse = lapse_of(state.groups.get(group))
            if lapse is not None:
                since_ms = oldest_ms if lapse.since_ms < 0 else lapse.since_ms
                waits = retention_ms <= 0 or now_ms - since_ms < retention_ms
                if not waits or offsets.has_expire_times(group):
                    yield from _expired_of(group, lapse, offsets, now_ms, retention_ms)
            if number % STEP == 0:
                yield None


def _expired_of(
    group: str, lapse: Lapse, offsets: CommittedOffsets, now_ms: int, retention_ms: int
) -> Iterator[tuple[str, list[tuple[str, int]]] | None]:
    entries = offsets.entries(group)
    while some := list(islice(entries, STEP)):
        gone = expired(group, lapse, offsets, some, now_ms=now_ms, retention_ms=retention_ms)
        if gone:
            yield group, gone
        elif len(some) == STEP:
            yield None
