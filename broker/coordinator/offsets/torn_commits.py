"""The groups whose commits a crash has torn, as far as can be read of what recovery has cut off."""

from __future__ import annotations

from struct import error as TooShort
from typing import Any

from protocol.errors import KafkaError, Malformed
from protocol.logdata.offsets import decode_key
from protocol.records.layout import ENTRY, ENTRY_OVERHEAD, HEADER_SIZE
from protocol.records.record import read_varint


def groups_in(head: bytes) -> list[str]:
    """The groups whose batches begin in these bytes, as far as they can be read; each once."""
    found: dict[str, None] = {}
    position = 0
    while position + HEADER_SIZE < len(head):
        group = _group_of(head, position + HEADER_SIZE)
        if group is not None:
            found[group] = None
        try:
            _, length = ENTRY.unpack_from(head, position)
        except TooShort:
            break
        if length <= 0:
            break
        position += length + ENTRY_OVERHEAD
    return list(found)


def _group_of(head: bytes, position: int) -> str | None:
    """The group in the key of the record that begins here; None if that can't be read."""
    try:
        _, position = read_varint(head, position)  # its size
        position += 1  # attributes
        _, position = read_varint(head, position)  # timestamp
        _, position = read_varint(head, position)  # offset
        size, position = read_varint(head, position)
        if size < 0 or position + size > len(head):
            return None
        key: Any = decode_key(head[position : position + size])
    except (KafkaError, Malformed, IndexError):
        return None
    return str(key.group_id if hasattr(key, "group_id") else key.group)
