"""Committed offsets over a log in memory: the broker's own parts, without its sockets.

store = OffsetStore()
store.commit("g", {("orders", 0): 5})     # written, not yet on the disk
store.sync()                              # what a client hears of is on the disk
after = store.restarted(store.files.power_cut(rng))
assert after.offset("g", "orders", 0) == 5
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from broker.coordinator.effects import GroupRules
from broker.coordinator.loading.loads import Loading
from broker.coordinator.loading.replay import replay
from broker.coordinator.offset_coordinator import OffsetCoordinator
from broker.coordinator.shard import Shard
from broker.coordinator.shard_state import ShardState
from broker.partitions.topic import Partition
from broker.producing.appends import Appends
from storage.cleaning.cleaning import Cleaning
from storage.cleaning.plan import CleaningLag, CleaningRules, plan_cleaning
from storage.recovery import LastKnown, open_log
from storage.replacing import cover_sealed, replace_segments
from tests.storage.logs import Settings
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker.coordinator.loading.replaying import ShardLoader
    from protocol.logdata.offsets import Record
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
MAX_MESSAGE_BYTES = 1_048_588
START_MS = 1_700_000_000_000


def _member_id(prefix: str) -> str:
    return f"{prefix}-1"


class OffsetStore:
    """One shard. `recovery_point` is what the last checkpoint said: 0 reads everything again.
    `compacted`: whether offsets may be missing between segments."""

    def __init__(
        self,
        files: MemoryFilesystem | None = None,
        *,
        settings: Settings | None = None,
        recovery_point: int = 0,
        compacted: bool = True,
        conditional: bool = False,
        retention_minutes: int = -1,
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
        self.disk: Any = SimpleNamespace(full=False, noticed=lambda error: True)
        broker = self._broker(conditional=conditional, retention_minutes=retention_minutes)
        topic: Any = SimpleNamespace(
            settings=SimpleNamespace(max_message_bytes=MAX_MESSAGE_BYTES),
            name="__consumer_offsets",
            topic_id=TOPIC_ID,
        )
        self.state = ShardState(GroupRules(), _member_id)
        self.shard = Shard(broker, Partition(topic, 7, self.log), self.state)
        self.loading = Loading(self.shard, 0)
        self.loading.run()
        self.loader: ShardLoader = self.loading.loader
        self.shard.loaded = True
        groups: Any = SimpleNamespace(
            shard=lambda group: self.shard,
            existing_shard=lambda group: self.shard,
            loaded_shards=lambda: iter([self.shard]),
            is_loading=False,
            now_ms=lambda: self.time_ms,
            store=self.store,
            forget=lambda group: None,
        )
        self.offsets = OffsetCoordinator(broker, groups)

    def _broker(self, *, conditional: bool, retention_minutes: int) -> Any:
        """What the parts under test want of a broker."""
        return SimpleNamespace(
            ack_when_durable=True,
            now_ms=lambda: self.time_ms,
            deletion_clock=SimpleNamespace(now_ms=lambda: self.time_ms),
            disk=self.disk,
            appends=Appends(self.disk),
            settings=SimpleNamespace(
                offsets_commit_conditional_enable=conditional,
                offsets_retention_minutes=retention_minutes,
            ),
            topics=SimpleNamespace(by_name={}),
        )

    def store(self, shard: Shard, records: Iterable[Record]) -> None:
        records = list(records)
        shard.write_records(records)
        for key, value in records:
            replay(self.state, key, value, now_ms=self.time_ms)

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
        self.offsets.end_transaction(group, producer, commit=commit, coordinator_epoch=0)

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
        return OffsetStore(files or self.files, settings=self.settings, **options)
