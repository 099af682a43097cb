"""The half of a log that ends transactions, and tells readers which were aborted.

The coordinator decides; a log only holds what became of it: markers among the batches, and for
each abort an entry in the transaction index of the segment with the marker. How far committed
records reach (`last_stable_offset`) follows from the producers' state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.layout import HEADER
from protocol.records.markers import Marker, encode_marker
from storage.producer_scan import aborted_by, aborted_in
from storage.synced import SyncedLog
from storage.transaction_index import (
    NOTHING,
    AbortedTransaction,
    TransactionIndex,
    collect,
    read_index,
    replace_index,
)

if TYPE_CHECKING:
    from protocol.records.layout import Header
    from storage.filesystem import Filesystem
    from storage.producers import ProducerStates
    from storage.segment import Segment
    from storage.slices import FileSlice


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
        for segment in self.segments.with_aborted(offset):
            if collect(self._aborted(segment).entries, offset, upper, found):
                break
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
        index = read_index(self.files, segment)
        if index is None:
            index = aborted_in(self.files, self.folder, list(self.segments), segment)
            try:
                replace_index(self.files, segment, index)
            except OSError:
                return index  # what is in memory serves; the next start makes it again
        return index
