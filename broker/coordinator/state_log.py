"""A partition of a state topic as its coordinator writes it.

One operation is one batch, in the file when a call returns, so that memory may follow at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.partitions.disk_state import DISK_FULL
from protocol.errors import ErrorCode, KafkaError
from protocol.records.layout import HEADER
from protocol.records.markers import MARKER_SIZE
from storage.errors import BatchTooLarge, StorageError

if TYPE_CHECKING:
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.producing.appends import Appends


class StateLog:
    """Appends to the log of a partition; it is synced in any case, and its readers are woken.

    Both calls raise KafkaError: COORDINATOR_NOT_AVAILABLE when the disk refuses or is full,
    UNKNOWN_SERVER_ERROR for a batch larger than a segment. Then nothing is written.
    """

    __slots__ = ("_appends", "_disk", "partition")

    def __init__(self, partition: Partition, *, disk: DiskState, appends: Appends) -> None:
        self._disk = disk
        self._appends = appends
        self.partition = partition

    def append(self, batch: bytearray, *, now_ms: int) -> int:
        """Put a batch into the file; returns its base offset."""
        log = self.partition.log
        try:
            if self._disk.full:
                raise StorageError(DISK_FULL)
            offset = log.append(memoryview(batch), HEADER.unpack_from(batch), now_ms=now_ms)
            log.write()
        except (BatchTooLarge, StorageError) as error:
            raise self._refused(error) from error
        self._written(len(batch))
        return offset

    def append_marker(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> int:
        """Put the end of a transaction into the file; returns its offset. Raises PRODUCER_FENCED
        and TRANSACTION_COORDINATOR_FENCED, too."""
        log = self.partition.log
        try:
            if self._disk.full:
                raise StorageError(DISK_FULL)
            offset = log.append_marker(
                producer_id,
                epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                now_ms=now_ms,
            )
            log.write()
        except (BatchTooLarge, StorageError) as error:
            raise self._refused(error) from error
        self._written(MARKER_SIZE)
        return offset

    def _refused(self, error: KafkaError) -> KafkaError:
        """The error for the client when storage says this."""
        if isinstance(error, BatchTooLarge):
            return KafkaError(str(error), code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if not self._disk.noticed(error):
            name = self.partition.log.name
            logs.error_once_a_minute("coordinator state not written", str(error), name)
        return KafkaError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _written(self, size: int) -> None:
        partition, appends = self.partition, self._appends
        appends.unsynced[partition.log] = partition
        appends.bytes_written += size
        if partition.waits:
            partition.wake(size)


class ResignedLog(StateLog):
    """The log of a coordinator that has resigned: it refuses all, for another process writes it."""

    __slots__ = ()

    def __init__(self) -> None:
        """It has nothing to write to."""

    def append(self, batch: bytearray, *, now_ms: int) -> int:
        raise KafkaError(code=ErrorCode.NOT_COORDINATOR)

    def append_marker(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> int:
        raise KafkaError(code=ErrorCode.NOT_COORDINATOR)


def not_loaded(partition: Partition) -> KafkaError:
    """The error for who asks what a partition of a state topic says, and it is not known here."""
    return KafkaError(
        code=ErrorCode.NOT_COORDINATOR
        if partition.led_elsewhere
        else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
