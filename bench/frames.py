"""Request frames made by hand, for the raw load: the codec under test must not make its own load.

One version of each API that every server here speaks: ApiVersions 0, Metadata 4, Produce 9 and
Fetch 12, and ListOffsets 1 where times are searched. A frame is given with its length prefix; its
correlation id is 0 and is patched later.
"""

from __future__ import annotations

import os
import struct
import time
from typing import NamedTuple

import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint(value << 1 ^ value >> 63)


def compact(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def frame(key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    header = struct.pack(">hhi", key, version, 0) + struct.pack(">h", 5) + b"bench"
    whole = header + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(whole)) + whole


def record_batch(count: int, value_bytes: int, *, now_ms: int | None = None) -> bytes:
    """A v2 batch of `count` records without keys, whose values are random bytes."""
    if now_ms is None:
        now_ms = time.time_ns() // 1_000_000
    value = varint(-1) + varint(value_bytes) + os.urandom(value_bytes) + b"\0"
    records = bytearray()
    for delta in range(count):
        record = b"\0" + varint(0) + varint(delta) + value
        records += varint(len(record)) + record
    checked = struct.pack(">hiqqqhii", 0, count - 1, now_ms, now_ms, -1, -1, -1, count) + bytes(
        records
    )
    crc = crc32c.crc32c(checked)
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc) + checked


def of_producer(
    batch: bytes, producer_id: int, epoch: int, sequence: int, *, transactional: bool
) -> bytes:
    """The same batch from an idempotent producer. `sequence` is that of its first record."""
    head = bytearray(batch[: BATCH_HEADER.size])
    struct.pack_into(">h", head, 21, 16 if transactional else 0)
    struct.pack_into(">qhi", head, 43, producer_id, epoch, sequence)
    crc = crc32c.crc32c(batch[BATCH_HEADER.size :], crc32c.crc32c(head[21:]))
    struct.pack_into(">I", head, 17, crc)
    return bytes(head) + batch[BATCH_HEADER.size :]


def records_in(batch_bytes: int, value_bytes: int) -> int:
    """The number of such records in a batch of about this size."""
    return max(1, (batch_bytes - BATCH_HEADER.size) // (value_bytes + 8))


def produce_frame(
    topic: str,
    batch: bytes,
    *,
    acks: int,
    partition: int = 0,
    transactional_id: str | None = None,
    version: int = 9,
) -> bytes:
    """Produce 9, or another up to 12, of one batch to one partition."""
    name = compact(topic.encode())
    data = struct.pack(">i", partition) + compact(batch) + b"\0"
    body = b"\0" if transactional_id is None else compact(transactional_id.encode())
    body += struct.pack(">hi", acks, 30_000)
    body += b"\x02" + name + b"\x02" + data + b"\0" + b"\0"
    return frame(PRODUCE, version, body, flexible=True)


def produce_error_position(topic: str) -> int:
    """Position of the partition's error code in the answer to `produce_frame`, after the length."""
    return 12 + len(topic)


def fetch_frame(
    topic: str,
    offset: int,
    *,
    max_bytes: int = 1 << 20,
    wait_ms: int = 500,
    committed_only: bool = False,
) -> bytes:
    """Fetch 12 of partition 0 without a session."""
    partition = struct.pack(">iiqiqi", 0, -1, offset, -1, -1, max_bytes) + b"\0"
    body = struct.pack(">iiiibii", -1, wait_ms, 1, 50 << 20, committed_only, 0, -1)
    body += b"\x02" + compact(topic.encode()) + b"\x02" + partition + b"\0"
    return frame(FETCH, 12, body + b"\x01" + b"\x01" + b"\0", flexible=True)


def fetch_error_position(topic: str) -> int:
    """Position of the partition's error code in the answer to `fetch_frame`, after the length."""
    return 22 + len(topic)


def old_fetch_frame(
    topic: str, offset: int, *, version: int, max_bytes: int = 1 << 20, wait_ms: int = 500
) -> bytes:
    """Fetch 0 to 2 of partition 0: message sets, without a size for the whole answer."""
    name = topic.encode()
    body = struct.pack(">iii", -1, wait_ms, 1) + struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iiqi", 1, 0, offset, max_bytes)
    return frame(FETCH, version, body, flexible=False)


def old_fetch_error_position(topic: str, *, version: int) -> int:
    """As `fetch_error_position`, for `old_fetch_frame`: a throttle time came with version 1."""
    return (22 if version else 18) + len(topic)


def list_offsets_frame(topic: str, timestamp_ms: int) -> bytes:
    """ListOffsets 1 of partition 0: the first record at or after a time."""
    name = topic.encode()
    body = struct.pack(">iih", -1, 1, len(name)) + name
    body += struct.pack(">iiq", 1, 0, timestamp_ms)
    return frame(LIST_OFFSETS, 1, body, flexible=False)


def offset_in(answer: bytes, topic: str) -> int:
    """The offset in the answer to `list_offsets_frame`, without its length prefix."""
    code, _, offset = struct.unpack_from(">hqq", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    if code:
        raise ValueError(f"the search was answered with error {code}")
    return int(offset)


def metadata_frame(topic: str) -> bytes:
    """Metadata 4 of one topic, which is created if the server does so."""
    name = topic.encode()
    body = struct.pack(">ih", 1, len(name)) + name + b"\x01"
    return frame(METADATA, 4, body, flexible=False)


def api_versions_frame() -> bytes:
    return frame(API_VERSIONS, 0, b"", flexible=False)


class Batches(NamedTuple):
    """The whole batches of a Fetch answer: the size and the record count of each."""

    sizes: list[int]
    counts: list[int]


def batches_in(answer: bytes, topic: str) -> Batches:
    """Reads the answer to `fetch_frame`, without its length prefix."""
    error = fetch_error_position(topic)
    (code,) = struct.unpack_from(">h", answer, error)
    if code:
        raise ValueError(f"the fetch was answered with error {code}")
    # High watermark, last stable offset, log start offset; then the list of aborted transactions,
    # which is null (0) or empty (1) here; then the preferred replica.
    position = error + 2 + 24 + 1 + 4
    size = shift = 0
    while True:
        byte = answer[position]
        size |= (byte & 127) << shift
        shift += 7
        position += 1
        if byte < 128:
            break
    end = position + size - 1
    found = Batches([], [])
    while end - position >= BATCH_HEADER.size:
        header = BATCH_HEADER.unpack_from(answer, position)
        batch_size = header[1] + 12
        if position + batch_size > end:
            break
        found.sizes.append(batch_size)
        found.counts.append(header[12])
        position += batch_size
    return found
