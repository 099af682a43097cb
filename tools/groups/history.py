"""The history of a group in the log of `__consumer_offsets`: which record set which offset.

The log is read from its start. Compaction keeps the last record under each key and, for a while,
what came after it last ran; so the newest part is complete and the older one has holes, which show
as missing offsets.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import (
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownRecord,
    decode_key,
    decode_value,
    shard_of,
)
from protocol.records.batch import Batch
from protocol.records.markers import decode_marker
from tools.cluster import EARLIEST, LATEST, TopicPartition
from tools.errors import NotDone
from tools.fetched import entries_in
from tools.groups.records import GroupEvent, group_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.records.record import Record
    from tools.cluster import Cluster
    from tools.fetched import FetchedEntry

OFFSETS_TOPIC = "__consumer_offsets"
PIECE_BYTES = 8 << 20
"""Read at once; a batch that is larger comes whole nevertheless."""

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
_SIZE = Struct(">h")


class Transaction(NamedTuple):
    """Through which transaction an offset came. `ended_at` is the log offset of the marker, -1
    while it is open; `superseded_by` that of a later plain commit that won over it, or -1."""

    producer_id: int
    outcome: str
    ended_at: int = -1
    superseded_by: int = -1


class Change(NamedTuple):
    """A record that set an offset, or with `new` None removed it.

    `old` is what was set before, None for nothing; unless `old_known`, compaction may have removed
    what set it. `time_ms` is that of the record, `batch` the first log offset of the request that
    it was part of. -1 is no leader epoch, no time to expire at.
    """

    time_ms: int
    log_offset: int
    batch: int
    place: TopicPartition
    old: int | None
    old_known: bool
    new: int | None
    leader_epoch: int = -1
    metadata: str = ""
    expires_ms: int = -1
    transaction: Transaction | None = None

    @property
    def is_effective(self) -> bool:
        """Whether it changed what was set."""
        through = self.transaction
        return through is None or (through.outcome == COMMITTED and through.superseded_by < 0)


class Unreadable(NamedTuple):
    """A record, or a batch, that could not be understood."""

    log_offset: int
    reason: str


Event = Change | GroupEvent | Unreadable


class History:
    """The events of one group in one partition of `__consumer_offsets`.

    Iterate over it once; the attributes are final after that. An event of a transaction comes when
    its marker is met, those of open transactions come last.
    """

    def __init__(
        self, cluster: Cluster, group_id: str, more: Callable[[int], None] | None = None
    ) -> None:
        """Find the partition. `more` is called with the number of log offsets gone through."""
        topic = cluster.topics([OFFSETS_TOPIC]).get(OFFSETS_TOPIC)
        if topic is None:
            raise NotDone(f"there is no topic {OFFSETS_TOPIC}: nothing was ever committed here")
        self.place = TopicPartition(OFFSETS_TOPIC, shard_of(group_id, len(topic.leaders)))
        self.start = _bound(cluster, self.place, EARLIEST)
        self.end = _bound(cluster, self.place, LATEST)
        self.missing = self.start
        """The number of offsets below `end` that have no record any more."""
        self.complete_from = self.start
        """From this log offset on nothing has been removed."""
        self._cluster = cluster
        self._more = more or (lambda _: None)
        raw = group_id.encode("utf-8", "surrogateescape")
        self._group = _SIZE.pack(len(raw)) + raw
        self._current: dict[TopicPartition, tuple[int, int | None]] = {}
        self._pending: dict[int, list[Change]] = {}

    def __iter__(self) -> Iterator[Event]:
        position = self.start
        while position < self.end:
            began = position
            answers = self._cluster.fetch(
                {self.place: position}, partition_bytes=PIECE_BYTES, max_bytes=PIECE_BYTES
            )
            data = answers[self.place]
            if isinstance(data, ErrorCode):
                raise NotDone(f"{self.place} at offset {position}: {said(data)}")
            try:
                for entry in entries_in(data):
                    if position <= entry.last_offset < self.end:
                        yield from self._events(entry, position)
                        position = entry.last_offset + 1
                    elif entry.last_offset >= self.end:
                        position = self.end
            except KafkaError as error:
                raise NotDone(f"{self.place} at offset {position}: {error}") from None
            if position == began:
                self._gap(self.end - position, self.end)
                position = self.end
            self._more(position - began)
        for producer_id, changes in self._pending.items():
            for change in changes:
                yield self._resolved(change, Transaction(producer_id, OPEN))

    def _events(self, entry: FetchedEntry, position: int) -> Iterator[Event]:
        """The events of one entry; `position` is where the last one ended."""
        if entry.magic < 2:
            yield from self._record_events(entry, position, None)
            return
        batch = Batch(entry.view)
        if batch.base_offset > position:
            self._gap(batch.base_offset - position, batch.base_offset)
        taken = batch.last_offset_delta + 1 - batch.record_count
        if taken > 0:
            self._gap(taken, entry.last_offset + 1)
        if batch.is_control:
            marker = decode_marker(entry.view)
            if marker is not None:
                outcome = COMMITTED if marker.commit else ABORTED
                ended = Transaction(batch.producer_id, outcome, entry.last_offset)
                for change in self._pending.pop(batch.producer_id, ()):
                    yield self._resolved(change, ended)
        elif batch.codec or self._group in bytes(batch.view):
            producer_id = batch.producer_id if batch.is_transactional else None
            yield from self._record_events(entry, batch.base_offset, producer_id)

    def _record_events(
        self, entry: FetchedEntry, base_offset: int, producer_id: int | None
    ) -> Iterator[Event]:
        """`base_offset` is the entry's, or that of the first offset which it may have."""
        try:
            records = entry.records()
        except KafkaError as error:
            yield Unreadable(base_offset, str(error))
            return
        taken = entry.last_offset + 1 - base_offset - len(records)
        if entry.magic < 2 and taken > 0:
            self._gap(taken, entry.last_offset + 1)
        for record in records:
            if record.key is None or record.key[2:].find(self._group) != 0:
                continue
            try:
                event = self._event(record, base_offset)
            except UnknownRecord as error:
                yield Unreadable(record.offset, str(error))
                continue
            if isinstance(event, Change) and producer_id is not None:
                self._pending.setdefault(producer_id, []).append(event)
            elif isinstance(event, Change):
                yield self._resolved(event, None)
            elif event is not None:
                yield event

    def _event(self, record: Record, batch: int) -> Change | GroupEvent | None:
        """The event of one record of the group, before the change that it makes is known."""
        key = decode_key(record.key)
        value = None if record.value is None else decode_value(key, record.value)
        if not isinstance(key, OffsetCommitKey):
            return group_event(record, key, value)
        place = TopicPartition(key.topic, key.partition)
        known = record.timestamp_ms
        if not isinstance(value, OffsetCommitValue):
            return Change(known, record.offset, batch, place, None, False, None)
        return Change(
            time_ms=known if known >= 0 else value.commit_timestamp,
            log_offset=record.offset,
            batch=batch,
            place=place,
            old=None,
            old_known=False,
            new=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            expires_ms=value.expire_timestamp,
        )

    def _resolved(self, change: Change, transaction: Transaction | None) -> Change:
        """The same with what it found, which it replaces unless its transaction did not commit or a
        later record came first (Kafka compares the places of the commits in the log)."""
        set_at, old = self._current.get(change.place, (-1, None))
        if transaction is not None and set_at > change.log_offset:
            transaction = transaction._replace(superseded_by=set_at)
        known = set_at >= 0 or self.missing == 0
        change = change._replace(old=old, old_known=known, transaction=transaction)
        if change.is_effective:
            self._current[change.place] = (change.log_offset, change.new)
        return change

    def _gap(self, count: int, next_offset: int) -> None:
        self.missing += count
        self.complete_from = next_offset


def _bound(cluster: Cluster, place: TopicPartition, time_ms: int) -> int:
    answer = cluster.offsets([place], time_ms)[place]
    if isinstance(answer, ErrorCode):
        raise NotDone(f"{place}: {said(answer)}")
    return answer
