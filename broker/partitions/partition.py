"""A partition as the handlers see it: a log, and those who wait for it to grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.fetching.waiting import FetchWait
    from broker.partitions.topics import Topic
    from protocol.messages.produce import ProduceResponse
    from protocol.single_produce import SingleAnswer
    from storage.log import Log


class Partition:
    """One partition of a topic that exists.

    `unwritten` are the entries of produce answers whose batches are queued in the log and not yet
    in the file; they live for one read burst (see broker.producing.appends).
    """

    __slots__ = ("index", "log", "topic", "unwritten", "unwritten_bytes", "waits")

    def __init__(self, topic: Topic, index: int, log: Log) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.waits: dict[FetchWait, None] = {}
        self.unwritten: list[ProduceResponse.Topic.Partition | SingleAnswer] = []
        self.unwritten_bytes = 0

    @property
    def high_watermark(self) -> int:
        """The offset one past the last that readers may see: with one replica, all that is in the
        file."""
        return self.log.written_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction; without any, the high watermark."""
        return self.log.last_stable_offset

    def wake(self, size: int) -> None:
        """`size` more bytes are readable: tell the fetches that wait here."""
        for wait in list(self.waits):
            wait.grown(size)

    def wake_all(self) -> None:
        """Something else changed (the partition is going away, its log start moved): every fetch
        that waits here has to look again."""
        for wait in list(self.waits):
            wait.finish()
