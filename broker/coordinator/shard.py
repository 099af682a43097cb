"""One partition of `__consumer_offsets` at work: its log and what that says.

All writes of the coordinator go through `write`: one operation is one batch, in the file when
`write` returns, so that memory may follow at once. Answers that depend on it wait for `is_durable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.coordinator.loading.snapshots import ShardSnapshots
from broker.partitions.disk_state import DISK_FULL
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import GroupMetadataValue, encode_record
from protocol.records.builder import build_batch
from protocol.records.layout import HEADER
from protocol.records.markers import MARKER_SIZE
from storage.errors import BatchTooLarge, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.coordinator.shard_state import ShardState
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.producing.appends import Appends
    from protocol.logdata.offsets import Record


class Shard:
    """The groups whose ids fall to one partition. `loaded` when its log has been replayed.

    `wall_ms` gives ms since 1970. `ack_when_durable` is whether answers wait for the disk
    (log.flush.policy), and may change.
    """

    __slots__ = (
        "_appends", "_disk", "_wall_ms", "ack_when_durable", "loaded", "partition", "snapshots",
        "state",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        state: ShardState,
        *,
        disk: DiskState,
        appends: Appends,
        wall_ms: Callable[[], int],
        ack_when_durable: bool,
    ) -> None:
        self._disk = disk
        self._appends = appends
        self._wall_ms = wall_ms
        self.ack_when_durable = ack_when_durable
        self.partition = partition
        self.state = state
        self.snapshots = ShardSnapshots(partition.log, partition.topic.topic_id)
        self.loaded = False

    @property
    def is_durable(self) -> bool:
        """Whether all that memory shows would survive a loss of power now, or nobody asked for
        that."""
        log = self.partition.log
        return log.recovery_point >= log.written_offset or not self.ack_when_durable

    def write_records(self, records: Iterable[Record]) -> int:
        """Write these as one batch; returns its base offset. A group's time of change that is not
        set yet (-1) becomes now.

        Raises KafkaError with the code for the client; then nothing is written.
        """
        now_ms = self._wall_ms()
        fields = []
        for key, value in records:
            if isinstance(value, GroupMetadataValue) and value.current_state_timestamp < 0:
                value.current_state_timestamp = now_ms
            fields.append((now_ms, *encode_record((key, value)), ()))
        return self.write(bytearray(build_batch(fields)), now_ms=now_ms)

    def write(self, batch: bytearray, *, now_ms: int) -> int:
        """Put a batch into the file and wake its readers; returns its base offset.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE when the disk refuses or is full,
        UNKNOWN_SERVER_ERROR for a batch larger than a segment. Then nothing is written.
        """
        log = self.partition.log
        try:
            self._require_room()
            offset = log.append(memoryview(batch), HEADER.unpack_from(batch), now_ms=now_ms)
            log.write()
        except KafkaError as error:
            raise self._refused(error) from error
        self._written(len(batch))
        return offset

    def write_marker(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int
    ) -> int:
        """Write the end of a transaction; returns its offset. Raises KafkaError as `write`, or
        PRODUCER_FENCED and TRANSACTION_COORDINATOR_FENCED."""
        log = self.partition.log
        try:
            self._require_room()
            offset = log.append_marker(
                producer_id,
                epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                now_ms=self._wall_ms(),
            )
            log.write()
        except KafkaError as error:
            raise self._refused(error) from error
        self._written(MARKER_SIZE)
        return offset

    def _require_room(self) -> None:
        if self._disk.full:
            raise StorageError(DISK_FULL)

    def _refused(self, error: KafkaError) -> KafkaError:
        """The error for the client when storage says this."""
        if isinstance(error, BatchTooLarge):
            return KafkaError(str(error), code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if not isinstance(error, StorageError):
            return error
        if not self._disk.noticed(error):
            log = self.partition.log
            logs.error_once_a_minute("group state not written", str(error), log.name)
        return KafkaError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _written(self, size: int) -> None:
        """Have it synced in any case, and wake those who read the topic."""
        partition, appends = self.partition, self._appends
        appends.unsynced[partition.log] = partition
        appends.bytes_written += size
        self.snapshots.bytes_since += size
        if partition.waits:
            partition.wake(size)
