"""The commonest fetch, of one partition without a session, read and answered by hand.

librdkafka and the clients made on it send this shape and no other while they read one partition
from a broker, and so do most scripts. The compiled codecs of `protocol.messages.fetch` build seven
objects for it and its answer; this builds two. They matter more than they look: while 900 KB are
sent the processor forgets all that it knew of this program, and every step of it is slow again.

From version 12 on, the first that a reader of all formats and codecs speaks that has tags. Any
other shape is left to the compiled codecs (`reader` returns None), and tests hold both against each
other byte by byte in every version.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from protocol.messages.fetch import FetchRequest
from protocol.primitives import write_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.primitives import Written

FIRST_VERSION = 12
TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15

# Longest wait, least and most bytes, isolation level, no session, one topic.
_HEAD = Struct(">iiibiiB")
_CONSUMER = b"\xff\xff\xff\xff"
# One partition, its index, leader epoch, offset, last epoch, log start, most bytes; no tags of it
# and of its topic, none forgotten, no rack, no tags.
_PARTITION = Struct(">BiiqiqiBBBBB")
_NO_SESSION = (0, -1)
_TAIL = b"\0\0\0"
_ANSWER_HEAD = Struct(">ihiB")
# One partition, its index, no error, high watermark, last stable offset, log start.
_ANSWER_PARTITION = Struct(">Bihqqq")
_NO_REPLICA = b"\xff\xff\xff\xff"
# No list of aborted transactions, or an empty one; no preferred replica.
_NO_LIST = b"\0" + _NO_REPLICA
_EMPTY_LIST = b"\1" + _NO_REPLICA


class SingleFetch:
    """A fetch of one partition. `topic` is the name in ASCII in v12, the topic's id from v13."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "isolation_level",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "partition_max_bytes",
        "topic",
    )

    def __init__(
        self,
        head: tuple[int, ...],
        topic: bytes,
        partition: tuple[int, ...],
    ) -> None:
        """`head` and `partition` are the numbers before and behind the topic."""
        self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation_level = head[:4]
        self.topic = topic
        (
            self.index,
            self.current_leader_epoch,
            self.fetch_offset,
            self.last_fetched_epoch,
            self.log_start_offset,
            self.partition_max_bytes,
        ) = partition[1:7]

    def general(self, version: int) -> FetchRequest:
        """The same as the compiled decoder would have read it."""
        partition = FetchRequest.Topic.Partition(
            partition=self.index,
            current_leader_epoch=self.current_leader_epoch,
            fetch_offset=self.fetch_offset,
            last_fetched_epoch=self.last_fetched_epoch,
            log_start_offset=self.log_start_offset,
            partition_max_bytes=self.partition_max_bytes,
        )
        topic = FetchRequest.Topic(partitions=[partition])
        if version >= TOPIC_IDS_SINCE:
            topic.topic_id = self.topic
        else:
            topic.topic = self.topic.decode("ascii")
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
            topics=[topic],
        )


class SingleRecords:
    """The answer to a SingleFetch that has found records: `records` is a slice of a file, with its
    `size`. `aborted` are the transactions that a reader of committed records leaves out; None for
    other readers."""

    __slots__ = (
        "aborted",
        "high_watermark",
        "index",
        "last_stable_offset",
        "log_start_offset",
        "records",
        "topic",
    )

    def __init__(
        self,
        topic: bytes,
        index: int,
        *,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        aborted: Written | None,
        records: Any,
    ) -> None:
        self.topic = topic
        self.index = index
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted = aborted
        self.records = records


def reader(version: int) -> Callable[[bytearray, int, int], SingleFetch | None]:
    """The reader of a request body of this version, buffer[position:end]: None for other shapes."""
    by_id = version >= TOPIC_IDS_SINCE
    with_replica = version < REPLICA_STATE_SINCE

    def read(buffer: bytearray, position: int, end: int) -> SingleFetch | None:
        if with_replica:
            if buffer[position : position + 4] != _CONSUMER:
                return None
            position += 4
        topic_at = position + _HEAD.size
        if end - topic_at < 1 + _PARTITION.size:
            return None
        head = _HEAD.unpack_from(buffer, position)
        size = 16
        if not by_id:
            # A name of 127 bytes and more has a longer length; null is for the one who refuses it.
            size = buffer[topic_at] - 1
            topic_at += 1
        partition_at = topic_at + size
        if not 0 <= size < 127 or partition_at + _PARTITION.size != end:
            return None
        partition = _PARTITION.unpack_from(buffer, partition_at)
        if head[4:] != (*_NO_SESSION, 2) or partition[0] != 2 or partition[7:] != (0, 0, 1, 1, 0):
            return None
        topic = bytes(buffer[topic_at:partition_at])
        if not (by_id or topic.isascii()):
            return None
        return SingleFetch(head, topic, partition)

    return read


def writer(version: int) -> Callable[[SingleRecords, bytearray], bytes]:
    """The writer that appends the response body of this version up to the records, and returns what
    follows them."""
    by_id = version >= TOPIC_IDS_SINCE
    head = _ANSWER_HEAD.pack(0, 0, 0, 2)

    def write(answer: SingleRecords, out: bytearray) -> bytes:
        out += head
        topic = answer.topic
        if not by_id:
            out.append(len(topic) + 1)
        out += topic
        out += _ANSWER_PARTITION.pack(
            2,
            answer.index,
            0,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
        )
        aborted = answer.aborted
        if aborted is None:
            out += _NO_LIST
        elif not aborted.count:
            out += _EMPTY_LIST
        else:
            write_uvarint(out, aborted.count + 1)
            out += aborted.data
            out += _NO_REPLICA
        write_uvarint(out, answer.records.size + 1)
        return _TAIL

    return write
