"""The metadata log while a broker runs: every change is a batch, on the disk before it counts.

`append` is taken in steps (`storage.steps`): the batch is written here, synced by any thread, and
then replayed, as a start would. Until then it is neither in `image` nor below `committed_offset`.
One append at a time: the next one is made from what this one leaves.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    control_batch,
    encode_record,
    metadata_batch,
)
from protocol.records.layout import HEADER, HEADER_SIZE
from storage.errors import DataDirectoryError, StorageError
from storage.layout import LEADER_EPOCHS, METADATA_LOG, SEGMENT_SUFFIXES, SNAPSHOT, offset_of
from storage.metadata.contradictions import require_sense
from storage.metadata.image_snapshot import write_image
from storage.metadata.quorum_state import QUORUM_STATE, encode_quorum_state, read_quorum_state
from storage.metadata.snapshot_names import LARGEST_EPOCH
from storage.metadata.snapshots import SnapshotId, Snapshots
from storage.recovery import LastKnown, open_log
from storage.removal import Removal
from storage.reports import RecoveryReport
from storage.steps import AT_ONCE, run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from protocol.logdata.metadata import ControlRecord, MetadataRecord
    from storage.filesystem import Filesystem
    from storage.log import Log
    from storage.metadata.image import MetadataImage
    from storage.metadata.loading import Loaded
    from storage.steps import Steps
    from storage.syncing import SyncStep

SEGMENT_BYTES = 1 << 30
SEGMENT_BYTES_MIN = 8 << 20
"""Smaller ones could not hold a change of many partitions."""
SEGMENT_MS = 7 * 24 * 3_600_000
BATCH_BYTES = 8 << 20
"""The largest batch that Apache Kafka's metadata log takes."""
RECORD_OVERHEAD = 5 + 2 + 5 + 1 + 5 + 1
"""Bytes of a record in a batch besides its value, at most: its length, attributes and timestamp
delta, offset delta, no key, the value's length, no headers."""
DAMAGED = ".damaged"
"""Appended to the name of a snapshot that could not be read and could be done without."""


class MetadataNotStored(OSError):
    """The metadata log could not be written. Nothing has changed."""

    def __init__(self, error: StorageError) -> None:
        cause = error.__cause__
        number = cause.errno if isinstance(cause, OSError) else None
        super().__init__(number or errno.EIO, str(error))


class MetadataLogSettings:
    """The settings of the metadata log: metadata.log.segment.bytes and .ms."""

    segment_jitter_ms = 0
    segment_index_bytes = 10 * 1024 * 1024
    index_interval_bytes = 4096
    record_format = 2

    def __init__(self, segment_bytes: int = SEGMENT_BYTES, segment_ms: int = SEGMENT_MS) -> None:
        self.segment_bytes = max(segment_bytes, SEGMENT_BYTES_MIN)
        self.segment_ms = segment_ms


