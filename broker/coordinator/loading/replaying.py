"""Reading a partition of `__consumer_offsets` back into memory after a start.

After a clean stop nobody has read the log before this, so everything is doubted: checksums are
computed, and what is damaged, foreign or makes no sense is left out with its reason, alone. Kafka
gives up a whole partition for one such record, and its groups then begin anew; here no group
notices another's.

Transactions are as storage.md 8.4 has them: their offsets wait until the marker says what becomes
of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.loading.replay import replay
from broker.coordinator.offsets.commit import Committed
from protocol.logdata.commit_runs import ordinary_commits
from protocol.logdata.offsets import (
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownRecord,
    decode_key,
    decode_value,
)
from protocol.records.batch import Batch
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    CONTROL_BIT,
    ENTRY_OVERHEAD,
    HEADER,
    HEADER_SIZE,
    INT64,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from protocol.records.legacy import Message, read_messages
from protocol.records.markers import decode_marker
from protocol.records.walk import last_offset, walk

if TYPE_CHECKING:
    from broker.coordinator.shard_state import ShardState
    from protocol.logdata.commit_runs import CommitRow
    from protocol.schema import Struct

MAX_REASONS = 100
"""Reasons that are kept. What is skipped is counted in any case."""
MAX_TRIES = 100
"""Checksums computed in search of the next batch after a damaged one: each may be as long as all
the data."""


class LoadReport(NamedTuple):
    """The outcome of a load: what the log held, and what is in memory now.

    records        read, those that were skipped not among them
    offsets        partitions with a committed offset
    groups         groups with a record of their own
    skipped        (offset, reason) of the first records or batches that were left out
    skipped_count  all of them
    """

    name: str
    records: int
    offsets: int
    groups: int
    skipped: list[tuple[int, str]]
    skipped_count: int


class ShardLoader:
    """Fills `state` from the log `name`, slice by slice, from `start_offset` on.

    `now_ms` is monotonic: then the sessions of members begin. `end_offset` is where the log ends,
    if it is known: offsets are not under the checksum, and one beyond the end is not believed.

    `has_gaps` when something was not there or could not be read between `start_offset` and
    `next_offset`: what compaction leaves, for one.
    """

    __slots__ = ("_end_offset", "_name", "_now_ms", "_skipped", "_state", "has_gaps", "next_offset",
                 "records", "skipped_count")  # fmt: skip

    def __init__(
        self,
        state: ShardState,
        name: str,
        *,
        now_ms: int,
        start_offset: int = 0,
        end_offset: int | None = None,
    ) -> None:
        self._state = state
        self._name = name
        self._now_ms = now_ms
        self._end_offset = end_offset
        self._skipped: list[tuple[int, str]] = []
        self.next_offset = start_offset
        """The offset to read next."""
        self.has_gaps = False
        self.records = 0
        self.skipped_count = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Load whole entries of any format, which follow those of the last call.

        Nothing is raised for what is in them. Afterwards `next_offset` has grown, if only by one
        where the data could not be understood at all.
        """
        raw = bytes(data)
        before, position, end = self.next_offset, 0, len(raw)
        while position < end:
            position, last, records, rows = ordinary_commits(raw, position)
            if last >= 0:
                self.records += records
                self._commit(rows)
                self._pass(raw, last, records)
            if position < end:
                position = self._entry(raw, position)
        if raw and self.next_offset <= before:
            self.skip_to(before + 1)

    def skip_to(self, offset: int) -> None:
        """Leave out what is before this offset."""
        self.next_offset = offset
        self.has_gaps = True

    def report(self) -> LoadReport:
        """The outcome so far."""
        state = self._state
        return LoadReport(
            self._name,
            self.records,
            len(state.offsets),
            len(state.groups),
            self._skipped,
            self.skipped_count,
        )

    def _skip(self, offset: int, reason: str) -> None:
        self.skipped_count += 1
        if len(self._skipped) < MAX_REASONS:
            self._skipped.append((offset, reason))

    def _pass(self, raw: bytes, position: int, records: int) -> None:
        """The entry there has been read; since the last call these were `records`."""
        after = last_offset(raw, position, raw[position + MAGIC_POSITION]) + 1
        if after - self.next_offset != records:
            self.has_gaps = True
        if self._end_offset is None or after <= self._end_offset:
            self.next_offset = max(self.next_offset, after)

    def _commit(self, rows: list[CommitRow]) -> None:
        commit, commit_run = self._state.offsets.commit, self._state.offsets.commit_run
        for group, topic, partitions, offsets, leader_epochs, commit_ms, metadata in rows:
            if type(partitions) is int:
                commit(group, topic, partitions, offsets, leader_epochs, metadata, commit_ms)  # type: ignore[arg-type]
            else:
                commit_run(group, topic, partitions, offsets, leader_epochs, commit_ms)  # type: ignore[arg-type]

    def _entry(self, raw: bytes, position: int) -> int:
        """Load the entry at `position`; returns where the next one is."""
        try:
            found = next(walk(raw, position), None)
        except CorruptBatch as error:
            self._skip(self.next_offset, str(error))
            return self._next_batch(raw, position)
        if found is None:
            self._skip(self.next_offset, f"an entry is cut after {len(raw) - position} bytes")
            return self._next_batch(raw, position)
        _, size, magic = found
        entry = memoryview(raw)[position : position + size]
        offset = last_offset(raw, position, magic)
        records = 0
        try:
            if magic < 2:
                for record in read_messages(entry):
                    self._record(record.offset, record.key, record.value)
                    records += 1
            else:
                records = self._batch(Batch(entry))
        except CorruptBatch as error:
            self._skip(offset, str(error))
            if not _begins_entry(raw, position + size, offset + 1):
                return self._next_batch(raw, position)
        except InvalidRecord as error:
            self._skip(offset, str(error))
        self._pass(raw, position, records)
        return position + size

    def _next_batch(self, raw: bytes, position: int) -> int:
        """The position of the next whole batch after the damaged entry there, whose length may be
        what is damaged; the end of the data if there is none."""
        tries = 0
        magic_at = raw.find(2, position + 1 + MAGIC_POSITION)
        while magic_at >= 0 and tries < MAX_TRIES:
            start = magic_at - MAGIC_POSITION
            if len(raw) - start >= HEADER_SIZE:
                offset, length = HEADER.unpack_from(raw, start)[:2]
                size = length + ENTRY_OVERHEAD
                if offset >= self.next_offset and HEADER_SIZE <= size <= len(raw) - start:
                    if _is_intact(raw, start, magic=2):
                        return start
                    tries += 1
            magic_at = raw.find(2, magic_at + 1)
        return len(raw)

    def _batch(self, batch: Batch) -> int:
        """Load a batch; says how many records it has. Raises CorruptBatch for a wrong checksum,
        InvalidRecord as `Batch.records`."""
        if not batch.is_intact():
            raise CorruptBatch(
                f"batch of {batch.size} bytes states checksum {batch.crc:#010x}, "
                f"its bytes have {batch.checksum():#010x}"
            )
        attributes = batch.attributes
        if attributes & CONTROL_BIT:
            marker = decode_marker(batch.view)
            if marker is not None:
                self.records += 1
                self._state.offsets.complete(batch.producer_id, commit=marker.commit)
            return batch.record_count
        producer_id = batch.producer_id if attributes & TRANSACTIONAL_BIT else None
        for record in batch.records():
            self._record(record.offset, record.key, record.value, producer_id)
        return batch.record_count

    def _record(
        self, offset: int, key: bytes | None, value: bytes | None, producer_id: int | None = None
    ) -> None:
        """One record; `producer_id` is that of its transaction."""
        try:
            decoded = decode_key(key)
            content = None if value is None else decode_value(decoded, value)
            if isinstance(decoded, OffsetCommitKey):
                if decoded.partition < 0:
                    raise UnknownRecord(f"an offset for partition {decoded.partition}")
                if producer_id is not None:
                    self._pending(offset, decoded, content, producer_id)
                    return
            replay(self._state, decoded, content, now_ms=self._now_ms)
            self.records += 1
        except UnknownRecord as error:
            self._skip(offset, str(error))
        except Exception as error:  # a record that breaks its group's rules is that group's loss
            self._skip(offset, f"{type(error).__name__}: {error}")

    def _pending(
        self, offset: int, key: OffsetCommitKey, value: Struct | None, producer_id: int
    ) -> None:
        """An offset in a transaction. Kafka never writes a removal there."""
        if producer_id == NO_PRODUCER_ID:
            raise UnknownRecord("an offset in a transaction of no producer")
        if not isinstance(value, OffsetCommitValue):
            raise UnknownRecord("the removal of an offset in a transaction")
        committed = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
        )
        self._state.offsets.add_pending(
            producer_id, offset, key.group, key.topic, key.partition, committed
        )
        self.records += 1


def _begins_entry(raw: bytes, position: int, offset: int) -> bool:
    """Whether the length that led here can be believed: here is the end of the data, or an entry
    that has this offset or is intact."""
    if position == len(raw):
        return True
    try:
        found = next(walk(raw, position), None)
    except CorruptBatch:
        return False
    if found is None:
        return False
    return INT64.unpack_from(raw, position)[0] == offset or _is_intact(raw, position, found[2])


def _is_intact(raw: bytes, position: int, magic: int) -> bool:
    """Whether the checksum of the entry there, which is all there, is right."""
    entry = memoryview(raw)[position:]
    try:
        return Batch(entry).is_intact() if magic == 2 else Message(entry).is_intact()
    except CorruptBatch:
        return False
