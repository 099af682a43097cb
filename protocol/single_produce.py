"""The commonest requests of all, Produce of one batch to one partition, read and answered by hand.

A producer that sends small requests sends this shape and no other: one topic, one partition, no
tags. The compiled codecs of `protocol.messages.produce` build seven objects for it
and its answer; this builds two, which saves about a third of the broker's time per request. Any
other shape is left to them (`reader` returns None), and tests hold both against each other byte by
byte in every version.

The compiled `_single` reads a whole frame of this shape in one call, and writes its answer;
`protocol.connection` uses it where it is built.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_VERSION = 3
"""Older versions carry message sets of other formats, and no transactional id."""
FLEXIBLE_SINCE = 9
TOPIC_IDS_SINCE = 13
LOG_START_SINCE = 5
RECORD_ERRORS_SINCE = 8
SHORT_SIZE_MAX = 127
"""The largest compact size that is one byte; it is one more than the bytes there are."""

# Size of the transactional id or null, acks, timeout, one topic, then the length of its name.
_PLAIN_HEAD = Struct(">hhiih")
# One partition, its index, the size of its records.
_PLAIN_PARTITION = Struct(">iii")
_FLEXIBLE_HEAD = Struct(">BhiBB")
_FLEXIBLE_PARTITION = Struct(">BiB")
# The same with the 16 bytes of a topic id in place of the name.
_ID_HEAD = Struct(">BhiB16sBiB")
_NO_TAGS = b"\0\0\0"


class SingleProduce:
    """One batch for one partition. `topic` is the name's UTF-8 up to v12, the topic's id from v13;
    `records` is a view of the receive buffer."""

    __slots__ = ("acks", "index", "records", "topic", "transactional_id")

    def __init__(
        self,
        acks: int,
        topic: bytes,
        index: int,
        records: memoryview,
        transactional_id: str | None = None,
    ) -> None:
        self.acks = acks
        self.topic = topic
        self.index = index
        self.records = records
        self.transactional_id = transactional_id

    def general(self, version: int) -> ProduceRequest:
        """The same as the compiled decoder would have read it, but for the timeout."""
        partition = ProduceRequest.Topic.Partition(index=self.index, records=self.records)
        topic = ProduceRequest.Topic(partition_data=[partition])
        if version >= TOPIC_IDS_SINCE:
            topic.topic_id = self.topic
        else:
            topic.name = self.topic.decode("utf-8", "surrogateescape")
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=0,
            topic_data=[topic],
        )


class SingleAnswer:
    """The answer to a SingleProduce, with the fields of ProduceResponse's only partition."""

    __slots__ = (
        "base_offset",
        "error_code",
        "index",
        "log_append_time_ms",
        "log_start_offset",
        "topic",
    )

    def __init__(
        self,
        topic: bytes,
        index: int,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
    ) -> None:
        self.topic = topic
        self.index = index
        self.error_code = 0
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset


def reader(version: int) -> Callable[[bytearray, int, int], SingleProduce | None]:
    """The reader of a request body of this version, buffer[position:end]: None for other shapes."""
    if version >= TOPIC_IDS_SINCE:
        return _read_by_id
    return _read_flexible if version >= FLEXIBLE_SINCE else _read_plain


def _read_plain(buffer: bytearray, position: int, end: int) -> SingleProduce | None:
    if end - position < 26:
        return None
    id_size, acks, _, topics, name_size = _PLAIN_HEAD.unpack_from(buffer, position)
    transactional_id = None
    if id_size != -1:
        start, position = position + 2, position + id_size  # as if it were null
        if id_size < 0 or end - position < 26:
            return None
        transactional_id = _text(buffer, start, id_size)
        _, acks, _, topics, name_size = _PLAIN_HEAD.unpack_from(buffer, position)
    start = position + 14
    stop = start + name_size
    if topics != 1 or name_size < 0 or stop + 12 > end:
        return None
    partitions, index, size = _PLAIN_PARTITION.unpack_from(buffer, stop)
    if partitions != 1 or stop + 12 + size != end or size < 0:
        return None
    records = memoryview(buffer)[stop + 12 : end]
    return SingleProduce(acks, bytes(buffer[start:stop]), index, records, transactional_id)


