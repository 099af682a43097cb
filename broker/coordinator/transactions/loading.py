"""Reading partitions of `__transaction_state` back into memory after a start.

The last record of an id is its state. Of each id the last end that was decided is found besides,
and where its producer has something open all of them that the log still has: their markers were
written without waiting for the disk, and a loss of power may have taken them.

Everything is doubted: what is damaged, foreign or makes no sense is left out, alone, with its
reason. Kafka 3.9 loads such a partition for ever (storage.md 0.3, rule 9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker import logs
from broker.coordinator.transactions.transaction import PREPARED, TV2, Transaction, from_value
from broker.workers import Worker
from protocol.logdata.transactions import (
    ENDS_HEADER,
    TransactionState,
    UnknownRecord,
    decode_ends,
    decode_key,
    decode_value,
    glance,
)
from protocol.records.batch import Batch
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import CONTROL_BIT
from protocol.records.sole_records import sole_records
from protocol.records.walk import last_offset, walk

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Container, Sequence

    from broker.coordinator.transactions.shard import TransactionShard
    from protocol.logdata.transactions import End
    from protocol.records.record import RecordHeaders
    from storage.log import Log
    from storage.slices import FileSlice

AT_ONCE_BYTES = 256 * 1024
"""All shards together are loaded without a thread up to so many bytes."""
SLICE_BYTES = 1024 * 1024
FORMAT_2 = 2
LONGEST_BATCH = 500
"""Records of the longest batch that is written here: tombstones of one look for expired ids."""
_KNOWN = frozenset(TransactionState)
_NOT_AT_REST = PREPARED | {TransactionState.ONGOING}


class DecidedEnd(NamedTuple):
    """An end of an id that was decided. `ends` are the next offsets and leader epochs of its
    partitions then, in their order; None if Apache Kafka wrote it."""

    decided: Transaction
    ends: tuple[End, ...] | None

    def reaches(self, place: tuple[str, int], epoch: int, offset: int, leader_epoch: int) -> bool:
        """Whether what its producer has open in this partition was ended by it: with this epoch,
        since this offset, which the partition has had since this leader epoch.

        Not so where Kafka wrote it: its markers were in the files before the end was complete.
        """
        decided = self.decided
        if self.ends is None or place not in decided.partitions:
            return False
        if epoch > decided.epoch - (decided.client_version >= TV2):
            return False
        end_offset, last_epoch = self.ends[list(decided.partitions).index(place)]
        return offset < end_offset and leader_epoch <= last_epoch


RawEnd = tuple[bytes, bytes | None]
"""The value of a record that ends a transaction, and its header with where its partitions ended."""


def end_of(raw: RawEnd) -> DecidedEnd | None:
    """The same decoded; None if it makes no sense."""
    try:
        decided = from_value(decode_value(raw[0]))
    except (UnknownRecord, ValueError):
        return None
    return DecidedEnd(decided, decode_ends(raw[1], len(decided.partitions)))


class Loaded:
    """The content of one partition, as far as it has been fed. Touches nothing else, so that a
    thread may fill it."""

    def __init__(self, start_offset: int, unended: Container[int] = ()) -> None:
        """`unended` are the ids of producers that have something open in a partition."""
        self._unended = unended
        self.next_offset = start_offset
        """The offset to read next."""
        self.states: dict[str, Transaction | bytes] = {}
        self.records = 0
        self.skipped = 0
        self.reason = ""
        """Why the last of those that were skipped was."""
        self.ends: dict[str, list[RawEnd]] = {}
        """Of each id the last end that was decided, and those before it that may be unended."""

    def feed(self, data: bytes) -> None:
        """Load whole batches, which follow those of the last call. Raises CorruptBatch where the
        length of one can't be believed; what comes before it has been loaded."""
        position, end = 0, len(data)
        while position < end:
            position, last, rows = sole_records(data, position)
            for row in rows:
                self._record(*row)
            if rows:
                self.next_offset = last_offset(data, last, FORMAT_2) + 1
            entry = next(walk(data, position), None)
            if entry is None:
                return
            position = self._entry(data, *entry)

    def _entry(self, data: bytes, position: int, size: int, magic: int) -> int:
        """Load a batch of whatever kind; the position after it."""
        if magic != FORMAT_2:
            raise CorruptBatch(f"an entry of format {magic}, the topic has never had it")
        batch = Batch(memoryview(data)[position : position + size])
        if not batch.is_intact():
            self._skip(f"the checksum of the batch at offset {batch.base_offset} is wrong")
        elif not batch.attributes & CONTROL_BIT:
            try:
                for record in batch.records():
                    self._record(record.offset, record.key, record.value, record.headers)
            except InvalidRecord as error:
                self._skip(str(error))
        self.next_offset = batch.last_offset + 1
        return position + size

    def _record(
        self, offset: int, key: bytes | None, value: bytes | None, headers: RecordHeaders
    ) -> None:
        try:
            transactional_id = decode_key(key)
            if value is None:
                self.states.pop(transactional_id, None)
                self.ends.pop(transactional_id, None)
                return
            _, status = glance(value)
            if status not in _KNOWN:
                raise UnknownRecord(f"state {status} of {transactional_id!r}, known are 0 to 7")
        except UnknownRecord as error:
            self._skip(f"offset {offset}: {error}")
            return
        self.records += 1
        self.states[transactional_id] = value
        if status in PREPARED:
            ends = self.ends.setdefault(transactional_id, [])
            if ends and glance(ends[-1][0])[0] not in self._unended:
                ends.pop()
            ends.append((value, dict(headers).get(ENDS_HEADER)))

    def _skip(self, reason: str) -> None:
        self.skipped += 1
        self.reason = reason

    def open(self) -> dict[str, Transaction]:
        """The ids whose transaction has not ended; those that can't be decoded are left out."""
        found = {}
        for transactional_id, value in list(self.states.items()):
            assert type(value) is bytes
            if glance(value)[1] not in _NOT_AT_REST:
                continue
            try:
                found[transactional_id] = from_value(decode_value(value))
            except (UnknownRecord, ValueError) as error:
                self._skip(f"{transactional_id!r}: {error}")
                del self.states[transactional_id]
        self.states.update(found)
        return found


