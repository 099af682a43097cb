"""The committed offsets of one partition of `__consumer_offsets`.

They are what a replay of its log gives: calls come in the order of the log, at start and later. The
bytes lie in an `OffsetTable`; what few entries have (metadata, a time to expire, a transaction that
is still open) lies beside it.
"""

from __future__ import annotations

from array import array
from functools import partial
from itertools import count, islice, repeat
from operator import lt
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from broker.coordinator.offsets.columns import Columns
from broker.coordinator.offsets.commit import Committed
from broker.coordinator.offsets.pending import PendingOffsets
from broker.coordinator.offsets.table import OffsetTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.coordinator.offsets.blocks import Block
    from broker.coordinator.offsets.commit import Place
    from broker.coordinator.offsets.table import SharedTable

Value = TypeVar("Value")

MAX_SECONDS = 2**32 - 1
ALL_KEYS = 2**64 - 1
#: Partitions of a topic have keys around its base: also those below 0, which a foreign record of
#: `__consumer_offsets` may name.
HALF = 1 << 31
#: Up to so many partitions are looked up one by one.
FEW = 4
#: Entries that are read at a time while the table may change.
SLICE = 1024


class SharedOffsets(NamedTuple):
    """All committed offsets as they were; any thread may read them.

    topics    by the numbers in keys, also those of which no offset is left
    metadata  and `expire_ms`: by group and key
    pending   as `PendingOffsets.all`
    """

    table: SharedTable
    topics: dict[int, str]
    metadata: dict[str, dict[int, str]]
    expire_ms: dict[str, dict[int, int]]
    pending: list[tuple[int, int, Place, Committed | None]]


#: Makes one from any row, without a call of Python's for each.
NEW = partial(tuple.__new__, Committed)


class TopicNumbers:
    """Numbers for topic names, for all tables of a broker. They are never taken back.

    Tables may be filled by several threads: each step here is one of the interpreter's.
    """

    __slots__ = ("_next", "bases", "names")

    def __init__(self) -> None:
        self._next = count(1)
        self.bases: dict[str, int] = {}
        """The number << 32: what a partition is added to for its key."""
        self.names: dict[int, str] = {}

    def base(self, topic: str) -> int:
        known = self.bases.get(topic)
        if known is not None:
            return known
        while self.names.setdefault(number := next(self._next), topic) is not topic:
            pass  # taken by `take`
        return self._enter(topic, number)

    def take(self, topic: str, number: int) -> int:
        """The base of a topic that had this number in an earlier run; its own again if that is
        possible."""
        known = self.bases.get(topic)
        if known is not None:
            return known
        if number < 1 or self.names.setdefault(number, topic) is not topic:
            return self.base(topic)
        return self._enter(topic, number)

    def _enter(self, topic: str, number: int) -> int:
        base = self.bases.setdefault(topic, number << 32)
        if base != number << 32:
            del self.names[number]  # another thread was quicker
        return base

    def place(self, key: int) -> tuple[str, int]:
        """Topic and partition."""
        number = (key + HALF) >> 32
        return self.names[number], key - (number << 32)


