"""What one partition of `__consumer_offsets` says: its groups and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.offsets import CommittedOffsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.classic import ClassicGroup
    from broker.coordinator.consumer import ConsumerGroup
    from broker.coordinator.effects import GroupRules
    from broker.coordinator.offsets import TopicNumbers


class ShardState:
    """Groups that have members or a record of their own, by id, and all committed offsets.

    A group that only has offsets (a "simple" one) is not in `groups`.
    """

    __slots__ = ("groups", "new_member_id", "offsets", "rules")

    def __init__(
        self,
        rules: GroupRules,
        new_member_id: Callable[[str], str],
        topics: TopicNumbers | None = None,
    ) -> None:
        """`topics` is shared by the shards of a broker."""
        self.rules = rules
        self.new_member_id = new_member_id
        self.groups: dict[str, ClassicGroup | ConsumerGroup] = {}
        self.offsets = CommittedOffsets(topics)
