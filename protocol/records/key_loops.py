"""The loops over the keys of records that compaction needs, in Python.

`_loops.c` is the same in C, byte for byte; `compact` has the faster of the two and is what others
import. As with `loops`, the compiled twin gives up where anything is wrong, and this one is asked.

What was seen of records comes in four columns (`Columns`). A key stands in them as its digest:
BLAKE2b, 16 bytes. MD5, which Kafka takes, would do until somebody makes two keys with one digest;
then the older record of the two would be lost. The digest of no key is zeros, and no key has that.

A table is a bytearray of slots of 24 bytes: a digest and the newest offset of its key, an int64 of
this machine; zeros are a free slot. The number of slots is a prime, and the first 8 bytes of a
digest say where to look first and how far to go on: open addressing with a second hash, because at
nine tenths full a key that is not there costs ten looks, where going on to the next slot would cost
fifty. There are several tables, and the first byte says which one is a key's.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from protocol.records.crc import crc32
from protocol.records.errors import InvalidRecord
from protocol.records.layout import (
    CODEC_MASK,
    ENTRY_OVERHEAD,
    INT32,
    KEY_POSITIONS,
    MESSAGE_CHECKED_POSITION,
    MESSAGE_OVERHEADS,
    MIN_RECORD_SIZE,
)
from protocol.records.loops import DATA_LIMIT, OFFSET_LIMIT
from protocol.records.record import read_varint, short_varints

DIGEST_SIZE = 16
SLOT_SIZE = 24
NO_KEY = bytes(DIGEST_SIZE)
NO_OFFSET = -1

TOMBSTONE = 1
KEYLESS = 2

_OFFSET = Struct("=q")

# A message up to its key and with the key's size.
_TO_KEY_SIZE = (Struct(">qiIbbi").unpack_from, Struct(">qiIbbqi").unpack_from)

assert array("i").itemsize == 4
assert array("q").itemsize == SLOT_SIZE - DIGEST_SIZE == _OFFSET.size


class Columns(NamedTuple):
    """One row for each record; numbers as this machine has them.

    starts   int32: position of the record, and in one more row the end of the last one
    digests  16 bytes of its key, zeros for a record without one
    offsets  int64
    flags    a byte with the bits TOMBSTONE (no value) and KEYLESS
    """

    starts: bytes
    digests: bytes
    offsets: bytes
    flags: bytes


class _Rows:
    """Columns while they are made."""

    def __init__(self) -> None:
        self.starts, self.offsets = array("i"), array("q")
        self.digests: list[bytes] = []
        self.flags = bytearray()

    def columns(self, end: int) -> Columns:
        self.starts.append(end)
        return Columns(
            self.starts.tobytes(),
            b"".join(self.digests),
            self.offsets.tobytes(),
            bytes(self.flags),
        )


def keys_of_records(data: bytes, count: int, base_offset: int) -> Columns:
    """The decompressed records of a batch of format 2.

    Raises InvalidRecord where lengths do not fit. Headers are not looked into.
    """
    total = len(data)
    if not 0 <= count * MIN_RECORD_SIZE <= total <= DATA_LIMIT:
        raise InvalidRecord(f"batch claims {count} records in {total} bytes, each has 7 or more")
    if not -OFFSET_LIMIT <= base_offset <= OFFSET_LIMIT:
        raise InvalidRecord(f"offset {base_offset} is not within 2^62 of zero")
    rows = _Rows()
    add_start, add_digest, add_offset = rows.starts.append, rows.digests.append, rows.offsets.append
    add_flag = rows.flags.append
    one, two = short_varints()
    position = index = 0
    try:
        for index in range(count):
            add_start(position)
            if (byte := data[position]) < 0x80:
                size, position = one[byte], position + 1
            elif (more := data[position + 1]) < 0x80:
                size, position = two[byte][more], position + 2
            else:
                size, position = read_varint(data, position)
            end = position + size
            position += 1
            while data[position] > 0x7F:
                position += 1
            delta, position = read_varint(data, position + 1)
            add_offset(base_offset + delta)
            if (byte := data[position]) < 0x80:
                key_size, position = one[byte], position + 1
            else:
                key_size, position = read_varint(data, position)
            if key_size < 0:
                add_digest(NO_KEY)
            else:
                key = data[position : position + key_size]
                add_digest(blake2b(key, digest_size=DIGEST_SIZE).digest())
                position += key_size
            value_size, position = read_varint(data, position)
            add_flag((value_size < 0) | (key_size < 0) << 1)
            position += max(value_size, 0)
            if not position < end <= total:
                raise InvalidRecord(f"record {index} ends at byte {end}, its fields do not")
            position = end
    except IndexError:
        raise InvalidRecord(f"record {index} runs past the last of {total} bytes") from None
    if position != total:
        raise InvalidRecord(f"{total - position} bytes are left after the last of {count} records")
    return rows.columns(total)


def keys_of_messages(data: bytes, position: int, magic: int) -> Columns:
    """The plain messages of format `magic` from `position` on, up to whatever is none: the end, a
    wrapper, another format, a wrong checksum, a field that runs out of its message.

    Offsets are those of the messages as they are.
    """
    if len(data) > DATA_LIMIT:
        raise InvalidRecord(f"{len(data)} bytes of messages, at most {DATA_LIMIT} can be read")
    rows, view, total = _Rows(), memoryview(data), len(data)
    unpack, smallest = _TO_KEY_SIZE[magic], MESSAGE_OVERHEADS[magic]
    to_key, unpack_size = KEY_POSITIONS[magic] + 4, INT32.unpack_from
    while total - position >= smallest:
        if magic:
            offset, length, crc, found, attributes, _, key_size = unpack(data, position)
        else:
            offset, length, crc, found, attributes, key_size = unpack(data, position)
        end = position + length + ENTRY_OVERHEAD
        if found != magic or attributes & CODEC_MASK or end - position < smallest or end > total:
            break
        key_at = position + to_key
        value_at = key_at + key_size if key_size > 0 else key_at
        if value_at + 4 > end:
            break
        value_size = unpack_size(data, value_at)[0]
        if value_at + 4 + value_size > end:
            break
        if crc32(view[position + MESSAGE_CHECKED_POSITION : end]) != crc:
            break
        rows.starts.append(position)
        rows.offsets.append(offset)
        rows.flags.append((value_size < 0) | (key_size < 0) << 1)
        key = data[key_at:value_at]
        rows.digests.append(
            NO_KEY if key_size < 0 else blake2b(key, digest_size=DIGEST_SIZE).digest()
        )
        position = end
    return rows.columns(position)


def enter_keys(
    digests: bytes,
    offsets: bytes,
    row: int,
    low: int,
    high: int,
    tables: list[bytearray],
    rooms: array[int],
) -> int:
    """Enter keys with their offsets, which rise, from a row on into their tables.

    Rows without a key and those with an offset outside of low..high, `high` not included, are left
    out. `rooms` has the free slots that each table may still give away. Returns the row that would
    have needed one where there is none, or the number of rows.
    """
    places = array("q", offsets)
    for at in range(row, len(digests) // DIGEST_SIZE):
        digest = digests[at * DIGEST_SIZE : (at + 1) * DIGEST_SIZE]
        offset = places[at]
        if not low <= offset < high or digest == NO_KEY:
            continue
        index = digest[0] % len(tables)
        table = tables[index]
        slot = _slot_of(table, digest)
        if table[slot : slot + DIGEST_SIZE] == NO_KEY:
            if rooms[index] <= 0:
                return at
            rooms[index] -= 1
            table[slot : slot + DIGEST_SIZE] = digest
        _OFFSET.pack_into(table, slot + DIGEST_SIZE, offset)
    return len(digests) // DIGEST_SIZE


def newest_offsets(digests: bytes, tables: list[bytearray]) -> bytes:
    """The offset of each key as int64 of this machine; -1 for one that is in no table."""
    found = array("q")
    for at in range(0, len(digests), DIGEST_SIZE):
        digest = digests[at : at + DIGEST_SIZE]
        if digest == NO_KEY:
            found.append(NO_OFFSET)
            continue
        table = tables[digest[0] % len(tables)]
        slot = _slot_of(table, digest)
        if table[slot : slot + DIGEST_SIZE] == digest:
            found.append(_OFFSET.unpack_from(table, slot + DIGEST_SIZE)[0])
        else:
            found.append(NO_OFFSET)
    return found.tobytes()


def _slot_of(table: bytearray, digest: bytes) -> int:
    """Position of the slot with this digest, or of the free one that it would get."""
    slots = len(table) // SLOT_SIZE
    number = int.from_bytes(digest[:8], "little")
    slot, step = number % slots, 1 + (number >> 32) % (slots - 1)
    while True:
        at = slot * SLOT_SIZE
        found = table[at : at + DIGEST_SIZE]
        if found in (digest, NO_KEY):
            return at
        slot = (slot + step) % slots
