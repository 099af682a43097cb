"""The contents of one partition of `__consumer_offsets`: its groups and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.offsets.committed import CommittedOffsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.consumer.group import ConsumerGroup
    from broker.coordinator.consumer.state import SharedGroup
    from broker.coordinator.effects import GroupRules
    from broker.coordinator.offsets.committed import SharedOffsets, TopicNumbers
    from protocol.logdata.offsets import GroupMetadataValue


class SharedState(NamedTuple):
    """All that the log says up to an offset, and nothing that is only in memory; any thread may
    read it. The groups are in one order for both kinds."""

    groups: list[tuple[str, GroupMetadataValue] | SharedGroup]
    offsets: SharedOffsets


class ShardState:
    """Groups that have members or a record of their own, by id, and all committed offsets.

    A group that only has offsets (a "simple" one) is not in `groups`.
    """

    __slots__ = ("_topics", "groups", "new_member_id", "offsets", "rules")

    def __init__(
        self,
        rules: GroupRules,
        new_member_id: Callable[[str], str],
        topics: TopicNumbers | None = None,
    ) -> None:
        """`topics` is shared by the shards of a broker."""
        self.rules = rules
        self.new_member_id = new_member_id
        self._topics = topics
        self.groups: dict[str, ClassicGroup | ConsumerGroup]
        self.offsets: CommittedOffsets
        self.clear()

    def clear(self) -> None:
        """Nothing is known."""
        self.groups = {}
        self.offsets = CommittedOffsets(self._topics)

    def share(self) -> SharedState:
        """All that was written, as it is now; `offsets.unshare` is to be called when it has been
        read. Takes about a millisecond for 10,000 members of groups."""
        groups: list[tuple[str, GroupMetadataValue] | SharedGroup] = []
        for group_id, group in self.groups.items():
            if not isinstance(group, ClassicGroup):
                groups.append(group.share())
            elif group.stored is not None:
                groups.append((group_id, group.stored))
        return SharedState(groups, self.offsets.share())
