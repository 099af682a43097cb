"""All groups of this broker: one runtime, and on it the requests of both protocols, the settings of
groups and the snapshots of what the log says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.coordinator.classic.arrivals import Search
from broker.coordinator.classic.gathering import LIMIT_MS
from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.classic.requests import ClassicProtocol
from broker.coordinator.consumer.requests import ConsumerProtocol
from broker.coordinator.effects import ConsumerTimes, GroupRules
from broker.coordinator.loading.snapshotting import Snapshotting
from broker.coordinator.offsets.torn_commits import groups_in
from broker.coordinator.runtime import GroupRuntime
from broker.partitions.internal_topics import OFFSETS_TOPIC
from config import ConfigError
from storage.metadata.image import GROUP_RESOURCE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from broker.coordinator.classic.arrivals import Arrivals
    from broker.coordinator.runtime import Group
    from broker.coordinator.shard import Shard
    from broker.current_settings import CurrentSettings
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topics import Topics
    from broker.producing.appends import Appends
    from broker.producing.group_commit import GroupCommit
    from config import BrokerSettings
    from storage.reports import RecoveryReport
    from storage.syncing import RunAll


class GroupCoordinator:
    """All groups, for handlers, background tasks and metrics. Belongs to the loop.

    `loaded` is called whenever the groups of another part of the topic may be used. `wall_ms` gives
    ms since 1970.
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
        side_by_side: RunAll,
        arrivals: Arrivals,
        new_member_id: Callable[[str], str],
        wall_ms: Callable[[], int],
        loaded: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._arrivals = arrivals
        self._own_times: dict[str, ConsumerTimes] = {}
        self.runtime = runtime = GroupRuntime(
            settings=settings,
            loop=loop,
            topics=topics,
            disk=disk,
            appends=appends,
            group_commit=group_commit,
            rules=_rules(settings.current, self._own_times),
            new_member_id=new_member_id,
            wall_ms=wall_ms,
            expire=self._expire,
            loaded=loaded,
        )
        self.consumer = ConsumerProtocol(runtime, settings.current, new_member_id)
        self.classic = ClassicProtocol(runtime, self.consumer, arrivals, new_member_id)
        self.loads = runtime.loads
        self.snapshotting = Snapshotting(
            loop=loop,
            shards=runtime.shards,
            settings=settings,
            disk=disk,
            group_commit=group_commit,
            side_by_side=side_by_side,
            now_ms=runtime.now_ms,
            wall_ms=wall_ms,
        )
        self.torn_commits = 0
        """Cuts by recovery; a cut may have held several commits that were written together."""
        # For handlers, without another call.
        self.topics = runtime.topics
        self.now_ms = runtime.now_ms
        self.shard = runtime.shard
        self.existing_shard = runtime.existing_shard
        self.leader_id = runtime.leader_id
        self.loaded_shards = runtime.loaded_shards

    @property
    def is_loading(self) -> bool:
        """Whether there are groups that are not known yet."""
        return self.runtime.is_loading

    def configure(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Let a group live by these settings of its own, from the next heartbeat of each member on.

        Some that can't be, stored by another version or by Kafka, are all left out, with a warning.
        """
        if not overrides:
            self._own_times.pop(group_id, None)
            return
        from config.group import GroupConfig  # few groups have settings

        try:
            config = GroupConfig.of(self._settings.current, overrides)
        except ConfigError as error:
            logs.warning("settings of a group are ignored", group=group_id, reason=error.reason)
            self._own_times.pop(group_id, None)
            return
        self._own_times[group_id] = ConsumerTimes(
            config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms
        )

    def start(self, configs: Mapping[tuple[int, str], Mapping[str, str]]) -> None:
        """Take the settings of groups from those of all resources, and begin to load what an
        earlier run has left."""
        for (kind, group_id), overrides in configs.items():
            if kind == GROUP_RESOURCE:
                self.configure(group_id, overrides)
        self.runtime.take_topic()

    def report_torn_commits(self, reports: Iterable[RecoveryReport]) -> None:
        """Count and name what recovery cut off the topic: commits that a crash has torn, none of
        which was answered."""
        for report in reports:
            if report.bytes_cut and report.partition.rpartition("-")[0] == OFFSETS_TOPIC:
                self.torn_commits += 1
                logs.error(
                    "a torn commit was cut",
                    partition=report.partition,
                    position=report.position,
                    bytes=report.bytes_cut,
                    groups=groups_in(report.head) or "unknown",
                )

    def look_for(self, group_ids: Iterable[str], client_id: str) -> None:
        """A client asks for the coordinator of these groups, which it may be about to join. The
        topic has to be there. Raises NeededFirst; KafkaError: COORDINATOR_NOT_AVAILABLE."""
        self.runtime.require_topic()
        now_ms = self.now_ms()
        for group_id in group_ids:
            self._arrivals.note(Search(now_ms, group_id, client_id))

    def _expire(self, shard: Shard, group: Group, now_ms: int) -> None:
        """The deadline of a group has passed. Raises KafkaError."""
        if isinstance(group, ClassicGroup):
            self.runtime.carry_out(shard, group, group.expire(now_ms, self._arrivals))
        else:
            self.consumer.expire(shard, group, now_ms)


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
