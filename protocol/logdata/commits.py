"""The batch of one offset commit: one record for each partition, written whole or not at all.

The records of `offsets`, put together by hand. Partitions of one topic differ in few bytes, which
a single `pack` writes; making the structs first would take seven times as long, and this is what a
consumer that commits after every record waits for.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct as Format
from typing import TYPE_CHECKING

from protocol.records.builder import encode_varint, wrap_records
from protocol.records.layout import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Entry = tuple[str, int, int, int, str | None, int]
    """Topic, partition, offset, leader epoch (-1 none), metadata, time to expire at (ms, or -1)."""

MAX_STRING_BYTES = 32_767
KEY_VERSION = 1
VALUE_VERSION = 3
VALUE_VERSION_WITH_EXPIRY = 1
"""The only one with a time to expire at. It has no leader epoch."""

_INT16 = Format(">h")
_INT64 = Format(">q")
_PARTITION = Format(">i")
_VALUE = Format(">hqih")
_VALUE_WITH_EXPIRY = Format(">hqh")

_BEFORE_DELTA = b"\x00\x00"
"""Attributes and timestamp delta of every record."""
_VALUE_SIZE = _VALUE.size + _INT64.size
"""Bytes of a value without metadata."""
_VALUE_START = encode_varint(_VALUE_SIZE) + _INT16.pack(VALUE_VERSION)
_RECORD_END = _INT16.size + _INT64.size + 1
"""No metadata, the commit timestamp, no headers."""

_SHORT_DELTAS = 1 << 6
_DELTAS = 1 << 13
"""Offset deltas below the one take a byte, those below the other two."""


def commit_batch(
    group: str,
    entries: Iterable[Entry],
    *,
    now_ms: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    commit_timestamps: Sequence[int] | None = None,
) -> bytearray:
    """The batch with base offset 0; writable, so that a log can give it its offset.

    `now_ms` is the time of the records and of the commit. Requests of version 1 may have a time of
    their own for each partition: then `commit_timestamps` has as many as there are entries. With a
    producer id the batch is transactional. Metadata None is written as no metadata.

    Raises ValueError where there are no entries, or for a string of more than 32767 bytes.
    """
    raw_group = _string(group, "group")
    time = _INT64.pack(now_ms)
    end = b"\x00\x00" + time + b"\x00"
    parts: list[bytes] = []
    add = parts.append
    current: str | None = None
    key = b""
    limit = 0
    for index, (topic, partition, offset, leader_epoch, metadata, expire_ms) in enumerate(entries):
        if topic != current or index >= limit:
            current = topic
            key = _key_start(raw_group, topic)
            limit, start, pack = _shape(index < _SHORT_DELTAS, len(key))
        if metadata or expire_ms != -1 or commit_timestamps is not None or index >= _DELTAS:
            stamp = time if commit_timestamps is None else _INT64.pack(commit_timestamps[index])
            value = _value(offset, leader_epoch, metadata or "", stamp, expire_ms)
            add(_record(index, key + _PARTITION.pack(partition), value))
        else:
            delta = index << 1
            if index >= _SHORT_DELTAS:
                delta = (delta & 0x7F | 0x80) << 8 | delta >> 7
            add(pack(start, delta, key, partition, _VALUE_START, offset, leader_epoch, end))
    if not parts:
        raise ValueError("a commit needs at least one partition")
    transactional = producer_id != NO_PRODUCER_ID
    return wrap_records(
        b"".join(parts),
        len(parts),
        attributes=TRANSACTIONAL_BIT if transactional else 0,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer=(producer_id, producer_epoch, 0 if transactional else NO_SEQUENCE),
    )


def _string(text: str, what: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"{what} of {len(raw)} bytes; {MAX_STRING_BYTES} are allowed")
    return _INT16.pack(len(raw)) + raw


def _key_start(raw_group: bytes, topic: str) -> bytes:
    """The key with its size, up to the partition."""
    key = _INT16.pack(KEY_VERSION) + raw_group + _string(topic, "topic")
    return encode_varint(len(key) + _PARTITION.size) + key


@lru_cache(maxsize=1024)
def _shape(short: bool, key_size: int) -> tuple[int, bytes, Callable[..., bytes]]:
    """Records whose offset delta takes one byte, or two: up to which index that holds, the bytes
    before the delta, and what packs them all."""
    delta = "B" if short else "H"
    rest = f"{delta}{key_size}si{len(_VALUE_START)}sqi{_RECORD_END}s"
    size = len(_BEFORE_DELTA) + Format(">" + rest).size
    start = encode_varint(size) + _BEFORE_DELTA
    return _SHORT_DELTAS if short else _DELTAS, start, Format(f">{len(start)}s{rest}").pack


def _value(offset: int, leader_epoch: int, metadata: str, time: bytes, expire_ms: int) -> bytes:
    raw = metadata.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"metadata of {len(raw)} bytes; {MAX_STRING_BYTES} are allowed")
    if expire_ms == -1:
        return _VALUE.pack(VALUE_VERSION, offset, leader_epoch, len(raw)) + raw + time
    head = _VALUE_WITH_EXPIRY.pack(VALUE_VERSION_WITH_EXPIRY, offset, len(raw))
    return head + raw + time + _INT64.pack(expire_ms)


def _record(index: int, key: bytes, value: bytes) -> bytes:
    """`key` comes with its size in front."""
    delta, value_size = encode_varint(index), encode_varint(len(value))
    size = len(_BEFORE_DELTA) + len(delta) + len(key) + len(value_size) + len(value) + 1
    return b"".join((encode_varint(size), _BEFORE_DELTA, delta, key, value_size, value, b"\x00"))
