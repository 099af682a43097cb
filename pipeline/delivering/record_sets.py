"""From stored entries to what a destination takes: one set of records per Produce.

Stored                            Sent
batch (format 2)                  as it is, but for the 12 bytes that no checksum covers
batch of a transaction            without the producer's fields; nothing of what was aborted
control batch, emptied batch      not at all
batch with holes (compaction)     made anew with the same codec, as no broker takes holes
batch of LogAppendTime            made anew with that time in each record: no broker lets a producer
                                  set that type, and the times are to stay
batch with a delete horizon       without that bit, which is for each broker's own compaction
messages, wrappers (0 and 1)      as batches of the same codec and with the same times; to a topic
                                  of an older format as they are, but for wrappers of format 1 with
                                  holes (compaction), which are made anew as well

What is made anew is made in the same way each time: a task that is run again recognises by its
bytes what the one before it has stored. So runs of plain messages are cut where their offsets say,
and not where a fetch ended.

An entry belongs to the range that has its last offset: by that one logs find entries, too.
"""

from __future__ import annotations

from collections import Counter
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pipeline.delivering.remade import (
    EVERYTHING,
    RUN_BYTES,
    MessageRun,
    batch_of_batch,
    batch_of_wrapper,
    dense_wrapper,
    opened,
)
from pipeline.errors import CorruptData
from protocol.errors import KafkaError
from protocol.records.aborted import AbortedBatches
from protocol.records.crc import crc32c
from protocol.records.errors import CorruptBatch
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BASE_TIMESTAMP_POSITION,
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC,
    CRC_POSITION,
    ENTRY,
    HEADER,
    INT64,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_POSITION,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    UINT32,
)
from protocol.records.legacy import Message
from protocol.records.walk import last_offset, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pipeline.delivering.remade import Selection
    from protocol.records.layout import Header

    LeftOut = Callable[[int, int, str], None]
    """First offset, last offset, reason."""

NO_PRODUCER = (-1, -1, -1)

_UNCHECKED = Struct(">qii")
"""What a broker may change without touching the checksum, and the length in between."""


class RecordSet(NamedTuple):
    """The records that one Produce carries to one partition."""

    data: bytes | bytearray | memoryview
    magic: int
    records: int
    keys: tuple[tuple[int, int], ...]
    """Size and checksum of each entry in it: by these it is recognised where it was stored."""
    last: int
    """The last offset that it had at the source."""
    codec: int
    max_timestamp: int
    producer: tuple[int, int, int] = NO_PRODUCER
    """Id, epoch, base sequence."""
    partition: int | None = None
    """Of the destination, where it is not that of the delivery."""

    @property
    def next_sequence(self) -> int:
        """The base sequence of the producer's next batch: after 2147483647 comes 0."""
        return (self.producer[2] + self.records) & 0x7FFFFFFF

    def without_producer(self) -> RecordSet:
        """The same records from nobody in particular; of a batch only."""
        return _changed(memoryview(self.data), last=self.last, producer=NO_PRODUCER)

    def shifted(self, shift_ms: int) -> RecordSet:
        """The same records so much later; of a batch only. One without times stays as it is."""
        header: Header = HEADER.unpack_from(self.data)
        if not shift_ms or header[MAX_TIMESTAMP] == NO_TIMESTAMP:
            return self
        data = bytearray(self.data)
        for place, field in (
            (BASE_TIMESTAMP_POSITION, BASE_TIMESTAMP),
            (MAX_TIMESTAMP_POSITION, MAX_TIMESTAMP),
        ):
            INT64.pack_into(data, place, max(0, header[field] + shift_ms))
        UINT32.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CHECKED_POSITION:]))
        return set_of_batch(data, self.last)._replace(partition=self.partition)


def _changed(view: memoryview, *, last: int, producer: tuple[int, int, int]) -> RecordSet:
    """A batch with another producer, and no attributes but its codec."""
    header: Header = HEADER.unpack_from(view)
    data = bytearray(view)
    HEADER.pack_into(
        data, 0, 0, header[LENGTH], NO_LEADER_EPOCH, 2, 0, header[ATTRIBUTES] & CODEC_MASK,
        *header[LAST_OFFSET_DELTA:PRODUCER_ID], *producer, header[RECORD_COUNT],
    )  # fmt: skip
    UINT32.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CHECKED_POSITION:]))
    return set_of_batch(data, last)


def set_of_batch(batch: bytes | bytearray | memoryview, last: int) -> RecordSet:
    """A batch that can be sent as it is."""
    header: Header = HEADER.unpack_from(batch)
    return RecordSet(
        batch,
        2,
        header[RECORD_COUNT],
        ((len(batch), header[CRC]),),
        last,
        header[ATTRIBUTES] & CODEC_MASK,
        header[MAX_TIMESTAMP],
        _producer(header),
    )


def _producer(header: Header) -> tuple[int, int, int]:
    if header[PRODUCER_ID] < 0:
        return NO_PRODUCER
    return header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]


