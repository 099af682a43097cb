"""The entries of a buffer that may mix all formats: where each is, and the headers of batches.

Headers are read for all batches at once, into an array with the fields of `layout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from protocol.records.entry_rows import ROW_FIELDS, entry_rows
from protocol.records.layout import HEADER_SIZE, KEY_POSITIONS
from protocol.records.walk import CorruptBatch, walk

if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from numpy.typing import NDArray

    from pipeline.columns.varints import Bytes, Numbers

    Structured: TypeAlias = NDArray[Any]

BATCH = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
MESSAGE_0 = np.dtype(
    [("offset", ">i8"), ("length", ">i4"), ("crc", ">u4"), ("magic", "i1"), ("attributes", "u1")]
)
"""Format 1 begins in the same way."""
OFFSET = np.dtype(">i8")

assert BATCH.itemsize == HEADER_SIZE
assert MESSAGE_0.itemsize == KEY_POSITIONS[0]


class Entries(NamedTuple):
    """The whole entries of a buffer, in order. An entry that is cut is the end of them."""

    position: Numbers
    end: Numbers
    magic: Numbers
    fault: str | None
    """Why what comes next cannot be an entry; None at the end of the buffer."""


def find_entries(buffer: bytes | memoryview) -> Entries:
    """The entries that `walk` finds, and the fault that stops it."""
    rows = np.frombuffer(entry_rows(buffer), dtype=np.int64).reshape(-1, ROW_FIELDS)
    position, size, magic = rows.T[:3].copy()
    end = position + size
    fault = None
    try:
        next(walk(buffer, int(end[-1]) if end.size else 0), None)
    except CorruptBatch as error:
        fault = str(error)
    return Entries(position, end, magic, fault)


def read_at(data: Bytes, positions: Numbers, kind: np.dtype[Any]) -> Structured:
    """The structures at these positions; each must be whole."""
    if not positions.size:
        return np.empty(0, dtype=kind)
    windows = np.lib.stride_tricks.sliding_window_view(data, kind.itemsize)
    return windows[positions].view(kind).reshape(-1)
