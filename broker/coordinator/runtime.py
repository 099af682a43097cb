"""Groups at work: their shards, their timers, their records, and the answers they give.

The shards exist when `__consumer_offsets` does, which is made when a group is first looked for; a
broker whose clients use no groups never has it. They are loaded after the start, on a thread, and
answer COORDINATOR_LOAD_IN_PROGRESS until then.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from broker import logs
from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.effects import Append
from broker.coordinator.loading.loads import Loads
from broker.coordinator.loading.replay import replay
from broker.coordinator.needs import StateTopic
from broker.coordinator.offsets.committed import TopicNumbers
from broker.coordinator.shard import Shard
from broker.coordinator.shard_state import ShardState
from broker.coordinator.state_log import not_loaded
from broker.coordinator.topics_view import LiveTopics
from broker.partitions.internal_topics import OFFSETS_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import (
    ConsumerGroupMetadataKey,
    GroupMetadataValue,
    shard_of,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from broker.coordinator.consumer.group import ConsumerGroup
    from broker.coordinator.effects import Effect, GroupRules
    from broker.current_settings import CurrentSettings
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.partitions.topics import Topics
    from broker.producing.appends import Appends
    from broker.producing.group_commit import GroupCommit
    from config import BrokerSettings
    from protocol.logdata.offsets import Record

    Group = ClassicGroup | ConsumerGroup

RETRY_S = 1.0
LATE_MS = 1000
"""A group's timer that fires so late tells of a pause in which nothing was read from sockets."""
GRACE_MS = 500
"""Time for reading what waits in sockets then, before members are taken for gone."""

shard_number = lru_cache(maxsize=16_384)(shard_of)
"""`shard_of`, remembered for the groups that are asked for most: a heartbeat costs less."""


