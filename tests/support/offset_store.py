"""Committed offsets over a log in memory: the broker's own parts, without its sockets.

store = OffsetStore()
store.commit("g", {("orders", 0): 5})     # written, not yet on the disk
store.sync()                              # what a client hears of is on the disk
after = store.restarted(store.files.power_cut(rng))
assert after.offset("g", "orders", 0) == 5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from broker.coordinator.classic.arrivals import NOBODY
from broker.coordinator.effects import GroupRules
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.loading.loads import Loading
from broker.coordinator.offset_coordinator import OffsetCoordinator
from broker.coordinator.shard import Shard
from broker.coordinator.shard_state import ShardState
from broker.current_settings import CurrentSettings
from broker.partitions.internal_topics import OFFSETS_TOPIC
from broker.partitions.topic import Partition, Topic
from broker.producing.appends import Appends
from broker.producing.markers import TransactionEnd
from broker.workers import SideBySide
from config import BrokerSettings, load
from storage.cleaning.cleaning import Cleaning
from storage.cleaning.plan import CleaningLag, CleaningRules, plan_cleaning
from storage.recovery import LastKnown, open_log
from storage.replacing import cover_sealed
from tests.storage.logs import Settings
from tests.support.manual_loop import ManualLoop
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.replacement import replace_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from broker.coordinator.loading.replaying import ShardLoader
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topics import Topics
    from broker.producing.group_commit import GroupCommit
    from storage.log import Log
    from storage.reports import RecoveryReport

RULES = CleaningRules(
    segment_bytes=1 << 20,
    segment_index_bytes=1 << 20,
    index_interval_bytes=4096,
    max_message_bytes=1 << 20,
    delete_retention_ms=0,
    map_bytes=1 << 20,
    max_decompressed_bytes=1 << 20,
    max_decompression_ratio=1000,
)
TOPIC_ID = bytes(15) + b"7"
FOLDER = "/data/__consumer_offsets-7"
DEFAULTS = BrokerSettings()
START_MS = 1_700_000_000_000


class FakeDisk:
    """The state of a disk, as the test sets it. Whatever fails is said to be for want of room."""

    full = False

    def noticed(self, error: BaseException) -> bool:
        return True


class SyncedAtOnce:
    """A group commit that nobody has to wait for."""

    def wait(self, wanted: Iterable[Log], done: Callable[[dict[Log, str]], None]) -> None:
        done({})


class NamedTopics:
    """The topics of a broker, with so many partitions each and nothing in them."""

    version = 1

    def __init__(self, **partition_counts: int) -> None:
        self.by_name: dict[str, Topic] = {}
        for number, (name, count) in enumerate(partition_counts.items(), 1):
            topic = self.by_name[name] = Topic(name, number.to_bytes(16, "big"), {}, DEFAULTS)
            empty: Any = None
            topic.partitions = [empty] * count
        self.by_id = {topic.topic_id: topic for topic in self}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())


class OffsetStore:
    """One shard and its coordinators. `recovery_point` is what the last checkpoint said: 0 reads
    everything again. `compacted`: whether offsets may be missing between segments."""

    def __init__(
        self,
        files: MemoryFilesystem | None = None,
        *,
        settings: Settings | None = None,
        recovery_point: int = 0,
        compacted: bool = True,
        conditional: bool = False,
        retention_minutes: int = -1,
        new_member_id: Callable[[str], str] = lambda prefix: f"{prefix}-1",
        topics: NamedTopics | None = None,
    ) -> None:
        if files is None:
            files = MemoryFilesystem()
            files.make_dir("/data")
            files.make_dir(FOLDER)
            files.sync_all()
        self.files = files
        self.time_ms = START_MS
        self.settings = settings or Settings()
        self.log: Log
        self.reports: list[RecoveryReport]
        self.log, self.reports = open_log(
            files,
            FOLDER,
            self.settings,
            known=LastKnown(
                recovery_point=recovery_point, gaps_below=2**63 - 1 if compacted else 0
            ),
            leader_epoch=1,
            now_ms=self.time_ms,
        )
        self.disk = FakeDisk()
        self.loop = ManualLoop()
        self._new_member_id = new_member_id
        self._topics = NamedTopics() if topics is None else topics
        disk, appends = cast("DiskState", self.disk), Appends(cast("DiskState", self.disk))
        topic = Topic(OFFSETS_TOPIC, TOPIC_ID, {}, DEFAULTS)
        self.state = ShardState(GroupRules(), new_member_id)
        self.shard = Shard(
            Partition(topic, 7, self.log, leader_id=1),
            self.state,
            disk=disk,
            appends=appends,
            wall_ms=self._now_ms,
            ack_when_durable=True,
        )
        self.loading = Loading(self.shard, 0)
        self.loading.run()
        self.loader: ShardLoader = self.loading.loader
        self.shard.loaded = True
        given = {
            "offsets.commit.conditional.enable": str(conditional).lower(),
            "offsets.retention.minutes": str(retention_minutes),
        }
        current = CurrentSettings(load(overrides=given))
        self.groups, self.offsets = self._coordinators(current, appends)

    def _coordinators(
        self, settings: CurrentSettings, appends: Appends
    ) -> tuple[GroupCoordinator, OffsetCoordinator]:
        """The coordinators of the shard, as a start makes them."""
        loop: Any = self.loop
        groups = GroupCoordinator(
            settings=settings,
            loop=loop,
            topics=cast("Topics", self._topics),
            disk=cast("DiskState", self.disk),
            appends=appends,
            group_commit=cast("GroupCommit", SyncedAtOnce()),
            side_by_side=SideBySide(),
            arrivals=NOBODY,
            new_member_id=self._new_member_id,
            wall_ms=self._now_ms,
            loaded=lambda: None,
        )
        groups.runtime.shards.append(self.shard)
        offsets = OffsetCoordinator(
            groups.runtime,
            settings=settings,
            loop=loop,
            wall_ms=self._now_ms,
            deletion_ms=self._now_ms,
        )
        return groups, offsets

    def _now_ms(self) -> int:
        return self.time_ms

    def commit(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        producer: tuple[int, int] | None = None,
        metadata: str = "",
    ) -> None:
        """One request. Raises KafkaError."""
        entries: list[Any] = [
            (topic, index, offset, 3, metadata, -1) for (topic, index), offset in offsets.items()
        ]
        self.offsets.commit(self.shard, group, entries, now_ms=self.time_ms, producer=producer)

    def end(self, group: str, producer: tuple[int, int], *, commit: bool) -> None:
        """The end of a transaction."""
        end = TransactionEnd(*producer, commit, 0)
        self.offsets.end_transaction(0, end, if_open=False)

    def sync(self) -> None:
        """What is in the file is on the disk: commits until now are answered."""
        self.log.sync()

    def snapshot(self) -> str | None:
        """Write a snapshot of what there is, as a stop does; its name, None if nothing is new."""
        snapshots = self.shard.snapshots
        snapshot_id = snapshots.next_id()
        if snapshot_id is None:
            return None
        origin = snapshots.origin(snapshot_id.end_offset)
        snapshots.write(snapshot_id, origin, self.state.share(), now_ms=self.time_ms)
        self.state.offsets.unshare()
        return snapshot_id.file_name

    def compact(self) -> None:
        """Seal what there is and keep the newest record of each key, as the cleaner does."""
        log = self.log
        log.roll(now_ms=self.time_ms)
        cover_sealed(log)
        log.sync()
        plan = plan_cleaning(log, RULES, CleaningLag(0, 2**63 - 1, 0.0), now_ms=self.time_ms)
        if plan is None:
            return
        cleaning = Cleaning(self.files, plan)
        for group in cleaning.groups():
            assert replace_segments(log, group)
        log.cleaned_to = cleaning.cleaned_to

    def offset(self, group: str, topic: str, partition: int) -> int | None:
        """What OffsetFetch would say."""
        found = self.state.offsets.get(group, topic, partition)
        return None if found is None else found.offset

    def everything(self) -> dict[tuple[str, str, int], int]:
        """All offsets, by group, topic and partition."""
        return {
            (group, topic, partition): committed.offset
            for group in self.state.offsets.groups()
            for topic, partition, committed in self.state.offsets.entries(group)
        }

    def restarted(self, files: MemoryFilesystem | None = None, **options: Any) -> OffsetStore:
        """What the next start makes of these files; without them, those of this store as they are,
        as after a kill."""
        return OffsetStore(
            files or self.files,
            settings=self.settings,
            new_member_id=self._new_member_id,
            topics=self._topics,
            **options,
        )
