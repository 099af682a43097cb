"""The stream reader of `format("triglot")`: micro-batches from one set of offsets to the next.

An offset of the stream is {"orders": {"0": 23, "1": 42}}, as in the checkpoints of Spark's own
connector: the next offset to read of each partition. Spark writes the two of a micro-batch down
before it begins; `partitions` makes the same ranges of them each time, so that a micro-batch that
is repeated after a failure has the same records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from client.cluster import LATEST, Cluster, TopicPartition
from pipeline.dataframes.one_line import in_one_line
from pipeline.dataframes.range_reader import RangeReader, partition_of
from pipeline.reading.plan import (
    Offsets,
    ending_offsets,
    latest_offsets,
    limited,
    offsets_from_json,
    offsets_to_json,
    starting_offsets,
    stream_ranges,
)
from pipeline.reading.sharing import shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pipeline.reading.options import SourceOptions

StreamOffset = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives in a process of its own for as long as its query runs; copies go to the tasks.

    Raises OffsetsGone where a partition was deleted, or cut to below what was read of it, and
    Unreachable; with onGap=skip (failOnDataLoss=false) only the latter.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._rows = RangeReader(options)
        self._source = options.source()
        self._latest: Offsets | None = None
        self._target: Offsets | None = None

    @in_one_line()
    def initialOffset(self) -> StreamOffset:
        """The start of a query without a checkpoint."""
        source, bound = self._source, self._options.starting
        partitions = self._options.select(source)
        starts = starting_offsets(source, partitions, bound)
        if self._options.committed_only and (bound.is_time or LATEST in bound.values):
            # The latest offset, and a record of a time, may lie in a transaction that is open.
            ends = ending_offsets(source, partitions, committed_only=True)
            starts = {one: min(start, ends[one]) for one, start in starts.items()}
        return offsets_to_json(starts)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @in_one_line()
    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """The end of the next micro-batch; `start` itself if there is nothing new.

        The limit counts offsets. A partition that is new has its earliest offset here, and records
        in the micro-batch after it.
        """
        begin = offsets_from_json(start)
        self._latest = latest_offsets(self._source, self._options, begin)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offsets_to_json(limited(begin, self._up_to_target(begin, self._latest), most))

    @in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:
        """Make the present ends of the partitions the end of the query, or an earlier one that it
        was given (`pipeline.jobs.stretch`); what that does not name is not read."""
        options = self._options
        # What it means that one is not there, `initialOffset` or `latestOffset` says.
        named = options.assigned or [TopicPartition(topic, 0) for topic in options.topics]
        partitions = options.select(self._source, known=named)
        self._target = ending_offsets(
            self._source, partitions, committed_only=options.committed_only
        )
        if options.ending.each:
            ends = self._target
            self._target = {
                one: min(end, ends[one]) for one, end in options.ending.each.items() if one in ends
            }

    def _up_to_target(self, start: Offsets, latest: Offsets) -> Offsets:
        if self._target is None:
            return latest
        ends: Offsets = {}
        for partition, end in latest.items():
            if partition not in self._target:
                # It came later: what there was of it, if anything, stays as it is.
                if partition in start:
                    ends[partition] = start[partition]
            elif end > start.get(partition, end):
                ends[partition] = max(min(end, self._target[partition]), start[partition])
            else:
                ends[partition] = end
        return ends

    def reportLatestOffset(self) -> StreamOffset | None:
        """The ends of the logs when they were last asked for: `latestOffset` of the progress,
        from which the lag follows."""
        return None if self._latest is None else offsets_to_json(self._latest)

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """The ranges of a micro-batch, those of each task."""
        ranges = stream_ranges(self._options, offsets_from_json(start), offsets_from_json(end))
        return [partition_of(share) for share in shares(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    @in_one_line()
    def commit(self, end: StreamOffset) -> None:
        """Publish `end` as the offsets of the consumer group `commitGroup`, for tools that show
        lag. Nothing is read from there.

        Spark calls this when it plans the micro-batch that follows, so the group is one micro-batch
        late, and never hears of the last one of a query that ends.
        """
        if self._options.commit_group is not None:
            # The options have made sure that it is no data directory.
            assert isinstance(self._source, Cluster)
            offsets = offsets_from_json(end)
            if self._latest is not None:
                # A coordinator refuses partitions that were deleted.
                offsets = {one: offsets[one] for one in offsets.keys() & self._latest.keys()}
            self._source.commit_offsets(self._options.commit_group, offsets)

    def stop(self) -> None:
        self._source.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]