def _read_flexible(buffer: bytearray, position: int, end: int) -> SingleProduce | None:
    if end - position < 19:
        return None
    id_size, acks, _, topics, name_size = _FLEXIBLE_HEAD.unpack_from(buffer, position)
    transactional_id = None
    if id_size:
        start, position = position + 1, position + id_size - 1  # as if it were null
        if id_size > SHORT_SIZE_MAX or end - position < 19:
            return None
        transactional_id = _text(buffer, start, id_size - 1)
        _, acks, _, topics, name_size = _FLEXIBLE_HEAD.unpack_from(buffer, position)
    start = position + 9
    stop = start + name_size - 1
    # A name of 127 bytes and more has a longer length; null is left to who can refuse it.
    if topics != 2 or not 0 < name_size <= SHORT_SIZE_MAX or stop + 6 > end:
        return None
    partitions, index, size = _FLEXIBLE_PARTITION.unpack_from(buffer, stop)
    if partitions != 2:
        return None
    topic = bytes(buffer[start:stop])
    return _with_records(buffer, stop + 6, end, size, acks, topic, index, transactional_id)


def _read_by_id(buffer: bytearray, position: int, end: int) -> SingleProduce | None:
    if end - position < 33:
        return None
    transactional_id = None
    id_size = buffer[position]
    if id_size:
        start, position = position + 1, position + id_size - 1  # as if it were null
        if id_size > SHORT_SIZE_MAX or end - position < 33:
            return None
        transactional_id = _text(buffer, start, id_size - 1)
    _, acks, _, topics, topic, partitions, index, size = _ID_HEAD.unpack_from(buffer, position)
    if topics != 2 or partitions != 2:
        return None
    return _with_records(buffer, position + 30, end, size, acks, topic, index, transactional_id)


def _text(buffer: bytearray, start: int, size: int) -> str:
    return buffer[start : start + size].decode("utf-8", "surrogateescape")


def _with_records(
    buffer: bytearray,
    position: int,
    end: int,
    size: int,
    acks: int,
    topic: bytes,
    index: int,
    transactional_id: str | None,
) -> SingleProduce | None:
    """Finish reading where the second byte of the records' length would be; `size` is the first."""
    shift = 7
    if size > 127:
        size &= 127
        while True:
            if position == end:
                return None
            byte = buffer[position]
            position += 1
            size |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 28:
                return None
    stop = position + size - 1
    if size == 0 or stop + 3 != end or buffer[stop:end] != _NO_TAGS:
        return None
    records = memoryview(buffer)[position:stop]
    return SingleProduce(acks, topic, index, records, transactional_id)


def writer(version: int) -> Callable[[SingleAnswer, bytearray], bytes]:
    """The writer that appends the response body of this version; nothing follows it."""
    if version >= FLEXIBLE_SINCE:
        return _flexible_writer(version)
    return _plain_writer(version)


def _plain_writer(version: int) -> Callable[[SingleAnswer, bytearray], bytes]:
    # Index, error, base offset, append time, [log start], [no record errors, no message], throttle.
    fields = ">iihqq"
    tail: tuple[int, ...] = (0,)
    if version >= LOG_START_SINCE:
        fields += "q"
    if version >= RECORD_ERRORS_SINCE:
        fields += "ih"
        tail = (0, -1, 0)
    pack = Struct(fields + "i").pack
    with_log_start = version >= LOG_START_SINCE

    def write(answer: SingleAnswer, out: bytearray) -> bytes:
        topic = answer.topic
        out += b"\0\0\0\1"
        out += len(topic).to_bytes(2, "big")
        out += topic
        if with_log_start:
            out += pack(
                1,
                answer.index,
                answer.error_code,
                answer.base_offset,
                answer.log_append_time_ms,
                answer.log_start_offset,
                *tail,
            )
        else:
            out += pack(
                1,
                answer.index,
                answer.error_code,
                answer.base_offset,
                answer.log_append_time_ms,
                *tail,
            )
        return b""

    return write


def _flexible_writer(version: int) -> Callable[[SingleAnswer, bytearray], bytes]:
    # One partition: index, error, base offset, append time, log start, no record errors, no
    # message, no tags; no tags of the topic; throttle, no tags.
    pack = Struct(">BihqqqBBBBiB").pack
    by_id = version >= TOPIC_IDS_SINCE

    def write(answer: SingleAnswer, out: bytearray) -> bytes:
        topic = answer.topic
        out.append(2)
        if not by_id:
            out.append(len(topic) + 1)
        out += topic
        out += pack(
            2,
            answer.index,
            answer.error_code,
            answer.base_offset,
            answer.log_append_time_ms,
            answer.log_start_offset,
            1,
            0,
            0,
            0,
            0,
            0,
        )
        return b""

    return write
