"""A partition on disk: the sequence of segments and the offsets that bound it.

    start_offset <= recovery_point <= written_offset <= next_offset

`next_offset` is the one the next record will get. Batches are appended in two steps: `append`
gives a batch its offsets, in the memory it was received in, and queues it; `write` puts everything
queued into the file with one call. Below `written_offset` all batches are in the file, so on a
single node that is the high watermark; below `recovery_point` they are on the disk.

Positions are bytes in a file and are never called offsets.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol

from protocol.records.layout import (
    ENTRY_OVERHEAD,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    Header,
)
from storage.epochs import LeaderEpochs
from storage.errors import BatchTooLarge, LogFailed, OffsetOutOfRange, StorageError
from storage.filesystem import IOV_MAX
from storage.layout import (
    DELETED,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    file_name,
    offset_of,
)
from storage.producers import ProducerStates
from storage.segment import RELATIVE_OFFSET_MAX, Segment
from storage.segments import Segments
from storage.slices import FileSlice
from storage.syncing import PutFile, SyncFolder, SyncQueue, SyncStep
from storage.timestamps import TimestampOffset, first_at_or_after, largest

if TYPE_CHECKING:
    from storage.filesystem import File, Filesystem

PLACE = Struct(">qii")
"""Base offset, length, leader epoch: the first 16 bytes of a batch, none under its checksum."""

QUEUE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes queued before they are written without being asked: they pin receive buffers."""

QUEUE_BATCHES_MAX = IOV_MAX
"""Batches queued likewise: what one system call takes."""

INDEX_LAG_ENTRIES = 256
"""Index entries that may be missing in the active segment's files at a checkpoint: about 1 MiB of
batches whose headers are walked after a crash."""

NEVER = 2**63 - 1
ALWAYS = -(2**63)

assert PLACE.size == 16


class LogSettings(Protocol):
    """What a log is told about its segments; a topic's settings have these fields."""

    @property
    def segment_bytes(self) -> int: ...

    @property
    def segment_ms(self) -> int: ...

    @property
    def segment_index_bytes(self) -> int: ...

    @property
    def index_interval_bytes(self) -> int: ...


