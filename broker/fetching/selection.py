"""The choice of what is sent to a reader that does not know every format and codec.

That is Fetch below v10, and who misreads formats 0 and 1 above it (`protocol.quirks`).

Entries that the reader knows go out as they are in the file. The others are converted; control
batches and emptied ones are not for formats 0 and 1 at all. One answer holds, of each partition,
either stored bytes alone, as a slice of the file, or converted entries and what lies between them.

The rule of progress (records.md 8.4): as long as there is a record at or above the fetch offset
that this reader may see, the answer has at least one, or its visible beginning. So whatever this
reader is not to see is stepped over, into the next segments if need be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.fetching.conversion import ConversionUnit
from protocol.errors import ErrorCode, KafkaError
from protocol.records.compression import ZSTD
from protocol.records.convert import Form
from protocol.records.errors import CorruptBatch
from protocol.records.layout import (
    ATTRIBUTES,
    CONTROL_BIT,
    ENTRY_OVERHEAD,
    INT32,
    LENGTH_POSITION,
    RECORD_COUNT,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.fetching.conversion import Outcome
    from protocol.records.convert import Converted
    from protocol.releases import Release
    from storage.log import Log
    from storage.scan import Entry
    from storage.slices import EntrySlice, FileSlice

    Find = Callable[[ConversionUnit, bool], Outcome | None]

SMALL_SLICE_BYTES = 32_768
"""Up to here one read and one write with its header cost less than a sendfile call."""
WINDOW_BYTES = 65_536
"""Headers are looked at for so many bytes of entries at a time; an entry that is larger alone."""

HEADERS_MAX = 2048
"""Headers that one look at a partition goes through: some 2 ms of the loop. A partition with more
entries that its reader is not to see is gone through in several turns of the loop."""

UNITS_MAX = 256
"""Conversions that one answer has for a partition; thousands of tiny batches come in several."""


class Reader:
    """The abilities of clients of one Fetch version, and the meaning of its size limits.

    `cuts`: partition_max_bytes is obeyed to the byte, and a first entry that does not fit is cut
    off, which tells the client that it needs a larger size (v0 to v2). `refuses_zstd`: nothing is
    made of it, as in Kafka.
    """

    __slots__ = ("cuts", "form", "magic", "refusal", "refuses_zstd")

    def __init__(self, form: Form, *, cuts: bool, refuses_zstd: bool = False) -> None:
        self.magic = form.magic
        self.cuts = cuts
        self.form = form
        self.refuses_zstd = refuses_zstd
        self.refusal = (
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            if form is Form.GZIPPED
            else ErrorCode.UNSUPPORTED_VERSION
        )
        """The answer where conversion is switched off."""

    def in_release(self, release: Release) -> tuple[Reader | None, bool]:
        """What a release of Kafka does in its place (KIP-110), None for all as it is stored; and
        whether it refuses topics whose compression.type is zstd."""
        if not release.knows_zstd:
            return self, False
        if self.form is Form.GZIPPED:
            return None, release.refuses_zstd
        return Reader(self.form, cuts=self.cuts, refuses_zstd=True), release.refuses_zstd

    def is_sent_as_is(self, entry: Entry) -> bool:
        if self.form is Form.GZIPPED:
            return entry.magic < 2 or entry.codec != ZSTD
        if self.form is Form.FORMAT_2:
            return entry.magic == 2
        return entry.magic <= self.magic

    def is_blind_to(self, entry: Entry) -> bool:
        """Whether the entry holds no record for this reader; asked only if it isn't sent as is."""
        header = entry.header
        return (
            self.magic < 2
            and header is not None
            and (bool(header[ATTRIBUTES] & CONTROL_BIT) or header[RECORD_COUNT] == 0)
        )


READERS = {
    **dict.fromkeys((0, 1), Reader(Form.FORMAT_0, cuts=True)),
    2: Reader(Form.FORMAT_1, cuts=True),
    3: Reader(Form.FORMAT_1, cuts=False),
    **dict.fromkeys(range(4, 10), Reader(Form.GZIPPED, cuts=False)),
}
"""By Fetch version. From v10 on a reader knows everything."""

