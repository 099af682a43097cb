"""What goes along when a partition moves from one process of the directory to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker.partitions.topic import Partition
    from storage.log import Log
    from storage.steps import Job


class Handover(Protocol):
    """Told of each move by `Topics`."""

    def leaves(self, log: Log) -> Job:
        """This log is to be closed, and nobody begins anything with it from now on: writes what is
        queued for it. The job returns when nobody uses it any more."""

    def moved(self, partition: Partition) -> None:
        """The log of the partition is another: one that stands in for it, where it is led by
        another process from now on; or its own, which has been opened."""
