"""One partition of `__consumer_offsets` at work: its log and what that says.

All writes of the coordinator go through `write`: one operation is one batch, in the file when
`write` returns, so that memory may follow at once. Answers that depend on it wait for `is_durable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.disk_state import TOLD
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import GroupMetadataValue, encode_record
from protocol.records.builder import build_batch
from protocol.records.layout import HEADER
from protocol.records.markers import MARKER_SIZE
from storage.errors import BatchTooLarge, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.coordinator.shard_state import ShardState
    from broker.partition import Partition
    from broker.server import Broker
    from protocol.logdata.offsets import Record


class Shard:
    """The groups whose ids fall to one partition. `loaded` when its log has been replayed."""

    __slots__ = ("_broker", "loaded", "partition", "state")

    def __init__(self, broker: Broker, partition: Partition, state: ShardState) -> None:
        self._broker = broker
        self.partition = partition
        self.state = state
        self.loaded = False

    @property
    def is_durable(self) -> bool:
        """Whether all that memory shows would survive a loss of power now, or nobody asked for
        that (log.flush.policy)."""
        log = self.partition.log
        return log.recovery_point >= log.written_offset or not self._broker.ack_when_durable

    def write_records(self, records: Iterable[Record]) -> int:
        """Write these as one batch; returns its base offset. A group's time of change that is not
        set yet (-1) becomes now.

        Raises KafkaError with the code for the client; then nothing is written.
        """
        now_ms = self._broker.now_ms()
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
        header = HEADER.unpack_from(batch)
        log = self.partition.log
        return self._write(lambda: log.append(memoryview(batch), header, now_ms=now_ms), len(batch))

    def write_marker(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int
    ) -> int:
        """Write the end of a transaction; returns its offset. Raises KafkaError as `write`, or
        PRODUCER_FENCED and TRANSACTION_COORDINATOR_FENCED."""
        log, now_ms = self.partition.log, self._broker.now_ms()
        return self._write(
            lambda: log.append_marker(
                producer_id,
                epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                now_ms=now_ms,
            ),
            MARKER_SIZE,
        )

    def _write(self, append: Callable[[], int], size: int) -> int:
        broker, partition = self._broker, self.partition
        log = partition.log
        try:
            if broker.disk.full:
                raise StorageError(TOLD)
            offset = append()
            log.write()
        except BatchTooLarge as error:
            raise KafkaError(str(error), code=ErrorCode.UNKNOWN_SERVER_ERROR) from error
        except StorageError as error:
            if not broker.disk.noticed(error):
                logs.error_once_a_minute("group state not written", str(error), log.name)
            raise KafkaError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        broker.appends.unsynced[log] = partition
        broker.appends.bytes_written += size
        if partition.waits:
            partition.wake(size)
        return offset