FORMAT_2_ONLY = Reader(Form.FORMAT_2, cuts=False)
"""A reader that knows all of format 2, and misreads the others."""


class Limits:
    """Sizes in bytes.

    `hard` is what the client set, `room` what the answer has left for converted entries, `soft`
    the smaller one. A first entry may exceed both with `at_least_one`, and `room` in any case, but
    not if there is no room at all.
    """

    __slots__ = ("at_least_one", "hard", "room", "soft")

    def __init__(self, hard: int, room: int, *, at_least_one: bool) -> None:
        self.hard = max(hard, 0)
        self.room = max(room, 0)
        self.soft = min(self.hard, self.room)
        self.at_least_one = at_least_one

    @property
    def enough(self) -> int:
        """So many converted bytes fill the answer; at least one, for a client that sets 0."""
        return max(self.soft, 1)


class Selection:
    """One look at one partition.

    records     what to send: a slice of the file, or bytes; `b""` for nothing
    missing     units that must be converted first; what comes before them is in `records`
    error       why nothing can be sent; None if that is not so
    more        the partition has more than was looked at, or than fits
    passed      below this offset there is nothing for this reader
    unfinished  only such entries were found so far: look again from `passed`
    """

    __slots__ = (
        "_find",
        "_limits",
        "_missing_bytes",
        "_offset",
        "_parts",
        "_pieces",
        "_reader",
        "_size",
        "_slice",
        "error",
        "missing",
        "more",
        "passed",
        "unfinished",
    )

    def __init__(
        self,
        log: Log,
        offset: int,
        reader: Reader,
        limits: Limits,
        *,
        end_offset: int,
        find: Find | None,
    ) -> None:
        """Look at the log from `offset` up to `end_offset`.

        `find` gives what there is of a unit; it is told whether it may convert it here and now.
        None when conversion is switched off. Raises OffsetOutOfRange, CorruptBatch.
        """
        self._offset = self.passed = offset
        self._reader = reader
        self._limits = limits
        self._find = find
        self._slice: FileSlice | None = None
        self._parts: list[bytes | memoryview] = []
        self._size = self._pieces = self._missing_bytes = 0
        self.missing: list[ConversionUnit] = []
        self.more = False
        self.error: KafkaError | None = None
        self.unfinished = False
        headers = 0
        while window := self._window(log, end_offset):
            if not self._look(window):
                self.more = True
                break
            self.passed = window.next_offset
            headers += len(window.entries)
            if headers >= HEADERS_MAX:
                self.more = True
                self.unfinished = not self._found
                break
        if self._found:
            self.passed = offset

    def _window(self, log: Log, end_offset: int) -> EntrySlice | None:
        """The next entries; None at the end, and before damage where there is something to send:
        the next fetch, which begins there, is told of it."""
        try:
            return log.read_entries(self.passed, WINDOW_BYTES, end_offset=end_offset)
        except CorruptBatch:
            if not self._found:
                raise
            self.more = True
            return None

    @property
    def _found(self) -> bool:
        return bool(self._slice or self._parts or self.missing or self.error)

    @property
    def records(self) -> FileSlice | bytes:
        if self._slice is not None:
            return self._slice
        return b"".join(self._parts)

    def _look(self, window: EntrySlice) -> bool:
        """Take what can be taken of these entries. False when nothing more can be."""
        entries, reader = window.entries, self._reader
        first = 0
        while first < len(entries):
            entry, last = entries[first], first + 1
            if reader.is_sent_as_is(entry):
                while last < len(entries) and reader.is_sent_as_is(entries[last]):
                    last += 1
                if not self._take_stored(window, first, last):
                    return False
            elif self._slice is not None:
                return False
            elif not reader.is_blind_to(entry):
                if reader.refuses_zstd and entry.codec == ZSTD and self._find is not None:
                    self._refuse("zstd is not converted", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
                    return False
                if _is_plain_message(entry):
                    while last < len(entries) and _is_plain_message(entries[last]):
                        last += 1
                if not self._take(_piece(window, first, last, reader.form)):
                    return False
            first = last
        return True

    def _take_stored(self, window: EntrySlice, first: int, last: int) -> bool:
        """Send these entries as they are: as a slice, or between converted ones."""
        if self.missing:
            return False
        limits, entries = self._limits, window.entries
        room = (limits.soft if self._parts else limits.hard) - self._size
        stop = first
        while stop < last and (size := entries[stop].size) <= room:
            room -= size
            stop += 1
        if stop > first:
            part = window.part(first, stop)
            self._size += part.size
            if self._parts:
                self._parts.append(part.read())
            elif self._slice is None:
                self._slice = part
            elif self._slice.file is part.file and self._slice.end == part.position:
                self._slice.size += part.size
            else:
                return False
        elif not self._size and (self._reader.cuts or limits.at_least_one):
            only = window.part(first, first + 1)
            if self._reader.cuts:
                only.size = limits.hard
            if only.size:
                self._slice = only
        return stop == last

    def _take(self, unit: ConversionUnit) -> bool:
        """Send what is made of a unit; or note that it is missing, and those after it."""
        find, limits = self._find, self._limits
        if find is None:
            self._refuse(
                "the topic's records are not converted (message.downconversion.enable)",
                self._reader.refusal,
            )
            return False
        if not limits.room or self._pieces >= UNITS_MAX:
            return False
        self._pieces += 1
        made = find(unit, not self.missing)
        if made is None:
            self.missing.append(unit)
            self._missing_bytes += unit.stored.size
        if self.missing:
            return self._size + self._missing_bytes < limits.soft
        if isinstance(made, KafkaError):
            if not self._parts:
                self.error = _told(made)
            return False
        assert made is not None
        return self._take_converted(unit, made)

    def _refuse(self, why: str, code: ErrorCode) -> None:
        """Answer with an error, unless there is something before."""
        if not self._found:
            self.error = KafkaError(why, code=code)

    def _take_converted(self, unit: ConversionUnit, made: Converted) -> bool:
        start, end = made.position_of(self._offset), len(made.data)
        if start < end:
            stop = made.cut(start, self._limits.soft - self._size)
            if stop == start:
                if not self._parts:
                    self._take_first(unit, made, start)
                return False
            self._add(made.data, start, stop)
            if stop < end:
                return False
        return made.fault is None

    def _take_first(self, unit: ConversionUnit, made: Converted, start: int) -> None:
        """A first converted entry that is larger than there is room for."""
        limits, data = self._limits, made.data
        size = INT32.unpack_from(data, start + LENGTH_POSITION)[0] + ENTRY_OVERHEAD
        if size <= limits.hard:
            self._add(data, start, start + size)
        elif not self._reader.cuts:
            if limits.at_least_one:
                self._add(data, start, start + size)
        elif unit.compressed and not unit.form.is_plain:
            # The wrapper does not fit, but its records may.
            self._pieces -= 1
            self._take(unit.plain())
        else:
            self._add(data, start, start + limits.hard)

    def _add(self, data: bytes, start: int, stop: int) -> None:
        self._parts.append(data if stop - start == len(data) else memoryview(data)[start:stop])
        self._size += stop - start


def _told(error: KafkaError) -> KafkaError:
    """The client learns that the records are of no use, not which limit or rule they broke."""
    if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
        return error
    return KafkaError(str(error), code=ErrorCode.CORRUPT_MESSAGE)


def _is_plain_message(entry: Entry) -> bool:
    return entry.magic < 2 and not entry.codec


def _piece(window: EntrySlice, first: int, last: int, form: Form) -> ConversionUnit:
    entry = window.entries[first]
    header = entry.header
    return ConversionUnit(
        window.part(first, last),
        form,
        window.key(entry),
        record_count=last - first if header is None else header[RECORD_COUNT],
        compressed=bool(entry.codec),
    )
