"""The entries of an index file, one after the other, and whether they are those of the log.

An index is compared with the log while the log is gone through, so nothing of it is kept in
memory, whatever its size. What is wanted of an entry is that lookups through it are right:

Offset index: both columns rise; an entry of the log starts at the position;
the offset is the last one of that entry, or of one that follows before the next index entry (what
was appended as one set may have one index entry: docs/formats/offset-index.md).

Time index: timestamps rise, offsets do not fall; what holds the offset in the log has that largest
timestamp, and nothing before it has a larger one.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from protocol.records.layout import NO_TIMESTAMP, RECORD_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.filesystem import File
    from storage.inspection.findings import Report
    from storage.inspection.log_walk import Damage
    from storage.scan import Entry

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
ENTRIES_AT_ONCE = 8192
ZEROS = bytes(1024 * 1024)
NOWHERE = 2**63 - 1
"""Above every position and offset."""

UNINDEXED_BYTES = 1024 * 1024
"""A stretch without index entry that is worth a note: every search there reads so much."""

assert OFFSET_ENTRY.size == 8
assert TIME_ENTRY.size == 12


def is_emptied(entry: Entry) -> bool:
    """Whether compaction has taken all records of a batch and left its header."""
    return entry.header is not None and entry.header[RECORD_COUNT] == 0


class IndexEntries:
    """Iterates over (position in the file, fields) up to a tail of zeros, of which `zero_bytes`
    says the size afterwards. `odd_bytes` are left over at the end."""

    def __init__(self, file: File, form: Struct) -> None:
        self.size = file.size()
        self.zero_bytes = 0
        self.odd_bytes = self.size % form.size
        self._file = file
        self._form = form
        self._some_at = -1

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        form, end = self._form, self.size - self.odd_bytes
        zeros = (0,) * len(form.unpack(bytes(form.size)))
        position = 0
        while position < end:
            data = self._file.pread(min(ENTRIES_AT_ONCE * form.size, end - position), position)
            data = data[: len(data) - len(data) % form.size]
            if not data:
                return
            for fields in form.iter_unpack(data):
                # A lone entry of zeros in a time index may be a record of 1970 at offset 0.
                lone = form is TIME_ENTRY and position == 0 and end == form.size
                if fields == zeros and not lone and self._only_zeros(position, end):
                    self.zero_bytes = end - position
                    return
                yield position, fields
                position += form.size

    def _only_zeros(self, position: int, end: int) -> bool:
        if position < self._some_at:
            return False
        while position < end:
            piece = self._file.pread(min(len(ZEROS), end - position), position)
            if piece != ZEROS[: len(piece)]:
                self._some_at = position + len(piece) - len(piece.lstrip(b"\0"))
                return False
            if not piece:
                return True
            position += len(piece)
        return True


class IndexCheck:
    """The common part of both checks: a file, the entry at hand, and the report.

    `settled` tells that the file has been completed: the segment is sealed, or the stop was clean.
    """

    def __init__(
        self, file: File, form: Struct, name: str, base_offset: int, report: Report
    ) -> None:
        self.name = name
        self.base_offset = base_offset
        self.report = report
        self.entries = IndexEntries(file, form)
        self._iterator = iter(self.entries)
        self.count = 0
        self.position = 0
        self.fields: tuple[int, ...] | None = None
        self.blurred = False
        """Damage in the log hides what an entry is to be compared with."""

    def error(self, reason: str, *, position: int | None = None, offset: int = -1) -> None:
        at = self.position if position is None else position
        self.report.error("index", reason, file=self.name, position=at, offset=offset)

    def step(self) -> None:
        """Go to the next entry; `fields` is None after the last."""
        self.position, self.fields = next(self._iterator, (self.position, None))
        if self.fields is not None:
            self.count += 1

    def end_of_file(self, *, settled: bool, clean: bool) -> None:
        """Say what is behind the last entry."""
        if self.entries.odd_bytes:
            at = self.entries.size - self.entries.odd_bytes
            self.error(f"{self.entries.odd_bytes} bytes are not an entry", position=at)
        zeros = self.entries.zero_bytes
        if not zeros:
            return
        at = self.entries.size - self.entries.odd_bytes - zeros
        reason = f"{zeros} zero bytes at the end"
        if clean:
            self.error(f"{reason}, after a clean stop", position=at)
        elif settled:
            self.report.warn(
                "index-zeros", f"{reason} of a sealed segment", file=self.name, position=at
            )
        else:
            self.report.note(
                "index-zeros",
                f"{reason}, as Apache Kafka leaves them when it does not stop cleanly",
                file=self.name,
                position=at,
            )


class OffsetIndexCheck(IndexCheck):
    """Compares an `.index` with the log as it is gone through."""

    def __init__(self, file: File, name: str, base_offset: int, report: Report) -> None:
        super().__init__(file, OFFSET_ENTRY, name, base_offset, report)
        self.next_position = NOWHERE
        """The position in the log that the entry at hand names."""
        self.wanted = NOWHERE
        """The offset with which an entry has to end before the next index entry."""
        self._wanted_at = 0
        self._before = (-1, -1)
        self.last_indexed = 0
        self._advance()

    def _advance(self) -> None:
        while True:
            self.step()
            if self.fields is None:
                self.next_position = NOWHERE
                return
            relative, position = self.fields
            if relative > self._before[0] and position > self._before[1]:
                self._before = (relative, position)
                self.next_position = position
                return
            self.error(
                f"offset {relative} and position {position} follow offset {self._before[0]} and "
                f"position {self._before[1]}"
            )

    def entry(self, entry: Entry, last_before: int) -> None:
        """The next entry of the log, and the last offset of the one before it."""
        while entry.position >= self.next_position:
            fields = self.fields
            assert fields is not None
            if entry.position != self.next_position:
                self.error(f"no entry of the log starts at {self.next_position}")
            else:
                self._settle_wanted()
                self.wanted = self.base_offset + fields[0]
                self._wanted_at = self.position
                # The first offset of a set is what Apache Kafka noted before 1.1; that of a
                # wrapper is inside.
                wrapper = entry.header is None and entry.codec
                if self.wanted == entry.first_offset or (
                    wrapper and last_before < self.wanted <= entry.last_offset
                ):
                    self.wanted = NOWHERE
                self.last_indexed = entry.position
            self._advance()
        if entry.last_offset >= self.wanted:
            if entry.last_offset != self.wanted:
                self._settle_wanted()
            self.wanted = NOWHERE

    def _settle_wanted(self) -> None:
        if self.wanted != NOWHERE:
            self.error(
                f"no entry of the log at its position or before the next index entry ends with "
                f"offset {self.wanted}",
                position=self._wanted_at,
                offset=self.wanted,
            )
            self.wanted = NOWHERE

    def damage(self, damage: Damage) -> None:
        """Entries of what cannot be read are passed over."""
        while damage.position <= self.next_position < damage.end:
            self._advance()
        self.wanted = NOWHERE
        self.blurred = True

    def finish(self, log_size: int, *, settled: bool, clean: bool) -> None:
        """All of the log, which has this size, has been gone through."""
        self._settle_wanted()
        beyond = 0
        first = self.next_position
        while self.next_position != NOWHERE:
            beyond += 1
            self._advance()
        if beyond and not self.blurred:
            self.error(f"{beyond} entries point at {first} and beyond, the log ends before")
        self.end_of_file(settled=settled, clean=clean)
        bare = log_size - self.last_indexed
        if settled and bare > UNINDEXED_BYTES and not self.blurred:
            self.report.note(
                "index-sparse",
                f"no entry for the last {bare} bytes of the log; searches there are slow",
                file=self.name,
            )


class TimeIndexCheck(IndexCheck):
    """Compares a `.timeindex` with the log as it is gone through."""

    def __init__(self, file: File, name: str, base_offset: int, report: Report) -> None:
        super().__init__(file, TIME_ENTRY, name, base_offset, report)
        self.next_offset = NOWHERE
        """The offset that the entry at hand names."""
        self._before = (-1, -1)
        self.largest = -1
        """The largest timestamp in the log so far."""
        self._largest_offset = -1
        self._advance()

    def _advance(self) -> None:
        while True:
            self.step()
            if self.fields is None:
                self.next_offset = NOWHERE
                return
            timestamp, relative = self.fields
            if timestamp > self._before[0] and relative >= max(self._before[1], 0):
                self._before = (timestamp, relative)
                self.next_offset = self.base_offset + relative
                return
            self.error(
                f"timestamp {timestamp} and offset {relative} follow timestamp "
                f"{self._before[0]} and offset {self._before[1]}"
            )

    def entry(self, entry: Entry) -> None:
        while entry.last_offset >= self.next_offset:
            if not self.blurred:
                self._compare(entry)
            self._advance()
        if entry.max_timestamp > self.largest:
            self.largest, self._largest_offset = entry.max_timestamp, entry.last_offset

    def _compare(self, entry: Entry) -> None:
        timestamp, offset = self._before[0], self.next_offset
        if entry.magic == 2 and offset < entry.first_offset:
            self.error(f"no batch of the log holds offset {offset}", offset=offset)
        elif entry.max_timestamp == NO_TIMESTAMP and is_emptied(entry):
            # Apache Kafka 3.9 empties a batch once more in a later compaction, and then forgets its
            # timestamp in the batch, but not in the index.
            self.largest = max(self.largest, timestamp)
        elif entry.max_timestamp != timestamp:
            self.error(
                f"timestamp {timestamp}; what holds the offset has {entry.max_timestamp}",
                offset=offset,
            )
        elif self.largest > timestamp:
            self.error(
                f"timestamp {timestamp} is not the largest so far, that is {self.largest}",
                offset=offset,
            )
        elif self.largest == timestamp:
            self.report.warn(
                "index",
                f"timestamp {timestamp} was there before, at offset {self._largest_offset}",
                file=self.name,
                position=self.position,
                offset=offset,
            )

    def damage(self, damage: Damage) -> None:
        """From here on what is in the log is not all that was."""
        self.blurred = True

    def finish(self, *, settled: bool, clean: bool) -> None:
        last = self._before[0]
        beyond = 0
        first = self.next_offset
        while self.next_offset != NOWHERE:
            beyond += 1
            self._advance()
        if beyond and not self.blurred:
            self.error(
                f"{beyond} entries have offset {first} or a higher one, the log ends before",
                offset=first,
            )
        self.end_of_file(settled=settled, clean=clean)
        if settled and not beyond and not self.blurred and self.largest > last:
            self.report.warn(
                "time-index-end",
                f"the last entry has timestamp {last}, the segment's largest is {self.largest}: "
                f"retention and searches by time go by the entry",
                file=self.name,
                offset=self._largest_offset,
            )
