"""DescribeLogDirs: the data directory, and the bytes that each partition takes there.

What does not exist is left out, as in Kafka. How large the disk is, and the sizes of segments that
have not been looked at since the start, are asked of the file system on a thread. What retention
holds back for groups is told in fields of our own, which other clients pass over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Waiting
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from broker.background.retention_wait import RetentionWait
    from broker.handlers.context import Context
    from broker.partitions.disk_state import DiskState
    from broker.partitions.topic import Partition
    from broker.pending import Requester
    from broker.workers import Worker
    from protocol.connection import Request
    from storage.filesystem import Filesystem
    from storage.segment import Segment

UNKNOWN = -1
"""A size that the system does not tell."""
ROOM_SINCE = 4

Result = DescribeLogDirsResponse.Result


class LogDirsWait(Waiting):
    """A DescribeLogDirs request that waits for what the file system says."""

    __slots__ = ("_disk", "_gone", "_log_dir", "_partitions", "_readers", "_retention_wait")

    def __init__(
        self,
        partitions: list[Partition],
        *,
        log_dir: str,
        disk: DiskState,
        readers: Worker,
        retention_wait: Callable[[], RetentionWait],
    ) -> None:
        self._log_dir = log_dir
        self._disk = disk
        self._readers = readers
        self._retention_wait = retention_wait
        self._partitions = partitions
        self._gone = False

    def start(self, connection: Requester, request: Request) -> None:
        super().start(connection, request)
        disk = self._disk
        unknown = [
            (segment, partition.log.files)
            for partition in self._partitions
            for segment in partition.log.segments
            if segment.size < 0
        ]
        with_room = request.version >= ROOM_SINCE

        def look() -> tuple[dict[Segment, int], tuple[int, int]]:
            sizes = {segment: _size_on_disk(segment, files) for segment, files in unknown}
            room = (disk.total_bytes, disk.free_bytes) if with_room else (UNKNOWN, UNKNOWN)
            return sizes, room

        self._readers.run(look, lambda seen: self._seen(*seen))

    def finish(self) -> None:
        """The broker stops: the answer is on its way."""

    def cancel(self) -> None:
        """The client is gone."""
        self._gone = True

    def _seen(self, sizes: dict[Segment, int], room: tuple[int, int]) -> None:
        if self._gone:
            return
        by_topic: dict[str, Result.Topic] = {}
        for partition in self._partitions:
            name = partition.topic.name
            if name not in by_topic:
                by_topic[name] = Result.Topic(name=name, partitions=[])
            by_topic[name].partitions.append(
                Result.Topic.Partition(
                    partition_index=partition.index,
                    partition_size=sum(
                        segment.size if segment.size >= 0 else sizes.get(segment, 0)
                        for segment in partition.log.segments
                    ),
                    offset_lag=0,
                    is_future_key=False,
                    **self._held_back(partition),
                )
            )
        total, usable = room
        result = Result(
            error_code=ErrorCode.NONE,
            log_dir=self._log_dir,
            topics=list(by_topic.values()),
            total_bytes=total,
            usable_bytes=usable,
        )
        self.connection.finish_waiting(self.request, DescribeLogDirsResponse(results=[result]))

    def _held_back(self, partition: Partition) -> dict[str, Any]:
        if not partition.topic.settings.retention_wait_groups:
            return {}
        held = self._retention_wait().held(partition)
        if held is None:
            return {}
        return {
            "held_records": held.records,
            "held_bytes": held.byte_size,
            "held_since_ms": held.since_ms,
            "held_for": sorted(held.groups),
        }


def describe_log_dirs(request: Request, ctx: Context) -> LogDirsWait:
    message: DescribeLogDirsRequest = request.message
    topics = ctx.topics
    if message.topics is None:
        partitions = [one for topic in topics for one in topic.partitions]
    else:
        partitions = list(dict.fromkeys(_named(message.topics, ctx)))
    return LogDirsWait(
        partitions,
        log_dir=ctx.directory.path,
        disk=ctx.disk,
        readers=ctx.readers,
        retention_wait=ctx.retention_wait,
    )


def _named(asked: Iterable[DescribeLogDirsRequest.Topic], ctx: Context) -> Iterator[Partition]:
    for topic in asked:
        for index in topic.partitions:
            partition = ctx.topics.partition(topic.topic, index)
            if partition is not None:
                yield partition


def _size_on_disk(segment: Segment, files: Filesystem) -> int:
    """Without changing anything of the segment, which belongs to the loop."""
    try:
        return files.size_of(segment.path())
    except OSError:
        return 0  # it is gone by now
