"""A log's treatment of a prepared set, and its content then, in the form of the vectors."""

from __future__ import annotations

import copy
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import KafkaError
from protocol.records import compression
from protocol.records.batch import Batch
from protocol.records.compression import NAMES
from protocol.records.legacy import Message, read_messages
from protocol.records.prepare import Prepared, prepare
from protocol.records.record import Record
from protocol.records.validate import UNLIMITED_MS, ProduceRules, Validation
from protocol.records.walk import walk
from tests.records.corpus import shown
from tests.support.old_sets import messages

if TYPE_CHECKING:
    from protocol.records.builder import RecordFields
    from protocol.records.layout import Header

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
NOW_MS = 1_700_000_000_000
NEXT_OFFSET = 1_000
TIMES = (NOW_MS, NOW_MS + 9, NOW_MS + 5)
RECORDS: list[RecordFields] = [
    (TIMES[0], b"k", b"a", ()),
    (TIMES[1], None, b"b", ()),
    (TIMES[2], b"", None, ()),
]
THREE_CONTENTS = [
    (NEXT_OFFSET, b"k", b"a"),
    (NEXT_OFFSET + 1, None, b"b"),
    (NEXT_OFFSET + 2, b"", None),
]


def three(magic: int, **fields: Any) -> bytes:
    """The same records as plain messages."""
    times = TIMES if magic else None
    return messages(b"a", b"b", None, magic=magic, times_ms=times, keys=(b"k", None, b""), **fields)


def contents(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read(data)]


def times(data: bytes) -> list[int]:
    return [record.timestamp_ms for record in read(data)]


def sent(data: bytes | bytearray, rules: ProduceRules, **terms: Any) -> Prepared:
    """The set prepared, for a log that ends at offset 1000; there must be something in it."""
    terms = {"version": 2, "now_ms": NOW_MS, "next_offset": NEXT_OFFSET, **terms}
    prepared = prepare(memoryview(bytearray(data)), rules, **terms)
    assert prepared is not None
    return prepared


def refused(data: bytes | bytearray, rules: ProduceRules, **terms: Any) -> KafkaError:
    """The error that the set meets; nothing may have been written into it."""
    buffer = bytearray(data)
    terms = {"version": 2, "now_ms": NOW_MS, "next_offset": NEXT_OFFSET, **terms}
    with pytest.raises(KafkaError) as refusal:
        prepare(memoryview(buffer), rules, **terms)
    assert buffer == data, "a refused set was written to"
    return refusal.value


def stays(data: bytes | bytearray, rules: ProduceRules, **terms: Any) -> Prepared:
    """The set, stored in the memory it came in without a call of a compressor."""
    buffer = bytearray(data)
    calls = copy.deepcopy(compression.CALLS)
    terms = {"version": 2, "now_ms": NOW_MS, "next_offset": NEXT_OFFSET, **terms}
    prepared = prepare(memoryview(buffer), rules, **terms)
    assert prepared is not None
    assert is_in_place(prepared, buffer)
    assert compression.CALLS["compress"] == calls["compress"]
    return prepared


def placed(prepared: Prepared, base_offset: int = NEXT_OFFSET, leader_epoch: int = 0) -> bytes:
    """The bytes as they are written: offsets given from `base_offset` on, without a gap."""
    assert prepared.built_for in (None, base_offset)
    if prepared.messages is not None:
        assert not prepared.batches
        assert prepared.messages.record_count == prepared.record_count
        prepared.messages.place(base_offset)
        assert len(prepared.messages.view) == prepared.size
        return bytes(prepared.messages.view)
    data = b""
    for view, header in prepared.batches:
        batch = Batch(view)
        assert header == batch.header()
        assert len(view) == batch.size
        batch.place(base_offset, leader_epoch)
        base_offset = batch.last_offset + 1
        data += bytes(view)
    assert len(data) == prepared.size
    return data


def is_in_place(prepared: Prepared, sent_bytes: bytearray) -> bool:
    """Whether the memory that came in is the memory that is written."""
    views = [view for view, _ in prepared.batches]
    if prepared.messages is not None:
        views.append(prepared.messages.view)
    in_place = [view.obj is sent_bytes for view in views]
    assert prepared.rebuilt == (not all(in_place))
    return all(in_place)


def time_index_entry(prepared: Prepared, base_offset: int = NEXT_OFFSET) -> tuple[int, int]:
    """The max timestamp, in ms, and the offset that the time index names for it; -1 for none."""
    if prepared.messages is not None:
        delta = prepared.messages.max_timestamp_delta
        return prepared.messages.max_timestamp, -1 if delta < 0 else base_offset + delta
    header = prepared.batches[-1][1]
    if header[8] < 0:
        return -1, -1
    return header[8], base_offset + prepared.record_count - 1


def read(data: bytes | bytearray) -> list[Record]:
    """All records as a consumer sees them, of entries of any format; checksums are looked at."""
    records: list[Record] = []
    view = memoryview(data)
    position = 0
    for position_of_entry, size, magic in walk(view):
        entry = view[position_of_entry : position_of_entry + size]
        if magic == 2:
            assert Batch(entry).is_intact()
            records += Batch(entry).records()
        else:
            records += read_messages(entry)
        position = position_of_entry + size
    assert position == len(data), "a stored set may not end inside an entry"
    return records


def shown_entries(data: bytes | bytearray) -> list[dict[str, Any]]:
    """Each entry as the vectors show it."""
    view = memoryview(data)
    return [
        shown_batch(Batch(view[position:])) if magic == 2 else shown_message(view[position:])
        for position, _, magic in walk(view)
    ]


def shown_batch(batch: Batch) -> dict[str, Any]:
    return {
        "magic": 2,
        "size": batch.size,
        "codec": NAMES[batch.codec],
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count,
        "timestamp_type": TIMESTAMP_TYPES[batch.timestamp_type],
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "partition_leader_epoch": batch.leader_epoch,
        "crc_valid": batch.is_intact(),
        "records": [shown(record) for record in batch.records()],
    }


def shown_message(view: memoryview) -> dict[str, Any]:
    message = Message(view)
    records = [shown(record) for record in read_messages(view[: message.size])]
    if not message.magic:
        records = [{**record, "timestamp": None} for record in records]
    return {
        "magic": message.magic,
        "size": message.size,
        "codec": NAMES[message.codec],
        "offset": message.offset,
        "timestamp_type": TIMESTAMP_TYPES[message.timestamp_type] if message.magic else None,
        "timestamp": message.timestamp_ms if message.magic else None,
        "crc_valid": message.is_intact(),
        "records": records,
    }


def rules_of(vector: dict[str, Any], *, validation: Validation) -> ProduceRules:
    topic = vector["topic"]
    before, after = topic["before_max_ms"], topic["after_max_ms"]
    codec = topic["compression_type"]
    names: tuple[str, ...] = ("uncompressed", *NAMES[1:])
    return ProduceRules(
        magic=topic["message_format"],
        codec=None if codec == "producer" else names.index(codec),
        max_message_bytes=topic["max_message_bytes"],
        compacted=topic["compacted"],
        log_append_time=topic["timestamp_type"] == "LogAppendTime",
        before_max_ms=UNLIMITED_MS if before is None else before,
        after_max_ms=UNLIMITED_MS if after is None else after,
        validation=validation,
    )


def header_of(prepared: Prepared) -> Header:
    """Of the only batch."""
    ((_, header),) = prepared.batches
    return header


def crc_of(content: bytes) -> bytes:
    """The checksum of a message of format 0 or 1, as it stands in it."""
    return zlib.crc32(content).to_bytes(4, "big")