class Log:
    """One partition. All methods belong to one thread; only the steps that `unsynced` returns may
    be run elsewhere.

    Made by `storage.recovery.open_log`.
    """

    __slots__ = (
        "_failure",
        "_files",
        "_mark",
        "_queue",
        "_refused",
        "_roll_after_ms",
        "_room",
        "_syncs",
        "active",
        "clean_state",
        "epochs",
        "epochs_stored",
        "folder",
        "index_interval_bytes",
        "leader_epoch",
        "name",
        "next_offset",
        "producers",
        "recovery_point",
        "segments",
        "settings",
        "start_offset",
        "written_offset",
    )

    def __init__(
        self,
        files: Filesystem,
        folder: str,
        segments: Segments,
        settings: LogSettings,
        *,
        start_offset: int,
        next_offset: int,
        recovery_point: int,
        leader_epoch: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
    ) -> None:
        self.folder = folder
        self.name = folder.rpartition("/")[2]
        self.segments = segments
        self.active = segments.active
        self.settings = settings
        self.index_interval_bytes = settings.index_interval_bytes
        self.start_offset = start_offset
        self.next_offset = self.written_offset = next_offset
        self.recovery_point = recovery_point
        self.leader_epoch = leader_epoch
        self.epochs = epochs
        self.epochs_stored = False
        self.producers = producers
        self.clean_state: CleanState | None = None
        self._files = files
        self._queue: list[memoryview] = []
        self._mark = self.active.mark()
        self._syncs = SyncQueue()
        self._failure: str | None = None
        self._refused: StorageError | None = None
        # Bytes that may be appended before somebody has to look at the limits; -1: look at once.
        self._room = -1
        self._roll_after_ms = NEVER

    # Appending

    def append(self, view: memoryview, header: Header, *, now_ms: int = 0) -> int:
        """Give a batch its offsets and queue it. Returns its base offset.

        `view` starts with the batch, is writable, and must stay as it is until `write`; `header`
        is what it holds, already checked (`protocol.records.validate`, `producers.check`).
        `now_ms` matters only for segments without timestamps, which age by the clock.

        Raises BatchTooLarge, or StorageError when a roll or an early write failed; then nothing of
        the queue is in the log, and `write` will say so again to those who queued it.
        """
        size = header[LENGTH] + ENTRY_OVERHEAD
        if (
            size > self._room
            or header[MAX_TIMESTAMP] > self._roll_after_ms
            or len(self._queue) >= QUEUE_BATCHES_MAX
        ):
            self._make_room(size, header, now_ms)
        base_offset = self.next_offset
        PLACE.pack_into(view, 0, base_offset, header[LENGTH], self.leader_epoch)
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        segment = self.active
        position = segment.size
        if header[MAX_TIMESTAMP] > segment.max_timestamp:
            segment.max_timestamp = header[MAX_TIMESTAMP]
            segment.max_timestamp_offset = last_offset
        if position - segment.indexed_position > self.index_interval_bytes:
            segment.add_index_entry(last_offset, position)
        if header[PRODUCER_ID] >= 0:
            self.producers.update(header, base_offset)
        self._queue.append(view if len(view) == size else view[:size])
        segment.size = position + size
        self._room -= size
        self.next_offset = last_offset + 1
        return base_offset

    def write(self) -> None:
        """Put everything queued into the file, with one system call.

        If the disk refuses, the file is cut back, offsets, indexes and producers are as they were
        before the queued batches, and StorageError is raised. If it cannot be cut back either, the
        log has failed: it takes no more appends, and what was written is still read.
        """
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused
        queue = self._queue
        if not queue:
            return
        segment = self.active
        try:
            segment.file.write_at(queue, segment.written_size)
        except OSError as error:
            raise self._take_back(error) from error
        self._settle()

    def _settle(self) -> None:
        """The active segment's end is what is in its file."""
        segment = self.active
        segment.written_size = segment.size
        self.written_offset = self.next_offset
        self._queue.clear()
        self.producers.settle()
        self._mark = segment.mark()
        self._set_room()

    def _take_back(self, error: OSError) -> StorageError:
        """Undo a write that failed, and the appends it was for."""
        segment = self.active
        self._queue.clear()
        segment.back_to(self._mark)
        self.producers.back()
        self.next_offset = self.written_offset
        self._room = -1
        where = f"{self.name}, offset {self.written_offset}, position {segment.size}"
        try:
            segment.file.truncate(segment.written_size)
        except OSError as second:
            self.fail(f"{where}: write failed ({error}) and could not be undone ({second})")
            return LogFailed(self._failure or "")
        return StorageError(f"{where}: {error}")

    def _make_room(self, size: int, header: Header, now_ms: int) -> None:
        """Whatever has to happen before this batch can be appended."""
        if self._failure is not None:
            raise LogFailed(self._failure)
        if self._refused is not None:
            raise self._refused
        if size > self.settings.segment_bytes:
            raise BatchTooLarge(size, self.settings.segment_bytes)
        segment = self.active
        try:
            segment.load()
            if not self._queue:
                self._mark = segment.mark()
            self.clean_state = None
            if self._queue and (
                size > QUEUE_BYTES_MAX - (segment.size - segment.written_size)
                or len(self._queue) >= QUEUE_BATCHES_MAX
            ):
                self._write_early()
            if self._must_roll(size, header, now_ms):
                self.roll(now_ms=now_ms)
        except OSError as error:
            raise StorageError(f"{self.name}: {error}") from error
        if self.active.size == 0:
            self.active.first_timestamp = header[MAX_TIMESTAMP]
        self._begin_epoch()
        self._set_room()

    def _write_early(self) -> None:
        """Write amid a round of appends, so that all of the round learn of a failure."""
        try:
            self.write()
        except StorageError as error:
            self._refused = error
            raise

    def _must_roll(self, size: int, header: Header, now_ms: int) -> bool:
        """The conditions of storage.md 5.2."""
        segment, settings = self.active, self.settings
        if segment.size <= 0:
            return False
        if segment.size + size > settings.segment_bytes:
            return True
        if segment.first_timestamp >= 0:
            aged = header[MAX_TIMESTAMP] - segment.first_timestamp > settings.segment_ms
        else:
            aged = now_ms - segment.opened_ms > settings.segment_ms
        last_offset = self.next_offset + header[LAST_OFFSET_DELTA]
        return (
            aged or self._is_index_full() or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        )

    def _is_index_full(self) -> bool:
        limit = self.settings.segment_index_bytes
        segment = self.active
        return len(segment.offsets) >= limit // 8 or len(segment.times) >= limit // 12 - 1

    def _set_room(self) -> None:
        segment, settings = self.active, self.settings
        queued = segment.size - segment.written_size
        # An offset is at most one per byte away, far below the limit of an index, unless the
        # segment has covered 2^31 offsets already; a full index can only come with a new entry.
        near_limit = self.next_offset - segment.base_offset > RELATIVE_OFFSET_MAX // 2
        if segment.size == 0 or near_limit or not segment.loaded or self._is_index_full():
            self._room = -1
        else:
            self._room = min(settings.segment_bytes - segment.size, QUEUE_BYTES_MAX - queued)
        if segment.size == 0:
            self._roll_after_ms = NEVER
        elif segment.first_timestamp >= 0:
            self._roll_after_ms = segment.first_timestamp + settings.segment_ms
        else:
            self._roll_after_ms = ALWAYS

    def _begin_epoch(self) -> None:
        """Have the leader epoch of the batches to come entered in the checkpoint file.

        The file is put in place by the next sync, before the batches count as synced; after a
        crash in between, recovery finds the epoch in the batches themselves.
        """
        if self.epochs.assign(self.leader_epoch, self.next_offset):
            self.epochs_stored = False
        if not self.epochs_stored:
            path = f"{self.folder}/{LEADER_EPOCHS}"
            self._syncs.add(PutFile(self._files, path, self.epochs.encode()))
            self.epochs_stored = True

    def set_leader_epoch(self, epoch: int) -> None:
        """From now on batches carry this epoch."""
        self.leader_epoch = epoch
        self._room = -1

    def configure(self, settings: LogSettings) -> None:
        """Take new settings; they hold from the next append on."""
        self.settings = settings
        self.index_interval_bytes = settings.index_interval_bytes
        self._room = -1

    def roll(self, *, now_ms: int) -> None:
        """Seal the active segment and begin a new one at `next_offset`. An empty one stays.

        Raises StorageError with nothing changed but left-over files, which the next try removes.
        """
        if self._failure is not None:
            raise LogFailed(self._failure)
        if self._queue:
            self._write_early()
        old, base_offset = self.active, self.next_offset
        if base_offset == old.base_offset:
            return
        snapshot_path = f"{self.folder}/{file_name(base_offset, SNAPSHOT)}"
        self.clean_state = None
        try:
            old.load()
            new = Segment.create(
                self._files,
                self.folder,
                base_offset,
                interval_bytes=self.index_interval_bytes,
                opened_ms=now_ms,
            )
            self._files.remove(snapshot_path)
            snapshot = self._files.open_file(snapshot_path, create=True)
            snapshot.write_at([self.producers.encode()], 0)
            old.finish_times()
            indexes = old.store_indexes()
        except OSError as error:
            self._remove_left_overs(base_offset)
            raise StorageError(f"{self.name}: rolling at {base_offset}: {error}") from error
        self._syncs.add(old.file, *indexes, snapshot, SyncFolder(self._files, self.folder))
        self.segments.append(new)
        self.active = new
        self._mark = new.mark()
        self._set_room()

    def _remove_left_overs(self, base_offset: int) -> None:
        for suffix in (LOG, INDEX, TIME_INDEX, SNAPSHOT):
            try:
                self._files.remove(f"{self.folder}/{file_name(base_offset, suffix)}")
            except OSError:
                continue  # the disk is in trouble; a start finds an empty segment, which is legal

    # Failing

    @property
    def failed(self) -> str | None:
        """Why the log takes no more appends; None while it does."""
        return self._failure

    def fail(self, reason: str) -> None:
        """Take no more appends. What is not written is forgotten, the rest can be read."""
        if self._failure is None:
            self._failure = reason
        if self._queue:
            self._queue.clear()
            self.active.back_to(self._mark)
            self.producers.back()
            self.next_offset = self.written_offset
        self._room = -1

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        at_least_one: bool = True,
    ) -> FileSlice | None:
        """Whole batches, the first of which holds `offset` or the next offset there is.

        At most `max_bytes`, except that a first batch larger than that is returned alone if
        `at_least_one` (Fetch v3 and later, so that a consumer never gets stuck). Batches with
        offsets at or above `end_offset` are left out. A slice lies in one segment; a short one
        does not mean that there is no more. None if there is nothing (that fits).

        Raises OffsetOutOfRange outside start_offset..written_offset, CorruptBatch if there is no
        batch where one should be.
        """
        end = self.written_offset
        if offset >= end or offset < self.start_offset:
            if offset == end:
                return None
            raise OffsetOutOfRange(offset, self.start_offset, end)
        if end_offset is not None and offset >= end_offset:
            return None
        segments = self.segments
        place = segments.places.get(offset) or segments.locate(offset)
        if place is None:
            return None
        segment, position = place
        if segment is not self.active:
            segments.keep_open(segment)
        file = segment.file
        stop = segment.written_size
        if end_offset is not None and end_offset < end:
            beyond = segment.find(end_offset)
            if beyond is not None:
                stop = beyond.position
        if stop - position > max_bytes:
            stop = segments.cut(place, stop, max_bytes, at_least_one=at_least_one)
        elif segment is self.active and stop == segment.written_size:
            segments.remember(end, segment, stop)
        if stop <= position:
            return None
        return FileSlice(file, position, stop - position)

    @property
    def written_max_timestamp(self) -> int:
        """The largest timestamp (ms) in the active segment's file; -1 for none."""
        return self._mark.max_timestamp if self._queue else self.active.max_timestamp

    def size_bytes(self) -> int:
        """Bytes of all log files, for DescribeLogDirs."""
        return sum(segment.byte_size() for segment in self.segments)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a time, in offset order (records.md 10.3): its timestamp,
        offset and leader epoch."""
        return first_at_or_after(self, timestamp_ms)

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp (ListOffsets -3, records.md 10.4)."""
        return largest(self)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch` and its end offset; (-1, -1) if it is above all
        (OffsetForLeaderEpoch)."""
        latest = self.epochs.latest
        if epoch > latest and epoch <= self.leader_epoch:
            # Led, but nothing appended yet: the present epoch begins where the log ends.
            known = epoch if epoch == self.leader_epoch else latest
            return (known, self.written_offset) if known >= 0 else (epoch, self.start_offset)
        return self.epochs.end_offset_for(epoch, self.written_offset)

    # Syncing

    def unsynced(self) -> tuple[list[SyncStep], int]:
        """What has to be synced so that everything below the returned offset is on the disk.

        Call `sync()` on each, in order, in any thread, then `synced(offset)` here. Appends and
        rolls may go on meanwhile. After an OSError call `fail`: the kernel may have dropped what
        it could not write, so trying again would report bytes that are not there.
        """
        up_to = self.written_offset
        if up_to == self.recovery_point and not len(self._syncs):
            return [], up_to
        steps = self._syncs.begin(up_to)
        steps.append(self.active.file)
        return steps, up_to

    def owe(self, *steps: SyncStep) -> None:
        """Add steps to the next sync; for whoever changed the log's files beside it."""
        self._syncs.add(*steps)

    def synced(self, up_to: int) -> None:
        """The steps that `unsynced` gave for this offset have been taken."""
        if self._failure is None and self._syncs.confirm(up_to):
            self.recovery_point = max(self.recovery_point, up_to)

    def sync(self) -> None:
        """Write and sync everything, here and now. Raises StorageError."""
        self.write()
        steps, up_to = self.unsynced()
        try:
            for step in steps:
                step.sync()
        except OSError as error:
            self.fail(f"{self.name}: sync failed: {error}")
            raise LogFailed(self._failure or "") from error
        self.synced(up_to)

    def store_for_recovery(self) -> list[SyncStep]:
        """Store the active segment's indexes and a producer snapshot, if they lag.

        With them a start after a crash need not read what lies below the recovery point. The
        returned files must be synced before a recovery point taken now is checkpointed. Raises
        OSError.
        """
        segment = self.active
        if self._failure or not segment.loaded or self._queue:
            return []
        if len(segment.offsets) - segment.offsets.stored < INDEX_LAG_ENTRIES:
            return []
        # This snapshot is of use once the recovery point has passed it. Until then the one
        # before it is, so that one stays.
        return [*segment.store_indexes(), *self._store_snapshot(keep=1)]

    # The start of the log

    def delete_records(self, offset: int) -> int:
        """Raise the log start; -1 means to the high watermark. Returns the log start.

        The data directory must checkpoint it before it is told to anybody, and then call
        `remove_segments_below_start` (`DataDirectory.delete_records` does all three).
        """
        target = self.written_offset if offset == -1 else offset
        if target < 0 or target > self.written_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.written_offset)
        if target > self.start_offset:
            self.start_offset = target
            self.clean_state = None
            if self.epochs.cut_start(target):
                self.epochs_stored = False
                self._room = -1
        return self.start_offset

    def remove_segments_below_start(self) -> int:
        """Remove the files of segments wholly below the log start; returns how many segments.

        The active segment stays. Slices that are being sent keep their file until they are done.
        """
        count = 0
        while (segment := self.segments.pop_below(self.start_offset)) is not None:
            self._remove_files(segment)
            count += 1
        return count

    def _remove_files(self, segment: Segment) -> None:
        """Rename, then remove: a crash in between leaves names that a start clears away."""
        segment.unload()
        names = [segment.path(suffix) for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT)]
        present = [name for name in names if self._files.exists(name)]
        for name in present:
            self._files.rename(name, name + DELETED)
        for name in present:
            self._files.remove(name + DELETED)

    # Closing

    def close(self, *, clean: bool) -> CleanState | None:
        """Let go of all files. With `clean`, write and sync everything first.

        Returns what the last files look like, or None if the log must be looked through at the
        next start (not `clean`, or failed).
        """
        state = None
        if clean and self._failure is None:
            state = self._finish()
        for segment in self.segments:
            segment.release_file()
        if self._failure is None:
            self.fail(f"{self.name} is closed")
        return state

    def _finish(self) -> CleanState | None:
        """Bring the files into the state in which Kafka wants them after a clean stop."""
        if self.clean_state is not None:
            return self.clean_state  # not touched since it was opened clean
        try:
            self.write()
            segment = self.active
            segment.load()
            segment.finish_times()
            self._syncs.add(*segment.store_indexes(), *self._store_snapshot(keep=0))
            if not self.epochs_stored:
                self.epochs.assign(self.leader_epoch, self.next_offset)
                path = f"{self.folder}/{LEADER_EPOCHS}"
                self._syncs.add(PutFile(self._files, path, self.epochs.encode()))
                self.epochs_stored = True
            self._syncs.add(SyncFolder(self._files, self.folder))
            self.sync()
        except (OSError, StorageError):
            return None
        return CleanState(
            self.next_offset,
            segment.size,
            len(segment.offsets) * 8,
            len(segment.times) * 12,
            file_name(self.next_offset, SNAPSHOT) if self.next_offset else "",
        )

    def _store_snapshot(self, *, keep: int) -> list[File]:
        """Put the producers' state at the end of the log into a file, which is not synced yet.

        Of the snapshots that belong to no segment's base the newest `keep` stay. An empty log has
        no snapshot, as with Kafka.
        """
        bases = set(self.segments.base_offsets)
        loose = sorted(
            offset
            for name in self._files.list_dir(self.folder)
            if (offset := offset_of(name, SNAPSHOT)) is not None and offset not in bases
        )
        for offset in loose[: len(loose) - keep]:
            self._files.remove(f"{self.folder}/{file_name(offset, SNAPSHOT)}")
        if not self.next_offset:
            return []
        path = f"{self.folder}/{file_name(self.next_offset, SNAPSHOT)}"
        self._files.remove(path)
        file = self._files.open_file(path, create=True)
        file.write_at([self.producers.encode()], 0)
        return [file]

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.start_offset}..{self.next_offset})"
