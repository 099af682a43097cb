"""The entries that a fetch brought, of every format."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import KafkaError
from protocol.records.batch import Batch
from protocol.records.compression import DEFAULT_RATIO
from protocol.records.errors import CorruptBatch
from protocol.records.legacy import read_messages
from protocol.records.record_rows import rows_of
from protocol.records.walk import last_offset, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.record import Record
    from protocol.records.record_rows import Row


class FetchedEntry(NamedTuple):
    """A batch, or a message of formats 0 and 1, wrapper or not: `view` holds it and nothing else.

    `last_offset` is that of its last record, or what was the last before compaction took it.
    """

    view: memoryview
    magic: int
    last_offset: int

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker and nothing for clients."""
        return self.magic == 2 and Batch(self.view).is_control

    def records(self, *, ratio: int = DEFAULT_RATIO) -> list[Record]:
        """Its records as a consumer sees them; `ratio` as in `compression.decompress`. Raises
        KafkaError if they are damaged."""
        if self.magic < 2:
            return list(read_messages(self.view, ratio=ratio))
        return list(self._batch().records(ratio=ratio))

    def each_record(self, *, wrapper_bytes: int, headers_max: int) -> Iterator[Record]:
        """The same one after the other, for who reads what may be far too much: the records of a
        batch are made as they are asked for, and those of a wrapper only if they have at most so
        many bytes. Raises KafkaError, also for a record of more headers."""
        if self.magic < 2:
            return read_messages(self.view, limit=wrapper_bytes)
        return self._batch().records(headers_max=headers_max)

    def rows(self, *, ratio: int = DEFAULT_RATIO) -> list[Row]:
        """The same as tuples, for who reads millions of them."""
        if self.magic < 2:
            return [
                (one.offset, one.timestamp_ms, one.key, one.value, one.headers)
                for one in read_messages(self.view, ratio=ratio)
            ]
        batch = self._batch()
        return rows_of(batch.payload(ratio=ratio), batch.header())

    def _batch(self) -> Batch:
        batch = Batch(self.view)
        if not batch.is_intact():
            raise CorruptBatch(
                f"its checksum is {batch.crc:#010x}, its bytes have {batch.checksum():#010x}"
            )
        return batch


def entries_in(data: bytes) -> Iterator[FetchedEntry]:
    """The whole ones. Raises KafkaError where something stands that is no entry."""
    view = memoryview(data)
    for position, size, magic in walk(view):
        yield FetchedEntry(
            view[position : position + size], magic, last_offset(data, position, magic)
        )


class FirstRecord(NamedTuple):
    """The first record at or after an offset, as far as some fetched bytes tell.

    `offset` is where to go on reading if there was none in them. `problem` says what is damaged.
    """

    record: Record | None
    offset: int
    magic: int = 2
    problem: str = ""


def first_record(data: bytes, offset: int) -> FirstRecord:
    """Look for it; control batches have no records, and compaction leaves gaps."""
    try:
        for entry in entries_in(data):
            if entry.last_offset < offset:
                continue
            if not entry.is_control:
                for record in entry.records():
                    if record.offset >= offset:
                        return FirstRecord(record, record.offset, entry.magic)
            offset = entry.last_offset + 1
    except KafkaError as error:
        return FirstRecord(None, offset, problem=f"damaged at offset {offset}: {error}")
    return FirstRecord(None, offset)
