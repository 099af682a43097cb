"""Entries that reach below the first offset wanted: made anew without the records before it.

DeleteRecords moves the start of a log into the midst of a batch, which a broker goes on to serve
whole; consumers step over the records that were deleted. Who passes entries on as they are would
pass those on too. What is left of such an entry is what compaction would leave of it (KIP-101,
KIP-534): a batch of format 2 keeps its offsets, its producer and that one's sequences, so that the
sequence of each record is still its place in the batch; a wrapper keeps its last offset, which is
the only one that it states. The base timestamp, which was the first record's, is that of the first
one left.
"""

from __future__ import annotations

from pipeline.columns.payloads import expand
from protocol.records.batch import Batch
from protocol.records.compact import (
    changed,
    emptied,
    keys_in_batch,
    keys_in_wrapper,
    made_batch,
    made_wrapper,
    moved_records,
    thinned,
)
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    MAGIC_POSITION,
)
from protocol.records.legacy import Message
from protocol.records.record import read_varint, read_varlong, wrap_timestamp


def entry_from(entry: memoryview, first: int) -> bytes | memoryview:
    """One entry of any format, without its records below offset `first`; nothing (no bytes) of a
    wrapper that has no others.

    Raises CorruptBatch or InvalidRecord for one that cannot be opened, CodecMissing.
    """
    if entry[MAGIC_POSITION] == 2:
        return _batch_from(entry, first)
    return _wrapper_from(entry, first)


def _batch_from(entry: memoryview, first: int) -> bytes | memoryview:
    batch = Batch(entry)
    if batch.base_offset >= first:
        return entry
    if not batch.is_intact():
        raise CorruptBatch(f"the batch states checksum {batch.crc:#010x}, it has another")
    header = batch.header()
    if not batch.record_count:
        return entry
    records = bytes(entry[HEADER_SIZE : batch.size])
    if batch.codec:
        records = expand(batch.codec, records)
    run = keys_in_batch(records, batch.record_count, batch.base_offset)
    kept = [row for row, offset in enumerate(run.offsets) if offset >= first]
    if len(kept) == len(run):
        return entry
    if not kept:
        return made_batch(b"", emptied(header))
    records = run.taken(kept)
    if not header[ATTRIBUTES] & DELETE_HORIZON_BIT:
        _, at = read_varint(records, 0)
        later, _ = read_varlong(records, at + 1)
        records = moved_records(records, len(kept), timestamp_shift=-later)
        header = changed(header, base_timestamp=wrap_timestamp(header[BASE_TIMESTAMP] + later))
    return made_batch(records, thinned(header, records, len(kept)))


def _wrapper_from(entry: memoryview, first: int) -> bytes | memoryview:
    wrapper = Message(entry)
    if not wrapper.codec:
        return entry if wrapper.offset >= first else b""
    if not wrapper.is_intact():
        raise CorruptBatch(f"the message states checksum {wrapper.crc:#010x}, it has another")
    value = wrapper.value
    if value is None:
        raise InvalidRecord(f"wrapper with codec {wrapper.codec} has a null value, wanted a set")
    payload = expand(wrapper.codec, value, magic=wrapper.magic)
    run = keys_in_wrapper(payload, wrapper.magic, wrapper.offset)
    kept = [row for row, offset in enumerate(run.offsets) if offset >= first]
    if len(kept) == len(run):
        return entry
    if not kept:
        return b""
    return made_wrapper(
        run.taken(kept),
        [run.offsets[row] for row in kept],
        magic=wrapper.magic,
        codec=wrapper.codec,
        stamped_ms=wrapper.timestamp_ms if wrapper.timestamp_type else None,
    )
