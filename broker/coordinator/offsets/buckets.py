"""The offsets of groups that have few: a record for each, on the pages of a bucket.

A record, little-endian, without padding, never across two pages:

    u8   entries
    u8   bytes in the name
    ...  name: the group id in UTF-8; bytes that are not UTF-8 as they came
    24 * entries, in no order:
         key u64 ((topic number << 32) + partition), offset i64, commit time in seconds u32,
         leader epoch i32

A slot is u64: the first 40 bits of the group's hash, then 24 bits of address (page number *
`PAGE_BYTES` + position). Slots lie sorted. All pages have one size, so that the memory of one that
is given back fits the next: buffers that grew took 20 bytes an entry more, all of it holes between
them.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.coordinator.offsets.columns import Row

PAGE_BYTES = 4096
HASH_BITS = 64
ADDRESS_BITS = 24
HASH_MASK = (1 << HASH_BITS) - 1
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1
MAX_PAGES = (ADDRESS_MASK + 1) // PAGE_BYTES

#: A group with more gets columns, which then take no more room and are searched in fewer steps.
FEW_ENTRIES = 32
#: A group whose name is longer gets columns from the start.
MAX_NAME_BYTES = 255

ENTRY = Struct("<QqIi")
KEY = Struct("<Q")
VALUE = Struct("<qIi")
ENTRY_BYTES, KEY_BYTES = ENTRY.size, KEY.size
head, key_at, write_value = Struct("BB").pack, KEY.unpack_from, VALUE.pack_into
NAME = 2
"""The position of the name in a record."""

assert ENTRY_BYTES == KEY_BYTES + VALUE.size == 24
assert NAME + MAX_NAME_BYTES + FEW_ENTRIES * ENTRY_BYTES <= PAGE_BYTES


def encoded(group: str) -> bytes:
    """Raises UnicodeEncodeError for a str that no bytes decode to."""
    try:
        return group.encode()
    except UnicodeEncodeError:
        return group.encode("utf-8", "surrogateescape")


class Record(NamedTuple):
    """One group's; good until its bucket changes."""

    page: bytearray
    start: int

    @property
    def entry_count(self) -> int:
        return self.page[self.start]

    @property
    def size(self) -> int:
        page, start = self
        return NAME + page[start + 1] + ENTRY_BYTES * page[start]

    @property
    def name(self) -> bytearray:
        page, start = self
        return page[start + NAME : start + NAME + page[start + 1]]

    @property
    def group(self) -> str:
        return self.name.decode("utf-8", "surrogateescape")

    def entries(self) -> list[Row]:
        page, start = self
        first = start + NAME + page[start + 1]
        return list(ENTRY.iter_unpack(page[first : first + page[start] * ENTRY_BYTES]))

    def take(self, number: int) -> None:
        """Remove an entry; the last one takes its place."""
        page, start = self
        end = start + self.size
        first = start + NAME + page[start + 1] + number * ENTRY_BYTES
        page[first : first + ENTRY_BYTES] = page[end - ENTRY_BYTES : end]
        page[start] -= 1


class Bucket:
    """The records of groups whose hashes begin with the same `depth` bits.

    Pages and slots that are `shared` are read by others, on any thread: who wants to change them
    has to `own` them first.
    """

    __slots__ = ("dead_bytes", "depth", "pages", "shared", "slots", "used_bytes")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.slots = array("Q")
        self.pages: list[bytearray] = []
        self.used_bytes = PAGE_BYTES
        """Of the last page."""
        self.dead_bytes = 0
        """In records that no slot has any more; the unused ends of pages are not in it."""
        self.shared = False

    def share(self) -> tuple[list[bytearray], array[int]]:
        """Pages and slots as they are, and will stay: what changes them changes copies."""
        self.shared = True
        return self.pages, self.slots

    def own(self) -> None:
        """Leave what is shared to the others: 64 KB are copied in about 10 us."""
        self.pages = [page[:] for page in self.pages]
        self.slots = self.slots[:]
        self.shared = False

    def record(self, number: int) -> Record:
        """The record of a slot."""
        address = self.slots[number] & ADDRESS_MASK
        return Record(self.pages[address // PAGE_BYTES], address % PAGE_BYTES)

    def append(self, record: bytes | bytearray) -> int:
        """Write a record; gives its address, for a slot."""
        if self.shared:
            self.own()
        start = self.used_bytes
        end = start + len(record)
        if end > PAGE_BYTES:
            self.pages.append(bytearray(PAGE_BYTES))
            start, end = 0, len(record)
        self.pages[-1][start:end] = record
        self.used_bytes = end
        return (len(self.pages) - 1) * PAGE_BYTES + start

    def grow(self, number: int, packed: bytes) -> None:
        """Give a slot's record one more entry."""
        if self.shared:
            self.own()
        address = self.slots[number] & ADDRESS_MASK
        record = self.record(number)
        page, start = record
        size = record.size
        end = start + size + len(packed)
        if page is self.pages[-1] and start + size == self.used_bytes and end <= PAGE_BYTES:
            page[start + size : end] = packed
            self.used_bytes = end
            page[start] += 1
            return
        longer = page[start : start + size] + packed
        longer[0] += 1
        self.slots[number] += self.append(longer) - address
        self.dead_bytes += size

    def take(self, number: int, entry: int) -> None:
        """Remove an entry of a slot's record that has more."""
        if self.shared:
            self.own()
        self.record(number).take(entry)
        self.dead_bytes += ENTRY_BYTES

    def drop(self, number: int) -> None:
        """Remove a slot and its record."""
        if self.shared:
            self.own()
        self.dead_bytes += self.record(number).size
        del self.slots[number]

    def part(self, start: int, stop: int, depth: int) -> Bucket:
        """A new bucket of the groups in these slots, without what is dead."""
        part, pages = Bucket(depth), self.pages
        pieces: list[bytearray] = []
        base, used = -PAGE_BYTES, PAGE_BYTES
        for slot in self.slots[start:stop]:
            address = slot & ADDRESS_MASK
            page, first = pages[address // PAGE_BYTES], address % PAGE_BYTES
            size = NAME + page[first + 1] + ENTRY_BYTES * page[first]
            if used + size > PAGE_BYTES:
                part.write_page(pieces)
                pieces.clear()
                base, used = base + PAGE_BYTES, 0
            part.slots.append(slot - address + base + used)
            pieces.append(page[first : first + size])
            used += size
        part.write_page(pieces)
        part.used_bytes = used
        return part

    def write_page(self, records: list[bytearray]) -> None:
        if records:
            self.pages.append(bytearray(b"".join(records).ljust(PAGE_BYTES, b"\0")))

    @classmethod
    def of(cls, depth: int, slots: array[int], pages: list[bytearray], used_bytes: int) -> Bucket:
        """A bucket that has these, and nothing dead."""
        bucket = cls(depth)
        bucket.slots, bucket.pages, bucket.used_bytes = slots, pages, used_bytes
        return bucket

    def records(self) -> list[Record]:
        return [self.record(number) for number in range(len(self.slots))]
