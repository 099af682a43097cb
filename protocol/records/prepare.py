"""From the bytes of a Produce request's `records` to what a log can append.

A set of any format and any version of the request comes in, a set in the format of the topic goes
out (records.md 6 and 7; the checks of a batch and the rules are in `validate`). It is stored in the
bytes it arrived in wherever they can be right, and made anew (`rebuild`) only

- for another codec or another format than the topic's,
- if it is compressed and the topic stores format 0, where inner offsets are absolute,
- if it is a wrapper of format 1 whose inner offsets do not count from 0 (KIP-31), or an
  uncompressed batch whose offset deltas do not,
- if it has a wrapper besides other entries, as producers of 0.8 could send; it is flattened.

LogAppendTime and a wrong max timestamp never ask for that: they are fields of the header (KIP-32).

Nothing is written into the set before everything that could refuse it has been looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import Batch
from protocol.records.compression import LZ4, NAMES, NONE, ZSTD, decompress
from protocol.records.consistency import is_consistent
from protocol.records.crc import crc32
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    CODEC_MASK,
    HEADER_SIZE,
    INT64,
    MAX_TIMESTAMP,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CHECKED_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    PRODUCER_BITS,
    PRODUCER_ID,
    RECORD_COUNT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    UINT32,
)
from protocol.records.legacy import Message, MessageSet
from protocol.records.rebuild import (
    BatchRecords,
    Messages,
    Target,
    batch_of_batch,
    batches_of_messages,
    messages_of_batch,
    messages_of_messages,
)
from protocol.records.record import INT64_MIN
from protocol.records.transcode import messages_from_messages, scan_messages
from protocol.records.validate import (
    ProduceRules,
    check_batch,
    check_records,
    first_magic,
)
from protocol.records.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.layout import Header
    from protocol.records.transcode import MessageScan

ANY_BYTES = (1 << 31) - 1
"""Larger than any entry."""


class TooMuch(Exception):
    """The set is larger, or expands further, than the caller has time for. Nothing is wrong with it
    so far, and nothing has been changed."""


class Prepared:
    """A set that can be appended.

    batches       what a topic of format 2 stores, each with its header; several if a set of an
                  older format was split to keep to max.message.bytes
    messages      what a topic of format 0 or 1 stores; None for format 2
    record_count  records in all of it, which is how many offsets it takes
    built_for     the only base offset it fits, because it has absolute offsets under compression
                  (format 0); None for any
    rebuilt       whether it was made anew, for the counters
    """

    __slots__ = ("batches", "built_for", "messages", "rebuilt", "record_count")

    def __init__(
        self,
        *,
        batches: list[tuple[memoryview, Header]] | None = None,
        messages: MessageSet | None = None,
        built_for: int | None = None,
        rebuilt: bool = False,
    ) -> None:
        self.batches = batches or []
        self.messages = messages
        self.built_for = built_for
        self.rebuilt = rebuilt
        self.record_count = sum(header[RECORD_COUNT] for _, header in self.batches)
        if messages is not None:
            self.record_count += messages.record_count

    @property
    def size(self) -> int:
        """Bytes of the set."""
        return sum(len(view) for view, _ in self.batches) + (
            self.messages.size if self.messages is not None else 0
        )


class _Terms(NamedTuple):
    """The conditions for one set, beside the set itself."""

    rules: ProduceRules
    now_ms: int
    next_offset: int
    expand_max: int | None

    @property
    def append_time_ms(self) -> int | None:
        """The time that replaces every timestamp, under LogAppendTime."""
        return self.now_ms if self.rules.log_append_time else None

    def target(self, sent_codec: int) -> Target:
        """The target of a set that came with this codec. Raises InvalidRecord (76) for zstd in a
        format whose readers do not know it (KIP-110)."""
        codec = self.rules.stored_codec(sent_codec)
        if codec == ZSTD and self.rules.magic < 2:
            raise InvalidRecord(
                f"zstd is not known in format {self.rules.magic}, which the topic stores",
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            )
        return Target(self.rules, codec, self.next_offset, self.append_time_ms)

    @property
    def expanded_bytes(self) -> int:
        """Most bytes that the whole set may expand to here."""
        limit = self.rules.max_decompressed_bytes
        return limit if self.expand_max is None else min(limit, self.expand_max)

    def expand(self, codec: int, data: bytes | memoryview, *, magic: int, left: int) -> bytes:
        """`data` decompressed, to at most `left` bytes. Raises InvalidRecord, TooMuch."""
        ratio = self.rules.max_decompression_ratio
        try:
            return decompress(codec, data, limit=left, ratio=ratio, magic=magic)
        except InvalidRecord as error:
            if self.expand_max is not None and error.code == ErrorCode.MESSAGE_TOO_LARGE:
                raise TooMuch from None
            raise

    def check_room(self, size: int) -> None:
        """Raises InvalidRecord (18) for a set that no segment can take."""
        if size > self.rules.segment_bytes:
            raise InvalidRecord(
                f"set of {size} bytes, segment.bytes allows {self.rules.segment_bytes}",
                ErrorCode.RECORD_LIST_TOO_LARGE,
            )

    def check_effort(self, size: int) -> None:
        """Raises TooMuch for a set of more bytes than the caller wants gone through."""
        if self.expand_max is not None and size > self.expand_max:
            raise TooMuch


def prepare(
    view: memoryview,
    rules: ProduceRules,
    *,
    version: int,
    now_ms: int,
    next_offset: int,
    expand_max: int | None = None,
) -> Prepared | None:
    """The form in which the log appends the set in `view`, of Produce `version`; None if empty.

    `view` must be writable. A cut entry at its end is dropped. `now_ms` is the append time and what
    the window of timestamps is held against, `next_offset` the end of the log.

    `expand_max` is for a caller that has little time: TooMuch is raised when more than this many
    bytes would have to be gone through, compressed or not. The same call without it, on a thread,
    does the work; the set is unchanged.

    Raises InvalidRecord or CorruptBatch with the code for Produce v8 and later, which is 87
    INVALID_RECORD unless `validate`, or records.md 6.6, says otherwise; KafkaError with 43
    UNSUPPORTED_FOR_MESSAGE_FORMAT for what the topic's format has no place for.
    """
    terms = _Terms(rules, now_ms, next_offset, expand_max)
    try:
        magic = first_magic(view, version)
    except CorruptBatch as error:
        # Of the two errors only this one has its text sent to the client.
        raise InvalidRecord(str(error), ErrorCode.CORRUPT_MESSAGE) from None
    if magic is None:
        return None
    if magic == 2:
        return _prepare_batch(view, version, terms)
    return _prepare_messages(view, magic, terms)


def _prepare_batch(view: memoryview, version: int, terms: _Terms) -> Prepared:
    """A set that is one batch, and perhaps a cut entry after it."""
    rules = terms.rules
    view = view[: Batch(view).size]
    header = check_batch(view, rules, version)
    attributes = header[ATTRIBUTES]
    if rules.magic < 2 and (header[PRODUCER_ID] >= 0 or attributes & TRANSACTIONAL_BIT):
        raise _no_place(rules, "producer ids and transactions")
    codec = attributes & CODEC_MASK
    target = terms.target(codec)
    in_place = rules.magic == 2 and target.codec == codec
    if in_place and not rules.walked and _needs_no_walk(view, codec, rules):
        terms.check_room(len(view))
        return _batch_in_place(view, header, header[MAX_TIMESTAMP], terms)
    terms.check_effort(len(view))
    payload: bytes | memoryview = view[HEADER_SIZE:]
    if codec:
        payload = terms.expand(codec, payload, magic=2, left=terms.expanded_bytes)
    scan = check_records(payload, header, rules, terms.now_ms)
    if in_place and scan.contiguous:
        terms.check_room(len(view))
        return _batch_in_place(view, header, scan.max_timestamp, terms)
    if rules.magic < 2 and scan.has_headers:
        raise _no_place(rules, "record headers")
    source = BatchRecords(payload, header, scan.contiguous, scan.max_timestamp)
    if rules.magic == 2:
        prepared = Prepared(batches=[batch_of_batch(source, target)], rebuilt=True)
    else:
        prepared = _rebuilt_messages(messages_of_batch(source, target), target)
    terms.check_room(prepared.size)
    return prepared


def _needs_no_walk(view: memoryview, codec: int, rules: ProduceRules) -> bool:
    """Whether a batch can be stored on the word of its header. Records that are not compressed are
    walked in any case: what is wrong with them can then be told, or put right."""
    return not rules.consistent or (codec != NONE and is_consistent(view))


def _no_place(rules: ProduceRules, what: str) -> KafkaError:
    return KafkaError(
        f"the topic stores format {rules.magic}, which has no place for {what}",
        code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )


def _batch_in_place(
    view: memoryview, header: Header, max_timestamp: int, terms: _Terms
) -> Prepared:
    # Foreign attribute bits are cleared: a forged delete horizon would let compaction drop
    # tombstones too early (KIP-534).
    attributes = header[ATTRIBUTES] & PRODUCER_BITS
    if terms.append_time_ms is not None:
        attributes |= TIMESTAMP_TYPE_BIT
        max_timestamp = terms.append_time_ms
    if attributes != header[ATTRIBUTES] or max_timestamp != header[MAX_TIMESTAMP]:
        header = Batch(view).rewrite(attributes, max_timestamp)
    return Prepared(batches=[(view, header)])


def _rebuilt_messages(messages: MessageSet, target: Target) -> Prepared:
    built_for = target.next_offset if messages.compressed and not messages.magic else None
    return Prepared(messages=messages, built_for=built_for, rebuilt=True)


def _prepare_messages(view: memoryview, magic: int, terms: _Terms) -> Prepared:
    """A set of messages of format 0 or 1, which only Produce v0 to v2 carry."""
    rules = terms.rules
    terms.check_effort(len(view))
    oldest_ms, newest_ms = rules.time_window(terms.now_ms)
    scan = scan_messages(
        view,
        magic,
        max_entry_bytes=rules.max_message_bytes,
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
    )
    view = view[: scan.end]
    if magic and scan.stamped:
        raise InvalidRecord(
            "the timestamp type LogAppendTime is the broker's to set", ErrorCode.INVALID_TIMESTAMP
        )
    if scan.codecs >= 1 << LZ4 + 1:
        raise InvalidRecord(
            f"a message of format {magic} has an unknown codec, known are {', '.join(NAMES[:4])}"
        )
    if scan.codecs == 1 << NONE:
        _check_messages(scan, rules)
        source = Messages(view, magic, NONE, scan.count, scan.max_timestamp, scan.max_index)
        placed = True
    else:
        source, placed = _open(view, magic, terms)
    target = terms.target(source.codec)
    if placed and magic == rules.magic and target.codec == source.codec:
        terms.check_room(len(view))
        in_place = _wrapper_in_place if source.codec else _messages_in_place
        return Prepared(messages=in_place(view, source, terms))
    if rules.magic == 2:
        prepared = Prepared(batches=batches_of_messages(source, target), rebuilt=True)
    else:
        prepared = _rebuilt_messages(messages_of_messages(source, target), target)
    terms.check_room(prepared.size)
    return prepared


def _check_messages(scan: MessageScan, rules: ProduceRules) -> None:
    """Keys and times of plain messages. Single records are not named, because no answer of the
    versions that carry them has a place for that."""
    if scan.bad_time_index >= 0:
        raise InvalidRecord(
            f"message {scan.bad_time_index} has a timestamp outside the window from "
            f"{rules.before_max_ms} ms before to {rules.after_max_ms} ms after now",
            ErrorCode.INVALID_TIMESTAMP,
        )
    if rules.compacted and scan.null_key_index >= 0:
        raise InvalidRecord(
            f"message {scan.null_key_index} has no key, which a compacted topic needs"
        )


def _open(view: memoryview, magic: int, terms: _Terms) -> tuple[Messages, bool]:
    """The messages of a set with wrappers in it, and whether the set could be stored as it is.

    That is so for one wrapper of format 1 whose inner offsets count from 0. A wrapper besides other
    entries was sent, and flattened in this way, in the time of 0.8; later brokers refuse it.
    """
    parts: list[bytes | memoryview] = []
    codec = count = 0
    max_timestamp, max_index = NO_TIMESTAMP, -1
    placed = magic == 1
    for data, wrapper in _pieces(view, magic, terms):
        scan = _scan_piece(data, magic, wrapper, terms)
        if wrapper is not None:
            codec = wrapper.codec
            placed = placed and scan.contiguous and wrapper.offset in (0, scan.last_offset)
        if scan.max_timestamp > max_timestamp:
            max_timestamp, max_index = scan.max_timestamp, count + scan.max_index
        count += scan.count
        parts.append(data[: scan.end])
    alone = len(parts) == 1
    source = Messages(
        parts[0] if alone else b"".join(parts), magic, codec, count, max_timestamp, max_index
    )
    return source, placed and alone


def _pieces(
    view: memoryview, magic: int, terms: _Terms
) -> Iterator[tuple[bytes | memoryview, Message | None]]:
    """A set in order: what each wrapper holds, with it, and the runs of plain messages between."""
    left = terms.expanded_bytes
    plain_from = 0
    for position, size, _ in walk(view):
        wrapper = Message(view[position : position + size])
        if not wrapper.codec:
            continue
        if plain_from < position:
            yield view[plain_from:position], None
        value = wrapper.value
        if value is None:
            raise InvalidRecord(f"wrapper of codec {wrapper.codec} has a null value, wanted a set")
        data = terms.expand(wrapper.codec, value, magic=magic, left=left)
        left -= len(data)
        yield data, wrapper
        plain_from = position + size
    if plain_from < len(view):
        yield view[plain_from:], None


def _scan_piece(
    data: bytes | memoryview, magic: int, wrapper: Message | None, terms: _Terms
) -> MessageScan:
    """Check messages of which none may be a wrapper: those inside one, or those between."""
    oldest_ms, newest_ms = terms.rules.time_window(terms.now_ms)
    scan = scan_messages(
        data, magic, max_entry_bytes=ANY_BYTES, oldest_ms=oldest_ms, newest_ms=newest_ms
    )
    if wrapper is not None:
        if not scan.count:
            raise InvalidRecord(f"wrapper holds no whole message in {len(data)} bytes")
        if scan.codecs != 1 << NONE:
            raise InvalidRecord("wrapper holds another wrapper")
        # Several clients leave the offset of a wrapper at 0. Then what is inside counts from 0.
        if magic and wrapper.offset and wrapper.offset < scan.last_offset:
            raise InvalidRecord(
                f"wrapper has offset {wrapper.offset}, its last message {scan.last_offset}"
            )
    _check_messages(scan, terms.rules)
    return scan


def _messages_in_place(view: memoryview, source: Messages, terms: _Terms) -> MessageSet:
    max_timestamp, max_index = source.max_timestamp, source.max_index
    if source.magic and terms.append_time_ms is not None:
        max_timestamp, max_index = terms.append_time_ms, 0
        stamped, _ = messages_from_messages(
            view,
            source_magic=1,
            magic=1,
            offset=0,
            renumber=True,
            append_time_ms=terms.append_time_ms,
            min_offset=INT64_MIN,
        )
        # Shorter than it was only by spare bytes after the values.
        view = view[: len(stamped)]
        view[:] = stamped
    return MessageSet(
        view,
        magic=source.magic,
        compressed=False,
        record_count=source.record_count,
        max_timestamp=max_timestamp,
        max_timestamp_delta=max_index,
    )


def _wrapper_in_place(view: memoryview, source: Messages, terms: _Terms) -> MessageSet:
    """A wrapper of format 1, whose payload stays as it is. Its timestamp is the largest inside, or
    the time of the append, whatever the producer put there (KIP-32)."""
    attributes = view[MESSAGE_ATTRIBUTES_POSITION]
    timestamp = source.max_timestamp
    if terms.append_time_ms is not None:
        attributes |= TIMESTAMP_TYPE_BIT
        timestamp = terms.append_time_ms
    wrapper = Message(view)
    if attributes != wrapper.attributes or timestamp != wrapper.timestamp_ms:
        view[MESSAGE_ATTRIBUTES_POSITION] = attributes
        INT64.pack_into(view, MESSAGE_TIMESTAMP_POSITION, timestamp)
        checksum = crc32(view[MESSAGE_CHECKED_POSITION:])
        UINT32.pack_into(view, MESSAGE_CRC_POSITION, checksum)
    return MessageSet(
        view,
        magic=1,
        compressed=True,
        record_count=source.record_count,
        max_timestamp=timestamp,
        max_timestamp_delta=-1 if timestamp == NO_TIMESTAMP else source.record_count - 1,
    )
