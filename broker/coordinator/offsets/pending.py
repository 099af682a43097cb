"""Offsets that producers committed in transactions which are still open."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.coordinator.offsets.commit import Committed, Place


class _Pending(NamedTuple):
    log_offset: int
    committed: Committed | None
    """None: something newer is in force already; what the transaction comes to changes nothing."""


class PendingOffsets:
    """By place and by producer.

    A commit takes effect when its transaction does, unless a newer one, by its offset in the log,
    is in force by then. An entry in force does not keep its log offset: whatever comes into force
    marks the older ones here, which are few.
    """

    __slots__ = ("_places", "groups")

    def __init__(self) -> None:
        self.groups: dict[str, dict[tuple[str, int], dict[int, _Pending]]] = {}
        """By group, topic and partition, producer id. Not for others to change."""
        self._places: dict[int, dict[Place, None]] = {}

    def add(
        self, producer_id: int, log_offset: int, place: Place, committed: Committed | None
    ) -> None:
        group, topic, partition = place
        here = self.groups.setdefault(group, {}).setdefault((topic, partition), {})
        here[producer_id] = _Pending(log_offset, committed)
        self._places.setdefault(producer_id, {})[place] = None

    def complete(self, producer_id: int, *, commit: bool) -> list[tuple[Place, Committed]]:
        """Forget a producer's commits; gives those that come into force."""
        effective = []
        for place in self._places.pop(producer_id, ()):
            group, topic, partition = place
            places = self.groups[group]
            here = places[topic, partition]
            log_offset, committed = here.pop(producer_id)
            if commit and committed is not None:
                effective.append((place, committed))
                _mark(here, log_offset)
            if not here:
                del places[topic, partition]
                if not places:
                    del self.groups[group]
        return effective

    def supersede(self, group: str, topic: str, partition: int) -> None:
        """A newer offset than all that are pending is in force here now."""
        here = self.groups.get(group, {}).get((topic, partition))
        if here:
            _mark(here)

    def drop(self, group: str, topic: str, partition: int) -> None:
        """What is pending here is removed, and no offset is waited for any more."""
        places = self.groups.get(group, {})
        for producer_id in places.pop((topic, partition), ()):
            of_producer = self._places[producer_id]
            del of_producer[group, topic, partition]
            if not of_producer:
                del self._places[producer_id]
        if not places:
            self.groups.pop(group, None)

    def of_group(self, group: str) -> list[tuple[str, int]]:
        return list(self.groups.get(group, ()))

    def holds(self, group: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self.groups.get(group, ())

    def groups_with(self, topic: str) -> list[str]:
        return [
            group
            for group, places in self.groups.items()
            if any(name == topic for name, _ in places)
        ]

    def all(self) -> list[tuple[int, int, Place, Committed | None]]:
        """Producer id, offset in the log, place, and what was committed there; None if that came
        too late. To be added in this order."""
        found = []
        for producer_id, places in self._places.items():
            for place in places:
                group, topic, partition = place
                log_offset, committed = self.groups[group][topic, partition][producer_id]
                found.append((producer_id, log_offset, place, committed))
        return found

    def producers(self) -> list[int]:
        return list(self._places)


def _mark(here: dict[int, _Pending], before: int | None = None) -> None:
    """Note for those with a log offset below `before`, or all, that they came too late."""
    for producer_id, pending in here.items():
        if before is None or pending.log_offset < before:
            here[producer_id] = pending._replace(committed=None)
