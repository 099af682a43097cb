"""The aborted transactions of a log, for readers that are to see committed records only.

The coordinator decides; a log only holds what became of it: markers among the batches, and for
each abort an entry in the transaction index of the segment with the marker. An index that was found
in a file is compared with the log before it is believed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from protocol.records.errors import CorruptBatch
from protocol.records.layout import ATTRIBUTES, CONTROL_BIT, PRODUCER_ID, TRANSACTIONAL_BIT
from protocol.records.markers import decode_marker
from storage.producer_scan import aborted_in
from storage.segments import SegmentedLog
from storage.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
)

if TYPE_CHECKING:
    from protocol.records.layout import Header
    from storage.filesystem import Filesystem
    from storage.segment import Segment
    from storage.slices import EntrySlice

ENDINGS = 2
"""Entries that have to say that nothing which follows began below an offset: one may be damaged."""

BORNE_OUT_MAX = 64
"""Entries of an index file that are compared with the log for one reader, at some 0.3 ms each;
those beyond are believed, until one of the next readers has them compared."""
OFFSETS_BEFORE = 256
"""Before a transaction's first offset, in which no batch of it may be."""
AROUND_BYTES = 65_536
"""Bytes of entries whose headers are looked at, from there on and from the first offset on."""


class ReadableLog(SegmentedLog, Protocol):
    """A log (`storage.log.Log`) as far as this module needs it."""

    files: Filesystem
    folder: str

    def read_entries(self, offset: int, max_bytes: int) -> EntrySlice | None:
        """Headers of whole entries, from the one that holds `offset` on. Raises CorruptBatch."""


def aborted_between(log: ReadableLog, offset: int, upper: int) -> list[AbortedTransaction]:
    """The transactions that a reader of the offsets from `offset` up to `upper` must leave out,
    in the order of their markers, which may lie above. Raises OSError."""
    found: list[AbortedTransaction] = []
    for index, first, above, more in _numbers_between(log, offset, upper):
        found += index.entries[first:above]
        found += [index.entries[number] for number in more]
    return found


def listed_between(log: ReadableLog, offset: int, upper: int) -> tuple[int, bytes]:
    """The number of these transactions, and all of them as `TransactionIndex.listed` gives them.
    Raises OSError."""
    count, parts = 0, []
    for index, first, above, more in _numbers_between(log, offset, upper):
        count += above - first + len(more)
        parts.append(index.listed(first, above, more))
    return count, b"".join(parts)


def _numbers_between(
    log: ReadableLog, offset: int, upper: int
) -> list[tuple[TransactionIndex, int, int, list[int]]]:
    """Where in the indexes these transactions are: from one number up to another those whose
    markers the reader gets, for these began below `upper`, too; and the numbers of others."""
    found = []
    said = 0
    for segment in log.segments.with_aborted(offset):
        index = _borne_out(log, segment, offset, upper)
        entries, first, above = index.entries, index.count_below(offset), index.count_below(upper)
        more = []
        for number in range(above, len(entries)):
            _, began, _, stable = entries[number]
            if began < upper:
                more.append(number)
            if stable >= upper:
                said += 1
                if said == ENDINGS:
                    break
        found.append((index, first, above, more))
        if said == ENDINGS:
            break
    return found


def index_of(log: ReadableLog, segment: Segment) -> TransactionIndex:
    """A segment's index, made anew from the log if its file is damaged. Raises OSError."""
    is_news = segment.aborted is None
    index = segment.aborted_index()
    if index is None:
        return _made_anew(log, segment)
    if is_news and segment.verified.inherited != 0:
        if not _is_consistent(log, index):
            return _made_anew(log, segment)
        index.doubted = set(range(len(index)))
    return index


def _made_anew(log: ReadableLog, segment: Segment) -> TransactionIndex:
    index = aborted_in(log.files, log.folder, list(log.segments), segment)
    with suppress(OSError):  # what is in memory serves; the next start makes it again
        segment.replace_aborted(index)
    return index


def _borne_out(log: ReadableLog, segment: Segment, offset: int, upper: int) -> TransactionIndex:
    """The same, with what a reader of [offset, upper) needs of it compared with the log: each
    entry once, and the one before them too, whose marker may lie where it does not say."""
    index = index_of(log, segment)
    if not index.doubted:
        return index
    said, left = 0, BORNE_OUT_MAX
    for number in range(max(index.count_below(offset) - 1, 0), len(index)):
        entry = index.entries[number]
        if number in index.doubted:
            if not _is_borne_out(log, entry):
                return _made_anew(log, segment)
            index.doubted.discard(number)
            left -= 1
        said += entry.last_offset >= offset and entry.last_stable_offset >= upper
        if said == ENDINGS or not left:
            break
    return index


def _is_consistent(log: ReadableLog, index: TransactionIndex) -> bool:
    """Whether nothing began below a last stable offset later, and all ends within the log."""
    stable = -1
    for entry in index.entries:
        if entry.first_offset < stable or entry.last_offset >= log.written_offset:
            return False
        stable = max(stable, entry.last_stable_offset)
    return True


def _is_borne_out(log: ReadableLog, entry: AbortedTransaction) -> bool:
    """Whether the log says the same as far as it is looked at: where marker and first batch are
    and whose, that the marker is one of an abort, and that the transaction has no batch before
    and no other marker inside."""
    producer_id = entry.producer_id
    found = _entries_at(log, entry.last_offset, 1)
    marker = found.entries[0] if found is not None else None
    if found is not None and marker is not None and marker.first_offset <= entry.last_offset:
        header = marker.header
        if header is None or not _is_marker_of(header, producer_id):
            return False
        said = decode_marker(found.read(marker))
        if said is not None and said.commit:
            return False
    around = _entries_at(
        log, max(entry.first_offset - OFFSETS_BEFORE, log.start_offset), AROUND_BYTES
    )
    if around is not None and around.next_offset >= entry.first_offset:
        before = [
            one.header
            for one in around.entries
            if one.header is not None
            and one.first_offset < entry.first_offset
            and one.header[PRODUCER_ID] == producer_id
        ]
        if before and _is_in_transaction(before[-1]):
            return False
    inside = _entries_at(log, entry.first_offset, AROUND_BYTES)
    if inside is None or inside.entries[0].first_offset > entry.first_offset:
        return True  # it has gone: compaction, or the start of the log
    first = inside.entries[0]
    if first.first_offset != entry.first_offset or first.header is None:
        return False
    if first.header[PRODUCER_ID] != producer_id:
        return False
    return not any(
        one.header is not None and _is_marker_of(one.header, producer_id)
        for one in inside.entries
        if one.last_offset < entry.last_offset
    )


def _entries_at(log: ReadableLog, offset: int, max_bytes: int) -> EntrySlice | None:
    """The entry with this offset or the next there is, and those behind it; None where there
    is none that can be read."""
    if not log.start_offset <= offset < log.written_offset:
        return None
    try:
        return log.read_entries(offset, max_bytes)
    except CorruptBatch:
        return None


def _is_marker_of(header: Header, producer_id: int) -> bool:
    return header[PRODUCER_ID] == producer_id and bool(header[ATTRIBUTES] & CONTROL_BIT)


def _is_in_transaction(header: Header) -> bool:
    return header[ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT) == TRANSACTIONAL_BIT
