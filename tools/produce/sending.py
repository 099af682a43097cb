"""Batches of records on their way to the partitions of a topic.

Of each partition one batch is on its way while the next one fills: its records keep their order,
and none is stored twice, whatever has to be sent again. Without a key records go to one partition
until its batch is full, and then to the next (KIP-480).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from client.cluster import TopicPartition
from client.errors import Failure, Refused
from protocol.errors import ErrorCode, KafkaError
from protocol.records.builder import batch_of_rows
from protocol.records.legacy import build_messages
from tools.errors import NotDone
from tools.produce.partitioning import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from client.cluster import Cluster
    from client.idempotence import Flight
    from protocol.records.builder import RecordFields
    from tools.produce.rows import Row

BATCH_BYTES = 512 << 10
"""A batch is sent when it has so many; it is larger only where one record is."""
PENDING_BYTES_MAX = 32 << 20
"""Of the batches of all partitions that fill, before all are sent."""
RECORD_OVERHEAD = 16
"""About the bytes of a record besides its key, value and headers."""
ASKED_FROM_BYTES = 1_000_000
"""Of a record so large it is asked whether the topic takes it, before it is sent: a connection that
is closed in the midst of it says nothing."""
HEADERS_SINCE = 2
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass
class Filling:
    """A batch that fills."""

    rows: list[RecordFields] = field(default_factory=list)
    bytes: int = 0


class OnItsWay(NamedTuple):
    """A batch that is sent, and its records."""

    flight: Flight
    rows: list[RecordFields]


@dataclass
class Written:
    """The records of a partition that were acknowledged. Offsets of others may lie between."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


class Sender:
    """Writes rows to a topic. Raises NotDone, Failure, ProduceUnknown."""

    def __init__(
        self,
        client: Cluster,
        topic: str,
        partitions: Sequence[int],
        *,
        codec: int,
        told: Callable[[int], None],
    ) -> None:
        """`told` is called with the number of records that were acknowledged."""
        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._producer = client.idempotent_producer()
        self._codec = codec
        self._told = told
        self._turn = 0
        self._filling: dict[int, Filling] = {}
        self._filling_bytes = 0
        self._on_its_way: dict[int, OnItsWay] = {}
        self._magic: dict[int, int] = {}
        self._takes: int | None = None
        """max.message.bytes; 0 is not told."""
        self.written: dict[int, Written] = {}

    @property
    def records(self) -> int:
        """Records that were acknowledged."""
        return sum(one.records for one in self.written.values())

    def add(self, rows: Iterable[Row]) -> None:
        """Take records, and send the batches that are full."""
        count = len(self._partitions)
        filling = self._filling
        for partition, row in rows:
            _, key, value, headers = row
            if partition is None:
                partition = self._turn if key is None else partition_of(key, count)
            elif partition >= count:
                raise NotDone(
                    f"topic '{self._topic}' has no partition {partition}, but {count} counted "
                    "from 0"
                )
            size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
            if headers:
                size += sum(len(name) + len(content or b"") for name, content in headers)
            if size >= ASKED_FROM_BYTES:
                self._expect_taken(size)
            batch = filling.get(partition)
            if batch is None:
                batch = filling[partition] = Filling()
            elif batch.bytes + size > BATCH_BYTES:
                self._send(partition)
                batch = filling[partition] = Filling()
                if key is None:
                    self._turn = (self._turn + 1) % count
            batch.rows.append(row)
            batch.bytes += size
            self._filling_bytes += size
            if self._filling_bytes > PENDING_BYTES_MAX:
                self._send_all()

    def flush(self) -> None:
        """Send all that was taken, and wait until it is acknowledged."""
        self._send_all()
        self.finish()

    def finish(self) -> None:
        """Wait for the answers to what was sent."""
        for partition in list(self._on_its_way):
            self._finish(partition)

    def _send_all(self) -> None:
        for partition in list(self._filling):
            self._send(partition)

    def _send(self, partition: int) -> None:
        self._finish(partition)
        batch = self._filling.pop(partition)
        self._filling_bytes -= batch.bytes
        place = TopicPartition(self._topic, partition)
        self._on_its_way[partition] = self._begin(place, batch.rows)

    def _begin(self, place: TopicPartition, rows: list[RecordFields]) -> OnItsWay:
        batch, magic = self._batch(place, rows)
        return OnItsWay(self._producer.begin(place, batch, magic=magic), rows)

    def _finish(self, partition: int) -> None:
        sent = self._on_its_way.pop(partition, None)
        if sent is not None:
            self._acknowledge(sent)

    def _acknowledge(self, sent: OnItsWay) -> None:
        try:
            base_offset = self._producer.finish(sent.flight)
        except Refused as error:
            self._send_parts(sent.flight.partition, sent.rows, error)
        else:
            self._note(sent.flight.partition.partition, base_offset, len(sent.rows))

    def _send_parts(self, place: TopicPartition, rows: list[RecordFields], error: Refused) -> None:
        """A batch that is too large for its topic goes in two halves. Raises what it met if it is
        anything else, or one record."""
        if error.code not in TOO_LARGE:
            raise error
        if len(rows) == 1:
            size = sum(len(part or b"") for part in rows[0][1:3])
            raise NotDone(
                f"{error}; a record has {size:,} bytes (max.message.bytes of topic '{place.topic}')"
            )
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            self._acknowledge(self._begin(place, half))

    def _batch(self, place: TopicPartition, rows: list[RecordFields]) -> tuple[bytearray, int]:
        """The records in the newest format that the leader takes, and which one that is."""
        magic = self._magic.get(place.partition)
        if magic is None:
            magic = self._magic[place.partition] = self._client.formats(place)[1]
        if magic == HEADERS_SINCE:
            return batch_of_rows(rows, codec=self._codec), magic
        if any(headers for *_, headers in rows):
            raise NotDone(f"{self._client.servers} takes no headers (Kafka 0.11 is the first)")
        try:
            return bytearray(build_messages(rows, magic=magic, codec=self._codec)), magic
        except KafkaError as error:
            raise NotDone(f"{self._client.servers}: {error}") from None

    def _expect_taken(self, size: int) -> None:
        """Raises NotDone for a record that is larger than its topic takes, as far as that is
        told. Compressed it may be smaller."""
        if self._codec:
            return
        if self._takes is None:
            try:
                told = self._client.topic_configs(self._topic).get("max.message.bytes", "")
            except Failure:
                told = ""  # it is not for this user to know
            self._takes = int(told) if told.isdecimal() else 0
        if self._takes and size > self._takes:
            raise NotDone(
                f"a record has {size:,} bytes, topic '{self._topic}' takes {self._takes:,} "
                "(max.message.bytes)"
            )

    def _note(self, partition: int, base_offset: int, count: int) -> None:
        written = self.written.setdefault(partition, Written())
        if not written.records:
            written.first_offset = base_offset
        written.records += count
        if base_offset >= 0:  # else told no more than that it is there
            written.last_offset = base_offset + count - 1
        self._told(count)
