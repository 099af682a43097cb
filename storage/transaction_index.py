"""The aborted transactions of a segment, for readers that are to see committed records only.

File (`.txnindex`), no header, no checksum, one entry of 34 bytes after the other:
    0..1    int16   version, 0
    2..9    int64   producer id
    10..17  int64   first offset of the transaction
    18..25  int64   last offset: that of the marker that aborted it
    26..33  int64   last stable offset: the first offset of the oldest transaction of another
                    producer that was still open after the marker, or the last offset + 1

An entry is in the segment that holds the marker; last offsets rise. A segment without aborted
transactions has no such file.

What if it is lost: it is built again from the headers and markers of the log file, where that is
noticed; a clean stop notes which segments have one.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VERSION = 0
ENTRY = Struct(">hqqqq")
ENTRY_SIZE = 34

assert ENTRY.size == ENTRY_SIZE

LISTED = Struct(">qqx")
"""Producer id and first offset, and that there are no tags: a transaction in answers to Fetch."""


class AbortedTransaction(NamedTuple):
    """One entry; all but the producer id are offsets."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, in the order of their markers."""

    __slots__ = ("_listed", "doubted", "entries", "stored")

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self.entries = list(entries)
        self.stored = 0
        """Entries that are in the file already."""
        self.doubted: set[int] = set()
        """Numbers of entries that only a file says, which the log has not borne out yet."""
        self._listed = bytearray()
        """As many entries as `listed` has been asked for, in the form of answers."""

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, aborted: AbortedTransaction) -> None:
        """Enter a transaction whose marker comes after all others of the segment."""
        assert not self.entries or aborted.last_offset > self.entries[-1].last_offset
        self.entries.append(aborted)

    def cut_from(self, offset: int) -> None:
        """Forget the transactions whose markers are at or above an offset."""
        count = self.count_below(offset)
        del self.entries[count:]
        del self._listed[count * LISTED.size :]
        self.stored = min(self.stored, count)

    def count_below(self, offset: int) -> int:
        """Number of markers below an offset."""
        return bisect_left(self.entries, offset, key=_last_offset)

    def listed(self, first: int, stop: int, more: Sequence[int] = ()) -> bytes:
        """Entries as the list of aborted transactions in answers to Fetch has them, from version 12
        on: those from `first` up to `stop`, and `more`, whose numbers rise. They are written once,
        for a fetch of a MiB may have thousands of them."""
        listed, size = self._listed, LISTED.size
        for entry in self.entries[len(listed) // size : more[-1] + 1 if more else stop]:
            listed += LISTED.pack(entry.producer_id, entry.first_offset)
        found = listed[first * size : stop * size]
        for number in more:
            found += listed[number * size : (number + 1) * size]
        return bytes(found)

    def encode(self, first: int = 0) -> bytes:
        """The bytes of the entries from index `first` on."""
        return encode(self.entries[first:])

    @classmethod
    def decode(cls, data: bytes, base_offset: int) -> TransactionIndex | None:
        """Read a whole file; None if it is not one of a segment with this base offset."""
        entries = decode(data, base_offset)
        if entries is None:
            return None
        index = cls(entries)
        index.stored = len(entries)
        return index


NOTHING = TransactionIndex()
"""The index of every segment that is known to have no aborted transactions. Never added to."""


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    """The content of a file with these entries."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def decode(data: bytes, base_offset: int) -> list[AbortedTransaction] | None:
    """The entries of a file, or None if it cannot be one of a segment with this base offset."""
    entries = decode_whole(data, base_offset)
    return entries if len(entries) * ENTRY_SIZE == len(data) else None


def decode_whole(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """The entries up to the first that cannot be one: torn, of another version, zeros, or with
    offsets that contradict each other or those before it."""
    entries: list[AbortedTransaction] = []
    before = base_offset - 1
    for version, *fields in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE]):
        entry = AbortedTransaction(*fields)
        if version != VERSION or entry.last_offset <= before or entry.producer_id < 0:
            break
        if not 0 <= entry.first_offset < entry.last_offset:
            break
        if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            break
        entries.append(entry)
        before = entry.last_offset
    return entries


def collect(
    entries: Sequence[AbortedTransaction],
    offset: int,
    upper: int,
    found: list[AbortedTransaction],
) -> bool:
    """Add to `found` one segment's transactions that a reader of [offset, upper) has to know.

    Those are the ones whose marker is at or above `offset` and that began below `upper`. Segments
    are asked in order, from the one that holds `offset` on. Returns whether that was all: after an
    entry whose last stable offset is `upper` or more, whatever follows began later.
    """
    for entry in entries[bisect_left(entries, offset, key=_last_offset) :]:
        if entry.first_offset < upper:
            found.append(entry)
        if entry.last_stable_offset >= upper:
            return True
    return False


_last_offset = itemgetter(AbortedTransaction._fields.index("last_offset"))
