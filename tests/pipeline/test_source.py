"""`spark.read.format("triglot")`: what a plain consumer reads, by any way and in any shape."""

from __future__ import annotations

import itertools
import json
import pickle
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

import pyarrow as pa
from pyspark.sql.types import StructType

from client.cluster import Cluster, TopicPartition
from pipeline import errors, schemas
from pipeline.dataframes.range_reader import ranges_of
from pipeline.source import BatchReader, TriglotSource, register
from protocol.records.builder import build_batch
from protocol.records.compression import NAMES
from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.records import FIRST_TIMESTAMP_MS, Record, Stored, assert_stored, some_records
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.datasource import DataSourceReader

    from tests.support.server_process import ServerProcess

CLIENT = ConfluentDriver()
PARTITIONS = 3
topics = (f"source-{number}" for number in itertools.count())


def produced(
    broker: ServerProcess, records: list[Record], codecs: Iterable[str] = ("none",)
) -> str:
    """A new topic with these records, a part of them in each codec."""
    topic = next(topics)
    CLIENT.create_topic(broker.bootstrap, topic, partitions=PARTITIONS, configs={})
    names = list(codecs)
    for number, codec in enumerate(names):
        part = slice(*(len(records) * edge // len(names) for edge in (number, number + 1)))
        some = records[part]
        CLIENT.produce(broker.bootstrap, topic, some, codec=codec, idempotent=False)
    return topic


def options(broker: ServerProcess, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **more}


def reader(broker: ServerProcess, topic: str, **more: str) -> BatchReader:
    """As Spark has it in a task: from the options, through a pickle."""
    source = TriglotSource(options(broker, topic, **more))
    made: BatchReader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    return made


def table(from_reader: DataSourceReader) -> pa.Table:
    """All rows that it has, without Spark."""
    batches = [rows for part in from_reader.partitions() for rows in from_reader.read(part)]
    return pa.Table.from_batches(batches)


def load(spark: SparkSession, wanted: Mapping[str, str]) -> DataFrame:
    return spark.read.format("triglot").options(**wanted).load()


def as_stored(rows: Iterable[Row]) -> Stored:
    """Rows of records as the plain consumers give them."""
    stored: Stored = {partition: [] for partition in range(PARTITIONS)}
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        time_ms = round(row["timestamp"].timestamp() * 1000)
        headers = tuple((name, value) for name, value in row["headers"] or ())
        record = Record(row["partition"], time_ms, row["key"], row["value"], headers)
        stored[row["partition"]].append((row["offset"], record))
    return stored


# Without Spark


def test_a_bounded_read_has_one_task_for_each_partition_that_has_records(
    broker: BrokerProcess,
) -> None:
    records = [Record(partition, FIRST_TIMESTAMP_MS, b"k", b"v") for partition in (0, 0, 2)]
    topic = produced(broker, records)
    parts = reader(broker, topic).partitions()
    ranges = [[range_[:4] for range_ in ranges_of(part)] for part in parts]
    assert ranges == [[(topic, 0, 0, 2)], [(topic, 2, 0, 1)]]


def test_the_rows_of_ranges_are_the_plan_and_nothing_is_fetched(broker: BrokerProcess) -> None:
    topic = produced(broker, [Record(1, FIRST_TIMESTAMP_MS, b"k", b"v")] * 5)
    made = reader(broker, topic, shape="ranges", minPartitions="2")
    found = table(made)
    assert found.schema.equals(schemas.RANGES)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        *(range_ for part in made.partitions() for range_ in ranges_of(part))
    ]
    assert sum(row["end_offset"] - row["start_offset"] for row in found.to_pylist()) == 5
    (first, *_) = made.partitions()
    broker_less = BatchReader(made._options.__class__(servers="127.0.0.1:1", shape="ranges"))
    assert [rows.num_rows for rows in broker_less.read(first)] == [1]


def test_a_bounded_read_of_batches_begins_where_it_is_told(broker: BrokerProcess) -> None:
    topic = produced(broker, [Record(0, FIRST_TIMESTAMP_MS, b"k", b"v")] * 50)
    starting = json.dumps({topic: {"0": 20, "1": 0, "2": 0}})
    more = {"shape": "batches", "minPartitions": "3", "startingOffsets": starting}
    found = table(reader(broker, topic, **more))
    assert sum(found["records"].to_pylist()) == 30
    assert found["last_offset"].to_pylist()[-1] == 49


def test_a_topic_made_again_after_it_was_planned_is_not_read_in_its_place(
    broker: BrokerProcess,
) -> None:
    topic = produced(broker, [Record(0, FIRST_TIMESTAMP_MS, b"k", b"old")] * 5)
    made = reader(broker, topic)
    (part,) = made.partitions()
    assert [rows.num_rows for rows in made.read(part)] == [5]
    with Caller(broker.host, broker.port) as caller:
        caller.delete_topic(topic)
        caller.create_topic(topic, PARTITIONS)
    with Cluster(broker.bootstrap) as cluster:
        batch = build_batch([(FIRST_TIMESTAMP_MS, b"k", b"new", ())] * 5)
        cluster.produce(TopicPartition(topic, 0), [batch])
    with pytest.raises(errors.OffsetsGone, match=f"{topic}-0 was deleted before offsets 0 to 4"):
        list(made.read(part))
    skipping = reader(broker, topic, onGap="skip")
    assert list(skipping.read(part)) == []
    (again,) = skipping.partitions()
    assert [rows["value"].to_pylist() for rows in skipping.read(again)] == [[b"new"] * 5]


def test_a_topic_without_records_gives_no_rows(broker: BrokerProcess) -> None:
    from pyspark.sql.datasource import InputPartition

    made = reader(broker, produced(broker, []))
    assert made.partitions() == []
    # What Spark makes of no partitions at all.
    assert list(made.read(InputPartition(None))) == []


@pytest.mark.parametrize(
    ("more", "columns"),
    [
        ({}, schemas.RECORDS),
        ({"includeHeaders": "true"}, schemas.RECORDS_AND_HEADERS),
        ({"shape": "batches"}, schemas.BATCHES),
        ({"shape": "ranges"}, schemas.RANGES),
    ],
)
def test_spark_is_told_the_very_columns_that_tasks_give(
    broker: BrokerProcess, more: dict[str, str], columns: pa.Schema
) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = options(broker, produced(broker, [Record(0, FIRST_TIMESTAMP_MS, b"k", b"v")]), **more)
    source = TriglotSource(wanted)
    # Spark compares both, to whether a column may be null.
    assert to_arrow_schema(source.schema(), timezone="UTC").equals(columns)
    assert table(source.reader(source.schema())).schema.equals(columns)


def test_a_wrong_option_is_told_before_anything_is_connected_to() -> None:
    source = TriglotSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribed": "orders"})
    with pytest.raises(errors.WrongUse, match="did you mean subscribe"):
        source.schema()


def test_columns_of_ones_own_are_refused_before_anything_is_connected_to() -> None:
    source = TriglotSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"})
    columns = source.schema()
    wanted = StructType(columns.fields[1:])
    for made in (source.reader, source.streamReader):
        made(columns)
        with pytest.raises(errors.WrongUse, match=r"leave out \.schema"):
            made(wanted)


# With Spark


def test_records_are_what_a_plain_consumer_reads_in_every_codec(
    broker: BrokerProcess, spark: SparkSession
) -> None:
    records = some_records(2_000, CLIENT.abilities)
    topic = produced(broker, records, NAMES)
    rows = load(spark, options(broker, topic, includeHeaders="true", minPartitions="5")).collect()
    stored = as_stored(rows)
    assert_stored(records, stored)
    assert stored == CLIENT.consume(broker.bootstrap, topic)
    assert {(row.topic, row.timestampType) for row in rows} == {(topic, 0)}


def test_a_part_of_a_topic_is_read_by_offset_and_by_time(
    broker: BrokerProcess, spark: SparkSession
) -> None:
    records = [Record(0, FIRST_TIMESTAMP_MS + number, None, b"%d" % number) for number in range(99)]
    topic = produced(broker, records)
    by_offset = options(
        broker,
        topic,
        startingOffsets=json.dumps({topic: {"0": 10, "1": -2, "2": -2}}),
        endingOffsets=json.dumps({topic: {"0": 20, "1": -1, "2": -1}}),
    )
    by_time = {
        **options(broker, topic, startingTimestamp=str(FIRST_TIMESTAMP_MS + 10)),
        "endingTimestamp": str(FIRST_TIMESTAMP_MS + 20),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    both = load(spark, by_offset).union(load(spark, by_time))
    found = sorted((row.offset, row.value) for row in both.select("offset", "value").collect())
    assert found == sorted([(number, b"%d" % number) for number in range(10, 20)] * 2)


def test_batches_are_the_log_byte_by_byte_and_ranges_are_the_plan(
    broker: BrokerProcess, spark: SparkSession
) -> None:
    topic = produced(broker, some_records(300, CLIENT.abilities), ("lz4", "zstd"))
    rows = load(spark, options(broker, topic, shape="batches")).orderBy("base_offset").collect()
    with Cluster(broker.bootstrap) as cluster:
        for partition in range(PARTITIONS):
            log = bytes(cluster.fetch(TopicPartition(topic, partition), 0).entries)
            assert b"".join(row.batch for row in rows if row.partition == partition) == log
    # The producer does not compress what would not become smaller.
    assert {"lz4", "zstd"} <= {row.codec for row in rows} <= {"lz4", "zstd", "none"}
    ranges = load(spark, options(broker, topic, shape="ranges")).collect()
    assert sum(row.end_offset - row.start_offset for row in ranges) == 300
    assert sum(row.records for row in rows) == 300


def test_the_directory_of_a_stopped_broker_is_read_without_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    records = some_records(500, CLIENT.abilities)
    with BrokerProcess(tmp_path / "data") as stopped:
        topic = produced(stopped, records, ("snappy",))
    wanted = {"path": str(tmp_path / "data"), "subscribe": topic, "includeHeaders": "true"}
    assert_stored(records, as_stored(load(spark, wanted).collect()))


def test_what_goes_wrong_is_found_in_what_spark_says_of_it(
    broker: BrokerProcess, spark: SparkSession
) -> None:
    topic = produced(broker, [])
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": topic}
    for wanted, kind, words in (
        (options(broker, topic[:-1] + "x"), errors.NoSuchTopic, topic[:-1]),
        ({**nobody, "kafkaConsumer.pollTimeoutMs": "100"}, errors.Unreachable, "127.0.0.1:1"),
        (options(broker, topic, startingOffset="earliest"), errors.WrongUse, "startingOffsets"),
    ):
        with pytest.raises(Exception, match=kind.__name__) as raised:
            load(spark, wanted).collect()
        failure = errors.find(str(raised.value))
        assert type(failure) is kind
        assert words in str(failure)


def test_a_second_session_is_told_of_the_format_too(
    broker: BrokerProcess, spark: SparkSession
) -> None:
    topic = produced(broker, [Record(0, FIRST_TIMESTAMP_MS, None, b"v")])
    # What a data frame is made in is the active session.
    spark.createDataFrame([], "nothing int")
    second = spark.newSession()
    try:
        for _ in range(2):
            register(second)
        assert load(second, options(broker, topic)).count() == 1
    finally:
        spark.createDataFrame([], "nothing int")
    register(spark)
    assert load(spark, options(broker, topic)).count() == 1


def test_the_time_of_a_record_is_that_of_spark(broker: BrokerProcess, spark: SparkSession) -> None:
    topic = produced(broker, [Record(0, FIRST_TIMESTAMP_MS + 7, None, b"v")])
    rows = load(spark, options(broker, topic)).selectExpr("unix_millis(timestamp) AS ms").collect()
    assert rows[0].ms == FIRST_TIMESTAMP_MS + 7
    (row,) = table(reader(broker, topic)).to_pylist()
    assert row["timestamp"] == datetime.fromtimestamp((FIRST_TIMESTAMP_MS + 7) / 1000, UTC)
