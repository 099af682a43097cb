"""From entry to entry through a buffer that may mix all formats.

Fetch responses, produce requests and torn log files end inside an entry. That is the end of the
set and not an error; what cannot be an entry at all is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.errors import CorruptBatch as CorruptBatch
from protocol.records.layout import (
    BATCH_END,
    ENTRY,
    ENTRY_OVERHEAD,
    ENTRY_PREFIX,
    MAGIC_POSITION,
    MIN_BATCH_LENGTH,
    MIN_ENTRY_LENGTH,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def walk(
    buffer: bytes | bytearray | memoryview, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, int, int]]:
    """Yield (position, size in bytes, magic) of each whole entry in buffer[position:end].

    Stops where fewer bytes are left than the entry needs; the position to go on from is then that
    of the last entry plus its size. The content of entries, including the checksum, is not looked
    at. Raises CorruptBatch for a length below 14 (below 49 in format 2) or a magic outside 0..2, in
    the order of Kafka's own reader: a bad length is an error even if the entry is cut.
    """
    limit = len(buffer) if end is None else min(end, len(buffer))
    while limit - position >= ENTRY_OVERHEAD:
        _, length = ENTRY.unpack_from(buffer, position)
        if length < MIN_ENTRY_LENGTH:
            raise CorruptBatch(
                f"entry at position {position} has length {length}, "
                f"but no format has fewer than {MIN_ENTRY_LENGTH} bytes"
            )
        if limit - position < ENTRY_PREFIX:
            return
        magic = buffer[position + MAGIC_POSITION]
        if magic > 2:
            raise CorruptBatch(
                f"entry at position {position} has magic {magic}, known are 0, 1 and 2"
            )
        if magic == 2 and length < MIN_BATCH_LENGTH:
            raise CorruptBatch(
                f"batch at position {position} has length {length}, "
                f"but its header alone needs {MIN_BATCH_LENGTH}"
            )
        size = length + ENTRY_OVERHEAD
        if limit - position < size:
            return
        yield position, size, magic
        position += size


def last_offset(buffer: bytes | bytearray | memoryview, position: int, magic: int) -> int:
    """The offset of the last record of the entry at `position`.

    Entries are found by their last offset in every format. In formats 0 and 1 it is the entry's
    own offset. The entry must be whole, as `walk` reports it.
    """
    if magic < 2:
        offset: int = ENTRY.unpack_from(buffer, position)[0]
        return offset
    base_offset, delta = BATCH_END.unpack_from(buffer, position)
    total: int = base_offset + delta
    return total
