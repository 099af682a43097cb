"""A partition on disk: the sequence of segments and the offsets that bound it.

    start_offset <= covered_point <= recovery_point <= written_offset <= next_offset

`next_offset` is the one the next record will get. Batches are appended in two steps: `append`
gives a batch its offsets, in the memory it was received in, and queues it (`append_batches` and
`append_messages` do so with a set that must not be torn apart); `write` puts everything queued
into the file with one call. Below `written_offset` all batches are in the file, so on a single node
that is the high watermark, and readers get no more. Below `recovery_point` all batches are on the
disk; below `covered_point` so are the index files, which is what a checkpoint may call the recovery
point.

Positions are bytes in a file and are never called offsets.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from protocol.records.batch import MAX_DECOMPRESSED_BYTES
from protocol.records.errors import CorruptBatch
from protocol.records.layout import (
    ENTRY_OVERHEAD,
    HEADER,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    PRODUCER_ID,
    Header,
)
from protocol.records.markers import Marker, encode_marker
from storage.clean_state import CleanState
from storage.epochs import LeaderEpochs
from storage.errors import (
    BROKEN,
    NO_DESCRIPTORS,
    BatchTooLarge,
    LogFailed,
    OffsetOutOfRange,
    StorageError,
)
from storage.filesystem import IOV_MAX
from storage.layout import LEADER_EPOCHS, SNAPSHOT, TRANSACTION_INDEX, file_name, offset_of
from storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from storage.offset_index import RELATIVE_OFFSET_MAX
from storage.producer_scan import aborted_by
from storage.producers import ProducerStates
from storage.receive_times import ReceiveTimes
from storage.rolling import (
    age_limit_ms,
    begins_otherwise,
    index_entries_left,
    must_roll,
    remove_left_overs,
    store_snapshot,
    thin_snapshots,
)
from storage.scan import Scan, read_headers
from storage.segment import UNKNOWN, Segment
from storage.segments import Segments
from storage.settings import LogSettings
from storage.slices import EntrySlice, FileSlice
from storage.syncing import NotPut, PutFile, SyncFolder, SyncQueue
from storage.time_index import ENTRY_SIZE as TIME_INDEX_ENTRY_SIZE
from storage.timestamps import TimestampOffset, first_at_or_after, largest, offsets_of_segments
from storage.transactions import aborted_between, index_of, listed_between

if TYPE_CHECKING:
    from protocol.errors import KafkaError
    from protocol.records.legacy import MessageSet
    from storage.filesystem import Filesystem
    from storage.segments import Place
    from storage.syncing import SyncStep
    from storage.transaction_index import AbortedTransaction

PLACE = Struct(">qii")
"""Base offset, length, leader epoch: the first 16 bytes of a batch, none under its checksum."""

QUEUE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes queued before they are written without being asked: they pin receive buffers."""

QUEUE_BATCHES_MAX = IOV_MAX
"""Batches queued likewise: what one system call takes."""

NEVER = 2**63 - 1
ALWAYS = -(2**63)

assert PLACE.size == 16