class SetMaker:
    """Makes the sets of the range [start, end) of a partition, chunk by chunk.

    `magic` is the format that the destination stores, `largest` the bytes of an entry that it
    takes; `keep_producers` leaves producers' ids, epochs and sequences where they are. `wanted`
    leaves out records of entries that lie partly in what somebody asked for. `left_out` is told of
    each corrupt entry, which is otherwise raised as CorruptData; `name` is the partition's, for the
    message.

    `counts`: entries that were `converted`, `rebuilt` (made anew in their format) or `cleared` (of
    their producer), and left out as `aborted`, `control` or `emptied`.
    """

    def __init__(
        self,
        name: str,
        start: int,
        end: int,
        *,
        magic: int = 2,
        largest: int = RUN_BYTES,
        keep_producers: bool = True,
        wanted: Selection = EVERYTHING,
        left_out: LeftOut | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._name = name
        self._start = start
        self._end = end
        self._magic = magic
        self._largest = largest
        self._keep_producers = keep_producers and magic == 2
        self._wanted = wanted
        self._left_out = left_out
        self._run: MessageRun | None = None

    def sets(
        self, entries: memoryview, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[RecordSet]:
        """Of the whole entries of one fetch, in their order. `aborted` is what it says of
        transactions: producer id and first offset.

        Where `entries` may be written to, batches are sent from there, and their first 16 bytes
        are changed. Raises CorruptData.
        """
        transactions = AbortedBatches(aborted)
        for position, size, magic in walk(entries):
            view = entries[position : position + size]
            try:
                if magic == 2:
                    made = self._of_batch(view, transactions)
                elif self._start <= last_offset(view, 0, magic) < self._end:
                    message = _intact(view)
                    if not message.codec:
                        yield from self._with_run(message)
                        continue
                    made = self._of_wrapper(message)
                else:
                    continue
            except KafkaError as error:
                self._corrupt(view, magic, error)
                continue
            if made is not None:
                yield from self.rest()
                yield made

    def rest(self) -> Iterator[RecordSet]:
        """The set held back of plain messages, if any; to be asked for after the last chunk."""
        run, self._run = self._run, None
        if run is None:
            return
        if self._magic == 2:
            self.counts["converted"] += run.records
            yield set_of_batch(run.as_batch(), run.last)
            return
        yield RecordSet(
            run.data, run.magic, run.records, tuple(run.keys), run.last, 0, run.max_timestamp
        )

    def _corrupt(self, view: memoryview, magic: int, error: KafkaError) -> None:
        last = last_offset(view, 0, magic)
        first = min(last, ENTRY.unpack_from(view)[0])
        if self._left_out is None:
            raise CorruptData(f"{self._name} offset {first}: {error}") from None
        self._left_out(first, last, str(error))

    def _of_batch(self, view: memoryview, transactions: AbortedBatches) -> RecordSet | None:
        header: Header = HEADER.unpack_from(view)
        attributes, count, delta = (
            header[ATTRIBUTES],
            header[RECORD_COUNT],
            header[LAST_OFFSET_DELTA],
        )
        first = header[BASE_OFFSET]
        last = first + delta
        aborted = transactions.covers(header, view) if attributes & TRANSACTIONAL_BIT else False
        if not self._start <= last < self._end:
            return None
        if crc32c(view[CHECKED_POSITION:]) != header[CRC]:
            raise CorruptBatch(f"the batch states checksum {header[CRC]:#010x}, it has another")
        if attributes & CONTROL_BIT or aborted or not count:
            self.counts["aborted" if aborted else "control" if count else "emptied"] += 1
            return None
        codec = attributes & CODEC_MASK
        producer = _producer(header)
        if (
            count != delta + 1
            or attributes & TIMESTAMP_TYPE_BIT
            or not self._wanted.has_all(first, last)
        ):
            made = batch_of_batch(view, self._wanted)
            self.counts["rebuilt"] += made is not None
            return None if made is None else set_of_batch(made, last)
        if producer[0] >= 0 and (attributes & TRANSACTIONAL_BIT or not self._keep_producers):
            producer, attributes = NO_PRODUCER, -1
        if attributes != codec:
            self.counts["cleared"] += 1
            return _changed(view, last=last, producer=producer)
        data = bytearray(view) if view.readonly else view
        _UNCHECKED.pack_into(data, 0, 0, header[LENGTH], NO_LEADER_EPOCH)
        return RecordSet(
            data,
            2,
            count,
            ((len(view), header[CRC]),),
            last,
            codec,
            header[MAX_TIMESTAMP],
            producer,
        )

    def _with_run(self, message: Message) -> Iterator[RecordSet]:
        if not self._wanted.has(message.offset, message.timestamp_ms):
            return
        if self._run is not None and self._run.takes(message):
            self._run.add(message)
            return
        yield from self.rest()
        self._run = MessageRun(message, self._largest)

    def _of_wrapper(self, wrapper: Message) -> RecordSet | None:
        inside = opened(wrapper)
        if self._magic == 2 or not self._wanted.has_all(inside.first, inside.last):
            made = batch_of_wrapper(inside, self._wanted)
            self.counts["converted"] += made is not None
            return None if made is None else set_of_batch(made, inside.last)
        if wrapper.magic and inside.last - inside.shift != inside.count - 1:
            data = bytearray(dense_wrapper(inside))
            wrapper = Message(memoryview(data))
            self.counts["rebuilt"] += 1
        else:
            # A producer's wrapper of format 1 counts from 0. No checksum covers its offset.
            data = bytearray(wrapper.view[: wrapper.size])
            INT64.pack_into(data, 0, inside.count - 1 if wrapper.magic else wrapper.offset)
        return RecordSet(
            data,
            wrapper.magic,
            inside.count,
            ((wrapper.size, wrapper.crc),),
            inside.last,
            wrapper.codec,
            inside.max_timestamp,
        )


def _intact(view: memoryview) -> Message:
    message = Message(view)
    if not message.is_intact():
        raise CorruptBatch(f"the message states checksum {message.crc:#010x}, it has another")
    return message
