"""The checks of an entry by itself: its header, and its records against the header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.batch import MAX_DECOMPRESSED_BYTES, Batch
from protocol.records.compression import ZSTD
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    MIN_RECORD_SIZE,
    NO_TIMESTAMP,
    PRODUCER_BITS,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from protocol.records.legacy import read_messages
from protocol.records.record import read_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.layout import Header
    from storage.scan import Entry

ORDINARY = CODEC_MASK | TIMESTAMP_TYPE_BIT
"""Attributes of which nothing more has to be asked."""
KNOWN = PRODUCER_BITS | DELETE_HORIZON_BIT

OPENED_BYTES_MAX = MAX_DECOMPRESSED_BYTES
"""Entries larger than this are not opened; what is in one may expand to as much."""


def is_ordinary(entry: Entry) -> bool:
    """Whether there is nothing to ask about: no producer, no hole, one record per offset."""
    header = entry.header
    if header is None:
        return False
    (_, _, _, _, _, attributes, delta, base, largest, producer, _, _, count) = header
    return (
        0 < count == delta + 1
        and not attributes & ~ORDINARY
        and producer == -1
        and base <= largest
        and attributes & CODEC_MASK <= ZSTD
        and (attributes & CODEC_MASK > 0 or count * MIN_RECORD_SIZE <= entry.size - HEADER_SIZE)
    )


def faults(entry: Entry) -> Iterator[tuple[bool, str]]:
    """(whether it is an error, a sentence) for each fact of the header that cannot be so.

    The checksum fits, so it is a writer that was wrong and not a disk.
    """
    header = entry.header
    if header is None:
        if entry.codec > 3 or (entry.codec == 3 and entry.magic == 0 and entry.size < HEADER_SIZE):
            yield True, f"codec {entry.codec} in format {entry.magic}"
        return
    yield from _counts(header, entry.size)
    yield from _meanings(header)


def _counts(header: Header, size: int) -> Iterator[tuple[bool, str]]:
    attributes, count, delta = header[ATTRIBUTES], header[RECORD_COUNT], header[LAST_OFFSET_DELTA]
    codec = attributes & CODEC_MASK
    if not 0 <= count <= delta + 1:
        yield True, f"{count} records in {delta + 1} offsets"
    elif not count and size != HEADER_SIZE:
        yield True, f"{size - HEADER_SIZE} bytes of records, and a count of none"
    elif not codec and count * MIN_RECORD_SIZE > size - HEADER_SIZE:
        yield True, f"{count} records cannot be in {size - HEADER_SIZE} bytes"
    if codec > ZSTD:
        yield True, f"codec {codec}, known are 0 to {ZSTD}"
    if attributes & ~KNOWN:
        yield False, f"attributes {attributes & 0xFFFF:#06x} have unknown bits"


def _meanings(header: Header) -> Iterator[tuple[bool, str]]:
    attributes, producer = header[ATTRIBUTES], header[PRODUCER_ID]
    base, largest = header[BASE_TIMESTAMP], header[MAX_TIMESTAMP]
    if base > largest and not attributes & (DELETE_HORIZON_BIT | TIMESTAMP_TYPE_BIT):
        yield False, f"the first timestamp is {base}, the largest is said to be {largest}"
    if producer < 0 and attributes & TRANSACTIONAL_BIT:
        yield False, "part of a transaction, but of no producer"
    if producer >= 0 and (
        header[PRODUCER_EPOCH] < 0 or (header[BASE_SEQUENCE] < 0 and not attributes & CONTROL_BIT)
    ):
        yield (
            False,
            f"producer {producer} has epoch {header[PRODUCER_EPOCH]} and base sequence "
            f"{header[BASE_SEQUENCE]}",
        )


def faults_inside(entry: Entry, data: memoryview) -> Iterator[tuple[bool, str]]:
    """The same for the records: they are decompressed and gone through one by one.

    `data` is the whole entry. What a batch expands to is bounded by `OPENED_BYTES_MAX`.
    """
    try:
        if entry.header is None:
            yield from _inside_message(entry, data)
        else:
            yield from _inside_batch(entry.header, data)
    except (CorruptBatch, InvalidRecord) as error:
        yield True, f"records: {error}"


def _inside_batch(header: Header, data: memoryview) -> Iterator[tuple[bool, str]]:
    payload = Batch(data).payload(limit=OPENED_BYTES_MAX)
    before, largest = -1, NO_TIMESTAMP
    for number, fields in enumerate(read_fields(payload, header[RECORD_COUNT])):
        timestamp = header[BASE_TIMESTAMP] + fields[0]
        largest = max(largest, timestamp)
        if not before < fields[1] <= header[LAST_OFFSET_DELTA]:
            yield (
                True,
                f"record {number} has offset delta {fields[1]}, wanted {before + 1} to "
                f"{header[LAST_OFFSET_DELTA]}",
            )
            return
        before = fields[1]
    stamped = header[ATTRIBUTES] & TIMESTAMP_TYPE_BIT
    if header[RECORD_COUNT] and not stamped and largest != header[MAX_TIMESTAMP]:
        yield (
            False,
            f"the largest timestamp is {largest}, the header says {header[MAX_TIMESTAMP]}",
        )


def _inside_message(entry: Entry, data: memoryview) -> Iterator[tuple[bool, str]]:
    before = -1
    record = None
    for record in read_messages(data, limit=OPENED_BYTES_MAX):
        if record.offset <= before:
            yield True, f"offset {record.offset} follows offset {before} inside"
            return
        before = record.offset
    if record is not None and before != entry.last_offset:
        yield True, f"the last message has offset {before}, the wrapper {entry.last_offset}"


def first_offset_inside(data: memoryview) -> int:
    """The offset of the first message in a wrapper, -1 if it cannot be opened."""
    try:
        return next(read_messages(data, limit=OPENED_BYTES_MAX)).offset
    except (CorruptBatch, InvalidRecord, StopIteration):
        return -1
