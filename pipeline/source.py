"""The data source: `spark.read.format("triglot")`, and readStream, write and writeStream.

    register(spark)
    spark.read.format("triglot").option("kafka.bootstrap.servers", "host:9092")
        .option("subscribe", "orders").option("shape", "batches").load()

No jar is needed: Spark calls this module in Python processes of its own. The options are those of
Spark's Kafka connector, and some of ours; `pipeline.reading.options` has them for reading, and
`dataframes.writer_options` for writing. Shape `records` (the default) has the connector's columns.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from client.cluster import Cluster
from pipeline.dataframes.one_line import in_one_line
from pipeline.dataframes.pushed_filters import PushedFilters
from pipeline.dataframes.range_reader import RangeReader, partition_of
from pipeline.errors import WrongUse
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import batch_ranges
from pipeline.reading.sharing import shares
from pipeline.spark.range_query import SPECULATION, is_speculative

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        Filter,
    )
    from pyspark.sql.types import StructType

    from pipeline.reading.plan import Range
    from pipeline.reading.source import Source

NAME = "triglot"

CODE_ROOT = Path(__file__).parents[__name__.count(".")]
"""The folder that the outermost package of this module is in."""


def register(spark: SparkSession) -> None:
    """Make `format("triglot")` known to a session, for each has to be told; again is harmless.

    In local mode the workers also get this interpreter (`spark.worker_python`), unless
    PYSPARK_PYTHON names one, and find this package, be it installed or in a checkout. On a cluster
    the executors must have both: installed there, or the package sent by `pipeline.shipping`.
    """
    context = getattr(spark, "_sc", None)  # A session of Spark Connect has none.
    if context is not None and (context.master == "local" or context.master.startswith("local[")):
        _let_workers_import(context)
    # Spark tells a data source nothing of the session that it is asked from.
    source = ReadOnlySource if is_speculative(spark) else TriglotSource
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark looked into the active session, which is another one and knows it. To make a data
        # frame of rows makes this one the active one.
        spark.createDataFrame([], "nothing int")
        spark.dataSource.register(source)


def _let_workers_import(context: SparkContext) -> None:
    if "PYSPARK_PYTHON" not in os.environ and sys.executable:
        from pipeline import scratch  # workers, which import this module too, have no use for it
        from pipeline.spark.worker_python import worker_python

        # Otherwise it is whatever `python3` there is on the path.
        context.pythonExec = worker_python(scratch.folder())
    if str(CODE_ROOT) in {*site.getsitepackages(), site.getusersitepackages()}:
        return
    found = context.environment.get("PYTHONPATH", "")
    if str(CODE_ROOT) not in found.split(os.pathsep):
        # Last, so that nothing of the user's is hidden by a folder beside ours.
        path = os.pathsep.join(filter(None, (found, str(CODE_ROOT))))
        context.environment["PYTHONPATH"] = path


class TriglotSource(DataSource):
    """The data source for Spark. Each reader and writer is made in a process of its own."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @in_one_line()
    def schema(self) -> StructType:
        return from_arrow_schema(RangeReader(SourceOptions.parse(self.options)).schema)

    @in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._parsed(schema, streaming=False)
        return FilteringReader(options) if options.push_filters else BatchReader(options)

    @in_one_line()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pipeline.dataframes.stream_source import StreamReader

        return StreamReader(self._parsed(schema, streaming=True))

    @in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pipeline.dataframes.writer import BatchWriter

        return BatchWriter.of(self.options, schema, overwrite)

    @in_one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pipeline.dataframes.writer import StreamWriter, Writer

        return StreamWriter(Writer.of(self.options, schema, streaming=True))

    def _parsed(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        options = SourceOptions.parse(self.options, streaming=streaming)
        if not to_arrow_schema(schema, timezone="UTC").equals(RangeReader(options).schema):
            raise WrongUse(
                f"the columns of format('{NAME}') are fixed: leave out .schema(...), and cast or "
                "rename what load() gives"
            )
        return options


class ReadOnlySource(TriglotSource):
    """The data source of a session that runs a second copy of a slow task: both would write."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises WrongUse."""
        raise WrongUse(SPECULATION)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Raises WrongUse."""
        raise WrongUse(SPECULATION)


class BatchReader(DataSourceReader):
    """A bounded read. It is planned once, when Spark first runs the query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._rows = RangeReader(options)
        self._pushed = PushedFilters()

    @in_one_line()
    def partitions(self) -> list[InputPartition]:
        """With the ranges of each. Raises WrongUse, NoSuchTopic, OffsetsGone, Unreachable."""
        with contextlib.closing(self._options.source()) as source:
            ranges = batch_ranges(source, self._options, self._pushed.narrowed)
            ids = _topic_ids(source, ranges)
        begins = {range_.topic_partition: range_.start for range_ in reversed(ranges)}
        return [partition_of(share, begins, ids) for share in shares(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


class FilteringReader(BatchReader):
    """A bounded read that takes the filters of its query. PySpark refuses it, with a line that says
    so, where its own switch is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """All of them are Spark's to apply, to what is read."""
        self._pushed.add(filters)
        return filters


def _topic_ids(source: Source, ranges: Sequence[Range]) -> dict[str, str]:
    """The ids of their topics, in hexadecimal, of a cluster that has ids."""
    if not isinstance(source, Cluster):
        return {}
    found = source.topic_ids({range_.topic for range_ in ranges})
    return {topic: topic_id.hex() for topic, topic_id in found.items()}
