"""The records of a topic, read for a test, and claims about them that explain how they fail."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from client.errors import NoSuchTopic
from client.fetching import EARLIEST, LATEST, OffsetOutOfRange
from protocol.partitions import TopicPartition as TopicPartition
from protocol.records.batch import Batch
from protocol.records.legacy import read_messages
from protocol.records.markers import decode_marker
from protocol.records.walk import last_offset, walk
from testing.settings import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from client.cluster import Cluster, Fetched

LOOK_EVERY_S = 0.02
"""Between two looks at what is waited for."""
TIMEOUT_S = 10.0
SHOWN = 5
"""Records, or duplicates, that a failure shows."""
SHOWN_BYTES = 60
"""Of a key or a value."""


class Record(NamedTuple):
    """A record as a consumer sees it; `timestamp_ms` is -1 in format 0."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}@{self.offset}"
        return f"{place} key={_shown(self.key)} value={_shown(self.value)}"


class Ends(NamedTuple):
    """The first offset of a partition, and the one that its next record will get."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start}..{self.end}"


class Topic:
    """A topic of a broker. What is asked of it is asked of the broker each time."""

    def __init__(self, cluster: Callable[[], Cluster], name: str) -> None:
        self._client = cluster
        self.name = name

    @property
    def _cluster(self) -> Cluster:
        return self._client()

    def create(self, partitions: int = 1, settings: Mapping[str, object] | None = None) -> Topic:
        """Make the topic, with settings of Kafka's names, and return it. Raises
        `client.errors.Refused`, also if there is one of this name."""
        self._cluster.create_topic(self.name, partitions, texts(settings))
        return self

    def ends(self) -> dict[int, Ends]:
        """Where each partition starts and ends. Raises `client.errors.NoSuchTopic`."""
        places = self._cluster.partitions([self.name])
        starts = self._cluster.offsets(places, EARLIEST)
        ends = self._cluster.offsets(places, LATEST)
        return {place.partition: Ends(starts[place], ends[place]) for place in places}

    def records(self, *, committed_only: bool = True) -> list[Record]:
        """All records, partition by partition, in the order of their offsets.

        Those of open and aborted transactions are left out, unless `committed_only` is False.
        Raises `client.errors.NoSuchTopic`.
        """
        places = self._cluster.partitions([self.name])
        starts = self._cluster.offsets(places, EARLIEST)
        ends = self._cluster.offsets(places, LATEST, committed_only=committed_only)
        found: list[Record] = []
        for place in places:
            found += self._read(place, starts[place], ends[place], committed_only)
        return found

    def wait_for(self, count: int, timeout_s: float = TIMEOUT_S) -> list[Record]:
        """The committed records, as soon as there are at least `count`. AssertionError says what
        there was when the time was over; a topic that does not exist yet is waited for too."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = self.records()
            except NoSuchTopic:
                found = None
            if found is not None and len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(self._too_few(found, count, timeout_s))
            time.sleep(LOOK_EVERY_S)

    def wait_until_empty(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until retention, or who deletes records, has left none. AssertionError says what was
        left when the time was over."""
        deadline = time.monotonic() + timeout_s
        while found := self.records():
            if time.monotonic() > deadline:
                wanted = f"wanted none within {timeout_s:g} s"
                raise AssertionError(self._told(found, wanted))
            time.sleep(LOOK_EVERY_S)

    def _too_few(self, found: list[Record] | None, count: int, timeout_s: float) -> str:
        wanted = f"wanted {count} within {timeout_s:g} s"
        if found is None:
            there = ", ".join(sorted(self._cluster.topics())) or "none"
            return f"topic '{self.name}' does not exist, {wanted}; the topics are: {there}"
        return self._told(found, wanted)

    def _told(self, found: list[Record], wanted: str) -> str:
        ends = ", ".join(f"{self.name}-{index} {ends}" for index, ends in self.ends().items())
        lines = [f"topic '{self.name}' has {len(found)} records, {wanted}", f"  offsets: {ends}"]
        uncommitted = len(self.records(committed_only=False)) - len(found)
        if uncommitted > 0:
            lines.append(f"  {uncommitted} more are of open or aborted transactions")
        lines += [f"  {record}" for record in found[-SHOWN:]]
        return "\n".join(lines)

    def _read(
        self, place: TopicPartition, start: int, end: int, committed_only: bool
    ) -> Iterator[Record]:
        offset = start
        while offset < end:
            try:
                fetched = self._cluster.fetch(
                    place, offset, max_wait_ms=0, min_bytes=0, committed_only=committed_only
                )
            except OffsetOutOfRange:
                start = self._cluster.offsets([place], EARLIEST)[place]
                if start <= offset:
                    raise
                offset = start  # what was before it was deleted meanwhile
                continue
            following = offset
            for entry, magic in _visible(fetched):
                read = read_messages(entry) if magic < 2 else Batch(entry).records()
                for record in read:
                    if offset <= record.offset < end:
                        yield Record(
                            place.topic,
                            place.partition,
                            record.offset,
                            record.timestamp_ms,
                            record.key,
                            record.value,
                            record.headers,
                        )
            for position, _, magic in walk(fetched.entries):
                following = last_offset(fetched.entries, position, magic) + 1
            if following <= offset:
                return  # compaction has removed the rest
            offset = following


def _visible(fetched: Fetched) -> Iterator[tuple[memoryview, int]]:
    """The entries of a fetch that a consumer sees, with their formats: no markers, and nothing of
    the transactions that the answer says were aborted."""
    to_come = sorted(fetched.aborted, key=lambda one: one[1], reverse=True)
    aborted: set[int] = set()
    for position, size, magic in walk(fetched.entries):
        entry = fetched.entries[position : position + size]
        if magic == 2:
            batch = Batch(entry)
            while to_come and to_come[-1][1] <= batch.last_offset:
                aborted.add(to_come.pop()[0])
            if batch.is_control:
                marker = decode_marker(entry)
                if marker is not None and not marker.commit:
                    aborted.discard(batch.producer_id)
                continue
            if batch.is_transactional and batch.producer_id in aborted:
                continue
        yield entry, magic


def assert_no_duplicates(topic: Topic, *, by: Callable[[Record], Hashable] | None = None) -> None:
    """See `Broker.assert_no_duplicates`."""
    identity = by or _content
    places: defaultdict[Hashable, list[Record]] = defaultdict(list)
    for record in topic.records():
        places[identity(record)].append(record)
    twice = [records for records in places.values() if len(records) > 1]
    if not twice:
        return
    more = sum(len(records) - 1 for records in twice)
    total = sum(map(len, places.values()))
    lines = [f"topic '{topic.name}' has {more} duplicates among {total} records, wanted none"]
    lines += [f"  {record}" for record in chain.from_iterable(twice[:SHOWN])]
    if len(twice) > SHOWN:
        lines.append(f"  and {len(twice) - SHOWN} more that are there twice")
    raise AssertionError("\n".join(lines))


def _content(record: Record) -> Hashable:
    return record.key, record.value


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    return (
        repr(data) if len(data) <= SHOWN_BYTES else f"{data[:SHOWN_BYTES]!r}... ({len(data)} bytes)"
    )
