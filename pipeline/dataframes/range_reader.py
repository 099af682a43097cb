"""The rows of a range, in the shape that is asked for: what a task of `format("triglot")` does."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline import schemas
from pipeline.dataframes.one_line import in_one_line
from pipeline.reading.plan import Range
from pipeline.reading.ranges import LeftOut, batches_of, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import InputPartition

    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Source

logger = logging.getLogger(__name__)


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
        """The rows of a range; what is left out with onGap or onCorrupt goes to the executor's log.

        A partition's value is its range, and the offset from which the topic's partition is read,
        0 where that is not known: no batch has records below it.

        Raises OffsetsGone, CorruptData, CodecMissing, Unreachable.
        """
        # Where there is nothing to read, Spark makes one partition without a value.
        if partition.value is None:
            return
        place, begin = partition.value
        range_ = Range(*place)
        if self.options.shape == "ranges":
            yield pa.RecordBatch.from_arrays([[value] for value in range_], schema=schemas.RANGES)
            return
        left_out = LeftOut()
        # The driver has reached the broker: one that does not answer is being restarted.
        with in_one_line(), contextlib.closing(self.options.source(patient=True)) as source:
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
