"""The loops over records that compaction needs, and the entries it puts together.

Which record stays is not decided here: the readers give keys and offsets, the makers take the
records that stay. Records of format 2 keep their bytes wherever they can, and their batch keeps its
base timestamp, so that taking some away is cutting and joining slices. Kafka encodes them anew from
the first one that stays; every reader gets the same records from either.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from protocol.records import key_loops
from protocol.records.builder import encode_varint
from protocol.records.compression import compress
from protocol.records.crc import crc32c
from protocol.records.errors import InvalidRecord
from protocol.records.key_loops import KEYLESS, TOMBSTONE
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CHECKED_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    ENTRY_OVERHEAD,
    HEADER,
    HEADER_SIZE,
    INT16,
    INT32,
    INT64,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH_POSITION,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
    UINT32,
)
from protocol.records.legacy import wrap_messages
from protocol.records.loops import OFFSET_LIMIT
from protocol.records.record import (
    INT64_MAX,
    INT64_MIN,
    read_fields,
    read_varint,
    read_varlong,
    wrap_timestamp,
)
from protocol.records.transcode import first_of, scan_messages, scan_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from protocol.records.layout import Header

ABORT = 0
COMMIT = 1
"""Types of control records that end a transaction."""

keys_of_records: Callable[[bytes, int, int], tuple[bytes, bytes, bytes, bytes]]
keys_of_messages: Callable[[bytes, int, int], tuple[bytes, bytes, bytes, bytes]]
keys_of_records, keys_of_messages = key_loops.keys_of_records, key_loops.keys_of_messages
enter_keys, newest_offsets = key_loops.enter_keys, key_loops.newest_offsets

try:
    from protocol.records import _loops
except ImportError:
    pass  # built where there was no C compiler
else:
    keys_of_records = first_of(_loops.keys_of_records, key_loops.keys_of_records)
    keys_of_messages = first_of(_loops.keys_of_messages, key_loops.keys_of_messages)
    enter_keys = first_of(_loops.enter_keys, key_loops.enter_keys)
    newest_offsets = first_of(_loops.newest_offsets, key_loops.newest_offsets)


class Keys:
    """The records in `data` as compaction needs them, one row for each.

    starts      where it begins, and in one more row where the last one ends
    digests     16 bytes of its key, as the tables of `enter_keys` have them
    offsets     absolute
    tombstones  rows without a value
    keyless     rows without a key
    """

    __slots__ = ("_offsets", "_starts", "data", "digests", "keyless", "offset_bytes", "tombstones")

    def __init__(self, data: bytes, columns: tuple[bytes, bytes, bytes, bytes]) -> None:
        self._starts: bytes | array[int]
        self._offsets: array[int] | None = None
        self._starts, self.digests, self.offset_bytes, flags = columns
        self.data = data
        self.tombstones: Sequence[int] = ()
        self.keyless: Sequence[int] = ()
        if flags.count(0) != len(flags):
            self.tombstones = [row for row, flag in enumerate(flags) if flag & TOMBSTONE]
            self.keyless = [row for row, flag in enumerate(flags) if flag & KEYLESS]

    def __len__(self) -> int:
        return len(self.offset_bytes) // 8

    # Not every run of records is asked for these, and a batch may have only one record.

    @property
    def starts(self) -> array[int]:
        if isinstance(self._starts, bytes):
            self._starts = array("i", self._starts)
        return self._starts

    @property
    def offsets(self) -> array[int]:
        if self._offsets is None:
            self._offsets = array("q", self.offset_bytes)
        return self._offsets

    def pieces(self, kept: Sequence[int]) -> list[tuple[int, int]]:
        """Start and end of the records of these rows; neighbours are one piece."""
        starts = self.starts
        found: list[tuple[int, int]] = []
        first = last = -1
        for row in kept:
            if row != last + 1 or first < 0:
                if first >= 0:
                    found.append((starts[first], starts[last + 1]))
                first = row
            last = row
        if first >= 0:
            found.append((starts[first], starts[last + 1]))
        return found

    def taken(self, kept: Sequence[int]) -> bytes:
        """The bytes of the records of these rows."""
        data = self.data
        return b"".join([data[start:end] for start, end in self.pieces(kept)])


def keys_in_batch(records: bytes, count: int, base_offset: int) -> Keys:
    """The decompressed records of a batch of format 2. Raises InvalidRecord."""
    return Keys(records, keys_of_records(records, count, base_offset))


def keys_in_run(data: bytes, position: int, magic: int) -> Keys:
    """The plain messages of format `magic` from `position` on, up to whatever is none. They end at
    `starts[-1]`."""
    return Keys(data, keys_of_messages(data, position, magic))


def keys_in_wrapper(payload: bytes, magic: int, wrapper_offset: int) -> Keys:
    """The messages inside a wrapper. Raises InvalidRecord unless they are plain ones of its format;
    one that is cut at the end is ignored."""
    columns = keys_of_messages(payload, 0, magic)
    run = Keys(payload, columns)
    position, left = run.starts[-1], len(payload) - run.starts[-1]
    if left >= ENTRY_OVERHEAD:
        size = INT32.unpack_from(payload, position + LENGTH_POSITION)[0] + ENTRY_OVERHEAD
        if size <= left:
            raise InvalidRecord(f"at byte {position} of the set is no plain message of its format")
    if not len(run):
        raise InvalidRecord(f"wrapper holds no whole message in {len(payload)} bytes")
    # A wrapper with offset 0 counts from 0, whatever is inside (records.md 2.2).
    if not magic or not wrapper_offset:
        return run
    base_offset = wrapper_offset - run.offsets[-1]
    if not 0 <= base_offset <= OFFSET_LIMIT:
        raise InvalidRecord(
            f"wrapper has offset {wrapper_offset}, its last message {run.offsets[-1]}"
        )
    try:
        offsets = array("q", [base_offset + offset for offset in run.offsets])
    except OverflowError:
        raise InvalidRecord("an offset inside a wrapper is beyond 64 bits") from None
    return Keys(payload, (columns[0], columns[1], offsets.tobytes(), columns[3]))


def control_type(records: bytes, count: int) -> int:
    """ABORT, COMMIT or another type, of the first record of a control batch; -1 if there is none.

    Raises InvalidRecord for what is no record, or has no key of a control record.
    """
    if count < 1:
        return -1
    _, _, key_at, key_size, _, _, _ = next(iter(tuple(read_fields(records, count))))
    if key_size < 4:
        raise InvalidRecord(f"control record with a key of {key_size} bytes, wanted 4")
    kind: int = INT16.unpack_from(records, key_at + 2)[0]
    return kind


# Batches


def moved_records(
    records: bytes, count: int, *, offset_shift: int = 0, timestamp_shift: int = 0
) -> bytes:
    """The same records, with something added to their offset deltas and timestamp deltas (ms)."""
    parts: list[bytes] = []
    position = 0
    for _ in range(count):
        size, position = read_varint(records, position)
        end = position + size
        timestamp, at = read_varlong(records, position + 1)
        offset, at = read_varint(records, at)
        body = (
            records[position : position + 1]
            + encode_varint(wrap_timestamp(timestamp + timestamp_shift))
            + encode_varint(offset + offset_shift)
            + records[at:end]
        )
        parts += (encode_varint(len(body)), body)
        position = end
    return b"".join(parts)


def made_batch(records: bytes, header: Header) -> bytes:
    """A batch with these uncompressed records; length and checksum of the header do not matter."""
    codec = header[ATTRIBUTES] & CODEC_MASK
    batch = bytearray(HEADER_SIZE)
    batch += compress(codec, records) if codec else records
    HEADER.pack_into(
        batch, 0, header[BASE_OFFSET], len(batch) - ENTRY_OVERHEAD, header[LEADER_EPOCH], 2, 0,
        *header[ATTRIBUTES:],
    )  # fmt: skip
    UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CHECKED_POSITION:]))
    return bytes(batch)


def changed(header: Header, **fields: int) -> Header:
    """A header with other fields: names as in `layout`, in small letters."""
    row = list(header)
    for name, value in fields.items():
        row[_FIELDS[name]] = value
    return tuple(row)  # type: ignore[return-value]


_FIELDS = {
    "attributes": ATTRIBUTES,
    "last_offset_delta": LAST_OFFSET_DELTA,
    "base_timestamp": BASE_TIMESTAMP,
    "max_timestamp": MAX_TIMESTAMP,
    "producer_id": PRODUCER_ID,
    "producer_epoch": PRODUCER_ID + 1,
    "base_sequence": PRODUCER_ID + 2,
    "record_count": RECORD_COUNT,
}


def emptied(header: Header) -> Header:
    """The header of a batch of which nothing stays but its offsets and its producer."""
    attributes = header[ATTRIBUTES] & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return changed(header, attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)


def thinned(header: Header, records: bytes, count: int) -> Header:
    """The header once only these `count` records are left. Raises InvalidRecord."""
    max_timestamp = header[MAX_TIMESTAMP]
    if not header[ATTRIBUTES] & TIMESTAMP_TYPE_BIT:
        scan = scan_records(
            records, count, header[BASE_TIMESTAMP], oldest_ms=INT64_MIN, newest_ms=INT64_MAX
        )
        max_timestamp = scan.max_timestamp
    return changed(header, max_timestamp=max_timestamp, record_count=count)


def with_horizon(header: Header, records: bytes, horizon_ms: int) -> tuple[Header, bytes]:
    """The base timestamp becomes the time from which tombstones may go; records keep their own."""
    shift = header[BASE_TIMESTAMP] - horizon_ms
    attributes = header[ATTRIBUTES] | DELETE_HORIZON_BIT
    moved = moved_records(records, header[RECORD_COUNT], timestamp_shift=shift)
    return changed(header, attributes=attributes, base_timestamp=horizon_ms), moved


def joined_batches(parts: Sequence[tuple[Header, bytes]]) -> bytes:
    """One batch with the records of several: from the first offset of the first to the last of the
    last, without a producer. Codec, timestamp type and leader epoch are those of the first."""
    first, records = parts[0]
    pieces = [records]
    count, max_timestamp = first[RECORD_COUNT], first[MAX_TIMESTAMP]
    end = first[BASE_OFFSET] + first[LAST_OFFSET_DELTA]
    for header, more in parts[1:]:
        pieces.append(
            moved_records(
                more,
                header[RECORD_COUNT],
                offset_shift=header[BASE_OFFSET] - first[BASE_OFFSET],
                timestamp_shift=header[BASE_TIMESTAMP] - first[BASE_TIMESTAMP],
            )
        )
        count += header[RECORD_COUNT]
        max_timestamp = max(max_timestamp, header[MAX_TIMESTAMP])
        end = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
    header = changed(
        first,
        last_offset_delta=end - first[BASE_OFFSET],
        max_timestamp=max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return made_batch(b"".join(pieces), header)


# Wrappers


def made_wrapper(
    messages: bytes,
    offsets: Sequence[int],
    *,
    magic: int,
    codec: int,
    stamped_ms: int | None,
) -> bytes:
    """A wrapper around whole plain messages that get these absolute offsets.

    Inside, format 0 has them as they are, format 1 counts from the first. `stamped_ms` is the time
    of a wrapper of type LogAppendTime; another one of format 1 has the largest of its messages.
    """
    inside = bytearray(messages)
    base_offset = offsets[0] if magic else 0
    position = 0
    for offset in offsets:
        INT64.pack_into(inside, position, offset - base_offset)
        position += INT32.unpack_from(inside, position + LENGTH_POSITION)[0] + ENTRY_OVERHEAD
    timestamp_ms = NO_TIMESTAMP
    if magic:
        timestamp_ms = max_timestamp_of(messages) if stamped_ms is None else stamped_ms
    return wrap_messages(
        inside,
        magic=magic,
        codec=codec,
        offset=offsets[-1],
        timestamp_ms=timestamp_ms,
        stamped=stamped_ms is not None,
    )


def max_timestamp_of(messages: bytes) -> int:
    """The largest timestamp (ms) of a run of plain messages of format 1."""
    scan = scan_messages(
        messages, 1, max_entry_bytes=2**31 - 1, oldest_ms=INT64_MIN, newest_ms=INT64_MAX
    )
    return scan.max_timestamp


def entries_of(messages: bytes, pieces: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Position and size of each message in these pieces of a run."""
    for position, end in pieces:
        while position < end:
            size = INT32.unpack_from(messages, position + LENGTH_POSITION)[0] + ENTRY_OVERHEAD
            yield position, size
            position += size
