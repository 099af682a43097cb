"""Stored batches as rows: their headers, and their bytes as they are. Nothing is decompressed.

A batch counts as being where its last offset is, which every format states: of ranges that lie
behind one another each batch is in exactly one, wherever they are cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.decode_legacy import NO_TIMESTAMP_TYPE, checksum_fault, open_wrapper
from pipeline.columns.entries import MESSAGE_0, OFFSET, read_at
from pipeline.columns.faults import Faults
from pipeline.columns.opening import Chunk
from pipeline.columns.rows import cut_out, timestamps
from pipeline.schemas import BATCHES
from protocol.records.compression import LZ4, NAMES, ZSTD
from protocol.records.crc import crc32, crc32c
from protocol.records.entry_rows import ROW, entry_rows
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    CHECKED_POSITION,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    MESSAGE_CHECKED_POSITION,
    MESSAGE_OVERHEADS,
    MESSAGE_TIMESTAMP_POSITION,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.columns.faults import LeftOut
    from pipeline.columns.varints import Numbers

SMALLEST = (*MESSAGE_OVERHEADS, HEADER_SIZE)
"""Bytes of the smallest entry of each format."""
LAST_CODECS = (LZ4, LZ4, ZSTD)
"""The codecs of each format are those up to this."""


def decode_batches(
    entries: bytes | memoryview,
    *,
    topic: str,
    partition: int,
    start: int,
    end: int,
    check_crc: bool = True,
    left_out: LeftOut | None = None,
) -> pa.RecordBatch:
    """The entries with start <= last offset < end, as BATCHES.

    `entries` may mix all formats; one that is cut is the end of them. Column `batch` is not a copy:
    `entries` must not be written to while the result lives. A bad entry is one whose checksum does
    not fit, if that is asked for, whose codec is unknown, or that is no entry. It raises
    CorruptData; with `left_out`, that is called with its first and last offset and the reason, and
    the others go on.
    """
    faults = Faults(topic, partition, start, end, left_out)
    chunk = Chunk(memoryview(entries), faults, ())
    chosen = np.flatnonzero((chunk.last_offset >= start) & (chunk.last_offset < end))
    found = _Columns(chunk, chosen)
    good = found.check(check_crc)
    chunk.end_fault()
    faults.tell()
    if not good.all():
        found = _Columns(chunk, chosen[good])
    columns = found.columns()
    count = found.magic.size
    columns["topic"] = pa.repeat(pa.scalar(topic), count)
    columns["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), count)
    columns["batch"] = found.bytes_of(entries)
    return pa.RecordBatch.from_arrays(
        [columns[name].cast(BATCHES.field(name).type) for name in BATCHES.names], schema=BATCHES
    )


def record_count(batches: pa.RecordBatch) -> int:
    """The records of rows of BATCHES, without markers; wrappers of formats 0 and 1 are opened for
    it, and one that cannot be has none. Raises CodecMissing."""
    told = pc.sum(batches["records"].filter(pc.invert(batches["control"]))).as_py() or 0
    wrappers = batches["batch"].filter(pc.is_null(batches["records"]))
    return int(told) + sum(_inside(entry.as_buffer()) for entry in wrappers)


def _inside(wrapper: pa.Buffer) -> int:
    try:
        payload, messages = open_wrapper(memoryview(wrapper))
    except (CorruptBatch, InvalidRecord):
        return 0
    return len(entry_rows(memoryview(payload)[: messages.end])) // ROW.size


class _Columns:
    """Some of a chunk's entries, those of all formats side by side."""

    def __init__(self, chunk: Chunk, chosen: Numbers) -> None:
        self.chunk = chunk
        self.chosen = chosen
        self.position = chunk.entries.position[chosen]
        self.end = chunk.entries.end[chosen]
        self.magic = chunk.entries.magic[chosen]
        self.plain = chunk.plain[chosen]
        self.codec = chunk.codec[chosen]
        self.headers = chunk.headers[chosen]
        self.attributes = chunk.attributes[chosen]
        self.batch = self.magic == 2
        old = np.flatnonzero(~self.batch)
        self.crc = self.headers["crc"].astype(np.int64)
        self.crc[old] = read_at(chunk.raw, self.position[old], MESSAGE_0)["crc"]

    def check(self, check_crc: bool) -> NDArray[np.bool_]:
        """Whether each is good; those that are not are told to the faults."""
        good = np.ones(self.magic.size, dtype=np.bool_)
        view = self.chunk.view
        columns = (self.position, self.end, self.magic, self.crc, self.codec)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for index, (position, end, magic, crc, codec) in enumerate(rows):
            found = crc
            if check_crc and magic == 2:
                found = crc32c(view[position + CHECKED_POSITION : end])
            elif check_crc:
                found = crc32(view[position + MESSAGE_CHECKED_POSITION : end])
            if found == crc and codec <= LAST_CODECS[magic] and end - position >= SMALLEST[magic]:
                continue
            good[index] = False
            self._fault(index, found)
        return good

    def _fault(self, index: int, found: int) -> None:
        crc, codec, magic = (int(column[index]) for column in (self.crc, self.codec, self.magic))
        size = int(self.end[index] - self.position[index])
        if size < SMALLEST[magic]:
            reason = f"message of {size} bytes, format {magic} has at least {SMALLEST[magic]}"
        elif found != crc:
            reason = checksum_fault(crc, found)
        else:
            reason = f"codec {codec} in format {magic}"
        self.chunk.fault(int(self.chosen[index]), reason)

    def columns(self) -> dict[str, pa.Array]:
        """All but the topic, the partition and the bytes."""
        headers, batch, old = self.headers, self.batch, ~self.batch
        first, last = self.chunk.first_offset[self.chosen], self.chunk.last_offset[self.chosen]
        wrapper = old & ~self.plain
        stamp = np.full(self.magic.size, NO_TIMESTAMP, dtype=np.int64)
        dated = np.flatnonzero(self.magic == 1)
        stamp[dated] = read_at(
            self.chunk.raw, self.position[dated] + MESSAGE_TIMESTAMP_POSITION, OFFSET
        )
        base_time = np.where(batch, headers["base_timestamp"], stamp)
        base_time[wrapper | (batch & self._has(DELETE_HORIZON_BIT))] = NO_TIMESTAMP
        types = self._has(TIMESTAMP_TYPE_BIT).astype(np.int32)
        types[self.magic == 0] = NO_TIMESTAMP_TYPE
        no_producer = old | (headers["producer_id"] == NO_PRODUCER_ID)
        no_epoch = old | (headers["leader_epoch"] == NO_LEADER_EPOCH)
        records = np.where(batch, headers["record_count"], 1)
        names = pa.DictionaryArray.from_arrays(pa.array(self.codec), pa.array(NAMES))
        return {
            "base_offset": pa.array(first, mask=wrapper),
            "last_offset": pa.array(last),
            "records": pa.array(records, mask=wrapper),
            "magic": pa.array(self.magic),
            "codec": names,
            "timestamp_type": pa.array(types),
            "first_timestamp": timestamps(base_time),
            "max_timestamp": timestamps(np.where(batch, headers["max_timestamp"], stamp)),
            "producer_id": _masked(headers["producer_id"], no_producer),
            "producer_epoch": _masked(headers["producer_epoch"], no_producer),
            "base_sequence": _masked(headers["base_sequence"], no_producer),
            "transactional": pa.array(batch & self._has(TRANSACTIONAL_BIT)),
            "control": pa.array(batch & self._has(CONTROL_BIT)),
            "leader_epoch": _masked(headers["leader_epoch"], no_epoch),
            "crc": pa.array(self.crc),
            "size": pa.array(self.end - self.position),
        }

    def _has(self, bit: int) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (self.attributes & bit) != 0
        return found

    def bytes_of(self, entries: bytes | memoryview) -> pa.Array:
        """The bytes of each, in place where they lie behind one another."""
        count = self.magic.size
        at = self.position.astype(np.int32)
        if not count or (self.position[1:] != self.end[:-1]).any():
            return cut_out(entries, at, (self.end - self.position).astype(np.int32))
        offsets = pa.py_buffer(np.append(at, np.int32(self.end[-1])))
        return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(entries)], 0)


def _masked(values: NDArray[Any], null: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values.astype(np.int64), mask=null)