class GroupRuntime:
    """The shards of this broker and all that groups need of the world. Belongs to the loop.

    `expire` is called for a group whose deadline has passed, `loaded` whenever another shard may be
    used. `wall_ms` gives ms since 1970.
    """

    def __init__(
        self,
        *,
        settings: CurrentSettings,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        disk: DiskState,
        appends: Appends,
        group_commit: GroupCommit,
        rules: GroupRules,
        new_member_id: Callable[[str], str],
        wall_ms: Callable[[], int],
        expire: Callable[[Shard, Group, int], None],
        loaded: Callable[[], None],
    ) -> None:
        self.rules = rules
        self.topics = LiveTopics(topics)
        self.shards: list[Shard] = []
        self.loads = Loads(loop)
        self.state_topic = StateTopic(OFFSETS_TOPIC, topics=topics, disk=disk, wall_ms=wall_ms)
        self._loop = loop
        self._disk = disk
        self._appends = appends
        self._group_commit = group_commit
        self._new_member_id = new_member_id
        self._wall_ms = wall_ms
        self._expire = expire
        self._loaded = loaded
        self._topic_numbers = TopicNumbers()
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self._stopped = False
        self.rebalances = 0
        """New generations of classic groups and epochs of consumer groups, for the metrics."""
        self._ack_when_durable = settings.current.log_flush_policy == "ack"
        settings.subscribe(self._configure)

    def _configure(self, _before: BrokerSettings, now: BrokerSettings) -> None:
        self._ack_when_durable = now.log_flush_policy == "ack"
        for shard in self.shards:
            shard.ack_when_durable = self._ack_when_durable

    def now_ms(self) -> int:
        """ms on a clock that never goes back; groups count in it."""
        return int(self._loop.time() * 1000)

    # Shards

    def shard(self, group_id: str) -> Shard:
        """The shard of a group, which must be loaded.

        Raises NeededFirst; KafkaError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR where another
        process leads its partition, and COORDINATOR_NOT_AVAILABLE where the topic could not be
        made.
        """
        if not self.shards:
            self.require_topic()
        return self._loaded_shard(group_id)

    def existing_shard(self, group_id: str) -> Shard | None:
        """The same for a request that only asks: None if there is no topic, and so no group."""
        return self._loaded_shard(group_id) if self.take_topic() else None

    def readable_shard(self, group_id: str) -> Shard | None:
        """The same, and None also if the shard's log can't be read and never will be."""
        if not self.take_topic():
            return None
        shard = self.shards[shard_number(group_id, len(self.shards))]
        if shard.partition.log.unavailable is not None and not shard.partition.led_elsewhere:
            return None
        return self._loaded_shard(group_id)

    def is_elsewhere(self, group_id: str) -> bool:
        """Whether another process coordinates a group."""
        shards = self.shards if self.take_topic() else ()
        return bool(shards) and shards[shard_number(group_id, len(shards))].partition.led_elsewhere

    def leader_id(self, group_id: str) -> int:
        """The id of the broker that coordinates a group. The topic has to be there."""
        return self.shards[shard_number(group_id, len(self.shards))].partition.leader_id

    def require_topic(self) -> None:
        """See that `__consumer_offsets` is there. Raises NeededFirst; KafkaError:
        COORDINATOR_NOT_AVAILABLE where it could not be made."""
        if not self.take_topic():
            raise self.state_topic.need.unmet()

    def take_topic(self) -> bool:
        """Whether the topic exists; when it is first seen its shards are made, and their load
        begins."""
        if self.shards:
            return True
        topic = self.state_topic.find()
        if topic is None:
            return False
        self.shards += map(self._new_shard, topic.partitions)
        self.loads.begin(self.shards, self.take_up)
        return True

    def _new_shard(self, partition: Partition) -> Shard:
        return Shard(
            partition,
            ShardState(self.rules, self._new_member_id, self._topic_numbers),
            disk=self._disk,
            appends=self._appends,
            wall_ms=self._wall_ms,
            ack_when_durable=self._ack_when_durable,
        )

    def moved(self, partition: Partition) -> None:
        """A partition of the topic is led by another process from now on, and the coordinator of
        its groups resigns; or by this one, and is loaded. Each time of leading has a shard of its
        own, so that nothing of an earlier one is taken for what the log says."""
        if partition.index >= len(self.shards):
            return  # nobody has looked for a group here
        before = self.shards[partition.index]
        shard = self.shards[partition.index] = self._new_shard(partition)
        if before.loaded:
            self._resign(before)
        else:
            self.loads.give_up(before)
        if not partition.led_elsewhere:
            self.loads.add(shard)

    def _resign(self, shard: Shard) -> None:
        """Refuse whoever waits for a group, who is to look for the next coordinator, and let no
        time pass for any of them: that one has what the log says."""
        shard.resign()
        for group_id, group in shard.state.groups.items():
            self.forget(group_id)
            if isinstance(group, ClassicGroup):
                self.answer(shard, group.stop())

    def shard_at(self, index: int) -> Shard | None:
        """The shard of this partition of the topic; None if there is none. Raises KafkaError:
        COORDINATOR_LOAD_IN_PROGRESS."""
        if not self.take_topic() or not 0 <= index < len(self.shards):
            return None
        shard = self.shards[index]
        if not shard.loaded:
            raise not_loaded(shard.partition)
        return shard

    def _loaded_shard(self, group_id: str) -> Shard:
        shard = self.shards[shard_number(group_id, len(self.shards))]
        if not shard.loaded:
            raise not_loaded(shard.partition)
        return shard

    def take_up(self, shard: Shard) -> None:
        """The groups of a shard that has been loaded begin to live."""
        now_ms = self.now_ms()
        for group in list(shard.state.groups.values()):
            if isinstance(group, ClassicGroup):
                group.restart_sessions(now_ms)  # the load took some of their time
            self.look_again(shard, group)
        self._loaded()

    def loaded_shards(self) -> Iterator[Shard]:
        """The shards that can be asked now."""
        if self.take_topic():
            yield from (shard for shard in self.shards if shard.loaded)

    @property
    def is_loading(self) -> bool:
        """Whether there are groups that are not known yet."""
        return self.take_topic() and not all(
            shard.loaded or shard.partition.led_elsewhere for shard in self.shards
        )

    # Effects

    def carry_out(self, shard: Shard, group: ClassicGroup, effects: list[Effect]) -> None:
        """Write what is to be written and answer who is to be answered, in this order."""
        refused: KafkaError | None = None
        replies = []
        for effect in effects:
            if isinstance(effect, Append):
                try:
                    shard.write_records(effect.records)
                    group.current_state_timestamp = self._wall_ms()
                    _, value = effect.records[-1]
                    assert isinstance(value, GroupMetadataValue)
                    before = 0 if group.stored is None else group.stored.generation
                    self.rebalances += value.generation != before
                    group.stored = value
                except KafkaError as error:
                    refused = error
            elif refused is not None:
                effect.waiter.refuse(refused.code)
            else:
                replies.append(effect)
        if replies:
            self.answer(shard, replies)
        if refused is not None:
            self.carry_out(shard, group, group.append_failed(self.now_ms()))
        else:
            self.look_again(shard, group)

    def answer(self, shard: Shard, replies: Iterable[Any]) -> None:
        """Send these answers, when all that they may tell of is on the disk."""
        if shard.is_durable:
            for waiter, response in replies:
                waiter.answer(response)
            return
        log, replies = shard.partition.log, list(replies)
        if not replies:
            return

        def synced(failed: dict[Any, str]) -> None:
            for waiter, response in replies:
                if failed:
                    waiter.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                else:
                    waiter.answer(response)

        self._group_commit.wait([log], synced)

    # Records

    def store(self, shard: Shard, records: Iterable[Record]) -> None:
        """Write records and let memory follow. Raises KafkaError; then nothing has changed."""
        records = list(records)
        shard.write_records(records)
        self.replay(shard, records)

    def replay(self, shard: Shard, records: list[Record]) -> None:
        """Let memory follow what has been written."""
        now_ms = self.now_ms()
        for key, value in records:
            self.rebalances += isinstance(key, ConsumerGroupMetadataKey) and value is not None
            replay(shard.state, key, value, now_ms=now_ms)

    def stop(self) -> None:
        """Load no more, and let no time pass for any group: the loop may have another broker, or
        go on without one."""
        self.loads.stop()
        self._stopped = True
        for group_id in list(self._timers):
            self.forget(group_id)

    # Timers

    def look_again(self, shard: Shard, group: Group) -> None:
        """Have the group looked at when it wants to be. One that nobody needs is forgotten."""
        group_id = group.group_id
        deadline_ms = group.deadline()
        timer = self._timers.get(group_id)
        if deadline_ms is None:
            if timer is not None:
                timer[1].cancel()
                del self._timers[group_id]
            if isinstance(group, ClassicGroup) and group.is_forgettable():
                shard.state.groups.pop(group_id, None)
            return
        if timer is not None:
            if timer[0] <= deadline_ms:
                return
            timer[1].cancel()
        # A timer may fire a fraction of a millisecond early.
        handle = self._loop.call_at((deadline_ms + 1) / 1000, self._time_is_up, shard, group_id)
        self._timers[group_id] = (deadline_ms, handle)

    def _time_is_up(self, shard: Shard, group_id: str) -> None:
        if self._stopped or not shard.loaded:
            return  # or its coordinator has resigned
        now_ms = self.now_ms()
        timer = self._timers.pop(group_id, None)
        group = shard.state.groups.get(group_id)
        if group is None:
            return
        if timer is not None and now_ms - timer[0] > LATE_MS:
            # The process was stopped or starved. Heartbeats may have come in meanwhile, and the
            # loop looks at its timers before it looks at its sockets.
            until_ms = now_ms + GRACE_MS
            handle = self._loop.call_at(until_ms / 1000, self._time_is_up, shard, group_id)
            self._timers[group_id] = (until_ms, handle)
            return
        try:
            self._expire(shard, group, now_ms)
        except KafkaError:
            # Which has been said; the disk may have room again by then.
            self._loop.call_later(RETRY_S, self._time_is_up, shard, group_id)
        except Exception as error:
            logs.fault_once_a_minute("a group failed", error, group_id)

    def forget(self, group_id: str) -> None:
        """The group is gone: so is its timer."""
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer[1].cancel()
