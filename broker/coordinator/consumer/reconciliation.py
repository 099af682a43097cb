"""Reconciliation: a member's steps from the partitions it has to its target (KIP-848).

First it gives up, then it gets. A member that has partitions which are not in its target is told
the rest, and keeps its epoch until it says that it holds them no more. Then it takes the target's
epoch and what is free of the target; the rest follows as its owners let go. So a partition never
has two owners, whatever is late or lost.

    STABLE       nothing to do until there is a newer target
    UNREVOKED    waiting for the member to give up `revoking`
    UNRELEASED   at the target's epoch, waiting for other members
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.consumer.members import NOTHING, Current, MemberState
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.consumer.assignors import Partitions


def reconcile(
    current: Current,
    *,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    taken: Callable[[bytes, int], bool],
) -> Current:
    """The next step of a member; the same object if there is none to take.

    `owned` is what the member says that it holds, None if it says nothing. `taken` tells whether a
    partition belongs to another member now.

    Raises FENCED_MEMBER_EPOCH for a member in a state that we do not know.
    """
    if current.state == MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state == MemberState.UNREVOKED and _holds_any(owned, current.revoking):
        return current
    if current.state == MemberState.UNKNOWN:
        if owned is None or owned:
            raise KafkaError(
                "The member is in a state that this broker does not know. "
                "It must give up its partitions and join again.",
                code=ErrorCode.FENCED_MEMBER_EPOCH,
            )
        current = current._replace(epoch=target_epoch)
    step = _next_step(current, target, target_epoch, owned, taken)
    return current if step == current else step


def _holds_any(owned: Partitions | None, partitions: Partitions) -> bool:
    """A member that does not say what it holds may hold everything."""
    if owned is None:
        return True
    return any(not owned[topic].isdisjoint(partitions.get(topic, ())) for topic in owned)


def _next_step(
    current: Current,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    taken: Callable[[bytes, int], bool],
) -> Current:
    kept: Partitions = {}
    revoking: Partitions = {}
    for topic, partitions in current.assigned.items():
        stays = partitions & target.get(topic, frozenset())
        goes = partitions - stays
        if stays:
            kept[topic] = stays
        if goes:
            revoking[topic] = goes
    if revoking and _holds_any(owned, revoking):
        return current._replace(state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    waits = False
    for topic, partitions in target.items():
        missing = partitions - kept.get(topic, frozenset())
        if missing:
            ready = frozenset(n for n in missing if not taken(topic, n))
            waits = waits or len(ready) < len(missing)
            if ready:
                kept[topic] = kept.get(topic, frozenset()) | ready
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    # Kafka forgets the previous epoch with every step. Who has not heard of the new one by then,
    # because two answers were lost, would be fenced.
    previous = current.epoch if current.epoch != target_epoch else current.previous_epoch
    return Current(target_epoch, previous, state, kept, NOTHING)
