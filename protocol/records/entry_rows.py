"""All entries of a buffer at once, where `walk` goes from one to the next.

A buffer of old messages has hundreds of thousands of them. `_loops.c` has the twin of this loop.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING

from protocol.records.errors import CorruptBatch
from protocol.records.layout import ENTRY
from protocol.records.record import INT64_MAX, INT64_MIN
from protocol.records.transcode import first_of
from protocol.records.walk import last_offset, walk

if TYPE_CHECKING:
    from protocol.records.loops import Data

ROW = Struct("=5q")
ROW_FIELDS = 5
"""Position, size in bytes, magic, first and last offset. A wrapper of formats 0 and 1 does not say
what its first offset is: there it is the last one too."""


def interpreted_entry_rows(data: Data) -> bytes:
    """A ROW for each whole entry, up to the first that cannot be one; native int64.

    What that one is, if the buffer does not just end there, `walk` from there on says. An offset
    beyond 64 bits is the nearest one in them.
    """
    rows: list[bytes] = []
    with suppress(CorruptBatch):
        for position, size, magic in walk(data):
            first: int = ENTRY.unpack_from(data, position)[0]
            last = first
            if magic == 2:
                last = max(min(last_offset(data, position, magic), INT64_MAX), INT64_MIN)
            rows.append(ROW.pack(position, size, magic, first, last))
    return b"".join(rows)


entry_rows = interpreted_entry_rows
try:
    from protocol.records import _loops
except ImportError:
    pass  # built where there was no C compiler
else:
    entry_rows = first_of(_loops.entry_rows, interpreted_entry_rows)