class TransactionLoads:
    """Loads shards one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._worker = Worker(loop, "transactions")
        self._waiting: list[TransactionShard] = []
        self._current: TransactionShard | None = None
        """The one that is under way on the thread, and its log."""
        self._log: Log | None = None
        self._taken_up: Callable[[TransactionShard, Loaded], None]
        self._done: Callable[[], None]
        self._unended: Container[int]
        self._stopped = False
        self.records = 0
        self.skipped = 0

    def begin(
        self,
        shards: Sequence[TransactionShard],
        taken_up: Callable[[TransactionShard, Loaded], None],
        done: Callable[[], None],
        *,
        unended: Container[int] = (),
    ) -> None:
        """Load these, `unended` as for `Loaded`; `taken_up` is called for each on the loop with
        what it holds, `done` after the last. One that can't be read stays unknown: as a new one it
        would lose transactions."""
        self._taken_up, self._done, self._unended = taken_up, done, unended
        self._waiting = [one for one in reversed(shards) if one.partition.log.unavailable is None]
        self._load()

    def _load(self) -> None:
        if sum(_bytes(shard) for shard in self._waiting) > AT_ONCE_BYTES:
            self._load_next()
            return
        while self._waiting:
            shard = self._waiting.pop()
            loaded = self._loaded(shard)
            while (data := self._slice(shard, loaded)) is not None:
                self._fed(shard, loaded, _feed(loaded, data))
            self._finish(shard, loaded)
        self._done()

    def add(self, shard: TransactionShard) -> None:
        """Load one more, which is led here from now on; after `begin`."""
        if self._stopped:
            return
        self._waiting.insert(0, shard)
        if self._current is None:
            self._load()

    def give_up(self, shard: TransactionShard) -> None:
        """Load this one no more, for another process leads it from now on. Its log is used until
        `is_at_work_on` says otherwise."""
        if shard in self._waiting:
            self._waiting.remove(shard)

    def is_at_work_on(self, log: Log) -> bool:
        """Whether a thread reads it. May be asked on any thread."""
        return self._log is log and not self._stopped

    def stop(self) -> None:
        """Load no more."""
        self._stopped = True
        self._worker.stop()

    def _load_next(self) -> None:
        if self._stopped:
            return
        self._current = self._log = None
        if not self._waiting:
            logs.info("transactions loaded", records=self.records, skipped=self.skipped)
            self._done()
            return
        self._current = shard = self._waiting.pop()
        self._log = shard.partition.log
        self._load_slices(shard, self._loaded(shard))

    def _loaded(self, shard: TransactionShard) -> Loaded:
        return Loaded(shard.partition.log.start_offset, self._unended)

    def _load_slices(self, shard: TransactionShard, loaded: Loaded) -> None:
        if self._stopped:
            return
        data = self._slice(shard, loaded)
        if data is None:
            self._finish(shard, loaded)
            self._load_next()
            return

        def fed(error: Exception | None) -> None:
            if shard.has_resigned:
                self._load_next()
                return
            self._fed(shard, loaded, error)
            self._load_slices(shard, loaded)

        self._worker.run(lambda: _feed(loaded, data), fed)

    def _slice(self, shard: TransactionShard, loaded: Loaded) -> FileSlice | None:
        """The next slice of the log; None at its end."""
        while True:
            try:
                return shard.partition.log.read(loaded.next_offset, SLICE_BYTES)
            except (CorruptBatch, OSError) as error:
                self._pass_over(shard, loaded, error)

    def _fed(self, shard: TransactionShard, loaded: Loaded, error: Exception | None) -> None:
        if error is not None:
            self._pass_over(shard, loaded, error)

    def _pass_over(self, shard: TransactionShard, loaded: Loaded, error: Exception) -> None:
        """Go on behind what cannot be read: with the next batch that can be, with the next segment,
        or at the end."""
        log, offset = shard.partition.log, loaded.next_offset
        logs.error(
            "a part of __transaction_state can't be read: transactions may be lost",
            log=log.name,
            offset=offset,
            reason=str(error),
        )
        loaded.skipped += 1
        after = [base for base in log.segments.base_offsets if base > offset]
        loaded.next_offset = min(after, default=log.written_offset)
        for later in range(offset + 1, min(offset + 1 + LONGEST_BATCH, loaded.next_offset)):
            try:
                log.read(later, 1)
            except (CorruptBatch, OSError):
                continue
            loaded.next_offset = later
            return

    def _finish(self, shard: TransactionShard, loaded: Loaded) -> None:
        self._taken_up(shard, loaded)
        self.records += loaded.records
        self.skipped += loaded.skipped
        if loaded.reason:
            logs.warning(
                "records of transactions were skipped",
                log=shard.partition.log.name,
                count=loaded.skipped,
                last=loaded.reason,
            )


def _feed(loaded: Loaded, data: FileSlice) -> Exception | None:
    """Load a slice; why not all of it, if so."""
    try:
        loaded.feed(bytes(data.read()))
    except (CorruptBatch, OSError) as error:
        return error
    return None


def _bytes(shard: TransactionShard) -> int:
    return sum(segment.byte_size() for segment in shard.partition.log.segments)