class MetadataLog:
    """The log, its snapshots and the state that they give. Use `open`.

    `epoch` is that of the log's leader, which this node is from `begin_epoch` on; `led_since` is
    then the first epoch up to that one in which no other broker has led.
    """

    def __init__(self, files: Filesystem, loaded: Loaded, log: Log, snapshots: Snapshots) -> None:
        self.image: MetadataImage = loaded.image
        self.log = log
        self.snapshots = snapshots
        self.folder = loaded.folder
        self.epoch = loaded.epoch
        self.led_since = 0
        self.kraft_version = loaded.kraft_version
        self.voters = loaded.voters
        self.last_timestamp_ms = loaded.last_timestamp_ms
        self.bytes_since_snapshot = loaded.replayed_bytes
        self.records_since_snapshot = loaded.replayed_records
        self.appended: Callable[[int], None] = _nobody
        """Called with the bytes of each append, when it has been replayed."""
        self.committed_offset = log.next_offset
        """Everything below is on the disk and, where it is metadata, in `image`."""
        self.is_appending = False
        """Whether an append is under way: the log may be ahead of `image`."""
        self._files = files

    @classmethod
    def open(
        cls,
        files: Filesystem,
        path: str,
        loaded: Loaded,
        settings: MetadataLogSettings,
        *,
        now_ms: int,
    ) -> tuple[MetadataLog, list[RecoveryReport]]:
        """Open the log that `loaded` was read from, to append to it. `path` is the data directory.

        Left-overs are removed and a torn end is cut. Raises DataDirectoryError, OSError.
        """
        folder = loaded.folder
        if not files.is_dir(folder):
            files.make_dir(folder)
            files.sync_dir(path)
        reports = []
        for damaged in loaded.damaged:
            files.rename(damaged.path, damaged.path + DAMAGED)
            name = damaged.path.rpartition("/")[2]
            reason = f"{damaged.reason}; an older snapshot and the log give the same state"
            reports.append(
                RecoveryReport(METADATA_LOG, reason, file=name, position=damaged.position)
            )
        snapshots = Snapshots(files, folder)
        snapshots.tidy()
        if not loaded.has_log:
            _remove_log(files, folder)
        known = LastKnown(start_offset=loaded.start_offset)
        log, found = open_log(
            files, folder, settings, known=known, leader_epoch=loaded.epoch, now_ms=now_ms
        )
        if log.next_offset != loaded.end_offset:
            raise DataDirectoryError(
                f"{folder}: the log was opened up to offset {log.next_offset}, but it was read up "
                f"to {loaded.end_offset}; has something else changed it?"
            )
        return cls(files, loaded, log, snapshots), reports + found

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.next_offset

    # Appending

    def begin_epoch(self, leader_id: int, *, now_ms: int) -> list[RecoveryReport]:
        """Become the log's leader in a new epoch. Raises DataDirectoryError, OSError."""
        try:
            # If only the process died, the end of the log may not be on the disk. It has to be
            # before anything follows it, or a power cut could leave a hole before a whole batch.
            self.log.sync()
        except StorageError as error:
            raise MetadataNotStored(error) from error.__cause__
        reports = []
        noted = read_quorum_state(self._files, self.folder)
        if noted.fault:
            reports.append(
                RecoveryReport(METADATA_LOG, f"{noted.fault}; written again", file=QUORUM_STATE)
            )
        epoch = max(noted.epoch, self.epoch) + 1
        if epoch >= LARGEST_EPOCH:
            raise DataDirectoryError(
                f"{self.folder}: no epoch is left after {epoch - 1}; start with an empty directory"
            )
        self.led_since = noted.led_alone_since(self.epoch) or epoch
        state = encode_quorum_state(
            leader_id, epoch, since=self.led_since, kraft_version=self.kraft_version
        )
        self._files.write_atomic(f"{self.folder}/{QUORUM_STATE}", state)
        self.epoch = epoch
        self.log.set_leader_epoch(epoch)
        voter = LeaderChangeMessage.Voter(voter_id=leader_id)
        change = LeaderChangeMessage(leader_id=leader_id, voters=[voter], granting_voters=[voter])
        batch = control_batch(
            [change], base_offset=self.end_offset, epoch=epoch, timestamp_ms=now_ms
        )
        run_here(self._write(batch, 1, now_ms))
        self.committed_offset = self.end_offset
        return reports

    def append(
        self, *operations: Sequence[MetadataRecord], now_ms: int, level: int | None = None
    ) -> Steps[None]:
        """Write these operations, sync them and replay them.

        Those that fit BATCH_BYTES share a batch, so that a crash leaves all of them or none. If
        there are more, they are written and synced batch by batch.

        Raises MetadataNotStored, and then nothing has changed, but for the batches before the one
        that failed; ValueError for a record that the log's metadata.version (or `level`, where the
        records are what sets it) does not have, that contradicts what the log says (MetadataError)
        or for an operation that fits no batch: then nothing is written.
        """
        if self.is_appending:
            raise RuntimeError("an append to the metadata log is under way")
        self.is_appending = True
        size = 0
        try:
            records = [record for records in operations for record in records]
            encode = partial(_batches_of, operations, level or self.image.metadata_version, now_ms)
            batches = (yield encode) if len(records) > AT_ONCE else encode()
            yield from require_sense(self.image, records)
            for batch, replayed in batches:
                yield from self._write(batch, len(replayed), now_ms)
                size += len(batch)
                for number, record in enumerate(replayed, 1):
                    self.image.replay(record)
                    if number % AT_ONCE == 0:
                        yield None
                self.committed_offset = self.end_offset
        finally:
            self.is_appending = False
            if size:
                self.appended(size)

    def _write(self, batch: bytearray, count: int, now_ms: int) -> Steps[None]:
        """Append one batch and sync it. There is never more than one that may not be on the disk:
        a start takes what follows a damaged batch for proof that it was acknowledged."""
        log = self.log
        try:
            log.append(memoryview(batch), HEADER.unpack_from(batch), now_ms=now_ms)
            log.write()
        except StorageError as error:
            raise MetadataNotStored(error) from error.__cause__
        steps, up_to = log.unsynced()
        try:
            yield partial(_sync, steps)
        except OSError as error:
            # It is in the file and may be found by a start, but is not replayed: no later change
            # may follow it.
            log.fail(f"{log.name}: sync failed: {error}")
            failed = StorageError(f"{log.name}: sync failed: {error}; a restart is needed")
            failed.__cause__ = error
            raise MetadataNotStored(failed) from error
        log.synced(up_to)
        self.last_timestamp_ms = now_ms
        self.bytes_since_snapshot += len(batch)
        self.records_since_snapshot += count

    # Snapshots

    def begin_snapshot(self, unique: str, *, now_ms: int) -> SnapshotWork:
        """Note the state as it is now, and have the log go on in a new segment, so that the ones
        before can go when the snapshot is there. Not while an append is under way. Raises
        MetadataNotStored."""
        if self.log.active.base_offset < self.end_offset:
            try:
                self.log.roll(now_ms=now_ms)
            except StorageError as error:
                raise MetadataNotStored(error) from error.__cause__
        work = SnapshotWork(self, self._files, unique, now_ms)
        self.bytes_since_snapshot = self.records_since_snapshot = 0
        return work

    def snapshot_failed(self, work: SnapshotWork) -> None:
        """There is no such snapshot: what it would have covered counts again."""
        self.bytes_since_snapshot += work.covered_bytes
        self.records_since_snapshot += work.covered_records

    def control_records(self) -> list[ControlRecord]:
        """Control records of a snapshot: KRaft version and voters, where the log names them."""
        if self.voters is None:
            return []
        return [KRaftVersionRecord(k_raft_version=self.kraft_version), self.voters]

    def raise_start(self, offset: int) -> Removal | None:
        """Let go of the segments wholly below `offset`; some snapshot has to reach there. Their
        files are to be set aside and removed by the caller, on any thread."""
        self.log.delete_records(offset)
        segments = self.log.take_segments_below_start()
        return Removal((METADATA_LOG, 0), self.log, segments) if segments else None

    def close(self) -> None:
        """Write and sync everything and let go of the files."""
        self.log.close(clean=True)


