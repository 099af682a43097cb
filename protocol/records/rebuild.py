"""Making a produced set anew: in another format, with another codec, or with the right offsets.

Everything here begins with plain data, which has been checked: a run of messages of format 0 or 1
(`Messages`) or the decompressed records of a batch (`BatchRecords`). What comes out has the format
and the codec of the topic (records.md 6.3) and is held against max.message.bytes again. The source
is never written to.

Offsets are those of the log's end only where they lie under compression, in format 0. Everywhere
else the set counts from 0, and the log places it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ErrorCode
from protocol.records.builder import NO_PRODUCER, wrap_records
from protocol.records.compression import NAMES, NONE
from protocol.records.errors import InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    HEADER,
    HEADER_SIZE,
    NO_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from protocol.records.legacy import MessageSet, wrap_messages
from protocol.records.record import INT64_MAX, INT64_MIN
from protocol.records.transcode import (
    messages_from_messages,
    messages_from_records,
    records_from_messages,
    renumber_records,
    scan_messages,
)

if TYPE_CHECKING:
    from protocol.records.layout import Header
    from protocol.records.validate import ProduceRules


class Messages(NamedTuple):
    """A checked set of format 0 or 1 with its wrappers opened, in their order."""

    data: bytes | memoryview
    """Whole plain messages, whose offsets mean nothing."""
    magic: int
    codec: int
    """Codec of the last wrapper; 0 if there was none."""
    record_count: int
    max_timestamp: int
    """In ms, -1 for none."""
    max_index: int
    """The first message that has it."""


class BatchRecords(NamedTuple):
    """A checked batch with its records decompressed."""

    data: bytes | memoryview
    header: Header
    contiguous: bool
    """The offset deltas are 0, 1, 2, ..."""
    max_timestamp: int


class Target(NamedTuple):
    """The target of a rebuild: a topic's rules, the codec, and the place and time of the append.

    `next_offset` is the end of the log; `append_time_ms` is None where CreateTime counts.
    """

    rules: ProduceRules
    codec: int
    next_offset: int
    append_time_ms: int | None

    @property
    def level(self) -> int | None:
        """The level of the topic's own codec; a codec of the producer's has its default."""
        return None if self.rules.codec is None else self.rules.level

    def check_size(self, size: int) -> None:
        """Raises InvalidRecord (10) for an entry that is larger than the topic's largest."""
        if size > self.rules.max_message_bytes:
            raise InvalidRecord(
                f"in format {self.rules.magic} with codec {NAMES[self.codec]} the set has an entry "
                f"of {size} bytes, max.message.bytes allows {self.rules.max_message_bytes}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )


def messages_of_messages(source: Messages, target: Target) -> MessageSet:
    """The messages as a set of format 0 or 1, flattened into one wrapper if there is a codec."""
    data, count = messages_from_messages(
        source.data,
        source_magic=source.magic,
        magic=target.rules.magic,
        offset=_inner_offset(target),
        renumber=True,
        append_time_ms=_inner_append_time(target),
        min_offset=INT64_MIN,
    )
    return _message_set(data, count, source.max_timestamp, target)


def messages_of_batch(source: BatchRecords, target: Target) -> MessageSet:
    """The records of a batch as a set of format 0 or 1. Those have no place for headers and
    producer ids; a batch that has any does not come here."""
    data, count = messages_from_records(
        _counted(source),
        source.header[RECORD_COUNT],
        base_offset=_inner_offset(target),
        base_timestamp=source.header[BASE_TIMESTAMP],
        magic=target.rules.magic,
        append_time_ms=_inner_append_time(target),
        min_offset=INT64_MIN,
    )
    return _message_set(data, count, source.max_timestamp, target)


def _inner_offset(target: Target) -> int:
    # Inside a wrapper offsets are absolute in format 0 and count from 0 in format 1 (KIP-31).
    return target.next_offset if target.codec and not target.rules.magic else 0


def _inner_append_time(target: Target) -> int | None:
    # Under LogAppendTime a reader takes the time of the wrapper, so what is inside keeps its own.
    return target.append_time_ms if target.rules.magic and not target.codec else None


def _message_set(data: bytes, count: int, max_timestamp: int, target: Target) -> MessageSet:
    """The set for the log, of plain messages in the topic's format."""
    rules, stamp = target.rules, target.append_time_ms
    magic = rules.magic
    if not target.codec:
        scan = scan_messages(
            data,
            magic,
            max_entry_bytes=rules.max_message_bytes,
            oldest_ms=INT64_MIN,
            newest_ms=INT64_MAX,
        )
        return MessageSet(
            memoryview(bytearray(data)),
            magic=magic,
            compressed=False,
            record_count=count,
            max_timestamp=scan.max_timestamp,
            max_timestamp_delta=scan.max_index,
        )
    if not magic:
        max_timestamp = NO_TIMESTAMP
    elif stamp is not None:
        max_timestamp = stamp
    wrapper = wrap_messages(
        data,
        magic=magic,
        codec=target.codec,
        offset=_inner_offset(target) + count - 1,
        timestamp_ms=max_timestamp,
        stamped=stamp is not None,
        level=target.level,
    )
    target.check_size(len(wrapper))
    return MessageSet(
        memoryview(bytearray(wrapper)),
        magic=magic,
        compressed=True,
        record_count=count,
        max_timestamp=max_timestamp,
        max_timestamp_delta=-1 if max_timestamp == NO_TIMESTAMP else count - 1,
    )


def batches_of_messages(source: Messages, target: Target) -> list[tuple[memoryview, Header]]:
    """The messages as batches: one, or as many as max.message.bytes asks for.

    Each message was within the limit for itself. Kafka refuses the set if the batch is not, so that
    a producer of that age which worked with a broker of its age no longer does.
    """
    room = target.rules.max_message_bytes - HEADER_SIZE
    messages = bytes(source.data)
    # What compression will gain is only known afterwards. So all is tried first, and then halves.
    max_bytes = len(messages) if target.codec else max(0, room)
    batches: list[tuple[memoryview, Header]] = []
    position = done = 0
    while done < source.record_count:
        data, count, base_timestamp, max_timestamp, end = records_from_messages(
            messages, position, magic=source.magic, max_bytes=max_bytes
        )
        view, header = _batch(data, count, (base_timestamp, max_timestamp), target)
        if len(view) > target.rules.max_message_bytes:
            if count == 1:
                target.check_size(len(view))
            max_bytes = min(max_bytes, len(data)) // 2
            continue
        batches.append((view, header))
        position = end
        done += count
    return batches


def batch_of_batch(source: BatchRecords, target: Target) -> tuple[memoryview, Header]:
    """The same records in another codec or with the right offset deltas.

    They keep their bytes otherwise, and with them the base timestamp. The batch keeps its producer:
    id, epoch, sequence, transaction.
    """
    header = source.header
    records = _counted(source)
    if target.codec == NONE:  # its size is known, and no copy is needed to find it too large
        target.check_size(HEADER_SIZE + len(records))
    view, made = _batch(
        records,
        header[RECORD_COUNT],
        (header[BASE_TIMESTAMP], source.max_timestamp),
        target,
        attributes=header[ATTRIBUTES] & TRANSACTIONAL_BIT,
        producer=header[PRODUCER_ID : BASE_SEQUENCE + 1],
    )
    target.check_size(len(view))
    return view, made


def _counted(source: BatchRecords) -> bytes | memoryview:
    if source.contiguous:
        return source.data
    return renumber_records(source.data, source.header[RECORD_COUNT])


def _batch(
    records: bytes | memoryview,
    count: int,
    times: tuple[int, int],
    target: Target,
    *,
    attributes: int = 0,
    producer: tuple[int, ...] = NO_PRODUCER,
) -> tuple[memoryview, Header]:
    """One batch around uncompressed records; `times` are its base and its max timestamp."""
    base_timestamp, max_timestamp = times
    attributes |= target.codec
    if target.append_time_ms is not None:
        attributes |= TIMESTAMP_TYPE_BIT
        max_timestamp = target.append_time_ms
    data = wrap_records(
        records,
        count,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer=producer,
        level=target.level,
    )
    header: Header = HEADER.unpack_from(data)
    return memoryview(data), header
