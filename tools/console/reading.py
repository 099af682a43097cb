"""Records of partitions as they are stored: forwards from an offset, or the newest.

How much is looked at for one page is bounded, whatever the records are and whatever is looked for.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import Batch
from protocol.records.compression import NAMES
from protocol.records.legacy import Message
from protocol.records.markers import decode_marker
from tools.fetched import entries_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
FORMAT_2 = 2
NO_PRODUCER = -1


class StoredRecord(NamedTuple):
    """A record and the entry, a batch or a message, that it is stored in.

    `codec` is the name of the entry's, `entry_bytes` its size. `producer` is the id and epoch of an
    idempotent producer, or empty. `remark` says what it is instead of a record: a marker, or
    something damaged, and then there is neither key nor value.
    """

    place: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
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
        self._clock_s = clock_s
        self._seconds = seconds
        self._until_s = math.inf
        self._bytes = bytes_
        self._records = records
        self.looked_at = 0
        """Records so far."""

    def take(self, records: int, byte_size: int) -> None:
        """So many were looked at. Time counts from the first: something is read on any machine."""
        if not self.looked_at:
            self._until_s = self._clock_s() + self._seconds
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
        if self._clock_s() >= self._until_s:
            return f"{SECONDS_MAX:g} seconds"
        return ""


class Reading:
    """One partition, read for one page. `next_offset` is where it has come to, `problem` why no
    further; `wanted` is text that a key, a value or a header has to have."""

    def __init__(
        self, cluster: Cluster, place: TopicPartition, budget: Budget, *, wanted: bytes = b""
    ) -> None:
        self._cluster = cluster
        self._place = place
        self._budget = budget
        self._wanted = wanted
        self.next_offset = 0
        self.problem = ""

    def forwards(self, start: int, end: int, limit: int) -> list[StoredRecord]:
        """At most so many records from `start` on and before `end`."""
        found: list[StoredRecord] = []
        for record in self._records(start, end):
            found.append(record)
            if len(found) == limit:
                self.next_offset = record.offset + 1
                break
        return found

    def backwards(self, start: int, end: int, limit: int) -> list[StoredRecord]:
        """The last records before `end`, in their order. All from `next_offset` on were
        looked at."""
        found: list[StoredRecord] = []
        size = min(WINDOW_MAX, max(limit, 1_000) if self._wanted else limit)
        while start < end and len(found) < limit and not self._budget.spent and not self.problem:
            lower = max(start, end - size)
            window = deque(self._records(lower, end), maxlen=limit - len(found))
            found = [*window, *found]
            end = lower
            size = min(2 * size, WINDOW_MAX)
        self.next_offset = end
        return found

    def _records(self, start: int, end: int) -> Iterator[StoredRecord]:
        self.next_offset = start
        while self.next_offset < end and not self._budget.spent and not self.problem:
            asked = self.next_offset
            answer = self._cluster.fetch(
                {self._place: asked}, partition_bytes=FETCH_BYTES, max_bytes=FETCH_BYTES
            )[self._place]
            if isinstance(answer, ErrorCode):
                self.problem = f"{self._place} offset {asked}: {said(answer)}"
                return
            yield from self._of_answer(answer, asked, end)
            if self.next_offset == asked:
                return  # nothing is there but offsets that compaction has emptied

    def _of_answer(self, answer: bytes, start: int, end: int) -> Iterator[StoredRecord]:
        try:
            for entry in entries_in(answer):
                if self._budget.spent or self.next_offset >= end:
                    return
                if entry.last_offset < start:
                    continue
                for record in self._of_entry(entry):
                    if start <= record.offset < end and self._is_wanted(record):
                        yield record
                self.next_offset = entry.last_offset + 1
        except KafkaError as error:
            self.problem = f"{self._place} offset {self.next_offset}: {error}"

    def _of_entry(self, entry: FetchedEntry) -> list[StoredRecord]:
        size = len(entry.view)
        try:
            records = [] if entry.is_control else entry.records()
        except KafkaError as error:
            self._budget.take(1, size)
            return [_remark(self._place, entry, f"damaged: {error}")]
        expanded = sum(len(one.key or b"") + len(one.value or b"") for one in records)
        self._budget.take(max(1, len(records)), max(size, expanded))
        if entry.is_control:
            marker = decode_marker(entry.view)
            what = "" if marker is None else "commit" if marker.commit else "abort"
            return [_remark(self._place, entry, f"marker: {what}" if what else "control record")]
        return [_stored(self._place, entry, one) for one in records]

    def _is_wanted(self, record: StoredRecord) -> bool:
        if not self._wanted:
            return True
        parts = [record.key, record.value, record.remark.encode()]
        for name, content in record.headers:
            parts += (name.encode("utf-8", "surrogateescape"), content)
        return any(self._wanted in part for part in parts if part)


def _stored(place: TopicPartition, entry: FetchedEntry, record: Record) -> StoredRecord:
    return StoredRecord(
        place,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        tuple(record.headers),
        *_facts(entry),
        remark="",
    )


def _remark(place: TopicPartition, entry: FetchedEntry, remark: str) -> StoredRecord:
    """What stands in the place of a record."""
    timestamp_ms = Batch(entry.view).max_timestamp if entry.magic == FORMAT_2 else -1
    return StoredRecord(
        place, entry.last_offset, timestamp_ms, None, None, (), *_facts(entry), remark=remark
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
