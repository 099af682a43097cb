"""The markers that end transactions, in the partitions that these wrote to.

The coordinator of transactions decides, and has its decision on the disk, before it asks for them.
A marker is queued behind all batches of its partition that are queued already, and written with
them by one call: either all of them are in the log or none, and then their producers are told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker import logs
from broker.partitions.disk_state import DISK_FULL
from broker.partitions.internal_topics import OFFSETS_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.records.markers import MARKER_SIZE
from storage.errors import ProducerFenced, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.partitions.topics import Topics
    from broker.producing.appends import Appends
    from storage.log import Log

Place = tuple[str, int]
"""Topic and partition."""

NOT_NEEDED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Outcomes after which a coordinator need not try again: the partition has gone, or has heard of a
newer producer or coordinator, which ends what is open there."""


MOVING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Outcomes for a partition that is led elsewhere, or was until now: nobody need hear of them."""


class TransactionEnd(NamedTuple):
    """The content of the markers of one transaction.

    `outgrows` is whether their epoch must be above that of all batches, as the coordinators of
    transaction.version 2 see to (KIP-1228).
    """

    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    outgrows: bool = False


class GroupOffsets(Protocol):
    """The offsets of groups, as far as the ends of transactions are about them."""

    def end_transaction(self, index: int, end: TransactionEnd, *, if_open: bool) -> None:
        """Write a marker to this partition of the offsets topic, and show or drop what the
        transaction committed there. With `if_open` nothing is done where none is open. Raises
        KafkaError; then nothing has changed."""


class _Entry:
    """The outcome for one partition, where `Appends` finds the fields that an answer would have."""

    __slots__ = ("base_offset", "error_code", "log_append_time_ms")

    def __init__(self, code: int = ErrorCode.NONE) -> None:
        self.error_code: int = code
        self.base_offset = -1
        self.log_append_time_ms = -1


class Markers:
    """Writes markers, for the coordinator and for WriteTxnMarkers. Belongs to the loop."""

    __slots__ = ("_appends", "_disk", "_offsets", "_topics", "_wall_ms")

    def __init__(
        self,
        *,
        topics: Topics,
        appends: Appends,
        disk: DiskState,
        offsets: GroupOffsets,
        wall_ms: Callable[[], int],
    ) -> None:
        """`wall_ms` gives ms since 1970."""
        self._topics = topics
        self._appends = appends
        self._disk = disk
        self._offsets = offsets
        self._wall_ms = wall_ms

    def write_markers(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        partitions: Sequence[Place],
    ) -> list[Place]:
        """Write the markers of a transaction to all of its partitions, and wake their readers.

        Those of `__consumer_offsets` have the pending offsets of groups settled. A partition where
        the producer has no open transaction, or that is gone, needs none. Nothing is synced.

        Returns the partitions that could not be written to now, to be tried again: the disk is
        full or fails, or a part of the groups is still being loaded.
        """
        end = TransactionEnd(producer_id, epoch, commit, coordinator_epoch)
        codes = self.end(end, partitions, if_open=True)
        return [
            place for place, code in zip(partitions, codes, strict=True) if code not in NOT_NEEDED
        ]

    def end(self, end: TransactionEnd, partitions: Iterable[Place], *, if_open: bool) -> list[int]:
        """The same with the code for each partition. Without `if_open` a marker is written where no
        transaction is open, too."""
        now_ms = self._wall_ms()
        entries = [self._queue(end, place, now_ms, if_open=if_open) for place in partitions]
        self._appends.write()
        return [entry.error_code for entry in entries]

    def _queue(self, end: TransactionEnd, place: Place, now_ms: int, *, if_open: bool) -> _Entry:
        """Queue a marker, or write it where that is for others to do. `Appends.write` may still
        make an error of the outcome."""
        name, index = place
        partition = self._topics.partition(name, index)
        if partition is None:
            return _Entry(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log = partition.log
        try:
            if not if_open:
                require_producer(end)
                require_newer(log, end)
            if name == OFFSETS_TOPIC:
                self._offsets.end_transaction(index, end, if_open=if_open)
                return _Entry()
            if if_open and log.producers.open_since(end.producer_id) < 0:
                return _Entry()
            return self._append(end, partition, now_ms)
        except KafkaError as error:
            self._tell(error, log)
            return _Entry(error.code)

    def _append(self, end: TransactionEnd, partition: Partition, now_ms: int) -> _Entry:
        if self._disk.full:
            raise StorageError(DISK_FULL)
        partition.log.append_marker(
            end.producer_id,
            end.epoch,
            commit=end.commit,
            coordinator_epoch=end.coordinator_epoch,
            now_ms=now_ms,
        )
        entry = _Entry()
        self._appends.add(partition, entry, MARKER_SIZE)
        return entry

    def _tell(self, error: KafkaError, log: Log) -> None:
        if error.code in MOVING:  # the coordinator looks for the leader
            return
        if not self._disk.noticed(error):
            logs.warn_once_a_minute("a marker was not written", str(error), log.name)


def require_producer(end: TransactionEnd) -> None:
    """Raises KafkaError, INVALID_REQUEST, for an id or epoch that no producer has."""
    if end.producer_id < 0 or end.epoch < 0:
        raise KafkaError(
            f"a marker for producer {end.producer_id} with epoch {end.epoch}",
            code=ErrorCode.INVALID_REQUEST,
        )


def require_newer(log: Log, end: TransactionEnd) -> None:
    """Raises ProducerFenced for a marker of transaction.version 2 with an epoch that batches of an
    open transaction have, or that another transaction had. One that is told again is none."""
    if not end.outgrows:
        return
    known = log.producers.epoch_of(end.producer_id)
    is_open = log.producers.open_since(end.producer_id) >= 0
    if end.epoch < known or (end.epoch == known and is_open):
        raise ProducerFenced(
            f"a marker for producer {end.producer_id} has epoch {end.epoch}, seen was {known}"
        )
