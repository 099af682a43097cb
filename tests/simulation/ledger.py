"""The model of one partition: a list of what was appended, and what was promised about it.

`entries`     what is in the log, as far as anybody knows; compaction changes it
`originals`   the same as it was appended
`acked`       everything below this offset was acknowledged after a sync
`start`       where the log starts now; `start_kept`, what was answered and stays; `start_max`, what
              may have been stored
`refused`     entries whose append was answered with an error. Until the next sync they may still
              turn up after a power cut, in the place where they were; an error promises nothing
`compacted`   compaction may have been anywhere below this offset; `cleaned_to`, it has been
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from protocol.records.layout import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    CONTROL_BIT,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)

if TYPE_CHECKING:
    from tests.simulation.records import Entry, Record

REMEMBERED = 5


class Sent:
    """A producer as a log must know it. `batches` are (sequence, base, last offset) of the last
    ones, newest last, all of its present epoch; `fresh` of them may be sent again: they were not
    acknowledged before a crash that the last start followed, or were appended since that.
    `opened` is where its transaction began, or -1."""

    __slots__ = ("batches", "epoch", "fresh", "next_sequence", "opened")

    def __init__(self, epoch: int, opened: int = -1) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.batches: list[tuple[int, int, int]] = []
        self.fresh = 0
        self.opened = opened


class Aborted(NamedTuple):
    """A transaction that was aborted: from its first offset to its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


class Ledger:
    """All that is known of one partition. Entries are in the order of their offsets."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.bases: list[int] = []
        self.originals: list[Entry] = []
        self.next_offset = 0
        self.written = 0
        self.acked = 0
        self.start = self.start_kept = self.start_max = 0
        self.refused: dict[bytes, Entry] = {}
        self.senders: dict[int, Sent] = {}
        self.aborted: list[Aborted] = []
        self.forgotten: dict[int, int] = {}
        """Of producers that were expired: the batches below this offset may be unknown."""
        self.compacted = self.cleaned_to = 0
        self.cleanings: list[tuple[int, int]] = []
        """Time (ms) and first offset not cleaned of cleanings that may have had an effect."""

    # Appending

    def append(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry.base == self.next_offset
            self.entries.append(entry)
            self.bases.append(entry.base)
            self.originals.append(entry)
            self.next_offset = entry.last + 1
            self._note_sender(entry, fresh=True)

    def _note_sender(self, entry: Entry, *, fresh: bool) -> None:
        header = entry.header
        if header is None or header[PRODUCER_ID] < 0:
            return
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        sent = self.senders.get(producer_id)
        if sent is None or sent.epoch != epoch:
            sent = self.senders[producer_id] = Sent(epoch, -1 if sent is None else sent.opened)
        if header[ATTRIBUTES] & CONTROL_BIT:
            if sent.opened >= 0 and not entry.control:
                self.aborted.append(Aborted(producer_id, sent.opened, entry.base))
            sent.opened = -1
            return
        if header[ATTRIBUTES] & TRANSACTIONAL_BIT and sent.opened < 0:
            sent.opened = entry.base
        sent.batches.append((header[BASE_SEQUENCE], entry.base, entry.last))
        del sent.batches[:-REMEMBERED]
        sent.next_sequence = (header[BASE_SEQUENCE] + header[LAST_OFFSET_DELTA] + 1) % 2**31
        if fresh:
            sent.fresh += 1

    def wrote(self) -> None:
        self.written = self.next_offset

    def refuse(self, offset: int) -> None:
        """The disk did not take what was queued from here on."""
        keep = bisect_right(self.bases, offset - 1)
        for entry in self.entries[keep:]:
            self.refused[entry.raw] = entry
        self.hold(self.entries[:keep], offset, {})

    def hold(self, entries: list[Entry], end: int, found: dict[int, Entry]) -> None:
        """There are these entries, up to an end. `found` are refused ones among them, by their
        base offset."""
        self.entries = entries
        self.bases = [entry.base for entry in entries]
        self.originals = [entry for entry in self.originals if entry.last < end]
        if found:
            self.originals = sorted(
                [e for e in self.originals if e.base < min(found)]
                + [e for e in entries if e.base >= min(found)],
                key=lambda entry: entry.base,
            )
        self.next_offset = end
        self.written = min(self.written, end)
        self.senders, self.aborted = {}, []
        for entry in self.originals:
            self._note_sender(entry, fresh=False)

    def synced(self, up_to: int) -> None:
        self.acked = max(self.acked, min(up_to, self.next_offset))
        for raw in [raw for raw, entry in self.refused.items() if entry.base < self.acked]:
            del self.refused[raw]

    def put_compacted(self, entries: list[Entry]) -> None:
        """Compaction has made these of what lies at or above the log start."""
        below = self.entries[: self.index_of(self.start)]
        kept = [entry for entry in below if not entries or entry.last < entries[0].base]
        self.entries = kept + entries
        self.bases = [entry.base for entry in self.entries]

    # Asking

    @property
    def last_stable(self) -> int:
        opened = [sent.opened for sent in self.senders.values() if sent.opened >= 0]
        return min([max(offset, self.start) for offset in opened] + [self.written])

    def index_of(self, offset: int) -> int:
        """The entry that holds an offset, or the first after it."""
        index = bisect_right(self.bases, offset) - 1
        if index < 0 or self.entries[index].last < offset:
            index += 1
        return index

    def visible(self) -> list[Record]:
        """The records that a reader may see."""
        return [
            record
            for entry in self.entries[self.index_of(self.start) :]
            if entry.last < self.written
            for record in entry.records
            if record.offset >= self.start
        ]

    def first_at_or_after(self, timestamp_ms: int) -> Record | None:
        for entry in self.entries[self.index_of(self.start) :]:
            if entry.last >= self.written:
                return None
            if entry.max_timestamp < timestamp_ms:
                continue
            for record in entry.records:
                if record.offset >= self.start and record.timestamp_ms >= max(timestamp_ms, 0):
                    return record
        return None

    def largest(self) -> Record | None:
        """The first record that has the largest timestamp."""
        timed = [record for record in self.visible() if record.timestamp_ms >= 0]
        return max(timed, key=lambda record: record.timestamp_ms, default=None)

    def may_be(self) -> dict[bytes, Entry]:
        """What may be found above `acked`, in whatever mixture."""
        unsure = {entry.raw: entry for entry in self.entries if entry.base >= self.acked}
        return self.refused | unsure
