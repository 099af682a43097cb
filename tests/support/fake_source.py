"""A source for the pipeline's reading whose logs a test fills, cuts and spoils as it likes.

source = FakeSource()
log = source.log("orders", 0)
log.append(b"a", b"b")
log.start = 1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.cluster import EARLIEST, LATEST, Fetched, OffsetOutOfRange, TopicPartition
from pipeline.errors import CorruptData, NoSuchTopic
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pipeline.reading.ranges import Chunk


class FakeLog:
    """Entries with their first and last offsets; `start`, `end` and `stable` are the log's."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, bytes]] = []
        self.times: list[tuple[int, int]] = []
        self.start = self.end = 0
        self.stable: int | None = None
        self.start_told: int | None = None
        """The start that answers tell, where it was raised between the look and the answer."""
        self.aborted: tuple[tuple[int, int], ...] = ()
        self.unreadable: tuple[int, int] | None = None
        """First and last offset of what the broker cannot find its way through."""

    def append(self, *values: bytes, at: int | None = None, timestamp_ms: int = 1000) -> int:
        """One batch; `at` leaves a hole before it. Returns its first offset."""
        first = self.end if at is None else at
        rows = [(timestamp_ms, None, value, ()) for value in values]
        self.put(first, first + len(values) - 1, bytes(build_batch(rows, base_offset=first)))
        self.times.append((timestamp_ms, first))
        return first

    def put(self, first: int, last: int, raw: bytes) -> None:
        """Any bytes in the place of an entry."""
        self.entries.append((first, last, raw))
        self.end = last + 1


class FakeSource:
    """`fetches` are the offsets asked for, `asked` the bytes; `before_fetch` is called with each
    offset."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.fetches: list[int] = []
        self.asked: list[int] = []
        self.before_fetch: Callable[[int], None] = lambda _: None
        self.closed = False

    def log(self, topic: str, partition: int) -> FakeLog:
        return self.logs.setdefault(TopicPartition(topic, partition), FakeLog())

    def cluster_id(self) -> str | None:
        return "fake"

    def topics(self) -> dict[str, int]:
        names = [partition.topic for partition in self.logs]
        return {name: names.count(name) for name in names}

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        wanted = list(topics)
        for topic in wanted:
            if topic not in self.topics():
                raise NoSuchTopic(f"there is no topic {topic!r}")
        return [partition for partition in self.logs if partition.topic in wanted]

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp_ms: int,
        *,
        committed_only: bool = False,
    ) -> dict[TopicPartition, int]:
        return {
            one: self._offset(self.logs[one], timestamp_ms, committed_only=committed_only)
            for one in partitions
        }

    def no_later(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        return self.offsets(partitions, timestamp_ms)

    def _offset(self, log: FakeLog, timestamp_ms: int, *, committed_only: bool) -> int:
        if timestamp_ms == EARLIEST:
            return log.start
        end = log.stable if committed_only and log.stable is not None else log.end
        later = [first for time, first in log.times if time >= timestamp_ms and first < end]
        return end if timestamp_ms == LATEST or not later else min(later)

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 8 << 20,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        committed_only: bool = False,
    ) -> Fetched:
        self.fetches.append(offset)
        self.asked.append(max_bytes)
        self.before_fetch(offset)
        log = self.logs.get(partition)
        if log is None:
            raise NoSuchTopic(f"there is no topic {partition.topic!r}")
        if not log.start <= offset <= log.end:
            raise OffsetOutOfRange(partition, offset)
        if log.unreadable is not None and log.unreadable[0] <= offset <= log.unreadable[1]:
            raise CorruptData(f"{partition} offset {offset}: the broker says it is damaged")
        stable = log.end if log.stable is None else log.stable
        found: list[bytes] = []
        size = 0
        for _, last, raw in log.entries:
            if not found and last < offset:
                continue
            if (committed_only and last >= stable) or (found and size + len(raw) > max_bytes):
                break
            found.append(raw)
            size += len(raw)
        start = log.start if log.start_told is None else log.start_told
        return Fetched(memoryview(b"".join(found)), log.end, start, stable, log.aborted)

    def topic_configs(self, name: str, *, own: bool = False) -> dict[str, str]:
        return {}

    def close(self) -> None:
        self.closed = True


def first_offsets(chunks: Iterator[Chunk] | list[Chunk]) -> list[int]:
    """The base offsets of all entries (format 2)."""
    return [
        Batch(chunk.entries[at : at + size]).base_offset
        for chunk in chunks
        for at, size, _ in walk(chunk.entries)
    ]
