"""One file of batches with its two indexes.

The last segment of a log takes appends; the others are sealed. A segment is opened in name only:
its file and its indexes are read when first needed, so a log with thousands of segments starts
as quickly as one with a single one. An index that cannot be the one of this file is built again
from the headers; of a closed segment it is never replaced by one that knows less.

The indexes of the active segment are appended to their files when the log is checkpointed, rolled
or closed, or when their memory is wanted for others (`storage.open_segments`): then all but their
ends are let go of, and look-ups read pages of the files. Of a large index that was found at the
start of the process only the end is read. Files on disk are never longer than their content.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count, takewhile
from typing import TYPE_CHECKING

from protocol.records.compression import ZSTD
from protocol.records.errors import CorruptBatch
from protocol.records.layout import NO_TIMESTAMP
from storage.index_columns import IndexDamaged, IndexFile
from storage.layout import (
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from storage.offset_index import DROPPED_MAX, DROPPED_SHARE, RELATIVE_OFFSET_MAX, OffsetIndex
from storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from storage.open_segments import OpenSegments
from storage.preallocated import read_entries
from storage.resync import is_intact
from storage.scan import Entry, first_entry, read_headers
from storage.syncing import SyncFile
from storage.time_index import ENTRY_SIZE as TIME_INDEX_ENTRY_SIZE
from storage.time_index import TimeIndex
from storage.transaction_index import ENTRY_SIZE as TRANSACTION_INDEX_ENTRY_SIZE
from storage.transaction_index import NOTHING, TransactionIndex
from storage.verified import START_TRIES, Verified

if TYPE_CHECKING:
    from storage.chain import Damage
    from storage.filesystem import File, Filesystem

ANY_OFFSET = 2**63 - 1

COUNTED_ENTRIES = 64
"""Index entries of an active segment that are added in memory before they are counted again."""

UNKNOWN = -1
"""A moment that `storage.receive_times` has to be asked for."""

NEW_FILES = (INDEX, TIME_INDEX, LOG)
"""Suffixes of the files that a log's next segment begins with; by the last one it is found."""

LOOK_MAX = 2048
"""Headers looked at in one go for the sake of a reader: some 2 ms."""
LOOK_BYTES = 65_536
"""Bytes of entries that a part of such a look goes over."""

_serials = count()


class Mark:
    """The end of a segment as it was at some moment, to go back to after a failed write."""

    __slots__ = ("indexed_position", "last_timestamp", "max_timestamp", "max_timestamp_offset")

    def __init__(self, segment: Segment) -> None:
        self.last_timestamp = segment.times.last_timestamp
        self.indexed_position = segment.indexed_position
        self.max_timestamp = segment.max_timestamp
        self.max_timestamp_offset = segment.max_timestamp_offset


