"""The markers that end transactions, in the partitions that these wrote to.

The plainest that can be: one at a time, for partitions of topics. Offsets of groups that wait for
the end of a transaction are not told of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import KafkaError
from protocol.records.markers import MARKER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.partitions.topic import Partition
    from broker.partitions.topics import Topics
    from broker.producing.appends import Appends


class Markers:
    """Writes markers. Belongs to the loop."""

    def __init__(self, *, topics: Topics, appends: Appends, wall_ms: Callable[[], int]) -> None:
        """`wall_ms` gives ms since 1970."""
        self._topics = topics
        self._appends = appends
        self._wall_ms = wall_ms

    def write_markers(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        partitions: Sequence[tuple[str, int]],
    ) -> list[tuple[str, int]]:
        """Write the marker to each of these partitions; returns those that could not be written.

        One that is gone, or where this producer has nothing open, needs none.
        """
        self._appends.write()
        left = []
        for place in partitions:
            partition = self._topics.partition(*place)
            if partition is None or partition.log.producers.open_since(producer_id) < 0:
                continue
            try:
                partition.log.append_marker(
                    producer_id,
                    epoch,
                    commit=commit,
                    coordinator_epoch=coordinator_epoch,
                    now_ms=self._wall_ms(),
                )
                partition.log.write()
            except KafkaError:
                left.append(place)
            else:
                self._written(partition)
        return left

    def _written(self, partition: Partition) -> None:
        self._appends.unsynced[partition.log] = partition
        self._appends.bytes_written += MARKER_SIZE
        if partition.waits:
            partition.wake(MARKER_SIZE)
