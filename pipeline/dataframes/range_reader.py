"""The rows of a range, in the shape that is asked for: what a task of `format("triglot")` does."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from client.cluster import Cluster
from pipeline import schemas
from pipeline.dataframes.one_line import in_one_line
from pipeline.reading.plan import Range
from pipeline.reading.ranges import LeftOut, batches_of, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from client.cluster import TopicPartition
    from pipeline.reading.options import SourceOptions
    from pipeline.reading.sharing import Share
    from pipeline.reading.source import Source

logger = logging.getLogger(__name__)


def partition_of(
    share: Share,
    begins: Mapping[TopicPartition, int] | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> InputPartition:
    """The partition of Spark's that `RangeReader.read` takes; of plain tuples, so that Spark's own
    process needs nothing of ours to hand it on.

    With each range goes the offset from which its topic's partition is read, of `begins`, 0 where
    that is not known: no batch has records below it. The range gets its topic's id of `topic_ids`.
    """
    begins, topic_ids = begins or {}, topic_ids or {}
    return InputPartition(
        tuple(
            (
                tuple(range_._replace(topic_id=topic_ids.get(range_.topic))),
                begins.get(range_.topic_partition, 0),
            )
            for range_ in share
        )
    )


def ranges_of(partition: InputPartition) -> Share:
    """The ranges of a partition; none where there is nothing to read, for which Spark makes one
    without a value."""
    return [Range(*place) for place, _ in partition.value or ()]


class RangeReader:
    """Reads ranges as the options say. Picklable: it holds no connection."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @property
    def schema(self) -> pa.Schema:
        """The columns of the shape."""
        if self.options.shape == "ranges":
            return schemas.RANGES
        if self.options.shape == "batches":
            return schemas.BATCHES
        return schemas.RECORDS_AND_HEADERS if self.options.include_headers else schemas.RECORDS

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition's ranges, one after the other; what is left out with onGap or
        onCorrupt goes to the executor's log.

        Raises OffsetsGone, CorruptData, CodecMissing, Unreachable.
        """
        ranges = ranges_of(partition)
        if not ranges:
            return
        if self.options.shape == "ranges":
            columns = [list(column) for column in zip(*ranges, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schemas.RANGES)
            return
        left_out = LeftOut()
        # The driver has reached the broker: one that does not answer is being restarted.
        with in_one_line(), contextlib.closing(self.options.source(patient=True)) as source:
            if len(ranges) > 1 and isinstance(source, Cluster):
                source.existing(range_.topic for range_ in ranges)
            for range_, (_, begin) in zip(ranges, partition.value, strict=True):
                yield from self._fetched(source, range_, begin, left_out)
        if left_out:
            logger.warning("left out: %s", left_out)

    def _fetched(
        self, source: Source, range_: Range, begin: int, left_out: LeftOut
    ) -> Iterator[pa.RecordBatch]:
        options = self.options
        read = (
            partial(batches_of, begin=begin)
            if options.shape == "batches"
            else partial(records_of, headers=options.include_headers)
        )
        return read(
            source,
            range_,
            on_gap=options.on_gap,
            on_corrupt=options.on_corrupt,
            committed_only=options.committed_only,
            left_out=left_out,
            fetch_bytes=options.fetch_bytes,
        )
