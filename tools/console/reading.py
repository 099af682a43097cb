"""Records of partitions as they are stored: forwards from an offset, or the newest.

How much is looked at for one page is bounded, whatever the records are and whatever is looked for;
and how much the console holds at a time, whoever asks: one answer of the broker is opened at a
time, and what is kept of it is what a page can show.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import Batch
from protocol.records.compression import NAMES
from protocol.records.legacy import Message
from protocol.records.markers import decode_marker
from tools.console.content import SHOWN_BYTES, Kept, kept
from tools.fetched import entries_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Lock

    from protocol.partitions import TopicPartition
    from protocol.records.record import Record
    from tools.cluster import Cluster
    from tools.fetched import FetchedEntry

FETCH_BYTES = 1 << 20
RECORDS_MAX = 50_000
BYTES_MAX = 16 << 20
SECONDS_MAX = 2.0
WINDOW_MAX = 8_000
"""Offsets that are read at once on the way backwards."""
RECORDS_OF_A_BATCH_MAX = 200_000
"""Those behind are not looked at: from its beginning on each has to be stepped over."""
WRAPPER_BYTES_MAX = 16 << 20
"""Of the messages in a wrapper of format 0 or 1, which are all made at once."""
HEADERS_MAX = 10_000
"""A record with more is not opened."""
HEADERS_SHOWN = 100
RECORD_OVERHEAD = 32
"""What a record, and each of its headers, counts for besides its bytes."""
FORMAT_2 = 2
NO_PRODUCER = -1


class StoredRecord(NamedTuple):
    """A record and the entry, a batch or a message, that it is stored in.

    `headers` are the first HEADERS_SHOWN of `headers_count`. `codec` is the name of the entry's,
    `entry_bytes` its size. `producer` is the id and epoch of an idempotent producer, or empty.
    `remark` says what it is instead of a record: a marker, or something damaged, and then there is
    neither key nor value.
    """

    place: TopicPartition
    offset: int
    timestamp_ms: int
    key: Kept | None
    value: Kept | None
    headers: tuple[tuple[str, Kept | None], ...]
    headers_count: int
    magic: int
    codec: str
    entry_bytes: int
    is_append_time: bool
    is_transactional: bool
    producer: str
    remark: str


class Budget:
    """How much more may be looked at. `spent` says which bound was reached."""

    def __init__(
        self,
        clock_s: Callable[[], float],
        *,
        records: int = RECORDS_MAX,
        bytes_: int = BYTES_MAX,
        seconds: float = SECONDS_MAX,
    ) -> None:
        self.clock_s = clock_s
        self._seconds = seconds
        self._until_s = math.inf
        self._bytes = bytes_
        self._records = records
        self.looked_at = 0
        """Records so far."""

    def take(self, records: int, byte_size: int) -> None:
        """So many were looked at. Time counts from the first: something is read on any machine."""
        if not self.looked_at:
            self._until_s = self.clock_s() + self._seconds
        self.looked_at += records
        self._records -= records
        self._bytes -= byte_size

    @property
    def spent(self) -> str:
        """The bound that was reached, in words; empty while there is room."""
        if self._records <= 0:
            return f"{RECORDS_MAX:,} records"
        if self._bytes <= 0:
            return f"{BYTES_MAX >> 20} MiB"
        if self.clock_s() >= self._until_s:
            return f"{SECONDS_MAX:g} seconds"
        return ""


class Reading:
    """One partition, read for one page. `next_offset` is where it has come to, `problem` why no
    further."""

    def __init__(
        self,
        cluster: Cluster,
        place: TopicPartition,
        budget: Budget,
        turn: Lock,
        *,
        wanted: bytes = b"",
    ) -> None:
        """`turn` is held while an answer is read and opened, by one page at a time; `wanted` is
        text that a key, a value or a header has to have."""
        self._cluster = cluster
        self._place = place
        self._budget = budget
        self._turn = turn
        self._wanted = wanted
        self.next_offset = 0
        self.problem = ""

    def forwards(self, start: int, end: int, limit: int) -> list[StoredRecord]:
        """At most so many records from `start` on and before `end`."""
        return self._read(start, end, limit, self._budget)

    def backwards(self, start: int, end: int, limit: int) -> list[StoredRecord]:
        """The last records before `end`, in their order. All from `next_offset` on were
        looked at."""
        found: list[StoredRecord] = []
        size = min(WINDOW_MAX, max(limit, 1_000) if self._wanted else limit)
        while start < end and len(found) < limit and self._may_go_on(self._budget):
            lower = max(start, end - size)
            window = self._read(lower, end, size, self._budget)
            if self._budget.spent and self.next_offset < end and lower < end - 1:
                # The newest of them were not reached: the last one then, and no other.
                lower = end - 1
                window = self._read(lower, end, 1, Budget(self._budget.clock_s, records=1))
            found = [*deque(window, maxlen=limit - len(found)), *found]
            end = lower
            size = min(2 * size, WINDOW_MAX)
        self.next_offset = end
        return found

    def whole_value(self, offset: int) -> bytes | None:
        """All of the value of the record there; None if it has none, or cannot be read."""
        with self._turn:
            try:
                for entry in entries_in(self._answer(offset)):
                    if entry.last_offset < offset or entry.is_control:
                        continue
                    for record in islice(self._opened(entry), RECORDS_OF_A_BATCH_MAX):
                        if record.offset >= offset:
                            return record.value if record.offset == offset else None
            except KafkaError as error:
                self.problem = f"{self._place} offset {offset}: {error}"
        return None

    def _read(self, start: int, end: int, limit: int, budget: Budget) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        self.next_offset = start
        while self.next_offset < end and len(found) < limit and self._may_go_on(budget):
            asked = self.next_offset
            with self._turn:
                self._open(self._answer(asked), end, limit, budget, found)
            if self.next_offset == asked:
                break  # nothing is there but offsets that compaction has emptied
        return found

    def _may_go_on(self, budget: Budget) -> bool:
        return not (budget.spent or self.problem)

    def _answer(self, offset: int) -> bytes:
        """What is stored from an offset on; nothing if there is a problem."""
        answer = self._cluster.fetch(
            {self._place: offset}, partition_bytes=FETCH_BYTES, max_bytes=FETCH_BYTES
        )[self._place]
        if isinstance(answer, ErrorCode):
            self.problem = f"{self._place} offset {offset}: {said(answer)}"
            return b""
        return answer

    def _open(
        self, answer: bytes, end: int, limit: int, budget: Budget, found: list[StoredRecord]
    ) -> None:
        try:
            for entry in entries_in(answer):
                if budget.spent or self.next_offset >= end or len(found) >= limit:
                    return
                if entry.last_offset >= self.next_offset:
                    self._open_entry(entry, end, limit, budget, found)
        except KafkaError as error:
            self.problem = f"{self._place} offset {self.next_offset}: {error}"

    def _open_entry(
        self, entry: FetchedEntry, end: int, limit: int, budget: Budget, found: list[StoredRecord]
    ) -> None:
        """Its records from `next_offset` on, which moves with each."""
        remark = ""
        try:
            if entry.is_control:
                remark = _told(entry)
            for number, record in enumerate([] if remark else self._opened(entry)):
                if record.offset >= end:
                    break
                if number >= RECORDS_OF_A_BATCH_MAX:
                    remark = (
                        f"the batch goes on to offset {entry.last_offset}: a page looks at the "
                        f"first {number:,} records of one, triglot consume reads all"
                    )
                    break
                if record.offset < self.next_offset:
                    continue
                budget.take(1, _size(record))
                self.next_offset = record.offset + 1
                if self._is_wanted(record):
                    found.append(_stored(self._place, entry, record))
                if budget.spent or len(found) >= limit:
                    return
        except KafkaError as error:
            is_too_large = error.code == ErrorCode.MESSAGE_TOO_LARGE
            remark = f"{'not opened' if is_too_large else 'damaged'}: {error}"
        if remark:
            budget.take(1, len(entry.view))
            if self._wanted in remark.encode():
                found.append(_remark(self._place, entry, remark))
        self.next_offset = max(self.next_offset, entry.last_offset + 1)

    def _opened(self, entry: FetchedEntry) -> Iterator[Record]:
        return entry.each_record(wrapper_bytes=WRAPPER_BYTES_MAX, headers_max=HEADERS_MAX)

    def _is_wanted(self, record: Record) -> bool:
        if not self._wanted:
            return True
        parts = [record.key, record.value]
        for name, content in record.headers:
            parts += (name.encode("utf-8", "surrogateescape"), content)
        return any(self._wanted in part for part in parts if part)


def _size(record: Record) -> int:
    """What it counts for."""
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += RECORD_OVERHEAD + len(name) + len(content or b"")
    return size


def _told(entry: FetchedEntry) -> str:
    """What a control batch is."""
    marker = decode_marker(entry.view)
    if marker is None:
        return "control record"
    return "marker: commit" if marker.commit else "marker: abort"


def _stored(place: TopicPartition, entry: FetchedEntry, record: Record) -> StoredRecord:
    return StoredRecord(
        place,
        record.offset,
        record.timestamp_ms,
        kept(record.key),
        kept(record.value),
        tuple((name[:SHOWN_BYTES], kept(data)) for name, data in record.headers[:HEADERS_SHOWN]),
        len(record.headers),
        *_facts(entry),
        remark="",
    )


def _remark(place: TopicPartition, entry: FetchedEntry, remark: str) -> StoredRecord:
    """What stands in the place of a record."""
    timestamp_ms = Batch(entry.view).max_timestamp if entry.magic == FORMAT_2 else -1
    return StoredRecord(
        place, entry.last_offset, timestamp_ms, None, None, (), 0, *_facts(entry), remark=remark
    )


def _facts(entry: FetchedEntry) -> tuple[int, str, int, bool, bool, str]:
    """Format, codec, size, whether times are the broker's, whether in a transaction, producer."""
    stored: Batch | Message
    is_transactional, producer = False, ""
    if entry.magic == FORMAT_2:
        stored = batch = Batch(entry.view)
        is_transactional = batch.is_transactional
        if batch.producer_id != NO_PRODUCER:
            producer = f"{batch.producer_id}, epoch {batch.producer_epoch}"
    else:
        stored = Message(entry.view)
    codec = NAMES[stored.codec] if stored.codec < len(NAMES) else f"unknown ({stored.codec})"
    size = len(entry.view)
    return entry.magic, codec, size, stored.timestamp_type == 1, is_transactional, producer
