"""What happens to a broker, rather than to a request: rebalances, and elections of leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker import logs
from broker.coordinator.classic.group import ClassicGroup
from protocol.logdata.metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from broker.coordinator.group_coordinator import GroupCoordinator
    from broker.metadata.changes import Changes
    from broker.metadata.controller import Controller
    from broker.partitions.topic import Topic
    from broker.partitions.topics import Topics
    from storage.steps import Steps


class EventRefused(ValueError):
    """What was asked for cannot happen here; one line."""


class Events:
    """Has them happen, by the parts that they would happen to. Belongs to the loop."""

    def __init__(
        self, groups: GroupCoordinator, topics: Topics, controller: Controller, changes: Changes
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._controller = controller
        self._changes = changes

    def rebalance(self, group_id: str) -> None:
        """Have all members of a classic group join again. Raises EventRefused, KafkaError."""
        runtime = self._groups.runtime
        shard = runtime.existing_shard(group_id)
        group = None if shard is None else shard.state.groups.get(group_id)
        if shard is None or group is None:
            raise EventRefused(f"there is no group '{group_id}' with members")
        if not isinstance(group, ClassicGroup):
            raise EventRefused(
                f"the group '{group_id}' is one of the consumer protocol (KIP-848), whose "
                "members are assigned anew when one of them comes or goes, and not on demand"
            )
        if group.is_empty():
            raise EventRefused(f"the group '{group_id}' has no members")
        runtime.carry_out(shard, group, group.rebalance(runtime.now_ms()))

    def elect(self, name: str) -> None:
        """Begin to lead every partition of a topic in a new epoch, as after an election that this
        broker has won again. It is done when `state` says so. Raises EventRefused."""
        topic = self._topic(name)

        def done(_: Any) -> None:
            for number, partition in enumerate(topic.partitions):
                partition.log.set_leader_epoch(self._controller.store.leader_epoch(name, number))

        self._changes.make(
            self._new_epoch(topic),
            done,
            lambda error: logs.error("no leader was elected", topic=name, reason=str(error)),
        )

    def state(self, name: str) -> list[dict[str, int]]:
        """Each partition of a topic: epoch, start and end. Raises EventRefused."""
        return [
            {
                "partition": number,
                "leader_epoch": partition.log.leader_epoch,
                "start_offset": partition.log.start_offset,
                "end_offset": partition.log.written_offset,
            }
            for number, partition in enumerate(self._topic(name).partitions)
        ]

    def _topic(self, name: str) -> Topic:
        topic: Topic | None = self._topics.by_name.get(name)
        if topic is None:
            raise EventRefused(f"there is no topic '{name}'")
        return topic

    def _new_epoch(self, topic: Topic) -> Steps[None]:
        image = self._controller.image
        yield from self._controller.append(
            [
                PartitionChangeRecord(
                    partition_id=number,
                    topic_id=topic.topic_id,
                    leader=image.topics[topic.name].partitions[number].leader,
                )
                for number in range(len(topic.partitions))
            ]
        )
