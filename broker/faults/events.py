"""What happens to a broker, rather than to a request: rebalances, elections of leaders, and ends of
partitions that a new leader does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.members import NOTHING, target_record
from protocol.errors import KafkaError
from protocol.logdata.metadata import PartitionChangeRecord
from storage.errors import OffsetOutOfRange
from storage.truncation import truncated

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.coordinator.consumer.group import ConsumerGroup
    from broker.coordinator.group_coordinator import GroupCoordinator
    from broker.coordinator.shard import Shard
    from broker.metadata.changes import Changes
    from broker.metadata.controller_view import ControllerView
    from broker.partitions.topic import Partition, Topic
    from broker.partitions.topics import Topics
    from storage.data_dir import DataDirectory
    from storage.log import Log
    from storage.steps import Steps

GIVEN_BACK_EVERY_S = 0.02
"""Between two looks at whether the members of a group have given up everything."""


class EventRefused(ValueError):
    """What was asked for cannot happen here; one line."""


class Events:
    """Has them happen, by the parts that they would happen to. Belongs to the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        groups: GroupCoordinator,
        topics: Topics,
        *,
        controller: ControllerView,
        changes: Changes,
        directory: DataDirectory,
        is_being_cleaned: Callable[[Log], bool],
        now_ms: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._groups = groups
        self._topics = topics
        self._controller = controller
        self._changes = changes
        self._directory = directory
        self._is_being_cleaned = is_being_cleaned
        self._now_ms = now_ms

    def rebalance(self, group_id: str) -> None:
        """Have all members of a classic group join again; take everything from those of a group of
        the consumer protocol (KIP-848), and give it back when they have nothing. Raises
        EventRefused, KafkaError."""
        runtime = self._groups.runtime
        shard = runtime.existing_shard(group_id)
        group = None if shard is None else shard.state.groups.get(group_id)
        if shard is None or group is None:
            raise EventRefused(f"there is no group '{group_id}' with members")
        if group.is_empty():
            raise EventRefused(f"the group '{group_id}' has no members")
        if isinstance(group, ClassicGroup):
            runtime.carry_out(shard, group, group.rebalance(runtime.now_ms()))
        else:
            self._take_everything(shard, group)

    def _take_everything(self, shard: Shard, group: ConsumerGroup) -> None:
        """A target assignment of nothing: each member hears of it at its next heartbeat."""
        epoch = group.group_epoch + 1
        nothing = [target_record(group.group_id, one, NOTHING) for one in group.members]
        records = [group.epoch_record(epoch), *nothing, group.target_epoch_record(epoch)]
        self._groups.runtime.store(shard, records)
        self._give_back(shard, group)

    def _give_back(self, shard: Shard, group: ConsumerGroup) -> None:
        """Once nobody has anything, an epoch without a target: the next heartbeat makes one."""
        if shard.state.groups.get(group.group_id) is not group or not group.members:
            return
        if group.owners:
            self._loop.call_later(GIVEN_BACK_EVERY_S, self._give_back, shard, group)
            return
        try:
            self._groups.runtime.store(shard, [group.epoch_record(group.group_epoch + 1)])
        except KafkaError as error:
            logs.error("a group was not assigned anew", group=group.group_id, reason=str(error))

    def elect(self, name: str) -> None:
        """Begin to lead every partition of a topic in a new epoch, as after an election that this
        broker has won again. It is done when `state` says so. Raises EventRefused."""
        self._elect(self._topic(name))

    def truncate(self, name: str, number: int, offset: int) -> None:
        """Begin to lead every partition of a topic in a new epoch, one of them without the records
        from `offset` on, as after an election that a broker has won which had not got them. It is
        done when `state` says so. Raises EventRefused, OffsetOutOfRange."""
        topic = self._topic(name)
        if topic.internal:
            raise EventRefused(f"'{name}' is the broker's own: its memory would not follow")
        if not 0 <= number < len(topic.partitions):
            raise EventRefused(f"the topic '{name}' has no partition {number}")
        partition = topic.partitions[number]
        log = partition.log
        if not log.start_offset <= offset < log.written_offset:
            raise OffsetOutOfRange(offset, log.start_offset, log.written_offset)
        if self._is_being_cleaned(log):
            raise EventRefused(f"{log.name} is being compacted; try again")
        self._elect(topic, lambda: self._cut(partition, offset))

    def _cut(self, partition: Partition, offset: int) -> None:
        name, number, log = partition.topic.name, partition.index, partition.log
        try:
            partition.log = truncated(
                log, offset, leader_epoch=log.leader_epoch, now_ms=self._now_ms()
            )
        except (KafkaError, OSError) as error:
            logs.error("a partition was not truncated", log=log.name, reason=str(error))
            return
        self._directory.replace(name, number, partition.log)
        logs.info("a partition was truncated", log=log.name, end_offset=partition.log.next_offset)
        partition.wake_all()

    def _elect(self, topic: Topic, then: Callable[[], None] = lambda: None) -> None:
        self._changes.make(
            self._new_epoch(topic),
            lambda _: then(),
            lambda error: logs.error("no leader was elected", topic=topic.name, reason=str(error)),
        )

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
