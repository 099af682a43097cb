"""The committed offsets of many groups in memory, in few bytes.

A group of up to `FEW_ENTRIES` entries is a record in a bucket (`buckets`), one with more has
columns of its own (`columns`). A bucket has the groups whose hashes begin with the same
bits. When it outgrows `BUCKET_PAGES` it is split by the next bit, and when a quarter of it is dead
it is written anew. So no change, however large the table is, touches more than one bucket or one
part of a group's columns, and none takes more than about a millisecond.

The hash is Python's own of the str: it is keyed at each start, so that nobody can choose group ids
that meet in one bucket.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.offsets.blocks import place
from broker.coordinator.offsets.buckets import (
    ADDRESS_MASK,
    ENTRY,
    ENTRY_BYTES,
    FEW_ENTRIES,
    HASH_BITS,
    HASH_MASK,
    KEY_BYTES,
    MAX_NAME_BYTES,
    MAX_PAGES,
    NAME,
    PAGE_BYTES,
    Bucket,
    encoded,
    head,
    key_at,
    write_value,
)
from broker.coordinator.offsets.columns import Columns, WideGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.coordinator.offsets.blocks import Block
    from broker.coordinator.offsets.columns import Row

BUCKET_PAGES = 16
FILLED_BYTES = BUCKET_PAGES * PAGE_BYTES * 5 // 8
"""The share of a bucket when many records come at once: half of its pages at least, for groups
that grow, and about what splitting leaves in them."""


class SharedTable(NamedTuple):
    """A table as it was; any thread may read it. `buckets` have pages and slots (offset_buckets),
    `wide` the groups that have columns."""

    entry_count: int
    buckets: list[tuple[list[bytearray], array[int]]]
    wide: list[tuple[str, list[Columns]]]


class OffsetTable:
    """(group, key) -> offset, commit time in seconds since 1970, leader epoch.

    A key is (topic number << 32) + partition. Numbers must fit their columns: nothing looks after
    that, as the wire does. Group ids that no bytes decode to raise UnicodeEncodeError.
    """

    __slots__ = ("_count", "_directory", "_shift", "_wide")

    def __init__(self) -> None:
        self._wide: dict[str, WideGroup] = {}
        # As many places as there are hashes of `HASH_BITS - _shift` bits; neighbours may share one.
        self._directory = [Bucket(depth=0)]
        self._shift = HASH_BITS
        self._count = 0

    def __len__(self) -> int:
        """Entries."""
        return self._count

    def __contains__(self, group: str) -> bool:
        return group in self._wide or self._find(group)[1] >= 0

    def put(self, group: str, key: int, offset: int, seconds: int, epoch: int) -> None:
        wide = self._wide.get(group)
        if wide is not None:
            self._count += wide.put(key, offset, seconds, epoch)
            return
        # `_find` and `encoded` are written out: this is paid for each record by some consumers.
        hashed = hash(group) & HASH_MASK
        bucket = self._directory[hashed >> self._shift]
        if bucket.shared:
            bucket.own()
        slots = bucket.slots
        tag = hashed & ~ADDRESS_MASK
        at = bisect_left(slots, tag)
        try:
            name = group.encode()
        except UnicodeEncodeError:
            name = encoded(group)
        size = len(name)
        while at < len(slots) and (address := slots[at] - tag) <= ADDRESS_MASK:
            page, start = bucket.pages[address // PAGE_BYTES], address % PAGE_BYTES
            first = start + NAME + size
            if page[start + 1] == size and page[start + NAME : first] == name:
                position, end = first, first + page[start] * ENTRY_BYTES
                while position < end:
                    if key_at(page, position)[0] == key:
                        write_value(page, position + KEY_BYTES, offset, seconds, epoch)
                        return
                    position += ENTRY_BYTES
                self._grow(group, hashed, at, ENTRY.pack(key, offset, seconds, epoch))
                return
            at += 1
        self._add(group, name, hashed, at, ENTRY.pack(key, offset, seconds, epoch))

    def put_run(self, group: str, run: Columns) -> None:
        """Set many entries of a group. The keys must ascend; takes the columns for its own."""
        wide = self._wide.get(group)
        if wide is not None:
            self._count += wide.put_run(run)
            return
        hashed, at = self._find(group)
        if at >= 0:
            kept = [entry[0] for entry in self._bucket(hashed).record(at).entries()]
            if len({*kept, *run.keys}) > FEW_ENTRIES:
                self._count += self._take_out(group, hashed, at).put_run(run)
                return
            for entry in run.entries():
                self.put(group, *entry)
        elif len(run) > FEW_ENTRIES:
            self._wide[group] = WideGroup(run)
            self._count += len(run)
        elif len(run):
            packed = b"".join([ENTRY.pack(*entry) for entry in run.entries()])
            self._add(group, encoded(group), hashed, ~at, packed)

    def get(self, group: str, key: int) -> Row | None:
        wide = self._wide.get(group)
        if wide is not None:
            return wide.get(key)
        for entry in self._few(group):
            if entry[0] == key:
                return entry
        return None

    def span(self, group: str, first: int, end: int, limit: int) -> Columns:
        """The group's entries with first <= key < end by key, the first `limit` of them."""
        wide = self._wide.get(group)
        if wide is not None:
            return wide.span(first, end, limit)
        return _columns([entry for entry in self._few(group) if first <= entry[0] < end])[:limit]

    def remove(self, group: str, key: int) -> None:
        wide = self._wide.get(group)
        if wide is not None:
            self._count -= wide.remove(key)
            if not wide:
                del self._wide[group]
            return
        hashed, at = self._find(group)
        if at < 0:
            return
        bucket = self._bucket(hashed)
        keys = [entry[0] for entry in bucket.record(at).entries()]
        if key not in keys:
            return
        self._count -= 1
        if len(keys) == 1:
            bucket.drop(at)
        else:
            bucket.take(at, keys.index(key))
        self._fit(hashed)

    def remove_group(self, group: str) -> None:
        wide = self._wide.pop(group, None)
        if wide is not None:
            self._count -= len(wide)
            return
        hashed, at = self._find(group)
        if at >= 0:
            bucket = self._bucket(hashed)
            self._count -= bucket.record(at).entry_count
            bucket.drop(at)
            self._fit(hashed)

    def groups(self) -> Iterator[str]:
        """Every group. The table may change meanwhile: a group that is there from the start to the
        end comes at least once."""
        for bucket in self._buckets():
            yield from [record.group for record in bucket.records()]
        yield from list(self._wide)

    def ages(self) -> Iterator[list[tuple[str, int]]]:
        """Every group as `groups`, and the commit time of its oldest entry. Each list is from one
        look of a millisecond or two."""
        for bucket in self._buckets():
            yield [
                (record.group, min(entry[2] for entry in record.entries()))
                for record in bucket.records()
            ]
        for group in list(self._wide):
            wide = self._wide.get(group)
            yield [] if wide is None else [(group, wide.oldest())]

    def groups_with(self, first: int, end: int) -> Iterator[list[str]]:
        """The groups that have a key in first <= key < end. Each list is from one look of about a
        millisecond, and may be empty; between two looks the table may change."""
        for bucket in self._buckets():
            yield [
                record.group
                for record in bucket.records()
                if any(first <= entry[0] < end for entry in record.entries())
            ]
        for group in list(self._wide):
            wide = self._wide.get(group)
            yield [group] if wide is not None and len(wide.span(first, end, 1)) else []

    def share(self) -> SharedTable:
        """All of it as it is now. Takes a microsecond for some dozen groups: changes from now on
        are made to copies, each of which costs about 10 us, once for what shares a bucket."""
        buckets = [bucket.share() for bucket in self._buckets()]
        wide = [(group, each.share()) for group, each in self._wide.items()]
        return SharedTable(self._count, buckets, wide)

    def fill(self, blocks: list[Block], entry_count: int) -> None:
        """Take groups into a table without any: blocks that have been looked into, and how many
        entries they have. Raises ValueError for more than there is room for."""
        assert not self._count
        placed = place(blocks, FILLED_BYTES)
        depth = len(placed).bit_length() - 1
        self._directory = [
            Bucket.of(depth, array("Q", slots), pages, used) for slots, pages, used in placed
        ]
        self._shift = HASH_BITS - depth
        self._count = entry_count

    def sizes(self) -> dict[str, int]:
        """Bytes by what they are for, as `__sizeof__` says. Takes its time."""
        buckets = list(self._buckets())
        names = sum(len(record.name) for bucket in buckets for record in bucket.records())
        pages = [page for bucket in buckets for page in bucket.pages]
        own = [self._directory, *buckets, *(bucket.pages for bucket in buckets)]
        return {
            "group ids": names + sum(map(sys.getsizeof, self._wide)),
            "records": sum(map(sys.getsizeof, pages)) - names,
            "slots": sum(sys.getsizeof(bucket.slots) for bucket in buckets),
            "buckets": sum(map(sys.getsizeof, own)),
            "columns": sys.getsizeof(self._wide)
            + sum(wide.size_bytes() for wide in self._wide.values()),
        }

    def _bucket(self, hashed: int) -> Bucket:
        return self._directory[hashed >> self._shift]

    def _buckets(self) -> Iterator[Bucket]:
        """By the hashes they have, so that a split between two leaves none out."""
        hashed = 0
        while hashed <= HASH_MASK:
            bucket = self._bucket(hashed)
            # Before the caller can split it.
            hashed += 1 << HASH_BITS - bucket.depth
            yield bucket

    def _find(self, group: str) -> tuple[int, int]:
        """The hash, and the slot's number; if there is none, ~number of its place: below 0."""
        hashed = hash(group) & HASH_MASK
        bucket = self._bucket(hashed)
        tag = hashed & ~ADDRESS_MASK
        at = bisect_left(bucket.slots, tag)
        name = encoded(group)
        while at < len(bucket.slots) and bucket.slots[at] - tag <= ADDRESS_MASK:
            if bucket.record(at).name == name:
                return hashed, at
            at += 1
        return hashed, ~at

    def _few(self, group: str) -> list[Row]:
        hashed, at = self._find(group)
        return self._bucket(hashed).record(at).entries() if at >= 0 else []

    def _add(self, group: str, name: bytes, hashed: int, at: int, packed: bytes) -> None:
        """A group that is not there yet; `at` is the place of its slot."""
        bucket = self._directory[hashed >> self._shift]
        count, pages = len(packed) // ENTRY_BYTES, len(bucket.pages)
        self._count += count
        if len(name) > MAX_NAME_BYTES or pages == MAX_PAGES:
            self._wide[group] = WideGroup(_columns(list(ENTRY.iter_unpack(packed))))
            return
        address = bucket.append(head(count, len(name)) + name + packed)
        bucket.slots.insert(at, (hashed & ~ADDRESS_MASK) + address)
        if pages >= BUCKET_PAGES:
            self._fit(hashed)

    def _grow(self, group: str, hashed: int, at: int, packed: bytes) -> None:
        """One more entry for a group that has few."""
        bucket = self._bucket(hashed)
        if bucket.record(at).entry_count == FEW_ENTRIES or len(bucket.pages) == MAX_PAGES:
            self._count += self._take_out(group, hashed, at).put(*ENTRY.unpack(packed))
            return
        self._count += 1
        bucket.grow(at, packed)
        self._fit(hashed)

    def _take_out(self, group: str, hashed: int, at: int) -> WideGroup:
        """Give a group columns instead of its record."""
        bucket = self._bucket(hashed)
        wide = self._wide[group] = WideGroup(_columns(bucket.record(at).entries()))
        bucket.drop(at)
        self._fit(hashed)
        return wide

    def _fit(self, hashed: int) -> None:
        """Write the bucket of this hash anew if much of it is dead, split it if it is too large."""
        bucket = self._bucket(hashed)
        depth, length = bucket.depth, len(bucket.slots)
        if bucket.dead_bytes * 4 > len(bucket.pages) * PAGE_BYTES:
            self._replace(hashed, depth, [bucket.part(0, length, depth)])
        elif len(bucket.pages) > BUCKET_PAGES and length > 1:
            if depth == HASH_BITS - self._shift:
                if len(self._directory) > self._count:
                    return  # Hashes that the next bit tells apart would have been split before.
                self._directory = [each for each in self._directory for _ in range(2)]
                self._shift -= 1
            second_half = (2 * (hashed >> HASH_BITS - depth) + 1) << HASH_BITS - depth - 1
            middle = bisect_left(bucket.slots, second_half)
            halves = [bucket.part(0, middle, depth + 1), bucket.part(middle, length, depth + 1)]
            self._replace(hashed, depth, halves)

    def _replace(self, hashed: int, depth: int, buckets: list[Bucket]) -> None:
        """Put one or two in the places of the bucket that has the hashes of these first bits."""
        places = 1 << HASH_BITS - self._shift - depth
        start = (hashed >> HASH_BITS - depth) * places
        share = places // len(buckets)
        self._directory[start : start + places] = [each for each in buckets for _ in range(share)]


def _columns(entries: list[Row]) -> Columns:
    """In the order of the keys."""
    return (
        Columns.of(*zip(*sorted(entries), strict=True)) if entries else Columns.of((), (), (), ())
    )