class Segment:
    """The batches from `base_offset` up to the next segment's.

    `size` counts the bytes of all batches, queued ones included; `written_size` those in the
    file. `max_timestamp` (ms, -1 for none) and `max_timestamp_offset` (last offset of the first
    batch that has it, or what was appended with it) are known once the indexes are loaded. No two
    segments of a process have the same `serial`.
    """

    __slots__ = (
        "_count_at",
        "_dated",
        "_file",
        "_files",
        "_folder",
        "_without_zstd",
        "aborted",
        "base_offset",
        "dated_by_log",
        "first_timestamp",
        "indexed_position",
        "interval_bytes",
        "is_new",
        "loaded",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "opened_ms",
        "scrubbed_ms",
        "serial",
        "size",
        "times",
        "verified",
        "written_size",
    )

    def __init__(
        self,
        files: Filesystem,
        folder: str,
        base_offset: int,
        *,
        interval_bytes: int,
        opened_ms: int = UNKNOWN,
    ) -> None:
        self._files = files
        self._folder = folder
        self._file: File | None = None
        self._without_zstd = (0, 0)
        self._count_at = COUNTED_ENTRIES
        self._dated = False
        self.serial = next(_serials)
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.opened_ms = opened_ms
        """Receive time of its first record by our clock; without one, the time it was made."""
        self.size = self.written_size = -1
        self.is_new = False
        """Whether nobody has written to the log file, which is made with the first batch."""
        self.loaded = False
        self.dated_by_log = False
        """Whether the largest timestamp has been compared with the log, and not only been read."""
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.aborted: TransactionIndex | None = None
        """None until it is read: see `aborted_index`."""
        self.indexed_position = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        """Max timestamp of the first batch; by it the segment ages."""
        self.scrubbed_ms = 0
        """Time of the last comparison of all of the file with its checksums (by this process)."""
        self.verified = Verified(self, files.now_ns)

    def path(self, suffix: str = LOG) -> str:
        return f"{self._folder}/{file_name(self.base_offset, suffix)}"

    @classmethod
    def create(
        cls,
        files: Filesystem,
        folder: str,
        base_offset: int,
        *,
        interval_bytes: int,
        opened_ms: int,
    ) -> Segment:
        """Make the files of a new segment; the folder still has to be synced.

        Left-over files of that name are emptied first: they come from a roll that failed.
        """
        segment = cls.empty(
            files, folder, base_offset, interval_bytes=interval_bytes, opened_ms=opened_ms
        )
        for suffix in SEGMENT_SUFFIXES:
            files.remove(segment.path(suffix))
        for suffix in NEW_FILES:
            files.open_file(segment.path(suffix), create=True).close()
        segment.is_new = False
        return segment

    @classmethod
    def empty(
        cls,
        files: Filesystem,
        folder: str,
        base_offset: int,
        *,
        interval_bytes: int,
        opened_ms: int,
    ) -> Segment:
        """A new segment without files: the log file comes with the first batch, the indexes with
        their first entries or a clean stop."""
        segment = cls(
            files, folder, base_offset, interval_bytes=interval_bytes, opened_ms=opened_ms
        )
        segment.size = segment.written_size = 0
        segment.is_new = segment.loaded = segment._dated = segment.dated_by_log = True
        segment.verified.inherit(0, base_offset)
        segment.aborted = NOTHING
        return segment

    @property
    def file(self) -> File:
        """The log file, opened when first asked for."""
        file = self._file
        if file is None:
            file = self._file = self._files.open_file(self.path(), create=self.is_new)
            if self.size < 0:
                self.size = self.written_size = file.size()
            OPEN.opened(self)
        return file

    def sync(self) -> None:
        """Return when what was written is on the disk. Any thread. Raises OSError.

        If the file was closed meanwhile, and the kernel could not write it, the next open is told.
        """
        file = self._file
        (SyncFile(self._files, self.path()) if file is None else file).sync()

    def byte_size(self) -> int:
        """Bytes of the log file, without opening it."""
        if self.size < 0:
            self.size = self.written_size = self._files.size_of(self.path())
        return self.size

    def modified_ms(self) -> int:
        """Time of the last write to the log file; before the first, when the segment was made or
        found. Raises OSError."""
        return self.opened_ms if self.is_new else self._files.modified_ms(self.path())

    def latest_ms(self) -> int:
        """The largest timestamp (ms, -1 for none) of a sealed segment, read once from the last
        entry of its time index; the whole index stays where it is."""
        if not self._dated:
            self.max_timestamp, self.max_timestamp_offset = self._last_time() or self._settled()
            self._dated = True
        return self.max_timestamp

    def _last_time(self) -> tuple[int, int] | None:
        """The last entry of the time index file; None if that cannot be believed."""
        try:
            file = self._files.open_file(self.path(TIME_INDEX))
        except FileNotFoundError:
            return None
        size = file.size()
        data = file.pread(TIME_INDEX_ENTRY_SIZE, max(size - TIME_INDEX_ENTRY_SIZE, 0))
        file.close()
        if size % TIME_INDEX_ENTRY_SIZE or not any(data):
            return None
        index = TimeIndex.decode(data, RELATIVE_OFFSET_MAX)
        if index is None:
            return None
        return index.last_timestamp, self.base_offset + index.last_relative_offset

    def _settled(self) -> tuple[int, int]:
        self.load()
        return self.max_timestamp, self.max_timestamp_offset

    # Indexes

    def load(self) -> None:
        """Read the indexes, or build them again if they are not the ones of this file."""
        if self.loaded:
            return
        try:
            found = self._are_read(ends_only=self.verified.next_base is None)
        except IndexDamaged:
            found = self._are_read(ends_only=False)
        if found:
            self._watch()
            self.dated_by_log = True
        else:
            self._make_indexes_again()
        if self.verified.next_base is None:
            self.count_entries()

    def _are_read(self, *, ends_only: bool) -> bool:
        """Read the indexes; False if the files are not the ones of this log file. Raises
        IndexDamaged if one of which only the end was read has to be read as a whole."""
        file = self.file
        offsets = self._read_offset_index(file, ends_only=ends_only)
        times = None
        if offsets is not None:
            times = self._read_time_index(file, ends_only=ends_only)
        if offsets is None or times is None:
            return False
        ends_with_time = not len(times) or self._ends_with_time(times, offsets)
        self.offsets, self.times = offsets, times
        self._settle()
        if not ends_with_time:
            self._watch()
            self._find_last_time()
        return True

    def _watch(self) -> None:
        """Have the indexes made whole when their files turn out to be wrong later."""
        self.offsets.on_damage(self._make_whole)
        self.times.on_damage(self._make_whole)

    def _make_whole(self) -> None:
        """Have all entries in memory again: from the files as far as they can be believed, else
        from the headers of the log."""
        indexes: tuple[OffsetIndex | TimeIndex, ...] = (self.offsets, self.times)
        lost = [index for index in indexes if index.dropped and not self._is_read_back(index)]
        if lost:
            until = self.offsets.first_position if self.offsets.dropped else self.written_size
            for index in lost:
                index.put_before(type(index)())  # the walk over the log looks into them
            offsets, times = self._indexes_below(until)
            if self.offsets in lost:
                self.offsets.put_before(offsets)
            if self.times in lost:
                self.times.put_before(times)
            if not self.verified.damages:
                with suppress(OSError):  # what is in memory serves
                    self.replace_indexes()
        self.count_entries()

    def _is_read_back(self, index: OffsetIndex | TimeIndex) -> bool:
        is_offsets = index is self.offsets
        try:
            data = read_entries(
                self._files, self.path(INDEX if is_offsets else TIME_INDEX), index.ENTRY_SIZE
            )
        except OSError:
            return False
        data = data[: index.dropped * index.ENTRY_SIZE]
        found: OffsetIndex | TimeIndex | None = TimeIndex.decode(data, RELATIVE_OFFSET_MAX)
        if is_offsets:
            found = OffsetIndex.decode(data, self.written_size)
        if found is None or len(found) + DROPPED_MAX < index.dropped:
            return False
        return index.put_before(found)

    def _indexes_below(self, position: int) -> tuple[OffsetIndex, TimeIndex]:
        """Indexes of the entries below a position, made from their headers."""
        offsets, times = OffsetIndex(), TimeIndex()
        indexed, latest, latest_offset = 0, NO_TIMESTAMP, 0
        for found in self.verified.entries(0):
            if found.position >= position:
                break
            if not isinstance(found, Entry):
                continue
            relative = found.last_offset - self.base_offset
            if found.max_timestamp > latest:
                latest, latest_offset = found.max_timestamp, relative
            if found.position - indexed > self.interval_bytes:
                offsets.add(relative, found.position)
                times.add(latest, latest_offset)
                indexed = found.position
        return offsets, times

    def _find_last_time(self) -> None:
        """The time index ends with what the log does not say: look for the largest timestamp
        behind the entry before it. The file stays as it is."""
        self.times.cut(len(self.times) - 1)
        self._settle()
        for found in self.verified.entries(self.offsets.floor(self.times.last_relative_offset)):
            if isinstance(found, Entry) and found.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = (
                    found.max_timestamp,
                    found.last_offset,
                )
        self.finish_times()

    def _settle(self) -> None:
        """Take the state of the segment's end from its indexes."""
        self.indexed_position = self.offsets.last_position
        self.max_timestamp = self.times.last_timestamp
        self.max_timestamp_offset = self.base_offset + max(self.times.last_relative_offset, 0)
        if self.written_size > 0:
            first = first_entry(self.file, 0, self.written_size)
            if first is not None:
                self.first_timestamp = first.max_timestamp
        self.loaded = self._dated = True

    def _read_offset_index(self, file: File, *, ends_only: bool) -> OffsetIndex | None:
        try:
            index = OffsetIndex.opened(self._index_file(INDEX)) if ends_only else None
            if index is None:
                data = read_entries(self._files, self.path(INDEX), INDEX_ENTRY_SIZE)
                index = OffsetIndex.decode(data, self.written_size)
        except FileNotFoundError:
            return None
        if index is None or not len(index):
            return index
        # Rising numbers may still be another file's. There must be an entry where the last one
        # points, and it must not begin above the offset it is said to hold. One that does may be
        # damaged, and so may be the index entry; the index is as good without it.
        for _ in range(1 + min(len(index) // DROPPED_SHARE, DROPPED_MAX)):
            entry = first_entry(file, index.last_position, self.written_size)
            last = self.base_offset + index.last_relative_offset
            if entry is not None and entry.first_offset <= last:
                return index
            index.cut(len(index) - 1)
        return None

    def _index_file(self, suffix: str) -> IndexFile:
        return IndexFile(self._files, self.path(suffix))

    def _time_index(self, *, ends_only: bool) -> TimeIndex | None:
        try:
            index = TimeIndex.opened(self._index_file(TIME_INDEX)) if ends_only else None
            if index is None:
                data = read_entries(self._files, self.path(TIME_INDEX), TIME_INDEX_ENTRY_SIZE)
                index = TimeIndex.decode(data, RELATIVE_OFFSET_MAX)
        except FileNotFoundError:
            return None
        return index

    def _read_time_index(self, file: File, *, ends_only: bool) -> TimeIndex | None:
        index = self._time_index(ends_only=ends_only)
        if index is not None and not len(index) and self._begins_with_timestamps(file):
            return None
        return index

    def _begins_with_timestamps(self, file: File) -> bool:
        """Whether a time index that is empty must have been lost: it has no entries only where
        there were no timestamps, as with format 0."""
        first = first_entry(file, 0, self.written_size)
        return first is not None and first.max_timestamp > NO_TIMESTAMP

    def rebuild(self) -> None:
        """Make both indexes from the headers of the written part of the file, as far as they are
        right. Raises CorruptBatch where the file was changed while it was open."""
        self.offsets, self.times = OffsetIndex(), TimeIndex()
        self._count_at = COUNTED_ENTRIES
        self.indexed_position = 0
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.loaded = True
        for found in self.verified.entries(0):
            if isinstance(found, Entry):
                self.note(found)
        self.finish_times()
        self._dated = self.dated_by_log = True

    def _make_indexes_again(self) -> None:
        """Rebuild them, also in their files; but not while something in the log is damaged, of
        which the files may know more."""
        self.rebuild()
        if not self.verified.damages:
            with suppress(OSError):  # what is in memory serves; the next start builds it again
                self.replace_indexes()

    def trust_below(self, offset: int) -> int:
        """Load what the index files say of batches wholly below `offset`, and nothing else.

        Returns the position from which the log file has to be read. For recovery: index entries
        below the recovery point were synced before it was noted; later ones are anybody's guess.
        """
        try:
            self._trust_below(offset, ends_only=True)
        except IndexDamaged:
            self._trust_below(offset, ends_only=False)
        self._settle()
        self._watch()
        return self.offsets.last_position

    def _trust_below(self, offset: int, *, ends_only: bool) -> None:
        file = self.file
        offsets = self._read_offset_index(file, ends_only=ends_only)
        times = self._time_index(ends_only=ends_only)
        if offsets is None or times is None:
            offsets, times = OffsetIndex(), TimeIndex()
        offsets.cut(offsets.count_below(offset - self.base_offset, self.written_size))
        offsets.cut(self._count_agreed(offsets))
        # With every offset entry a time entry was tried, so up to the last offset entry the time
        # index knows the largest timestamp. A later time entry comes from a clean stop.
        times.cut(times.count_below(offsets.last_relative_offset + 1))
        if len(times):
            # An entry that was being written may have got its offset's bytes as zeros.
            if not self._is_time_of_an_entry(times, offsets):
                offsets.cut(0)
                times.cut(0)
        elif len(offsets) and self._begins_with_timestamps(file):
            offsets.cut(0)
        self.offsets, self.times = offsets, times

    def _count_agreed(self, offsets: OffsetIndex) -> int:
        """Number of entries up to one that says what the log says, or could."""
        possible = 0
        for number in range(len(offsets) - 1, max(len(offsets) - 1 - START_TRIES, -1), -1):
            entry = first_entry(self.file, offsets.position_of(number, 0), self.written_size)
            last = self.base_offset + offsets.relative_of(number)
            if entry is None or entry.first_offset > last:
                continue
            if entry.last_offset == last:
                return number + 1
            possible = possible or number + 1
        return possible

    def _is_time_of_an_entry(self, times: TimeIndex, offsets: OffsetIndex) -> bool:
        """Whether a time index ends with the last offset of a batch, and that has the timestamp."""
        entry = self._entry_dated_last(times, offsets)
        return (
            entry is not None
            and entry.last_offset == self.base_offset + times.last_relative_offset
            and entry.max_timestamp == times.last_timestamp
        )

    def _ends_with_time(self, times: TimeIndex, offsets: OffsetIndex) -> bool:
        """The same for any offset of a batch: Apache Kafka may name the record itself. Of a damaged
        batch it is the index that knows."""
        entry = self._entry_dated_last(times, offsets)
        return entry is not None and (
            entry.max_timestamp == times.last_timestamp or not is_intact(self.file, entry)
        )

    def _entry_dated_last(self, times: TimeIndex, offsets: OffsetIndex) -> Entry | None:
        last_offset = self.base_offset + times.last_relative_offset
        position = offsets.floor(times.last_relative_offset)
        while (entry := first_entry(self.file, position, self.written_size)) is not None:
            if entry.last_offset >= last_offset:
                return entry
            position = entry.end
        return None

    def note(self, entry: Entry) -> None:
        """Enter an entry that is in the file already.

        Where several were appended as one set, the index then has entries inside the set, as
        Kafka's has after a recovery: the file does not tell which entries came together.
        """
        last = entry.last_offset
        if entry.position == 0:
            self.first_timestamp = entry.max_timestamp
        if entry.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = entry.max_timestamp, last
        if entry.position - self.indexed_position <= self.interval_bytes:
            return
        # The index may name the last offset of a set that is being gone through once more.
        if last - self.base_offset > self.offsets.last_relative_offset:
            self.add_index_entry(last, entry.position)

    def add_index_entry(self, last_offset: int, position: int) -> None:
        """Enter the entry that begins at `position`, alone or at the head of a set."""
        self.offsets.add(last_offset - self.base_offset, position)
        self.times.add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.indexed_position = position

    def enter(self, last_offset: int, position: int) -> None:
        """The same of what is being appended."""
        self.add_index_entry(last_offset, position)
        if self.offsets.in_memory >= self._count_at:
            self.count_entries()

    def count_entries(self) -> None:
        """Have the memory of an active segment's index entries counted, if it has many."""
        entries = self.offsets.in_memory
        if entries >= COUNTED_ENTRIES or self.times.in_memory >= COUNTED_ENTRIES:
            self._count_at = entries + COUNTED_ENTRIES
            OPEN.count(self)

    def index_bytes(self) -> int:
        """Memory of the index entries."""
        offsets, times = self.offsets.in_memory, self.times.in_memory
        return offsets * INDEX_ENTRY_SIZE + times * TIME_INDEX_ENTRY_SIZE

    def finish_times(self) -> None:
        """Give the time index its final entry, the segment's largest timestamp."""
        self.times.add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def mark(self) -> Mark:
        return Mark(self)

    def back_to(self, mark: Mark, offset: int) -> None:
        """Forget what was appended since the mark, from `offset` on, and has not been written."""
        if self.aborted:
            self.aborted.cut_from(offset)
        self.offsets.cut_behind(mark.indexed_position)
        self.times.cut_behind(mark.last_timestamp)
        self.indexed_position = mark.indexed_position
        self.max_timestamp = mark.max_timestamp
        self.max_timestamp_offset = mark.max_timestamp_offset
        self.size = self.written_size

    def store_indexes(self) -> list[SyncFile]:
        """Append what the index files lack and cut them to size. Returns what is to be synced."""
        steps = []
        columns: list[tuple[str, int, OffsetIndex | TimeIndex | TransactionIndex]] = [
            (INDEX, INDEX_ENTRY_SIZE, self.offsets),
            (TIME_INDEX, TIME_INDEX_ENTRY_SIZE, self.times),
        ]
        if self.aborted:
            columns.append((TRANSACTION_INDEX, TRANSACTION_INDEX_ENTRY_SIZE, self.aborted))
        for suffix, entry_size, index in columns:
            file = self._files.open_file(self.path(suffix), create=True)
            position = index.stored * entry_size
            if file.size() < position:  # lost in a crash, and rebuilt here
                index.stored = position = 0
            if index.stored < len(index):
                file.write_at([index.encode(index.stored)], position)
            size = len(index) * entry_size
            if file.size() != size:
                file.truncate(size)
            file.close()
            index.stored = len(index)
            steps.append(SyncFile(self._files, self.path(suffix)))
        return steps

    def replace_indexes(self) -> None:
        """Put rebuilt indexes in place, each as a whole. Raises OSError.

        They hold entries below the recovery point, which a start after a crash believes: a file
        that is half written would be worse than none.
        """
        for suffix, index in ((INDEX, self.offsets), (TIME_INDEX, self.times)):
            self._files.write_atomic(self.path(suffix), index.encode())
            index.stored = len(index)

    def aborted_index(self) -> TransactionIndex | None:
        """The aborted transactions, from their file if need be. None if that is damaged: then the
        index has to be made anew, and given to `replace_aborted`. Raises OSError.

        It stays in memory as long as the other indexes do.
        """
        if self.aborted is not None:
            return self.aborted
        try:
            data = self._files.read_bytes(self.path(TRANSACTION_INDEX))
        except FileNotFoundError:
            self.aborted = NOTHING
            return NOTHING
        index = TransactionIndex.decode(data, self.base_offset)
        if self.loaded:
            self.aborted = index
        return index

    def replace_aborted(self, index: TransactionIndex) -> None:
        """Put a transaction index that was made anew in place, as a whole; an empty one has no
        file. Raises OSError; what is in memory serves even so.
        """
        self.aborted = index if index else NOTHING
        if index:
            self._files.write_atomic(self.path(TRANSACTION_INDEX), index.encode())
        else:
            self._files.remove(self.path(TRANSACTION_INDEX))
        index.stored = len(index)

    # Lookups

    def find(self, offset: int) -> Entry | Damage | None:
        """The first entry whose last offset is at or above `offset`, or the damage in which it may
        have been; None if there is neither.

        The index is not believed blindly: what it leads to has to agree with it, or the search
        begins further ahead.
        """
        self.load()
        try:
            return self._search(offset)
        except CorruptBatch:  # what was believed is forgotten now
            return self._search(offset)

    def _search(self, offset: int) -> Entry | Damage | None:
        for found in self.verified.entries(self.verified.start_below(offset)):
            if isinstance(found, Entry):
                if found.last_offset >= offset:
                    return found
            elif found.holds(offset):
                return found
        return None

    def end_without_zstd(self, position: int, end: int) -> int:
        """Up to where file[position:end], which begins and ends with an entry, is known to hold no
        entry of codec zstd.

        The stretch that was found free is remembered and grows as readers follow each other, by
        some `LOOK_MAX` entries at a time.
        """
        first, last = self._without_zstd
        if not first <= position <= last:
            first = last = position
        looked = 0
        while last < end and looked < LOOK_MAX:
            entries = read_headers(
                self.file, last, end, max_bytes=LOOK_BYTES, end_offset=ANY_OFFSET
            )
            free = list(takewhile(lambda entry: entry.codec != ZSTD, entries))
            if free:
                last = free[-1].end
            if not entries or len(free) < len(entries):
                break
            looked += len(entries)
        self._without_zstd = first, last
        return min(last, end)

    # Letting go

    def give_back(self) -> bool:
        """Give back the memory of the indexes: all of it if the segment is sealed, else but for the
        ends. Whether that was possible.

        What the files lack is written to them before. While appends are queued, which may be taken
        back, or the disk refuses, everything stays.
        """
        if self.verified.next_base is not None:
            self.unload()
            return True
        if self.size != self.written_size:
            return False
        try:
            self.store_indexes()
        except OSError:
            return False
        self.offsets.let_go(self._index_file(INDEX))
        self.times.let_go(self._index_file(TIME_INDEX))
        self._watch()
        self._count_at = self.offsets.in_memory + COUNTED_ENTRIES
        # The files may lose what they were given. By the walk over the log that is noticed.
        self.verified.forget()
        return True

    def unload(self) -> None:
        """Give back the file and the memory of a sealed segment's indexes.

        The descriptor is closed when the last slice or sync that holds the file is done.
        """
        self.release_file()
        OPEN.forget(self)
        self.verified.forget()
        self.offsets, self.times = OffsetIndex(), TimeIndex()
        self._count_at = COUNTED_ENTRIES
        if self.aborted:
            self.aborted = None
        self.loaded = False

    def holds(self, file: File) -> bool:
        """Whether this is the open log file."""
        return self._file is file

    def release_file(self) -> None:
        """Give back the file alone; it is opened again when it is needed."""
        self._file = None
        OPEN.closed(self)

    def __repr__(self) -> str:
        return f"Segment({self.path()!r}, size={self.size})"


OPEN: OpenSegments[Segment] = OpenSegments()
"""The open segments of this process."""
