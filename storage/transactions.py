"""The half of a log that ends transactions, and tells readers which were aborted.

The coordinator decides; a log only holds what became of it: markers among the batches, and for
each abort an entry in the transaction index of the segment with the marker. How far committed
records reach (`last_stable_offset`) follows from the producers' state.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from protocol.records.errors import CorruptBatch
from protocol.records.layout import ATTRIBUTES, CONTROL_BIT, HEADER, PRODUCER_ID, TRANSACTIONAL_BIT
from protocol.records.markers import Marker, decode_marker, encode_marker
from storage.producer_scan import aborted_by, aborted_in
from storage.synced import SyncedLog
from storage.transaction_index import (
    NOTHING,
    AbortedTransaction,
    TransactionIndex,
)

if TYPE_CHECKING:
    from protocol.records.layout import Header
    from storage.filesystem import Filesystem
    from storage.producers import ProducerStates
    from storage.segment import Segment
    from storage.slices import EntrySlice, FileSlice

ENDINGS = 2
"""Entries that have to say that nothing which follows began below an offset: one may be damaged."""

BORNE_OUT_MAX = 64
"""Entries of an index file that are compared with the log for one reader, at some 0.3 ms each;
those beyond are believed, until one of the next readers has them compared."""
OFFSETS_BEFORE = 256
"""Before a transaction's first offset, in which no batch of it may be."""
AROUND_BYTES = 65_536
"""Bytes of entries whose headers are looked at, from there on and from the first offset on."""


class TransactionalLog(SyncedLog):
    """What `storage.log.Log` does about transactions."""

    __slots__ = ("files", "folder", "producers")

    files: Filesystem
    folder: str
    producers: ProducerStates

    def append(self, view: memoryview, header: Header, *, now_ms: int = 0) -> int:
        """Give a batch its offsets and queue it. Returns its base offset."""
        raise NotImplementedError

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
                self._aborted(self.active)
            except OSError as error:
                raise self.refuse(f"{self.name}: reading aborted transactions", error) from error
        batch = encode_marker(
            producer_id, epoch, marker=Marker(commit, coordinator_epoch), timestamp_ms=now_ms
        )
        offset = self.append(memoryview(batch), HEADER.unpack_from(batch), now_ms=now_ms)
        self.producers.led_by(producer_id, coordinator_epoch)
        if opened >= 0 and not commit:
            entry = aborted_by(self.producers, producer_id, opened=opened, marker_offset=offset)
            self._add_aborted(entry)
        return offset

    def aborted_transactions(self, offset: int, upper: int) -> list[AbortedTransaction]:
        """The transactions that a reader of the offsets from `offset` up to `upper` must leave out,
        in the order of their markers, which may lie above. Raises OSError."""
        found: list[AbortedTransaction] = []
        said = 0
        for segment in self.segments.with_aborted(offset):
            index = self._borne_out(segment, offset, upper)
            for entry in index.entries[index.count_below(offset) :]:
                if entry.first_offset < upper:
                    found.append(entry)
                said += entry.last_stable_offset >= upper
                if said == ENDINGS:
                    return found
        return found

    def aborted_in(self, offset: int, piece: FileSlice) -> list[AbortedTransaction]:
        """The same for a slice that `read` returned for `offset`. Raises OSError.

        How far the slice reaches is taken from the index, and may be put a little too high; what
        is listed too much does a reader no harm.
        """
        return self.aborted_transactions(
            offset, self.segments.offset_after(piece, self.written_offset)
        )

    def _add_aborted(self, entry: AbortedTransaction) -> None:
        segment = self.active
        if segment.aborted is NOTHING:
            segment.aborted = TransactionIndex()
            self.segments.aborted_in_active()
        assert segment.aborted is not None
        segment.aborted.add(entry)

    def _aborted(self, segment: Segment) -> TransactionIndex:
        """A segment's index, made anew from the log if its file is damaged. Raises OSError."""
        is_news = segment.aborted is None
        index = segment.aborted_index()
        if index is None:
            return self._made_anew(segment)
        if is_news and segment.verified.inherited != 0:
            if not self._is_consistent(index):
                return self._made_anew(segment)
            index.doubted = set(range(len(index)))
        return index

    def _made_anew(self, segment: Segment) -> TransactionIndex:
        index = aborted_in(self.files, self.folder, list(self.segments), segment)
        with suppress(OSError):  # what is in memory serves; the next start makes it again
            segment.replace_aborted(index)
        return index

    def _borne_out(self, segment: Segment, offset: int, upper: int) -> TransactionIndex:
        """The same, with what a reader of [offset, upper) needs of it compared with the log: each
        entry once, and the one before them too, whose marker may lie where it does not say."""
        index = self._aborted(segment)
        if not index.doubted:
            return index
        said, left = 0, BORNE_OUT_MAX
        for number in range(max(index.count_below(offset) - 1, 0), len(index)):
            entry = index.entries[number]
            if number in index.doubted:
                if not self._is_borne_out(entry):
                    return self._made_anew(segment)
                index.doubted.discard(number)
                left -= 1
            said += entry.last_offset >= offset and entry.last_stable_offset >= upper
            if said == ENDINGS or not left:
                break
        return index

    def _is_consistent(self, index: TransactionIndex) -> bool:
        """Whether nothing began below a last stable offset later, and all ends within the log."""
        stable = -1
        for entry in index.entries:
            if entry.first_offset < stable or entry.last_offset >= self.written_offset:
                return False
            stable = max(stable, entry.last_stable_offset)
        return True

    def _is_borne_out(self, entry: AbortedTransaction) -> bool:
        """Whether the log says the same as far as it is looked at: where marker and first batch are
        and whose, that the marker is one of an abort, and that the transaction has no batch before
        and no other marker inside."""
        producer_id = entry.producer_id
        found = self._entries_at(entry.last_offset, 1)
        marker = found.entries[0] if found is not None else None
        if found is not None and marker is not None and marker.first_offset <= entry.last_offset:
            header = marker.header
            if header is None or not _is_marker_of(header, producer_id):
                return False
            said = decode_marker(found.read(marker))
            if said is not None and said.commit:
                return False
        around = self._entries_at(
            max(entry.first_offset - OFFSETS_BEFORE, self.start_offset), AROUND_BYTES
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
        inside = self._entries_at(entry.first_offset, AROUND_BYTES)
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

    def _entries_at(self, offset: int, max_bytes: int) -> EntrySlice | None:
        """The entry with this offset or the next there is, and those behind it; None where there
        is none that can be read."""
        if not self.start_offset <= offset < self.written_offset:
            return None
        try:
            return self.read_entries(offset, max_bytes)
        except CorruptBatch:
            return None


def _is_marker_of(header: Header, producer_id: int) -> bool:
    return header[PRODUCER_ID] == producer_id and bool(header[ATTRIBUTES] & CONTROL_BIT)


def _is_in_transaction(header: Header) -> bool:
    return header[ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT) == TRANSACTIONAL_BIT
