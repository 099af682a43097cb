"""Drives the groups: finds them, carries out what they ask for, keeps their timers.

The shards exist when `__consumer_offsets` does, which is made when a group is first looked for; a
broker whose clients use no groups never has it. They are loaded after the start, on a thread, and
answer COORDINATOR_LOAD_IN_PROGRESS until then.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from broker import logs
from broker.coordinator.classic.arrivals import Search
from broker.coordinator.classic.gathering import LIMIT_MS
from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.classic.requests import ClassicProtocol
from broker.coordinator.consumer.requests import ConsumerProtocol
from broker.coordinator.effects import Append, ConsumerTimes, GroupRules
from broker.coordinator.loading.loads import Loads
from broker.coordinator.loading.replay import replay
from broker.coordinator.loading.snapshotting import Snapshotting
from broker.coordinator.offsets.committed import TopicNumbers
from broker.coordinator.offsets.topic import NAME
from broker.coordinator.offsets.torn_commits import groups_in
from broker.coordinator.shard import Shard
from broker.coordinator.shard_state import ShardState
from broker.coordinator.topics_view import LiveTopics
from config import ConfigError
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import GroupMetadataValue, shard_of
from storage.metadata.image import GROUP_RESOURCE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from broker.coordinator.classic.arrivals import Arrivals
    from broker.coordinator.consumer.group import ConsumerGroup
    from broker.coordinator.effects import Effect
    from broker.server import Broker
    from config import BrokerSettings
    from protocol.logdata.offsets import Record
    from storage.reports import RecoveryReport

    Group = ClassicGroup | ConsumerGroup

shard_number = lru_cache(maxsize=16_384)(shard_of)
"""`shard_of`, remembered for the groups that are asked for most: a heartbeat costs less."""


class GroupCoordinator:
    """All groups of this broker. Belongs to the loop."""

    def __init__(
        self,
        broker: Broker,
        new_member_id: Callable[[str], str],
        arrivals: Arrivals,
    ) -> None:
        self._broker = broker
        self.arrivals = arrivals
        self._new_member_id = new_member_id
        self._own_times: dict[str, ConsumerTimes] = {}
        self.rules = _rules(broker.settings, self._own_times)
        self.topics = LiveTopics(broker.topics)
        self.classic = ClassicProtocol(self, new_member_id)
        self.consumer = ConsumerProtocol(self, broker.settings, new_member_id)
        self.shards: list[Shard] = []
        self.loads = Loads(broker)
        self.snapshotting = Snapshotting(broker, self)
        self.torn_commits = 0
        """Cuts by recovery; a cut may have held several commits that were written together."""
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}

    def configure(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Let a group live by these settings of its own, from the next heartbeat of each member on.

        Some that can't be, stored by another version or by Kafka, are all left out, with a warning.
        """
        if not overrides:
            self._own_times.pop(group_id, None)
            return
        from config.group import GroupConfig  # few groups have settings

        try:
            config = GroupConfig.of(self._broker.settings, overrides)
        except ConfigError as error:
            logs.warning("settings of a group are ignored", group=group_id, reason=error.reason)
            self._own_times.pop(group_id, None)
            return
        self._own_times[group_id] = ConsumerTimes(
            config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms
        )

    def now_ms(self) -> int:
        """ms on a clock that never goes back; groups count in it."""
        return int(self._broker.loop.time() * 1000)

    # Shards

    def start(self) -> None:
        """Take the settings of groups, and begin to load what an earlier run has left."""
        for (kind, group_id), overrides in self._broker.controller.image.configs.items():
            if kind == GROUP_RESOURCE:
                self.configure(group_id, overrides)
        self._take_topic()

    def tell_torn(self, reports: Iterable[RecoveryReport]) -> None:
        """Count and name what recovery cut off the topic: commits that a crash has torn, none of
        which was answered."""
        for report in reports:
            if report.bytes_cut and report.partition.rpartition("-")[0] == NAME:
                self.torn_commits += 1
                logs.error(
                    "a torn commit was cut",
                    partition=report.partition,
                    position=report.position,
                    bytes=report.bytes_cut,
                    groups=groups_in(report.head) or "unknown",
                )

    def shard(self, group_id: str) -> Shard:
        """The shard of a group, which must be loaded; the topic is made if there is none yet.

        Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE.
        """
        if not self.shards:
            self.create_topic()
        return self._loaded(group_id)

    def existing_shard(self, group_id: str) -> Shard | None:
        """The same for a request that only asks: None if there is no topic, and so no group."""
        return self._loaded(group_id) if self._take_topic() else None

    def look_for(self, group_ids: Iterable[str], client_id: str) -> None:
        """A client asks for the coordinator of these groups, which it may be about to join. The
        topic is made if there is none yet. Raises KafkaError: COORDINATOR_NOT_AVAILABLE."""
        self.create_topic()
        now_ms = self.now_ms()
        for group_id in group_ids:
            self.arrivals.note(Search(now_ms, group_id, client_id))

    def create_topic(self) -> None:
        """Make `__consumer_offsets` unless it is there. Raises KafkaError."""
        if self._take_topic():
            return
        broker = self._broker
        try:
            topic = broker.topics.create_automatically(NAME, now_ms=broker.now_ms())
        except (KafkaError, OSError) as error:
            if not broker.disk.noticed(error):
                logs.error_once_a_minute("topic not created", str(error), NAME)
            raise KafkaError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        logs.info("topic created", topic=NAME, partitions=len(topic.partitions))
        self._take_topic()

    def _take_topic(self) -> bool:
        """Whether the topic exists; its shards are made when it is first seen."""
        if self.shards:
            return True
        topic = self._broker.topics.by_name.get(NAME)
        if topic is None:
            return False
        numbers = TopicNumbers()
        self.shards = [
            Shard(self._broker, partition, ShardState(self.rules, self._new_member_id, numbers))
            for partition in topic.partitions
        ]
        self.loads.begin(self.shards, self._loaded_groups)
        return True

    def _loaded(self, group_id: str) -> Shard:
        shard = self.shards[shard_number(group_id, len(self.shards))]
        if not shard.loaded:
            raise KafkaError(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _loaded_groups(self, shard: Shard) -> None:
        """The groups of a shard that has been loaded begin to live."""
        now_ms = self.now_ms()
        for group in list(shard.state.groups.values()):
            if isinstance(group, ClassicGroup):
                group.restart_sessions(now_ms)  # the load took some of their time
            self.look_again(shard, group)
        self._broker.offsets.look_for_deleted()

    # Carrying out

    def carry_out(self, shard: Shard, group: ClassicGroup, effects: list[Effect]) -> None:
        """Write what is to be written and answer who is to be answered, in this order."""
        refused: KafkaError | None = None
        replies = []
        for effect in effects:
            if isinstance(effect, Append):
                try:
                    shard.write_records(effect.records)
                    group.current_state_timestamp = self._broker.now_ms()
                    _, value = effect.records[-1]
                    assert isinstance(value, GroupMetadataValue)
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

        self._broker.group_commit.wait([log], synced)

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
            replay(shard.state, key, value, now_ms=now_ms)

    # Time

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
        handle = self._broker.loop.call_at(
            (deadline_ms + 1) / 1000, self._time_is_up, shard, group_id
        )
        self._timers[group_id] = (deadline_ms, handle)

    def _time_is_up(self, shard: Shard, group_id: str) -> None:
        now_ms = self.now_ms()
        timer = self._timers.pop(group_id, None)
        group = shard.state.groups.get(group_id)
        if group is None:
            return
        if timer is not None and now_ms - timer[0] > LATE_MS:
            # The process was stopped or starved. Heartbeats may have come in meanwhile, and the
            # loop looks at its timers before it looks at its sockets.
            until_ms = now_ms + GRACE_MS
            handle = self._broker.loop.call_at(until_ms / 1000, self._time_is_up, shard, group_id)
            self._timers[group_id] = (until_ms, handle)
            return
        try:
            if isinstance(group, ClassicGroup):
                self.carry_out(shard, group, group.expire(now_ms, self.arrivals))
            else:
                self.consumer.expire(shard, group, now_ms)
        except KafkaError:
            # Which has been said; the disk may have room again by then.
            self._broker.loop.call_later(RETRY_S, self._time_is_up, shard, group_id)
        except Exception as error:
            logs.fault_once_a_minute("a group failed", error, group_id)

    def forget(self, group_id: str) -> None:
        """The group is gone: so is its timer."""
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer[1].cancel()

    # All of them

    def loaded_shards(self) -> Iterator[Shard]:
        """Those that can be asked now."""
        if self._take_topic():
            yield from (shard for shard in self.shards if shard.loaded)

    @property
    def is_loading(self) -> bool:
        """Whether there are groups that are not known yet."""
        return self._take_topic() and not all(shard.loaded for shard in self.shards)


RETRY_S = 1.0
LATE_MS = 1000
"""A group's timer that fires so late tells of a pause in which nothing was read from sockets."""
GRACE_MS = 500
"""How long what waits there may then take, before members are taken for gone."""


def _rules(settings: BrokerSettings, own_times: Mapping[str, ConsumerTimes]) -> GroupRules:
    return GroupRules(
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        gathering_limit_ms=0 if settings.group_initial_rebalance_delay_ms else LIMIT_MS,
        max_size=settings.group_max_size,
        consumer_times=ConsumerTimes(
            settings.group_consumer_session_timeout_ms,
            settings.group_consumer_heartbeat_interval_ms,
        ),
        own_times=own_times,
        consumer_max_size=settings.group_consumer_max_size,
        assignors=tuple(_short(name) for name in settings.group_consumer_assignors),
    )


def _short(assignor: str) -> str:
    """The word by which clients ask for an assignor that is configured by its class."""
    return assignor.rpartition(".")[2].removesuffix("Assignor").lower()
