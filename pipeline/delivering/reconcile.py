"""The search for record sets in a partition, after an answer was lost or a task killed.

Sets are appended in their order, so what is there of them is a first part, perhaps with entries of
somebody else in between. Each set is looked for behind the one before it, in three ways:

bytes     size and checksum of each entry, with or without the producer's fields
records   keys, values and headers, where the destination has changed the entries: another codec or
          format, times of its own
place     by counting offsets, where entries or records are gone again (retention, compaction). What
          is left must be the right records at the right offsets, or ForeignState is raised.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pipeline.columns.payloads import ANY_RATIO
from pipeline.errors import ForeignState
from protocol.records.batch import Batch
from protocol.records.layout import (
    BASE_OFFSET,
    CONTROL_BIT,
    CRC,
    HEADER,
    LAST_OFFSET_DELTA,
    RECORD_COUNT,
)
from protocol.records.legacy import Message, read_messages
from protocol.records.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.delivering.record_sets import RecordSet
    from protocol.records.record import Record

ALIEN = 0
"""In place of the digest of what cannot be a record of ours."""


class Log(Protocol):
    """A partition that can be read back."""

    name: str

    def end(self) -> int:
        """The offset after all that was appended."""

    def stored(self, offset: int) -> memoryview:
        """Whole entries from the one on that has `offset` or the next there is; the first may
        begin below. Empty at the end."""


class _Entry(NamedTuple):
    size: int
    crc: int
    base: int
    next: int


class _Digests(NamedTuple):
    offsets: array[int]
    digests: array[int]


class Stored:
    """The entries of `log` from offset `start` up to `end`, and how far sets were found in them.

    When a set is not there, the ones after it are not, either; but a broker that refused one could
    have taken up to `window` others that were on their way behind it.
    """

    def __init__(self, log: Log, start: int, end: int, *, window: int = 0) -> None:
        self._log = log
        self._at = start
        self._end = end
        self._misses_left = window + 1
        self._entries: list[_Entry] = []
        self._by_place = not self._read(start)
        self._digests: _Digests | None = None
        """Of each record, once they are needed. There may be many of somebody else's."""
        self.foreign = 0
        """Offsets that were passed over because nothing of ours is there."""

    def find(self, wanted: RecordSet) -> int | None:
        """The offset after the set; None if it is not there. To be asked in the order of sets."""
        if self._at >= self._end or not self._misses_left:
            return None
        if self._by_place:
            return self._placed(wanted)
        found = self._by_bytes(wanted.keys)
        if found is None and wanted.magic == 2 and wanted.producer[0] >= 0:
            found = self._by_bytes(wanted.without_producer().keys)
        if found is None:
            found = self._by_records(wanted)
        if found is None:
            self._misses_left -= 1
            return None
        start, end = found
        self.foreign += start - self._at
        self._at = end
        return end

    def _read(self, start: int) -> bool:
        """Whether nothing is missing in between."""
        offset = start
        complete = True
        for view, magic in _entries(self._log, start, self._end):
            if magic == 2:
                header = HEADER.unpack_from(view)
                base, delta = header[BASE_OFFSET], header[LAST_OFFSET_DELTA]
                complete = complete and base == offset and header[RECORD_COUNT] == delta + 1
                entry = _Entry(len(view), header[CRC], base, base + delta + 1)
            else:
                message = Message(view)
                complete = complete and bool(message.codec or message.offset == offset)
                entry = _Entry(len(view), message.crc, offset, message.offset + 1)
            self._entries.append(entry)
            offset = entry.next
        return complete and offset == self._end

    def _by_bytes(self, keys: tuple[tuple[int, int], ...]) -> tuple[int, int] | None:
        entries, count = self._entries, len(keys)
        first = bisect_left(entries, self._at, key=lambda entry: entry.base)
        for index in range(first, len(entries) - count + 1):
            if entries[index][:2] == keys[0] and all(
                entry[:2] == key
                for entry, key in zip(entries[index : index + count], keys, strict=True)
            ):
                return entries[index].base, entries[index + count - 1].next
        return None

    def _by_records(self, wanted: RecordSet) -> tuple[int, int] | None:
        offsets, stored = self._stored_digests()
        digests = array("q", (digest for _, digest in _digests_of(wanted.data)))
        index = bisect_left(offsets, self._at)
        last = len(stored) - len(digests)
        while index <= last:
            try:
                index = stored.index(digests[0], index, last + 1)
            except ValueError:
                return None
            if stored[index : index + len(digests)] == digests:
                return offsets[index], offsets[index + len(digests) - 1] + 1
            index += 1
        return None

    def _placed(self, wanted: RecordSet) -> int | None:
        start, end = self._at, self._at + wanted.records
        digests = [digest for _, digest in _digests_of(wanted.data)]
        offsets, stored = self._stored_digests()
        first = bisect_left(offsets, start)
        some = slice(first, first + wanted.records)
        alike = end <= self._end
        for offset, digest in zip(offsets[some], stored[some], strict=True):
            if offset < end:
                alike = alike and digest == digests[offset - start]
        if not alike:
            raise ForeignState(
                f"{self._log.name}: of offsets {start:,} to {min(end, self._end) - 1:,} it cannot "
                "be told any more whether they are what was being written: something is deleted, "
                "and the rest is different. Use an empty topic and another --state"
            )
        self._at = end
        return end

    def _stored_digests(self) -> _Digests:
        if self._digests is None:
            self._digests = _Digests(array("q"), array("q"))
            for view, _ in _entries(self._log, self._at, self._end):
                for offset, digest in _digests_of(view):
                    if offset >= self._at:
                        self._digests.offsets.append(offset)
                        self._digests.digests.append(digest)
        return self._digests


def _entries(log: Log, offset: int, end: int) -> Iterator[tuple[memoryview, int]]:
    """The entries that have offsets from `offset` up to `end`, with their formats."""
    while offset < end:
        entries = log.stored(offset)
        reached = offset
        for position, size, magic in walk(entries):
            view = entries[position : position + size]
            if magic == 2:
                header = HEADER.unpack_from(view)
                first, last = header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            else:
                first = last = Message(view).offset
            if last < reached:
                continue
            if first >= end:
                return
            yield view, magic
            reached = last + 1
        if reached == offset:
            return
        offset = reached


def _digests_of(entry: memoryview | bytearray | bytes) -> list[tuple[int, int]]:
    """Offset and digest of each record in a set."""
    view = memoryview(entry)
    if view[16] < 2:
        return [(record.offset, _digest(record)) for record in read_messages(view, ratio=ANY_RATIO)]
    batch = Batch(view)
    if batch.attributes & CONTROL_BIT:
        return [(batch.base_offset, ALIEN)]
    return [(record.offset, _digest(record)) for record in batch.records(ratio=ANY_RATIO)]


def _digest(record: Record) -> int:
    return hash((record.key, record.value, record.headers)) or 1