class CommittedOffsets:
    """Offsets of many groups. A group id or topic is a str whose bytes may not have been UTF-8
    (surrogate escapes); any other raises UnicodeEncodeError. A partition and a leader epoch are
    int32, an offset is int64, as on the wire.
    """

    __slots__ = ("_bases", "_expire_ms", "_metadata", "_own", "_pending", "_table", "_topics")

    def __init__(self, topics: TopicNumbers | None = None) -> None:
        self._topics = TopicNumbers() if topics is None else topics
        self._bases = self._topics.bases
        self._table = OffsetTable()
        self._metadata: dict[str, dict[int, str]] = {}
        self._expire_ms: dict[str, dict[int, int]] = {}
        self._own: set[str] | None = None
        """The groups whose rare values nobody shares; None for all."""
        self._pending = PendingOffsets()

    def __contains__(self, group: str) -> bool:
        return group in self._table

    def knows(self, group: str) -> bool:
        """Whether the group has an offset, or one in an open transaction."""
        return group in self._table or group in self._pending.groups

    def __len__(self) -> int:
        """Entries."""
        return len(self._table)

    def commit(
        self,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_ms: int,
        expire_ms: int = -1,
    ) -> None:
        """Set an entry; it wins over those of open transactions so far."""
        base = self._bases.get(topic) or self._topics.base(topic)
        key = base + partition
        seconds = commit_ms // 1000
        if not 0 <= seconds <= MAX_SECONDS:
            seconds = _seconds(commit_ms)
        self._table.put(group, key, offset, seconds, leader_epoch)
        if metadata or expire_ms >= 0 or self._metadata or self._expire_ms:
            self._note_rare(group, key, metadata, expire_ms)
        if self._pending.groups:
            self._pending.supersede(group, topic, partition)

    def commit_run(
        self,
        group: str,
        topic: str,
        partitions: Sequence[int],
        offsets: Sequence[int],
        leader_epochs: Sequence[int],
        commit_ms: Sequence[int] | int,
    ) -> None:
        """Set many entries of one topic, without metadata. Quickest when the partitions ascend."""
        base = self._topics.base(topic)
        keys = [base + partition for partition in partitions]
        if isinstance(commit_ms, int):
            seconds = [_seconds(commit_ms)] * len(keys)
        else:
            seconds = [_seconds(each) for each in commit_ms]
        columns = Columns.of(keys, offsets, seconds, leader_epochs)
        if not all(map(lt, keys, islice(keys, 1, None))):
            last = {entry[0]: entry for entry in columns.entries()}
            columns = Columns.of(*zip(*sorted(last.values()), strict=True))
        self._table.put_run(group, columns)
        if group in self._metadata or group in self._expire_ms:
            for key in keys:
                self._note_rare(group, key, "", -1)
        if self._pending.groups:
            for partition in partitions:
                self._pending.supersede(group, topic, partition)

    def remove(self, group: str, topic: str, partition: int) -> None:
        """Remove an entry, and those of open transactions so far."""
        base = self._bases.get(topic)
        if base is not None:
            key = base + partition
            self._table.remove(group, key)
            if self._metadata or self._expire_ms:
                self._note_rare(group, key, "", -1)
        if self._pending.groups:
            self._pending.drop(group, topic, partition)

    def remove_group(self, group: str) -> None:
        self._table.remove_group(group)
        self._metadata.pop(group, None)
        self._expire_ms.pop(group, None)
        for topic, partition in self._pending.of_group(group):
            self._pending.drop(group, topic, partition)

    def get(self, group: str, topic: str, partition: int) -> Committed | None:
        base = self._bases.get(topic)
        entry = None if base is None else self._table.get(group, base + partition)
        if entry is None:
            return None
        key, offset, seconds, leader_epoch = entry
        metadata = self._metadata[group].get(key, "") if group in self._metadata else ""
        expire_ms = self._expire_ms[group].get(key, -1) if group in self._expire_ms else -1
        return Committed(offset, leader_epoch, metadata, seconds * 1000, expire_ms)

    def fetch(self, group: str, topic: str, partitions: Sequence[int]) -> list[Committed | None]:
        """The committed offset of each of the partitions, in their order."""
        base = self._bases.get(topic)
        if base is None or len(partitions) <= FEW:
            return [self.get(group, topic, partition) for partition in partitions]
        first, end = base + min(partitions), base + max(partitions) + 1
        limit = FEW * len(partitions) + SLICE
        kept = self._table.span(group, first, end, limit)
        if len(kept) == limit:
            return [self.get(group, topic, partition) for partition in partitions]
        asked = [base + partition for partition in partitions]
        found = self._committed(group, kept)
        if kept.keys.tolist() == asked:
            return list(found)
        by_key = dict(zip(kept.keys, found, strict=True))
        return [by_key.get(key) for key in asked]

    def fetch_run(
        self, group: str, topic: str, partitions: Sequence[int]
    ) -> tuple[array[int], array[int]] | None:
        """Offsets and leader epochs of partitions that ascend and all have an offset without
        metadata; None if they do not, or are few: then `fetch` is for them."""
        base = self._bases.get(topic)
        if base is None or len(partitions) <= FEW or group in self._metadata:
            return None
        keys = array("Q", [base + partition for partition in partitions])
        kept = self._table.span(group, keys[0], keys[-1] + 1, len(keys) + 1)
        return (kept.offsets, kept.epochs) if kept.keys == keys else None

    def topics(self, group: str) -> dict[str, list[int]]:
        """The partitions with an offset by topic, ascending; also for a group that has none."""
        found: dict[str, list[int]] = {}
        for columns in self._slices(group):
            for topic, partition in map(self._topics.place, columns.keys):
                found.setdefault(topic, []).append(partition)
        return found

    def entries(self, group: str) -> Iterator[tuple[str, int, Committed]]:
        """Topic, partition and what is committed there. The group may change meanwhile."""
        for columns in self._slices(group):
            places = map(self._topics.place, columns.keys)
            for place, committed in zip(places, self._committed(group, columns), strict=True):
                yield *place, committed

    def groups(self) -> Iterator[str]:
        """The groups with offsets, in no order. The table may change meanwhile: a group that is
        there from the start to the end comes, and only one that changed may come twice."""
        return self._table.groups()

    def has_expire_times(self, group: str) -> bool:
        return group in self._expire_ms

    def ages(self) -> Iterator[list[tuple[str, int]]]:
        """Every group as `groups`, and the time in ms of its oldest commit. Each list is from one
        look of a millisecond or two; the table may change between two."""
        for look in self._table.ages():
            yield [(group, seconds * 1000) for group, seconds in look]

    def groups_with_expire_times(self) -> list[str]:
        return list(self._expire_ms)

    def find_topic(self, topic: str) -> Iterator[list[str]]:
        """The groups with an offset of it, or one in an open transaction. Each list is from one
        look of about a millisecond, and may repeat a group; between two the table may change."""
        yield self._pending.groups_with(topic)
        base = self._bases.get(topic)
        if base is not None:
            yield from self._table.groups_with(base - HALF, base + HALF)

    def add_pending(
        self,
        producer_id: int,
        log_offset: int,
        group: str,
        topic: str,
        partition: int,
        committed: Committed | None,
    ) -> None:
        """Keep what a producer commits until its transaction ends. `log_offset` is that of the
        record, or of its batch; None is a commit of which it is known that it came too late."""
        self._pending.add(producer_id, log_offset, (group, topic, partition), committed)

    def complete(self, producer_id: int, *, commit: bool) -> None:
        """A producer's transaction has ended."""
        for place, committed in self._pending.complete(producer_id, commit=commit):
            group, topic, partition = place
            key = self._topics.base(topic) + partition
            seconds = _seconds(committed.commit_ms)
            self._table.put(group, key, committed.offset, seconds, committed.leader_epoch)
            self._note_rare(group, key, committed.metadata, committed.expire_ms)

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has committed an offset here."""
        return self._pending.holds(group, topic, partition)

    def pending(self, group: str) -> list[tuple[str, int]]:
        """The topics and partitions for which `is_pending` is true."""
        return self._pending.of_group(group)

    def pending_groups(self) -> list[str]:
        """The groups that have no offset but in open transactions."""
        return [group for group in self._pending.groups if group not in self._table]

    def pending_producers(self) -> list[int]:
        return self._pending.producers()

    def sizes(self) -> dict[str, int]:
        """Bytes by what they are for. Metadata, times to expire and topic names are not in it."""
        return self._table.sizes()

    # All of it, to and from a snapshot (`loading.snapshot_records`)

    def share(self) -> SharedOffsets:
        """All of it as it is now, in about a millisecond for 50,000 groups that have metadata, and
        far less for others. To be told of the end of its use by `unshare`."""
        self._own = set()
        return SharedOffsets(
            self._table.share(),
            dict(self._topics.names),
            dict(self._metadata),
            dict(self._expire_ms),
            self._pending.all(),
        )

    def unshare(self) -> None:
        """The offsets that `share` gave are not read any more."""
        self._own = None

    def topic_number(self, topic: str, number: int) -> int:
        """The number that a topic has in keys, which had `number` in an earlier run."""
        return self._topics.take(topic, number) >> 32

    def fill(self, blocks: list[Block], entry_count: int) -> None:
        """As `OffsetTable.fill`; the topics of all keys have been given their numbers."""
        self._table.fill(blocks, entry_count)

    def put_columns(self, group: str, columns: Columns) -> None:
        """Entries whose keys ascend, and whose topics have been given their numbers."""
        self._table.put_run(group, columns)

    def put_rare(self, group: str, key: int, *, metadata: str = "", expire_ms: int = -1) -> None:
        """Values that an entry has besides numbers; one that it has stays if none is given."""
        if metadata:
            _note(self._metadata, group, key, metadata)
        if expire_ms >= 0:
            _note(self._expire_ms, group, key, expire_ms)

    def _slices(self, group: str) -> Iterator[Columns]:
        first = 0
        while columns := self._table.span(group, first, ALL_KEYS, SLICE):
            yield columns
            if len(columns) < SLICE:
                break
            first = columns.keys[-1] + 1

    def _committed(self, group: str, columns: Columns) -> list[Committed]:
        metadata, expire_ms = self._metadata.get(group), self._expire_ms.get(group)
        texts = [metadata.get(key, "") for key in columns.keys] if metadata else repeat("")
        ends = [expire_ms.get(key, -1) for key in columns.keys] if expire_ms else repeat(-1)
        times = [seconds * 1000 for seconds in columns.seconds]
        rows = zip(columns.offsets, columns.epochs, texts, times, ends, strict=False)
        return list(map(NEW, rows))

    def _note_rare(self, group: str, key: int, metadata: str, expire_ms: int) -> None:
        if self._own is not None and group not in self._own:
            self._own.add(group)
            for kept in (self._metadata, self._expire_ms):
                if group in kept:
                    kept[group] = kept[group].copy()  # type: ignore[assignment]
        _note(self._metadata, group, key, metadata or None)
        _note(self._expire_ms, group, key, expire_ms if expire_ms >= 0 else None)


def _note(kept: dict[str, dict[int, Value]], group: str, key: int, value: Value | None) -> None:
    """Keep a value for an entry, or none."""
    if value is not None:
        kept.setdefault(group, {})[key] = value
    elif (of_group := kept.get(group)) is not None:
        of_group.pop(key, None)
        if not of_group:
            del kept[group]


def _seconds(ms: int) -> int:
    """As far as a column has room; only a foreign record is from before 1970 or after 2106."""
    return min(max(ms // 1000, 0), MAX_SECONDS)
