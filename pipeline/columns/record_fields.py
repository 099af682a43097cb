"""The fields of the records of many format 2 payloads, read for all of them at once.

The layout, and all that is demanded of a record, are in `protocol.records.record`; what is refused
there is refused here, only without saying why. Work goes on in blocks of records that stay in a
processor's cache. Sizes are those of the bytes at hand: no count is believed before it is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.columns.varints import VARLONG_BYTES, read_varints
from protocol.records.errors import InvalidRecord
from protocol.records.record import read_varint

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from pipeline.columns.varints import Bytes, Numbers

    Places: TypeAlias = NDArray[np.int32]
    Truths: TypeAlias = NDArray[np.bool_]

BLOCK_RECORDS = 16_384
FEW_RECORDS = 32
"""Headers are read for all records together, the first of each, then the second, and so on. When
so few records have any left, each is quicker by itself: one may have a million of them."""


class Headers(NamedTuple):
    """The headers of records, those of a record one behind the other. A negative size is null."""

    name_at: Places
    name_size: Places
    value_at: Places
    value_size: Places


class Fields(NamedTuple):
    """One number for each record. Positions count from the start of the data; a negative size is
    null. A record's headers are `header_count` from number `first_header` on."""

    timestamp_delta: Numbers
    offset_delta: Places
    key_at: Places
    key_size: Places
    value_at: Places
    value_size: Places
    header_count: Places
    first_header: Places
    headers: Headers
    good: Truths
    """Whether the record is one; if not, its other numbers mean nothing."""


def read_fields(payloads: bytes, starts: Places, ends: Places) -> Fields:
    """The fields of the records from each of `starts` to exactly the same one of `ends`."""
    data = np.frombuffer(payloads, dtype=np.uint8)
    count = starts.size
    places = [np.empty(count, dtype=np.int32) for _ in range(5)]
    timestamp_delta = np.empty(count, dtype=np.int64)
    good = np.empty(count, dtype=np.bool_)
    header_count = np.zeros(count, dtype=np.int32)
    found: list[_FoundHeaders] = []
    for first in range(0, count, BLOCK_RECORDS):
        block = slice(first, min(first + BLOCK_RECORDS, count))
        end = ends[block].astype(np.int64)
        _, at = read_varints(data, starts[block].astype(np.int64))
        timestamp_delta[block], at = read_varints(data, at + 1, VARLONG_BYTES)
        places[0][block], at = read_varints(data, at)
        for number in (1, 3):
            size, at = read_varints(data, at)
            places[number][block] = at
            places[number + 1][block] = size
            at += np.maximum(size, 0)
        with_headers = np.flatnonzero(data.take(at, mode="clip"))
        at += 1
        if with_headers.size:
            headers = _FoundHeaders(data, payloads, at[with_headers] - 1, end[with_headers])
            at[with_headers] = headers.at
            header_count[block][with_headers] = headers.count
            found.append(headers)
        good[block] = at == end
    first_header = np.zeros(count, dtype=np.int32)
    np.cumsum(header_count[:-1], out=first_header[1:])
    offset_delta, key_at, key_size, value_at, value_size = places
    return Fields(
        timestamp_delta,
        offset_delta,
        key_at,
        key_size,
        value_at,
        value_size,
        header_count,
        first_header,
        _joined(found),
        good,
    )


class _FoundHeaders:
    """The headers of some records, of which each has its count at `at` and ends at `end`.

    `at` becomes the position after the headers of each record; -1 where they are none.
    """

    def __init__(self, data: Bytes, payloads: bytes, at: Numbers, end: Numbers) -> None:
        self.data = data
        self.payloads = payloads
        self.end = end
        claimed, self.at = read_varints(data, at)
        possible = (claimed >= 0) & (claimed <= (end - self.at) >> 1)  # each has two bytes or more
        self.at[~possible] = -1
        self.count = np.where(possible, claimed, 0)
        self.owners: list[Numbers] = []
        self.columns: list[tuple[Numbers, ...]] = []
        going = np.flatnonzero(self.count)
        index = 0
        while going.size > FEW_RECORDS:
            going = self._read_next(going)
            index += 1
            going = going[self.count[going] > index]
        for owner in going.tolist():
            self._read_all(owner, index)
        self.count[self.at < 0] = 0

    def _read_next(self, going: Numbers) -> Numbers:
        """Read one header of each of these records. Those of them that go on are returned."""
        data, end = self.data, self.end[going]
        name_size, name_at = read_varints(data, self.at[going])
        good = (name_size >= 0) & (name_size <= end - name_at)
        value_size, value_at = read_varints(data, name_at + np.maximum(name_size, 0))
        good &= value_size <= end - value_at
        after = value_at + np.maximum(value_size, 0)
        self.at[going] = np.where(good, after, -1)
        self.owners.append(going)
        self.columns.append((name_at, name_size, value_at, value_size))
        return going[good]

    def _read_all(self, owner: int, index: int) -> None:
        """Read the headers of one record from its `index`th on."""
        payloads, end, at = self.payloads, int(self.end[owner]), int(self.at[owner])
        rows: list[tuple[int, int, int, int]] = []
        try:
            for _ in range(index, int(self.count[owner])):
                name_size, name_at = read_varint(payloads, at)
                value_size, value_at = read_varint(payloads, name_at + max(name_size, 0))
                if not 0 <= name_size <= end - name_at or value_size > end - value_at:
                    raise InvalidRecord("a header runs out of its record")
                at = value_at + max(value_size, 0)
                rows.append((name_at, name_size, value_at, value_size))
        except (IndexError, InvalidRecord):
            at = -1
        self.at[owner] = at
        if rows:
            self.owners.append(np.full(len(rows), owner))
            self.columns.append(tuple(np.array(column) for column in zip(*rows, strict=True)))

    def columns_in_order(self) -> list[Places]:
        """The four columns of `Headers`, without those of records that turned out to be wrong."""
        owner = np.concatenate(self.owners)
        order = np.argsort(owner, kind="stable")
        order = order[self.count[owner[order]] > 0]
        return [
            np.concatenate(parts)[order].astype(np.int32)
            for parts in zip(*self.columns, strict=True)
        ]


def _joined(found: list[_FoundHeaders]) -> Headers:
    blocks = [headers.columns_in_order() for headers in found if headers.columns]
    if not blocks:
        return Headers(*(np.empty(0, dtype=np.int32) for _ in range(4)))
    return Headers(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
