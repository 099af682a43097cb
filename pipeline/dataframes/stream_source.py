"""The stream reader of `format("triglot")`: micro-batches from one set of offsets to the next.

An offset of the stream is {"orders": {"0": 23, "1": 42}, "@topic-ids": {"orders": "5f0c..."}}, as
in the checkpoints of Spark's own connector: the next offset to read of each partition, and besides
the ids that the topics had, where brokers have any. Checkpoints without ids get them with the next
micro-batch. Spark writes the two offsets of a micro-batch down before it begins; `partitions` makes
the same ranges of them each time, so that a micro-batch that is repeated after a failure has the
same records; from a topic that was made again since it has none.
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
    TOPIC_IDS,
    Offsets,
    ending_offsets,
    latest_offsets,
    limited,
    made_again,
    offsets_from_json,
    offsets_to_json,
    starting_offsets,
    stream_ranges,
)
from pipeline.reading.sharing import shares

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa

    from pipeline.reading.options import SourceOptions

StreamOffset = dict[str, dict[str, Any]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives in a process of its own for as long as its query runs; copies go to the tasks.

    Raises OffsetsGone where a topic was deleted, be it made again or not, or a partition cut to
    below what was read of it, and Unreachable; with onGap=skip (failOnDataLoss=false) only the
    latter.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._rows = RangeReader(options)
        self._source = options.source()
        self._latest: Offsets | None = None
        self._target: Offsets | None = None
        self._ids: dict[str, str] = {}
        """Of the topics, when they were last asked for."""

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
        self._learn_ids(starts)
        return self._with_ids(starts)

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
        self._learn_ids(begin)
        known = begin
        if remade := self._remade(start):
            if self._options.on_gap == "fail":
                raise made_again(remade)
            # As if they were new: what was reached in those of their names means nothing.
            known = {one: offset for one, offset in begin.items() if one.topic not in remade}
        self._latest = latest_offsets(self._source, self._options, known)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = limited(known, self._up_to_target(known, self._latest), most)
        if end == begin and not remade:
            return start
        self._learn_ids(end, new=end.keys() - begin.keys())
        return self._with_ids(end)

    def _learn_ids(self, offsets: Offsets, new: Collection[TopicPartition] | None = None) -> None:
        """Ask for the ids of the topics in there, or only of those of the partitions `new`."""
        topics = {one.topic for one in (offsets if new is None else new)}
        if topics and isinstance(self._source, Cluster):
            found = self._source.topic_ids(topics)
            self._ids |= {topic: topic_id.hex() for topic, topic_id in found.items()}

    def _remade(self, start: StreamOffset) -> list[str]:
        """The topics that had other ids."""
        had = start.get(TOPIC_IDS, {})
        return sorted(topic for topic in had if self._ids.get(topic, had[topic]) != had[topic])

    def _with_ids(self, offsets: Offsets) -> StreamOffset:
        topics = {one.topic for one in offsets}
        ids = {topic: self._ids[topic] for topic in sorted(topics) if topic in self._ids}
        told: StreamOffset = offsets_to_json(offsets)
        return {**told, TOPIC_IDS: ids} if ids else told

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
        return None if self._latest is None else self._with_ids(self._latest)

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """The ranges of a micro-batch, those of each task."""
        ranges = stream_ranges(self._options, offsets_from_json(start), offsets_from_json(end))
        ids = end.get(TOPIC_IDS, {})
        return [partition_of(share, None, ids) for share in shares(ranges, self._options)]

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
