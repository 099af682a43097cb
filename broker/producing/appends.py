"""The appends of one turn of the loop, written together.

Batches are queued in their logs while the requests are handled, then each log gets one `writev`,
and only then are the answers encoded: when a write fails, the entries of that log in the answers
still become errors. `broker.network.turn` says when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.producing.failures import not_stored
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition, Unwritten
    from storage.log import Log


class Appends:
    """Partitions with queued batches. One object serves all connections."""

    __slots__ = (
        "_disk", "_partitions", "bytes_written", "failures", "pending_bytes", "rebuilt", "refused",
        "unsynced",
    )  # fmt: skip

    def __init__(self, disk: DiskState) -> None:
        self._disk = disk
        self._partitions: list[Partition] = []
        self.unsynced: dict[Log, Partition] = {}
        """Logs written since `Flushing` last looked."""
        self.pending_bytes = 0
        """Bytes of the batches that are queued."""
        self.failures = 0
        """Writes of logs that failed so far. Entries that were added before one may be errors."""
        self.refused: dict[int, int] = {}
        """Sets that were not stored, by the code of the error, for the metrics."""
        self.bytes_written = 0
        """Bytes of batches written, or recovered by a start, since the last checkpoint."""
        self.rebuilt = 0
        """Sets so far that were stored in other bytes than they came in, for the metrics."""

    def add(self, partition: Partition, entry: Unwritten, size: int) -> None:
        """A batch of `size` bytes was queued in the partition's log; `entry` will answer it."""
        if not partition.unwritten:
            self._partitions.append(partition)
        partition.unwritten.append(entry)
        partition.unwritten_bytes += size
        self.pending_bytes += size

    @property
    def pending(self) -> bool:
        """Something is queued that no reader can see yet."""
        return bool(self._partitions)

    def write(self) -> None:
        """Write what is queued, make it visible, and wake those who wait for it.

        When a write fails, which `failures` counts, the entries it was for are errors now.
        """
        partitions = self._partitions
        if not partitions:
            return
        self._partitions = []
        self.pending_bytes = 0
        for partition in partitions:
            try:
                partition.log.write()
            except KafkaError as error:
                self._fail(partition, error)
                continue
            self.unsynced[partition.log] = partition
            partition.unwritten.clear()
            size = partition.unwritten_bytes
            partition.unwritten_bytes = 0
            self.bytes_written += size
            partition.bytes_in += size
            if partition.waits:
                partition.wake(size)

    def note_refusal(self, code: int, count: int = 1) -> None:
        """So many sets were not stored, because of this error."""
        self.refused[code] = self.refused.get(code, 0) + count

    def _fail(self, partition: Partition, error: KafkaError) -> None:
        """Nothing that was queued for this partition is stored: its answers become errors."""
        self.failures += 1
        self.note_refusal(error.code, len(partition.unwritten))
        if not self._disk.noticed(error):
            logs.error(
                "append failed",
                topic=partition.topic.name,
                partition=partition.index,
                reason=str(error),
            )
        for entry in partition.unwritten:
            not_stored(entry, error.code)
        partition.unwritten.clear()
        partition.unwritten_bytes = 0