class Log:
    """One partition. All methods belong to one thread; only the steps that `unsynced` returns may
    be run elsewhere.

    Made by `storage.recovery.open_log`.
    """

    __slots__ = (
        "_failure", "_format", "_last_offset_max", "_mark", "_queue", "_refused", "_roll_after_ms",
        "_room", "_syncs", "active", "clean_state", "cleaned_to", "covered_point", "epochs",
        "epochs_stored", "files", "folder", "index_interval_bytes", "leader_epoch", "name",
        "next_offset", "opened_at", "producers", "received", "recovery_point", "refusal",
        "segments", "settings", "start_offset", "unavailable", "written_offset",
    )  # fmt: skip

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
        self.next_offset = self.written_offset = self.opened_at = next_offset
        self.recovery_point = self.covered_point = recovery_point
        self.leader_epoch = leader_epoch
        self.epochs = epochs
        self.epochs_stored = False
        self.producers = producers
        self.clean_state: CleanState | None = None
        self.cleaned_to: int | None = None  # compaction has been up to here
        self.unavailable: str | None = None
        """Why nothing of the log may be read (`storage.unavailable`); None for any other."""
        self.refusal: type[KafkaError] = LogFailed
        """The error for who asks for what a failed log does not do."""
        self.files = files
        self.received = ReceiveTimes(files, folder, next_offset)
        self._queue: list[memoryview] = []
        self._mark = self.active.mark()
        self._syncs = SyncQueue()
        self._failure: str | None = None
        self._refused: StorageError | None = None
        # Bytes that may be appended before somebody has to look at the limits; -1: look at once.
        self._room = -1
        self._last_offset_max = self._roll_after_ms = NEVER
        self._format = -1  # the topic's format when it was last looked at

    # Appending

    def append(self, view: memoryview, header: Header, *, now_ms: int = 0) -> int:
        """Give a batch its offsets and queue it. Returns its base offset.

        `view` starts with the batch, is writable, and must stay as it is until `write`; `header`
        is what it holds, already checked (`protocol.records.validate`, `producers.check`).
        `now_ms` is when it came in; by it retention checks the timestamps, and segments without
        timestamps age.

        Raises BatchTooLarge, or StorageError when a roll or an early write failed; then nothing of
        the queue is in the log, and `write` will say so again to those who queued it.
        """
        size = header[LENGTH] + ENTRY_OVERHEAD
        base_offset = self.next_offset
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        if (
            size > self._room
            or last_offset > self._last_offset_max
            or header[MAX_TIMESTAMP] > self._roll_after_ms
            or len(self._queue) >= QUEUE_BATCHES_MAX
        ):
            self._make_room(size, last_offset, header[MAX_TIMESTAMP], now_ms)
        if now_ms > self.received.last_ms:
            self.received.note(base_offset, now_ms)
        PLACE.pack_into(view, 0, base_offset, header[LENGTH], self.leader_epoch)
        segment = self.active
        position = segment.size
        if header[MAX_TIMESTAMP] > segment.max_timestamp:
            segment.max_timestamp = header[MAX_TIMESTAMP]
            segment.max_timestamp_offset = last_offset
        if position - segment.indexed_position > self.index_interval_bytes:
            segment.enter(last_offset, position)
        if header[PRODUCER_ID] >= 0:
            self.producers.update(header, base_offset)
        self._queue.append(view if len(view) == size else view[:size])
        segment.size = position + size
        self._room -= size
        self.next_offset = last_offset + 1
        return base_offset

    def append_batches(self, batches: list[tuple[memoryview, Header]], *, now_ms: int = 0) -> int:
        """Append several batches as one set: all of them or none, in one segment, with offsets
        that follow each other. Returns the first base offset. Each as in `append`.
        """
        base_offset = offset = self.next_offset
        size, max_timestamp, max_offset = 0, NO_TIMESTAMP, base_offset
        for _, header in batches:
            size += header[LENGTH] + ENTRY_OVERHEAD
            offset += header[LAST_OFFSET_DELTA] + 1
            if header[MAX_TIMESTAMP] > max_timestamp:
                max_timestamp, max_offset = header[MAX_TIMESTAMP], offset - 1
        self._make_room(size, offset - 1, max_timestamp, now_ms)
        offset = base_offset
        for view, header in batches:
            PLACE.pack_into(view, 0, offset, header[LENGTH], self.leader_epoch)
            if header[PRODUCER_ID] >= 0:
                self.producers.update(header, offset)
            self._queue.append(view[: header[LENGTH] + ENTRY_OVERHEAD])
            offset += header[LAST_OFFSET_DELTA] + 1
        indexed = base_offset + batches[0][1][LAST_OFFSET_DELTA]
        self._enter_set(size, offset - 1, indexed, max_timestamp, max_offset)
        return base_offset

    def append_messages(self, messages: MessageSet, *, now_ms: int = 0) -> int:
        """Append a run of format 0 or 1 messages, or one wrapper. Returns the first offset.

        The set is all of its view, checked, and not touched unless there is room for it; as in
        `append`, the view must stay as it is until `write`, and the same errors are raised.
        """
        base_offset, size = self.next_offset, messages.size
        last_offset = base_offset + messages.record_count - 1
        self._make_room(size, last_offset, messages.max_timestamp, now_ms)
        messages.place(base_offset)
        self._queue.append(messages.view)
        max_offset = base_offset + messages.max_timestamp_delta
        indexed = last_offset if messages.compressed else base_offset
        self._enter_set(size, last_offset, indexed, messages.max_timestamp, max_offset)
        return base_offset

    def append_marker(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> int:
        """Queue the marker that ends a producer's transaction. Returns its offset.

        As with `append`, it is in the log when `write` has returned, and all of it is undone if
        the disk refuses. If no transaction is open it is stored and changes no more than epochs.

        Raises ProducerFenced or CoordinatorFenced for an epoch older than one seen already, and
        what `append` raises.
        """
        self.producers.check_marker(producer_id, epoch, coordinator_epoch)
        opened = self.producers.open_since(producer_id)
        if opened >= 0 and not commit:
            try:
                self.active.load()
                index_of(self, self.active)
            except OSError as error:
                raise self.refuse(f"{self.name}: reading aborted transactions", error) from error
        batch = encode_marker(
            producer_id, epoch, marker=Marker(commit, coordinator_epoch), timestamp_ms=now_ms
        )
        offset = self.append(memoryview(batch), HEADER.unpack_from(batch), now_ms=now_ms)
        self.producers.led_by(producer_id, coordinator_epoch)
        if opened >= 0 and not commit:
            entry = aborted_by(self.producers, producer_id, opened=opened, marker_offset=offset)
            self.segments.add_aborted(entry)
        return offset

    def _enter_set(
        self, size: int, last_offset: int, indexed: int, max_timestamp: int, max_offset: int
    ) -> None:
        """Account for a set that was queued as a whole, as `append` does for its batch.

        `indexed` is the last offset of its first entry: what Kafka's tool wants of an index entry.
        """
        segment = self.active
        position = segment.size
        if max_timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.max_timestamp_offset = max_timestamp, max_offset
        if position - segment.indexed_position > self.index_interval_bytes:
            segment.enter(indexed, position)
        segment.size = position + size
        self._room -= size
        self.next_offset = last_offset + 1

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
        verified = segment.verified
        try:
            verified.notice_changes()  # after this write they could not be told from it
            segment.file.write_at(queue, segment.written_size)
            verified.wrote(self.next_offset)
        except OSError as error:
            raise self._take_back(error) from error
        if segment.is_new:
            self._has_file(segment)
        self._settle()

    def _has_file(self, segment: Segment) -> None:
        """A new segment's file has been made, and its name has to last."""
        segment.is_new = False
        self._syncs.add(SyncFolder(self.files, self.folder))

    def _settle(self) -> None:
        """The active segment's end is what is in its file."""
        segment = self.active
        segment.written_size = segment.size
        self.written_offset = self.next_offset
        self._queue.clear()
        self.producers.settle()
        self._mark = segment.mark()

    def _take_back(self, error: OSError) -> StorageError:
        """Undo a write that failed, and the appends it was for."""
        segment = self.active
        self._forget_queued()
        where = f"{self.name}, offset {self.written_offset}, position {segment.size}"
        try:
            if segment.is_new and self.files.exists(segment.path()):
                self._has_file(segment)
            if not segment.is_new:
                segment.file.truncate(segment.written_size)
        except OSError as second:
            self.fail(f"{where}: write failed ({error}) and could not be undone ({second})")
            return LogFailed(self._failure or "")
        return self.refuse(where, error)

    def _forget_queued(self) -> None:
        self._queue.clear()
        self.active.back_to(self._mark, self.written_offset)
        self.producers.back()
        self.next_offset = self.written_offset
        self.received.end_at(self.next_offset)
        self._room = -1

    def _make_room(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> None:
        """Prepare the log for this set of batches or messages: load, write early, roll."""
        if self._failure is not None:
            raise self.refusal(self._failure)
        if self._refused is not None:
            raise self._refused
        segment, settings = self.active, self.settings
        if size > settings.segment_bytes:
            raise BatchTooLarge(size, settings.segment_bytes)
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
            looked_at, self._format = self._format, settings.record_format
            if (looked_at != self._format and begins_otherwise(segment, self._format)) or must_roll(
                segment,
                settings,
                size=size,
                last_offset=last_offset,
                max_timestamp=max_timestamp,
                age_ms=now_ms - self.active_since_ms(now_ms) if segment.first_timestamp < 0 else 0,
            ):
                self.roll(now_ms=now_ms)
        except OSError as error:
            raise self.refuse(self.name, error) from error
        if self.active.size == 0:
            self.active.first_timestamp = max_timestamp
            self.active.opened_ms = now_ms
        if now_ms > self.received.last_ms:
            self.received.note(self.next_offset, now_ms)
        self._begin_epoch()
        self._set_room()

    def active_since_ms(self, now_ms: int) -> int:
        """Receive time (ms) of the active segment's first record by our clock, as far as known.

        A segment that was found at a start knows only what the receive times tell of it, which
        have gone on counting while the log was closed.
        """
        active = self.active
        if active.opened_ms == UNKNOWN:
            active.opened_ms = self.received.since_ms(self, active.base_offset, now_ms=now_ms)
        active.opened_ms = min(active.opened_ms, now_ms)  # our clock may have been put back
        return active.opened_ms

    def _write_early(self) -> None:
        """Write amid a round of appends, so that all of the round learn of a failure."""
        try:
            self.write()
        except StorageError as error:
            self._refused = error
            raise

    def _set_room(self) -> None:
        """Set the limits up to which appends need no checks; a write only raises them."""
        segment, settings = self.active, self.settings
        queued = segment.size - segment.written_size
        self._last_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        if segment.size == 0 or not segment.loaded:
            self._room = -1
        else:
            self._room = min(
                settings.segment_bytes - segment.size,
                QUEUE_BYTES_MAX - queued,
                index_entries_left(segment, settings) * self.index_interval_bytes,
            )
        if segment.size == 0:
            self._roll_after_ms = NEVER
        elif segment.first_timestamp >= 0:
            self._roll_after_ms = segment.first_timestamp + age_limit_ms(segment, settings)
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
            self.store_epochs()

    def store_epochs(self) -> None:
        """Have the leader epochs put into their file by the next sync."""
        data = self.epochs.encode()
        self._syncs.add(PutFile(self.files, f"{self.folder}/{LEADER_EPOCHS}", data))
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
            raise self.refusal(self._failure)
        if self._queue:
            self._write_early()
        old, base_offset = self.active, self.next_offset
        if base_offset == old.base_offset:
            return
        self.clean_state = None
        try:
            old.load()
            new = Segment.create(
                self.files,
                self.folder,
                base_offset,
                interval_bytes=self.index_interval_bytes,
                opened_ms=now_ms,
            )
            snapshot = store_snapshot(self.files, self.folder, base_offset, self.producers)
            old.finish_times()
            indexes = old.store_indexes()
        except OSError as error:
            remove_left_overs(self.files, self.folder, base_offset)
            raise self.refuse(f"{self.name}: rolling at {base_offset}", error) from error
        self._syncs.add(old, *indexes, snapshot, SyncFolder(self.files, self.folder))
        self._syncs.add(self.received.store(self))
        self.segments.append(new)
        self.active = new
        self._mark = new.mark()
        self._set_room()

    # Syncing

    def unsynced(self) -> tuple[list[SyncStep], int]:
        """The syncs that put everything below the returned offset on the disk.

        Call `sync()` on each, in order, in any thread, then `synced(offset)` here; appends and
        rolls may go on meanwhile. After an OSError call `sync_failed`."""
        up_to = self.written_offset
        if up_to == self.recovery_point and not len(self._syncs):
            return [], up_to
        steps = self._syncs.begin(up_to)
        steps.append(self.active)
        return steps, up_to

    def sync_next(self, *steps: SyncStep) -> None:
        """Add steps to the next sync; for whoever changed the log's files beside it."""
        self._syncs.add(*steps)

    def synced(self, up_to: int) -> None:
        """The steps that `unsynced` gave for this offset have been taken."""
        if self._failure is None and self._syncs.confirm(up_to):
            self.recovery_point = max(self.recovery_point, up_to)
            if self.recovery_point >= self.opened_at > self.covered_point:
                # The files of the indexes up to there are among the first steps of any round.
                self.covered_point = self.opened_at
            base_offset = self.active.base_offset
            if self.recovery_point > base_offset > self.covered_point:
                # Only a round that began after the roll, and took its steps, can come so far.
                self.covered_point = base_offset

    def sync_failed(self, error: OSError) -> StorageError:
        """A step could not be taken: what it covers is not on the disk, and may never be.

        The kernel forgets what it could not write, so the next sync would report success for bytes
        that are gone. The log fails, unless the step was one that starts afresh (`NotPut`), or was
        not begun for want of a file descriptor.
        Returns the error to answer with.
        """
        if isinstance(error, NotPut) or error.errno in NO_DESCRIPTORS:
            return StorageError(f"{self.name}: {error}")
        self.fail(f"{self.name}: sync failed: {error}")
        return LogFailed(self._failure or "")

    def sync(self) -> None:
        """Write and sync everything, here and now. Raises StorageError."""
        self.write()
        steps, up_to = self.unsynced()
        try:
            for step in steps:
                step.sync()
        except OSError as error:
            raise self.sync_failed(error) from error
        self.synced(up_to)

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
            self._forget_queued()
            self._refused = LogFailed(self._failure)  # for those who queued it
        self._room = -1

    def refuse(self, where: str, error: OSError) -> StorageError:
        """The disk did not do what was asked of it: the error to answer with.

        A disk that is broken, and not merely full, stops the log.
        """
        text = f"{where}: {error}"
        if error.errno not in BROKEN:
            return StorageError(text)
        self.fail(text)
        return LogFailed(text)

    def require_available(self) -> None:
        """Raises KafkaError (`refusal`) if nothing of the log may be read."""
        if self.unavailable is not None:
            raise self.refusal(self.unavailable)

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
        batch where one should be, LogFailed if nothing may be read.
        """
        place = self._place(offset, end_offset)
        if place is None:
            return None
        segment, position = place
        file = segment.file
        stop, end = segment.written_size, self.written_offset
        if end_offset is not None and end_offset < end:
            beyond = segment.find(end_offset)
            if beyond is not None:
                stop = min(stop, beyond.position)
        stop = self._readable(segment, position, stop, max_bytes)
        if stop - position > max_bytes:
            try:
                stop = self.segments.cut(place, stop, max_bytes, at_least_one=at_least_one)
            except CorruptBatch:
                stop = self._looked_at_again(segment, position, stop, max_bytes)
                stop = self.segments.cut(place, stop, max_bytes, at_least_one=at_least_one)
        elif segment is self.active and stop == segment.written_size:
            self.segments.remember(end, segment, stop)
        if stop <= position:
            return None
        return FileSlice(file, position, stop - position)

    def read_entries(
        self, offset: int, max_bytes: int, *, end_offset: int | None = None
    ) -> EntrySlice | None:
        """The headers of whole entries from the one that holds `offset` on, for conversion.

        An entry is a format 2 batch or a top-level message of format 0 or 1. They lie in one
        segment and below `end_offset`, and make up at most `max_bytes`, but for the first one,
        which is always there. To read on, past entries that a reader is not to see or into the
        next segment, ask again from the slice's `next_offset`. None at the end of the log or of
        what `end_offset` lets through.

        Raises OffsetOutOfRange outside start_offset..written_offset, CorruptBatch if the first
        entry is none; before a later one that is none the slice ends.
        """
        place = self._place(offset, end_offset)
        if place is None:
            return None
        segment, position = place
        end = self.written_offset
        entries = read_headers(
            segment.file,
            position,
            self._readable(segment, position, segment.written_size, max_bytes),
            max_bytes=max_bytes,
            end_offset=end if end_offset is None else min(end, end_offset),
        )
        if not entries:
            self._looked_at_again(segment, position, segment.written_size, max_bytes)
            self._expect_entry(segment, position)
            return None
        last = entries[-1]
        if last.end < segment.written_size or segment is self.active:
            self.segments.remember(last.last_offset + 1, segment, last.end)
        return EntrySlice(segment.file, entries, segment.serial)

    def _place(self, offset: int, end_offset: int | None) -> Place | None:
        """Place of the entry that holds `offset`, or of the next there is, below `end_offset`."""
        end = self.written_offset
        if self.unavailable is not None:
            raise self.refusal(self.unavailable)
        if offset >= end or offset < self.start_offset:
            if offset == end:
                return None
            raise OffsetOutOfRange(offset, self.start_offset, end)
        if end_offset is not None and offset >= end_offset:
            return None
        segments = self.segments
        place = segments.places.get(offset) or segments.locate(offset)
        if place is not None:
            segments.keep_open(place[0])
        return place

    def _readable(self, segment: Segment, position: int, stop: int, max_bytes: int) -> int:
        """`stop`, or a position before it and within `max_bytes` at which damage begins, or bytes
        that have not been looked at yet. Raises CorruptBatch for damage at `position`."""
        wanted = min(stop, position + max(max_bytes, 1))
        if position >= wanted:
            return stop
        was_loaded = segment.loaded
        ahead = segment.verified.readable_to(position, wanted)
        if segment.loaded and not was_loaded:
            self.segments.keep_open(segment)  # its indexes count now
        if ahead == wanted:
            return stop
        next_offset = segment.verified.next_offset_at(ahead)
        if next_offset is not None:
            self.segments.remember(next_offset, segment, ahead)
        return ahead

    def _looked_at_again(self, segment: Segment, position: int, stop: int, max_bytes: int) -> int:
        """The same where no entry was found, though one was there when it was looked at."""
        segment.verified.forget()
        return self._readable(segment, position, stop, max_bytes)

    def _expect_entry(self, segment: Segment, position: int) -> None:
        scan = Scan(segment.file, position, segment.written_size)
        if next(iter(scan), None) is None and scan.trouble is not None:
            raise CorruptBatch(f"{segment.path()}, position {position}: {scan.trouble}")

    def cut_before_zstd(self, piece: FileSlice) -> bool:
        """Shorten a slice that `read` returned to what is known to hold no batch of codec zstd, for
        Fetch below v10. False, and the slice as it was, if that is nothing.

        Headers are looked at once, a bounded number at a time; a segment remembers the stretch.
        """
        segment = self.segments.of_file(piece.file)
        if segment is None:
            return False
        stop = segment.end_without_zstd(piece.position, piece.end)
        if stop == piece.position:
            return False
        piece.size = stop - piece.position
        return True

    def offset_for_timestamp(
        self, timestamp_ms: int, *, limit: int = MAX_DECOMPRESSED_BYTES
    ) -> TimestampOffset | None:
        """Timestamp, offset and leader epoch of the first record at or after a time.

        `limit` is what one batch or wrapper may expand to in bytes (max.decompressed.batch.bytes);
        InvalidRecord is raised for one that goes beyond it.
        """
        return first_at_or_after(self, timestamp_ms, limit)

    def max_timestamp(self, *, limit: int = MAX_DECOMPRESSED_BYTES) -> TimestampOffset | None:
        """The same of the first record with the largest timestamp (ListOffsets -3)."""
        return largest(self, limit)

    def offsets_before(self, timestamp_ms: int, max_count: int, *, now_ms: int) -> list[int]:
        """Offsets at which segments begin, newest first, at most `max_count` (ListOffsets v0).

        Segments count by when their files were last written to, at or before `timestamp_ms`; -1
        means all of them and the log's end, -2 the log's start alone. Raises OSError.
        """
        return offsets_of_segments(self, timestamp_ms, max_count, now_ms)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch` and its end offset; (-1, -1) if there is none."""
        start, end, leading = self.start_offset, self.written_offset, self.leader_epoch
        return self.epochs.end_offset_for(epoch, log_start=start, log_end=end, leading=leading)

    def divergence(self, last_epoch: int, offset: int) -> tuple[int, int] | None:
        """The last epoch of both logs and its end, for a reader whose log ends before this offset
        with a record of this epoch, if its log is another one; -1 is no epoch (KIP-595)."""
        if last_epoch < 0:
            return None
        epoch, end_offset = self.end_offset_for(last_epoch)
        if epoch < 0 or (epoch == last_epoch and end_offset >= offset):
            return None
        return epoch, end_offset

    @property
    def written_max_timestamp(self) -> int:
        """The largest timestamp (ms) in the active segment's file; -1 for none."""
        return self._mark.max_timestamp if self._queue else self.active.max_timestamp

    # Transactions

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction; without any, the written offset.

        Readers of committed records may not pass it. A marker counts when it is in the file. A
        transaction that began below the log start counts from there.
        """
        opened = self.producers.oldest_unsettled
        if opened < 0:
            return self.written_offset
        return min(max(opened, self.start_offset), self.written_offset)

    def aborted_transactions(self, offset: int, upper: int) -> list[AbortedTransaction]:
        """The transactions that a reader of the offsets from `offset` up to `upper` must leave out,
        in the order of their markers, which may lie above. Raises OSError."""
        return aborted_between(self, offset, upper)

    def aborted_in(self, offset: int, piece: FileSlice) -> list[AbortedTransaction]:
        """The same for a slice that `read` returned for `offset`. Raises OSError.

        How far the slice reaches is taken from the index, and may be put a little too high; what
        is listed too much does a reader no harm.
        """
        return aborted_between(self, offset, self._offset_after(piece))

    def aborted_listed_in(self, offset: int, piece: FileSlice) -> tuple[int, bytes]:
        """The number of these transactions, and all of them as answers to Fetch have them from
        version 12 on. Raises OSError."""
        return listed_between(self, offset, self._offset_after(piece))

    def _offset_after(self, piece: FileSlice) -> int:
        return self.segments.offset_after(piece, self.written_offset)

    # The start of the log

    def start_after_deletion(self, offset: int) -> int:
        """The log start without the records below `offset`; -1 means below the high watermark.
        Raises OffsetOutOfRange, LogFailed. Nothing changes: see `storage.start_offsets`."""
        self.require_available()
        target = self.written_offset if offset == -1 else offset
        if target < 0 or target > self.written_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.written_offset)
        return max(target, self.start_offset)

    def raise_start(self, offset: int) -> None:
        """Start at an offset that `start_after_deletion` gave and that is noted on the disk."""
        if offset > self.start_offset:
            self.start_offset = offset
            self.clean_state = None
            # The epochs below stay: a crash may take the new start back, but not what was stored
            # of them. The next start cuts them.

    def delete_records(self, offset: int) -> int:
        """Start as `start_after_deletion` says, where nobody is told of it before it is noted.
        Returns the log start. Raises OffsetOutOfRange."""
        self.raise_start(self.start_after_deletion(offset))
        return self.start_offset

    def take_segments_below_start(self) -> list[Segment]:
        """Let go of the segments wholly below the log start, but for the active one. Their files
        are the caller's."""
        taken = []
        while (segment := self.segments.pop_below(self.start_offset)) is not None:
            taken.append(segment)
        return taken

    # Closing

    def close(self, *, clean: bool) -> CleanState | None:
        """Let go of all files. With `clean`, write and sync everything first.

        Returns what the last files look like, or None if the log must be looked through at the
        next start (not `clean`, or failed).
        """
        state = self._sync_all() if clean and self._failure is None else None
        self.segments.release_files()
        if self._failure is None:
            self.fail(f"{self.name} is closed")
        return state

    def _sync_all(self) -> CleanState | None:
        if self.clean_state is not None:
            return self.clean_state
        try:
            state = self.store_all()
            self.sync()
        except (OSError, StorageError):
            return None
        self.covered_point = self.recovery_point
        return state

    def store_all(self) -> CleanState:
        """Write what a start after a clean shutdown wants to find: queued batches, index entries,
        producers, epochs. The next sync makes it last. Raises OSError, StorageError.

        A log that was never written to stays without files, and Apache Kafka makes them as we do.
        """
        files, folder, segment = self.files, self.folder, self.active
        self.write()
        if segment.is_new:
            self._syncs.add(SyncFolder(files, folder))
            return CleanState.without_files()
        segment.load()
        segment.finish_times()
        self._syncs.add(*segment.store_indexes())
        indexed = (offset_of(name, TRANSACTION_INDEX) for name in files.list_dir(folder))
        aborted = sorted(base for base in indexed if base is not None)
        thin_snapshots(files, folder, self.segments.base_offsets, keep=0)
        snapshot = ""
        if self.next_offset:  # an empty log has none, as with Kafka
            snapshot = file_name(self.next_offset, SNAPSHOT)
            self._syncs.add(store_snapshot(files, folder, self.next_offset, self.producers))
            self._syncs.add(self.received.store(self, lasting=True))
        if not self.epochs_stored:
            self.epochs.assign(self.leader_epoch, self.next_offset)
            self.store_epochs()
        self._syncs.add(SyncFolder(files, folder))
        return CleanState(
            self.next_offset,
            segment.size,
            len(segment.offsets) * INDEX_ENTRY_SIZE,
            len(segment.times) * TIME_INDEX_ENTRY_SIZE,
            snapshot,
            segment.base_offset,
            aborted,
        )

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.start_offset}..{self.next_offset})"
