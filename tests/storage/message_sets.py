"""Sets of formats 0 and 1 to put into logs, as a produce request leaves them once prepared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.batch import Batch
from protocol.records.legacy import Message, MessageSet, build_messages, read_messages
from protocol.records.walk import walk
from tests.storage.logs import NOW_MS

if TYPE_CHECKING:
    from protocol.records.record import Record
    from storage.log import Log


def message_set(raw: bytes | bytearray) -> MessageSet:
    """A set from its bytes: plain messages, or one wrapper."""
    view = memoryview(bytearray(raw))
    first = Message(view)
    compressed = first.codec != 0
    records = list(read_messages(view))
    if compressed:
        latest, delta = first.timestamp_ms, len(records) - 1
    else:
        times = [record.timestamp_ms for record in records]
        latest, delta = max(times), times.index(max(times))
    if latest < 0:
        latest = delta = -1
    return MessageSet(
        view,
        magic=first.magic,
        compressed=compressed,
        record_count=len(records),
        max_timestamp=latest,
        max_timestamp_delta=delta,
    )


def messages(
    *times: int,
    magic: int = 1,
    codec: int = 0,
    base_offset: int = 0,
    append_time_ms: int | None = None,
    value: bytes = b"v",
) -> MessageSet:
    """A set with one message per timestamp (ms). `base_offset` matters to format 0 wrappers."""
    rows = [(time, None, value, ()) for time in times]
    raw = build_messages(
        rows, magic=magic, codec=codec, base_offset=base_offset, append_time_ms=append_time_ms
    )
    return message_set(raw)


def produce_messages(log: Log, *times: int, magic: int = 1, codec: int = 0) -> int:
    """Append and write one set; returns its first offset."""
    made = messages(*times, magic=magic, codec=codec, base_offset=log.next_offset)
    offset = log.append_messages(made, now_ms=NOW_MS)
    log.write()
    return offset


def records_in(data: bytes) -> list[Record]:
    """All records of entries of any format, as a consumer sees them."""
    found: list[Record] = []
    for position, size, magic in walk(data):
        entry = memoryview(data)[position : position + size]
        found += Batch(entry).records() if magic == 2 else read_messages(entry)
    return found
