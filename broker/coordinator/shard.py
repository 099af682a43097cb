"""One partition of `__consumer_offsets` at work: its log and what that says.

All writes of the coordinator go through it. Answers that depend on them wait for `is_durable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.loading.snapshots import ShardSnapshots
from broker.coordinator.state_log import ResignedLog, StateLog
from protocol.logdata.offsets import GroupMetadataValue, encode_record
from protocol.records.builder import build_batch
from protocol.records.markers import MARKER_SIZE

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
        "_log", "_wall_ms", "ack_when_durable", "loaded", "partition", "snapshots", "state",
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
        self._log: StateLog = StateLog(partition, disk=disk, appends=appends)
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

    def resign(self) -> None:
        """Write nothing more: another process leads the partition from now on. Whoever still has
        this shard meets NOT_COORDINATOR; it is never loaded again."""
        self.loaded = False
        self._log = ResignedLog()

    def write_records(self, records: Iterable[Record]) -> int:
        """Write these as one batch; returns its base offset. A group's time of change that is not
        set yet (-1) becomes now. Raises KafkaError as `StateLog`."""
        now_ms = self._wall_ms()
        fields = []
        for key, value in records:
            if isinstance(value, GroupMetadataValue) and value.current_state_timestamp < 0:
                value.current_state_timestamp = now_ms
            fields.append((now_ms, *encode_record((key, value)), ()))
        return self.write(bytearray(build_batch(fields)), now_ms=now_ms)

    def write(self, batch: bytearray, *, now_ms: int) -> int:
        """Write a batch; returns its base offset. Raises KafkaError as `StateLog`."""
        offset = self._log.append(batch, now_ms=now_ms)
        self.snapshots.bytes_since += len(batch)
        return offset

    def write_marker(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int
    ) -> int:
        """Write the end of a transaction; returns its offset. Raises KafkaError as `StateLog`."""
        offset = self._log.append_marker(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._wall_ms(),
        )
        self.snapshots.bytes_since += MARKER_SIZE
        return offset
