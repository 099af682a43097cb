"""This node as the leader of the metadata log: who it is, and when snapshots are taken.

Changes are made through the store (topics) or `append` (everything else), one at a time
(`broker.metadata.changes`); both end in the metadata log, which tells this object of each append:
fetches that wait for it are woken, and a snapshot is begun when one is due. Snapshots are encoded
and written on the thread of checkpoints.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker import clock, logs
from broker.metadata.controller_view import ControllerView
from broker.metadata.features import supported
from broker.metadata.observers import Observers
from broker.partitions.topic import Partition, Topic
from protocol.logdata.metadata import (
    BrokerRegistrationChangeRecord,
    EndPoint,
    Feature,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    fits,
)
from protocol.logdata.metadata_names import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from storage.metadata.image_topics import nobody_follows
from storage.metadata.snapshot_rules import (
    HeldSegment,
    RetentionRules,
    SnapshotRules,
    retained,
    snapshot_due,
)
from storage.metadata.snapshots import DamagedSnapshot
from storage.steps import run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.current_settings import CurrentSettings
    from broker.partitions.disk_state import DiskState
    from broker.security.credentials import NewCredential
    from broker.workers import Worker
    from config import BrokerSettings, Listener
    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.image import MetadataImage
    from storage.metadata.metadata_log import MetadataLog, SnapshotWork
    from storage.metadata.snapshot_rules import Retained
    from storage.metadata.snapshots import Snapshots
    from storage.metadata.store import MetadataStore
    from storage.removal import Removal
    from storage.steps import Steps

LOOK_EVERY_S = 60.0
"""Interval of the checks of the age and the size of snapshots, as in Kafka."""
PAUSE_S = 0.001
"""Pause of the thread that writes a snapshot, after some 0.4 ms of work."""
REMOVE_AFTER_MS = 60_000
"""Time that the file of a removed snapshot stays: it may be being sent (as in Kafka)."""
_FENCED = 1


class MetadataPartition(Partition):
    """The partition of the metadata log: what followers see of it is on the disk."""

    __slots__ = ("_metadata",)

    def __init__(self, topic: Topic, metadata: MetadataLog, *, leader_id: int) -> None:
        super().__init__(topic, METADATA_PARTITION, metadata.log, leader_id=leader_id)
        self._metadata = metadata

    @property
    def high_watermark(self) -> int:
        return self._metadata.committed_offset


class Controller(ControllerView):
    """Belongs to the loop."""

    def __init__(
        self,
        store: MetadataStore,
        settings: CurrentSettings,
        *,
        directory_id: bytes,
        disk: DiskState,
        checkpointer: Worker,
        readers: Worker,
        new_uuid: Callable[[], bytes],
        now_ms: Callable[[], int],
    ) -> None:
        """`directory_id` is that of the data directory. Snapshots are written by `checkpointer`,
        what is old is removed by `readers`. `now_ms` gives ms since 1970."""
        self._settings = settings
        self._directory_id = directory_id
        self._disk = disk
        self._checkpointer = checkpointer
        self._readers = readers
        self._new_uuid = new_uuid
        self._now_ms = now_ms
        self.store = store
        self._node_id: int = settings.current.node_id
        self.leader_id = self._node_id
        self.observers = Observers()
        log = store.log
        topic = Topic(METADATA_TOPIC, METADATA_TOPIC_ID, {}, settings.current)
        self.partition = MetadataPartition(topic, log, leader_id=self.leader_id)
        log.appended = self._appended
        self._writing: SnapshotWork | None = None
        self._last_snapshot_ms = now_ms()

    @property
    def image(self) -> MetadataImage:
        return self.store.image

    @property
    def epoch(self) -> int:
        return self.store.log.epoch

    @property
    def committed_offset(self) -> int:
        return self.store.log.committed_offset

    @property
    def kraft_version(self) -> int:
        return self.store.log.kraft_version

    @property
    def snapshots(self) -> Snapshots:
        return self.store.log.snapshots

    @property
    def voters(self) -> list[int]:
        """The voters of the metadata log: this node alone."""
        return [self._node_id]

    @property
    def voting_directory(self) -> bytes | None:
        """The id of the directory with which this node votes, where the log names its voters
        (kraft.version 1); else they are those of the configuration, which knows no directories."""
        named = self.store.log.voters
        for voter in named.voters if named is not None else ():
            if voter.voter_id == self._node_id:
                directory_id: bytes = voter.voter_directory_id
                return directory_id
        return None

    def append(self, *operations: Sequence[MetadataRecord]) -> Steps[None]:
        return self.store.append(*operations)

    # This node

    def register(self, *, comes_back: bool = False) -> None:
        """Say who this node is, and lead all partitions in a new epoch; of several processes the
        first, where that `comes_back` to others, those that it has led. Raises OSError."""
        node_id, level = self._node_id, self.image.metadata_version
        self.store.broker_epoch = self.store.log.end_offset
        records: list[MetadataRecord] = []
        features = [
            Feature(name=name, min_supported_version=one.lowest, max_supported_version=one.highest)
            for name, one in supported().items()
        ]
        incarnation = self._new_uuid()
        settings = self._settings.current
        as_controller = RegisterControllerRecord(
            controller_id=node_id,
            incarnation_id=incarnation,
            zk_migration_ready=False,
            end_points=_end_points(settings.controller_listeners),
            features=features,
        )
        if fits(as_controller, level):
            self.store.broker_epoch += 1
            records.append(as_controller)
        records.append(
            RegisterBrokerRecord(
                broker_id=node_id,
                incarnation_id=incarnation,
                broker_epoch=self.store.broker_epoch,
                end_points=_advertised(settings),
                features=features,
                rack=settings.broker_rack,
                fenced=False,
                log_dirs=[self._directory_id],
            )
        )
        self.store.begin_epoch(records, process=0 if comes_back else None)

    def add_credentials(
        self, credentials: Sequence[NewCredential], random_bytes: Callable[[int], bytes]
    ) -> None:
        """Store those of users that have none of their kind; what is stored already holds. Raises
        OSError."""
        known = self.image.scram_credentials
        records = [
            one.record(random_bytes)
            for one in credentials
            if (one.user, one.algorithm.number) not in known
        ]
        if records:
            run_here(self.append(records))
            logs.info("users were added", users=", ".join(one.name for one in records))

    def _leave(self) -> None:
        """Say that this node has gone: Apache Kafka, started next, then need not wait for it."""
        node_id, epoch = self._node_id, self.store.broker_epoch
        change = BrokerRegistrationChangeRecord(
            broker_id=node_id, broker_epoch=epoch, fenced=_FENCED
        )
        older = FenceBrokerRecord(id=node_id, epoch=epoch)
        self.store.resign([change if fits(change, self.image.metadata_version) else older])

    def close(self) -> int:
        """Write what a stop has to; the epoch of this node's registration. Logs what fails."""
        log = self.store.log
        log.appended = lambda size: None
        self.store.committed = nobody_follows
        for step in (self._leave, self._write_snapshot, log.close):
            try:
                step()
            except OSError as error:
                logs.error("the metadata log was not closed in order", reason=str(error))
        return self.store.broker_epoch

    def _write_snapshot(self) -> None:
        """Write one here and now: the next start is quick, and Apache Kafka has nothing to replay,
        in which it makes mistakes (docs/moving-to-kafka.md)."""
        work = self.store.log.begin_snapshot(self._new_uuid().hex(), now_ms=self._now_ms())
        work.run()
        self.snapshots.add(work.snapshot_id)
        self._delete_old()

    # Snapshots

    def _appended(self, size: int) -> None:
        self.partition.wake(size)
        self._begin_snapshot_if_due()

    def look(self) -> None:
        """A periodic task: what time alone makes due."""
        self._begin_snapshot_if_due()
        self._retain()

    def _begin_snapshot_if_due(self) -> None:
        log = self.store.log
        settings, now_ms = self._settings.current, self._now_ms()
        rules = SnapshotRules(
            settings.controller_snapshot_minimum_records,
            settings.metadata_log_max_record_bytes_between_snapshots,
            settings.metadata_log_max_snapshot_interval_ms,
        )
        since = (log.records_since_snapshot, log.bytes_since_snapshot, self._last_snapshot_ms)
        if self._writing is not None or snapshot_due(*since, now_ms, rules) is None:
            return
        if log.is_appending:
            return  # its end is told of
        try:
            work = log.begin_snapshot(self._new_uuid().hex(), now_ms=now_ms)
        except OSError as error:
            self._failed(error)
            return
        self._writing = work
        self._last_snapshot_ms = now_ms

        def written(_: None) -> None:
            self._writing = None
            self._published(work)

        def failed(error: Exception) -> None:
            self._writing = None
            log.snapshot_failed(work)
            self._failed(error)

        self._checkpointer.run(partial(work.run, _pause), written, failed)

    def _failed(self, error: Exception) -> None:
        if not self._disk.noticed(error):
            logs.error_once_a_minute("metadata snapshots not in order", str(error), METADATA_TOPIC)

    def _published(self, work: SnapshotWork) -> None:
        self.snapshots.add(work.snapshot_id)
        self._retain()

    def _retain(self) -> None:
        """Delete old snapshots and the log before them: their names are changed on a thread, and
        the files go a while later."""
        keep, snapshots = self._kept(), self.snapshots
        if keep is None:
            return
        log_start, gone = keep.log_start, keep.removed
        if not gone:
            self._raise_start(log_start)
            return
        snapshots.forget(*gone)

        def aside(paths: list[str]) -> None:
            for path in paths:
                remove = partial(self._on_thread, partial(snapshots.remove_removed, path))
                self._disk.remove_later(remove, REMOVE_AFTER_MS)
            self._raise_start(log_start)

        def failed(error: Exception) -> None:
            snapshots.remember(gone)
            self._failed(error)

        self._readers.run(partial(snapshots.set_aside, gone), aside, failed)

    def _kept(self) -> Retained | None:
        """What is to go and what stays; None if that can't be told now."""
        log = self.store.log
        settings, now_ms = self._settings.current, self._now_ms()
        try:
            return retained(
                log.log.start_offset,
                [HeldSegment(one.base_offset, one.size) for one in log.log.segments],
                self.snapshots.held(),
                [one.replicated_offset for one in self.observers.live(now_ms)],
                now_ms,
                RetentionRules(
                    settings.max_replication_lag_ms,
                    settings.metadata_max_retention_bytes,
                    settings.metadata_max_retention_ms,
                ),
            )
        except (OSError, DamagedSnapshot) as error:
            self._failed(error)
            return None

    def _raise_start(self, log_start: int) -> None:
        """Have the log begin there; the files before it go on a thread."""
        removal = self._taken_out(log_start)
        if removal is not None:
            self._on_thread(partial(_remove, removal))

    def _taken_out(self, log_start: int) -> Removal | None:
        log = self.store.log
        return log.raise_start(log_start) if log_start > log.log.start_offset else None

    def _on_thread(self, remove: Callable[[], object]) -> None:
        """Remove files; the next start does it if this fails."""

        self._readers.run(remove, lambda _: None, self._failed)

    def _delete_old(self) -> None:
        """As `_retain`, here and now. Raises OSError."""
        keep, snapshots = self._kept(), self.snapshots
        if keep is None:
            return
        for one in keep.removed:
            snapshots.remove_removed(snapshots.remove(one))
        removal = self._taken_out(keep.log_start)
        if removal is not None:
            _remove(removal)


def _pause() -> None:
    """Leave the processor to the loop: the two may have one between them, which the system's
    scheduler would share out in pieces of milliseconds."""
    clock.sleep(PAUSE_S)


def _remove(removal: Removal) -> None:
    removal.set_aside()
    removal.remove()


def _advertised(settings: BrokerSettings) -> list[EndPoint]:
    """The configured addresses; what clients dial, where nothing is configured, is not known."""
    return _end_points(
        [settings.advertised_listener(one.name) or one for one in settings.client_listeners]
    )


def _end_points(listeners: Sequence[Listener]) -> list[EndPoint]:
    return [
        EndPoint(name=one.name, host=one.host or "localhost", port=one.port, security_protocol=0)
        for one in listeners
    ]