class SnapshotWork:
    """One snapshot to be written. `run` may be called on any thread; it looks at nothing that
    changes."""

    def __init__(self, metadata: MetadataLog, files: Filesystem, unique: str, now_ms: int) -> None:
        self.snapshot_id = SnapshotId(metadata.committed_offset, metadata.epoch)
        self.covered_bytes = metadata.bytes_since_snapshot
        self.covered_records = metadata.records_since_snapshot
        self._files = files
        self._folder = metadata.folder
        self._image = metadata.image.copy()
        self._last_contained_ms = metadata.last_timestamp_ms
        self._controls = metadata.control_records()
        self._unique = unique
        self._now_ms = now_ms

    def run(self, pause: Callable[[], None] | None = None) -> None:
        """Write and publish it; `pause` is called time and again meanwhile. Raises OSError; then
        there is none."""
        write_image(
            self._files,
            self._folder,
            self.snapshot_id,
            self._image,
            self._controls,
            last_contained_ms=self._last_contained_ms,
            unique=self._unique,
            now_ms=self._now_ms,
            pause=pause,
        )


def _batches_of(
    operations: Sequence[Sequence[MetadataRecord]], level: int, now_ms: int
) -> list[tuple[bytearray, list[MetadataRecord]]]:
    """Operations as batches, none of which is in two of them. Raises ValueError."""
    groups: list[tuple[list[bytes], list[MetadataRecord]]] = []
    room = 0
    for records in operations:
        values = [encode_record(record, level=level) for record in records]
        size = sum(map(len, values)) + len(values) * RECORD_OVERHEAD
        if size > BATCH_BYTES - HEADER_SIZE:
            raise ValueError(
                f"a change of {len(values)} records, {size} bytes; a batch of the metadata log "
                f"has at most {BATCH_BYTES}"
            )
        if size > room:
            groups.append(([], []))
            room = BATCH_BYTES - HEADER_SIZE
        room -= size
        groups[-1][0].extend(values)
        groups[-1][1].extend(records)
    # Offsets and epoch are put in by the log.
    return [
        (metadata_batch(values, base_offset=0, epoch=0, timestamp_ms=now_ms), records)
        for values, records in groups
    ]


def _sync(steps: Sequence[SyncStep]) -> None:
    for step in steps:
        step.sync()


def _remove_log(files: Filesystem, folder: str) -> None:
    """Remove a log that is empty and ends before the snapshot."""
    for name in files.list_dir(folder):
        if name == LEADER_EPOCHS or any(
            offset_of(name, suffix) is not None for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT)
        ):
            files.remove(f"{folder}/{name}")
    files.sync_dir(folder)


def _nobody(size: int) -> None:
    """Nobody wants to hear of appends."""
