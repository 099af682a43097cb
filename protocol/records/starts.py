"""The search for the beginnings of records in decompressed payloads of format 2.

A record's length is at its start, so that each start is known only from the one before. Everything
else of many records can be read at once. `_loops.c` has the twin of this loop, which gives up where
anything is wrong.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from protocol.records.errors import InvalidRecord
from protocol.records.layout import MIN_RECORD_SIZE
from protocol.records.record import read_varint, short_varints
from protocol.records.transcode import first_of

if TYPE_CHECKING:
    from protocol.records.loops import Data

SPAN_FIELDS = 3


def interpreted_record_starts(data: Data, spans: bytes) -> bytes:
    """The positions in `data` of the length fields of all records, as native int32.

    `spans` has three native int32 for each payload: where it begins, where it ends, and how many
    records it claims to have. They must be within `data`. Raises InvalidRecord unless the lengths
    of each payload's records, none of them negative, lead from its beginning to exactly its end.
    """
    raw = bytes(data)
    bounds = array("i")
    bounds.frombytes(spans)
    starts: list[int] = []
    add = starts.append
    one, two = short_varints()
    for index in range(0, len(bounds), SPAN_FIELDS):
        position, end, count = bounds[index : index + SPAN_FIELDS]
        if count * MIN_RECORD_SIZE > end - position:
            raise InvalidRecord(f"{count} records claimed in {end - position} bytes")
        try:
            for _ in range(count):
                add(position)
                if (byte := raw[position]) < 0x80:
                    size, position = one[byte], position + 1
                elif (more := raw[position + 1]) < 0x80:
                    size, position = two[byte][more], position + 2
                else:
                    size, position = read_varint(raw, position)
                if size < 0:
                    raise InvalidRecord(f"a record has a length of {size}")
                position += size
        except IndexError:
            position = -1
        if position != end:
            raise InvalidRecord(f"the lengths of {count} records do not lead to the end")
    return array("i", starts).tobytes()


record_starts = interpreted_record_starts
try:
    from protocol.records import _loops
except ImportError:
    pass  # built where there was no C compiler
else:
    record_starts = first_of(_loops.record_starts, interpreted_record_starts)
