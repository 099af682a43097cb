"""Batches of the metadata log and of its snapshots.

They are ordinary batches of format 2 without a producer. All records of a batch have its time, data
records have no key, none has headers. Offsets are those of the log, or within a snapshot its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import Malformed
from protocol.logdata.metadata_codec import decode_record
from protocol.logdata.metadata_control import ControlRecord, decode_control, encode_control
from protocol.logdata.metadata_records import MetadataRecord
from protocol.logdata.offsets import UnknownRecord
from protocol.records.batch import Batch
from protocol.records.builder import encode_varint, wrap_records
from protocol.records.errors import InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    CRC,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from protocol.records.record import read_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from protocol.records.layout import Header
    from protocol.records.record import Fields

_BEFORE_DELTA = b"\x00\x00"
"""Attributes and timestamp delta of every record."""
_NO_KEY = b"\x01"
_NO_HEADERS = b"\x00"


class MetadataBatch(NamedTuple):
    """A batch, read and checked. The time is ms since 1970."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    is_control: bool
    records: list[MetadataRecord] | list[ControlRecord]


def metadata_batch(
    values: Sequence[bytes], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytearray:
    """One batch of these values (see `encode_record`). Raises ValueError if there are none."""
    entries = ((None, value) for value in values)
    return _batch(entries, 0, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)


def control_batch(
    records: Sequence[ControlRecord], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytearray:
    """One batch of these control records. Raises ValueError if there are none."""
    entries = map(encode_control, records)
    return _batch(
        entries, CONTROL_BIT, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms
    )


def _batch(
    entries: Iterable[tuple[bytes | None, bytes]],
    attributes: int,
    *,
    base_offset: int,
    epoch: int,
    timestamp_ms: int,
) -> bytearray:
    parts: list[bytes] = []
    count = 0
    for key, value in entries:
        delta, size = encode_varint(count), encode_varint(len(value))
        raw_key = _NO_KEY if key is None else encode_varint(len(key)) + key
        length = len(_BEFORE_DELTA) + len(delta) + len(raw_key) + len(size) + len(value) + 1
        parts += (encode_varint(length), _BEFORE_DELTA, delta, raw_key, size, value, _NO_HEADERS)
        count += 1
    if not count:
        raise ValueError("a batch needs at least one record")
    return wrap_records(
        b"".join(parts),
        count,
        attributes=attributes,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def read_batch(view: bytes | bytearray | memoryview) -> MetadataBatch:
    """The one batch that these bytes are.

    Raises Malformed, naming the offset, for what is no whole batch of format 2, has a wrong
    checksum or count, or records with times of their own, headers, keys where none belong or no
    value; UnknownRecord for a record that `decode_record` or `decode_control` refuses. Nothing
    that Kafka writes is compressed; if it is, `MAX_DECOMPRESSED_BYTES` holds.
    """
    data = memoryview(view)
    header = _checked_header(data)
    base_offset, count = header[BASE_OFFSET], header[RECORD_COUNT]
    is_control = bool(header[ATTRIBUTES] & CONTROL_BIT)
    records: list[Any] = []
    add = records.append
    try:
        payload = Batch(data).payload()
        for fields in read_fields(payload, count):
            timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, headers = fields
            if (
                timestamp_delta
                or offset_delta != len(records)
                or (key_size < 0) is is_control
                or value_size < 0
                or headers
            ):
                raise InvalidRecord(_oddity(fields, len(records), is_control=is_control))
            value = payload[value_at : value_at + value_size]
            if is_control:
                add(decode_control(payload[key_at : key_at + key_size], value))
            else:
                add(decode_record(value))
    except InvalidRecord as error:
        raise Malformed(f"batch at offset {base_offset}: {error}") from None
    except UnknownRecord as error:
        raise UnknownRecord(f"record at offset {base_offset + len(records)}: {error}") from None
    return MetadataBatch(
        base_offset,
        base_offset + count - 1,
        header[LEADER_EPOCH],
        header[MAX_TIMESTAMP],
        is_control,
        records,
    )


def _checked_header(data: memoryview) -> Header:
    if len(data) < HEADER_SIZE:
        raise Malformed(f"a batch of {len(data)} bytes, its header alone has {HEADER_SIZE}")
    batch = Batch(data)
    header = batch.header()
    where = f"batch at offset {header[BASE_OFFSET]}"
    if header[MAGIC] != 2:
        raise Malformed(f"{where} has magic {header[MAGIC]}, wanted is 2")
    if batch.size != len(data):
        raise Malformed(f"{where} claims {batch.size} bytes and has {len(data)}")
    checksum = batch.checksum()
    if header[CRC] != checksum:
        raise Malformed(f"{where} has the checksum {header[CRC]:08x}, its bytes {checksum:08x}")
    count = header[RECORD_COUNT]
    if count < 1 or header[LAST_OFFSET_DELTA] != count - 1:
        raise Malformed(f"{where} has {count} records up to offset {batch.last_offset}")
    return header


def _oddity(fields: Fields, index: int, *, is_control: bool) -> str:
    """The fault of a record that is whole but none of metadata, in words."""
    timestamp_delta, offset_delta, _, key_size, _, value_size, headers = fields
    if timestamp_delta:
        what = f"a time of its own, {timestamp_delta} ms from that of the batch"
    elif offset_delta != index:
        what = f"the offset delta {offset_delta}"
    elif headers:
        what = f"{len(headers)} headers"
    elif value_size < 0:
        what = "no value"
    else:
        assert (key_size < 0) is is_control
        what = "no key" if is_control else f"a key of {key_size} bytes"
    return f"{'control record' if is_control else 'record'} {index} has {what}"
