"""A compressed message of format 0 or 1 says only its last offset; which is its first, and whether
the last is right, is told by what is inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.legacy import Message
from protocol.records.record import INT64_MAX, INT64_MIN
from protocol.records.transcode import scan_messages

if TYPE_CHECKING:
    from storage.filesystem import File
    from storage.scan import Entry

OPENED_BYTES_MAX = 16 * 1024 * 1024
"""Expanded bytes up to which a message is opened for the sake of its offset."""


def first_inside(file: File, entry: Entry) -> int | None:
    """The first offset inside an intact compressed message; None if what is inside contradicts it.

    In format 1 the messages inside count from 0 (KIP-31), in format 0 they have their offsets. One
    that is too large to be opened is taken for a message by itself.
    """
    try:
        message = Message(memoryview(file.pread(entry.size, entry.position)))
        payload = message.payload(limit=OPENED_BYTES_MAX)
        inside = scan_messages(
            payload,
            entry.magic,
            max_entry_bytes=2**31 - 1,
            oldest_ms=INT64_MIN,
            newest_ms=INT64_MAX,
        )
    except (CorruptBatch, InvalidRecord):
        return entry.last_offset
    if inside.last_offset < 0 or not payload:
        return entry.last_offset
    if entry.magic == 1:
        return entry.last_offset - inside.last_offset
    if inside.last_offset == entry.last_offset:
        return int.from_bytes(payload[:8], "big")
    # Brokers before 0.8.2 were sent, and Apache Kafka kept, sets that count from 0 as well.
    return None if inside.last_offset >= inside.count else entry.last_offset
