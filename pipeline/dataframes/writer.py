"""Writing to topics: `df.write.format("triglot").mode("append")`, and `df.writeStream`.

Rows with a column `batch`, and none `value`, are stored batches, and are passed on as they are,
still compressed; others are records, with the columns of Spark's Kafka connector and its rules.
What columns may be, `pipeline.dataframes.sink_columns` says, what options,
`pipeline.dataframes.writer_options`.

Delivery is at least once, as with the connector: what a task that fails had written is there, and
is written again when Spark repeats it. Rows of a task that go to one partition keep their order.

Of stored batches only base offset and leader epoch change, 12 bytes that no checksum covers, unless
no broker would take them: `delivering.record_sets` has the list. They keep their producers' ids and
sequences too, and a broker that still remembers a batch does not store it a second time. To have
the same batches in a topic twice, or only some of a producer's, set `keepProducers` to false.

With `transactionalId` each row is there once for readers of committed records
(`pipeline.dataframes.shares`). Stored batches then have our producers' ids.
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from client.cluster import Cluster, TopicPartition
from pipeline.columns.encode import encode_records
from pipeline.dataframes.one_line import in_one_line
from pipeline.dataframes.sending import Sending
from pipeline.dataframes.shares import Run, Share, ShareSending, Written, abort, commit, new_run
from pipeline.dataframes.sink_columns import check_columns, written_columns
from pipeline.dataframes.writer_options import WriterOptions
from pipeline.delivering.placement import Placement
from pipeline.delivering.record_sets import SetMaker
from pipeline.errors import CorruptData, WrongUse
from pipeline.schemas import TIMESTAMP
from protocol.records.walk import CorruptBatch, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from client.producing import EntryBytes

FLUSH_BYTES = 8 << 20
"""Rows of a task are kept until they have so many bytes, and are then written."""
FLUSH_ROWS = 250_000
"""Or until there are so many of them."""

OFFSET_END = 1 << 63
"""Beyond every offset: what has been read anywhere is written."""


def _any_turn() -> int:
    # The number of the task would do for one large write, but not for many small micro-batches.
    return random.getrandbits(16)


@dataclass(frozen=True)
class Writer:
    """The work of a task in both of Spark's writers. Picklable: it holds no connection."""

    options: WriterOptions
    columns: tuple[str, ...]
    clock: Callable[[], float] = time.time
    turn: Callable[[], int] = _any_turn
    """Where the rows of a task without a key and a partition begin."""
    run: Run | None = None
    """Of transactions; None for a stream, whose tasks are told."""

    @classmethod
    def of(
        cls, options: Mapping[str, str], schema: StructType, *, streaming: bool = False
    ) -> Writer:
        """Raises WrongUse if the options or the data frame's columns will not do."""
        parsed = WriterOptions.parse(options)
        if streaming and parsed.transactional_epoch is not None:
            raise WrongUse("option 'transactionalEpoch': a stream numbers its writes by itself")
        columns = check_columns(to_arrow_schema(schema, timezone="UTC"), parsed.topic)
        run = None if streaming else new_run(parsed.transactional_epoch)
        return cls(parsed, columns, run=run)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows of a task. Raises Refused, Unreachable, NoSuchTopic, WrongUse,
        CorruptData, CodecMissing, ForeignState."""
        gathered = _gathered(written_columns(batch, self.columns) for batch in batches)
        with Cluster(self.options.servers, patient=True, security=self.options.security) as cluster:
            if self.options.transactional_id is not None:
                return self._write_share(cluster, gathered, self.options.transactional_id)
            sending = Sending(cluster)
            rows = self._send(cluster, gathered, sending)
            sending.finish()
        return Written(rows)

    def _write_share(
        self, cluster: Cluster, gathered: Iterator[pa.RecordBatch], prefix: str
    ) -> Written:
        first = next(gathered, None)
        if first is None:
            return Written(0)
        share, gathered = Share.of_task(prefix, self.run), chain([first], gathered)
        timeout_ms = self.options.transaction_timeout_ms
        with cluster.transactional_producer(
            share.transactional_id, timeout_ms=timeout_ms
        ) as producer:
            sending = ShareSending(cluster, producer, share)
            if sending.committed is not None:
                rows = sum(int(some.num_rows) for some in gathered)
                return Written(rows, share, committed=sending.committed)
            rows = self._send(cluster, gathered, sending)
            return Written(rows, share, prepared=sending.finish(rows))

    def end(self, messages: Sequence[WriterCommitMessage | None], *, committed: bool) -> None:
        """In the driver: commit or abort what tasks have written in transactions. A task that
        failed has no message. Raises ForeignState, Refused, Unreachable."""
        options = self.options
        if options.transactional_id is None:
            return
        timeout_ms = options.transaction_timeout_ms
        with Cluster(options.servers, patient=True, security=options.security) as cluster:
            if committed:
                commit(cluster, [one for one in messages if isinstance(one, Written)], timeout_ms)
            else:
                abort(cluster, options.transactional_id, len(messages), timeout_ms)

    def _send(
        self,
        cluster: Cluster,
        gathered: Iterable[pa.RecordBatch],
        sending: Sending | ShareSending,
    ) -> int:
        """The number of rows that were sent."""
        rows = 0
        entries_of = self._stored if "batch" in self.columns else self._encoded
        placement = Placement(
            cluster, self.options.topic, turn=self.turn(), batch_bytes=self.options.batch_bytes
        )
        for some in gathered:
            rows += int(some.num_rows)
            for partition, of_partition in placement.split(some):
                magic = self.options.magic
                if magic is None:
                    _, magic = cluster.formats(partition)
                for format_, entries in entries_of(partition, of_partition, magic):
                    sending.send(partition, entries, format_)
        return rows

    def _encoded(
        self, partition: TopicPartition, rows: pa.RecordBatch, magic: int
    ) -> Iterator[tuple[int, Sequence[EntryBytes]]]:
        if "timestamp" not in self.columns:
            now = pa.scalar(int(self.clock() * 1000) * 1000, TIMESTAMP)
            rows = rows.append_column("timestamp", pa.repeat(now, rows.num_rows))
        options = self.options
        yield (
            magic,
            encode_records(rows, magic=magic, codec=options.codec, max_bytes=options.batch_bytes),
        )

    def _stored(
        self, partition: TopicPartition, rows: pa.RecordBatch, magic: int
    ) -> Iterator[tuple[int, Sequence[EntryBytes]]]:
        maker = SetMaker(
            str(partition),
            -OFFSET_END,
            OFFSET_END,
            magic=magic,
            keep_producers=self.options.keep_producers,
        )
        made = chain(maker.sets(_entries(partition, rows.column("batch"))), maker.rest())
        for format_, run in groupby(made, key=attrgetter("magic")):
            yield format_, [one.data for one in run]


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: appends, and only that."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
        """Raises WrongUse as `Writer.of` does, and NoSuchTopic or Unreachable before Spark computes
        a row that there is no topic for."""
        if overwrite:
            raise WrongUse("a topic cannot be overwritten: use mode('append')")
        writer = Writer.of(options, schema)
        if writer.options.topic is not None:
            with Cluster(writer.options.servers, security=writer.options.security) as cluster:
                cluster.partitions([writer.options.topic])
        return cls(writer)

    @in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.writer.write(iterator)

    @in_one_line()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Without transactions the rows were there when their tasks ended."""
        self.writer.end(messages, committed=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Without transactions a log takes nothing back."""
        self.writer.end(messages, committed=False)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch is appended; a repeated one a second time, unless it is
    written in transactions."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    @in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.writer.write(iterator)

    @in_one_line()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """As BatchWriter has it."""
        self.writer.end(messages, committed=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """As BatchWriter has it."""
        self.writer.end(messages, committed=False)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches of about FLUSH_BYTES, made of however small ones."""
    kept: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        kept.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
        if size >= FLUSH_BYTES or rows >= FLUSH_ROWS:
            yield from _joined(kept)
            kept, size, rows = [], 0, 0
    yield from _joined(kept)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    # More than one if the bytes of a column are too many for its 32-bit offsets.
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _entries(partition: TopicPartition, column: pa.BinaryArray) -> memoryview:
    """The stored batches of a column, one behind the other, as they are in it.

    Raises WrongUse for a null, and CorruptData for what is no batch, or not a whole one.
    """
    if column.null_count:
        raise WrongUse(f"column 'batch' has a null for {partition}: leave such rows out")
    bounds = np.frombuffer(column.buffers()[1], np.int32)
    bounds = bounds[column.offset : column.offset + len(column) + 1]
    entries = memoryview(column.buffers()[2] or b"")[bounds[0] : bounds[-1]]
    found = 0
    with contextlib.suppress(CorruptBatch):
        for position, size, _ in walk(entries):
            begin, end = bounds[found : found + 2] - bounds[0]
            if (position, position + size) != (begin, end):
                break
            found += 1
    if found < len(column):
        size = bounds[found + 1] - bounds[found]
        raise CorruptData(f"column 'batch' has {size} bytes for {partition} that are no batch")
    return entries
