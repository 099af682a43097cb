"""Spark's official connector, unmodified, as source and as sink against our broker.

Spark's admin client, consumers and producers are those of the Java library. What they are asked for
here is what the connector's own documentation offers; rows are compared with what was produced, and
with those of `format("triglot")`.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pipeline.reading.plan import TOPIC_IDS
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from protocol.records.walk import walk
from storage.disk import DiskFilesystem
from storage.recovery import open_log
from tests.clients.available import end_of_test
from tests.handlers.test_read_committed import write as write_transactions
from tests.storage.logs import Settings
from tests.support.broker_process import BrokerProcess
from tests.support.caller import NOW_MS, Caller, batch
from tests.support.fetched import NotAvailable
from tests.support.old_sets import messages, wrapper
from tests.support.spark_connector import connector_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(600)]

topics = (f"connector-{number}" for number in itertools.count())

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)


class Connector:
    """Frames and queries of `format("kafka")` on one broker."""

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self._spark = spark
        self.servers = {"kafka.bootstrap.servers": servers}

    def read(self, topic: str | None = None, format: str = "kafka", **options: Any) -> DataFrame:
        reader = self._spark.read.format(format).options(**self.servers)
        return reader.options(**named(options, topic)).load()

    def stream(self, topic: str | None = None, **options: Any) -> DataFrame:
        reader = self._spark.readStream.format("kafka").options(**self.servers)
        return reader.options(**{"startingOffsets": "earliest", **named(options, topic)}).load()

    def run(self, frame: DataFrame, checkpoint: Path, to: str | None = None) -> StreamingQuery:
        """Read what is there now, into a topic or into nothing, and wait for the end."""
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
        if to is None:
            writer = writer.format("noop")
        else:
            writer = writer.format("kafka").options(**self.servers).option("topic", to)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query


def named(options: dict[str, Any], topic: str | None) -> dict[str, str]:
    """Options as Spark wants them: `_` stands for `.`, and what is not text is JSON."""
    chosen = options if topic is None else {"subscribe": topic, **options}
    return {
        name.replace("_", "."): value if isinstance(value, str) else json.dumps(value)
        for name, value in chosen.items()
    }


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def rows(frame: DataFrame) -> list[Row]:
    return sorted(Row(*row) for row in frame.select(*Row._fields).collect())


def in_order(frame: DataFrame) -> list[Any]:
    """Whole rows."""
    found: list[Any] = frame.orderBy("partition", "offset").collect()
    return found


def millis(row: Any) -> int:
    millis: float = row.timestamp.timestamp() * 1000
    return round(millis)


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    """(partition, offset) of each row."""
    return sorted((row.partition, row.offset) for row in frame.collect())


def records_read(query: StreamingQuery) -> int:
    return sum(int(progress.numInputRows) for progress in query.recentProgress)


@pytest.fixture(scope="module")
def connector(spark: SparkSession, broker: BrokerProcess) -> Connector:
    try:
        connector_jars()
    except NotAvailable as reason:
        end_of_test("spark", str(reason))
    return Connector(spark, broker.bootstrap)


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as caller:
        yield caller


def filled(caller: Caller, *counts: int) -> str:
    """A new topic with so many records in each partition, a second apart, ten to a batch."""
    topic = next(topics)
    caller.create_topic(topic, len(counts))
    for partition, count in enumerate(counts):
        fill(caller, topic, partition, range(count))
    return topic


def fill(caller: Caller, topic: str, partition: int, numbers: range) -> None:
    for first in numbers[::10]:
        some = range(first, min(first + 10, numbers.stop))
        records = [
            (NOW_MS + 1000 * number, b"k%d" % (number % 7), b"v%d" % number, ()) for number in some
        ]
        assert caller.produce(topic, build_batch(records), partition=partition).error_code == 0


# Reading.


def test_rows_are_what_was_produced_and_those_of_our_own_source(
    connector: Connector, caller: Caller
) -> None:
    topic = next(topics)
    caller.create_topic(topic, len(CODECS))
    headers = (("name", b"first"), ("name", None), ("", b""))
    sent = [
        (NOW_MS, b"key", b"value", headers),
        (NOW_MS + 1, None, b"", ()),
        (NOW_MS + 2, b"", None, ()),
        *((NOW_MS + 3 + number, b"k%d" % number, b"x" * 900, ()) for number in range(50)),
    ]
    for codec in CODECS:
        caller.produce(topic, build_batch(sent, codec=codec), partition=codec)

    theirs = in_order(connector.read(topic, includeHeaders="true"))

    for codec in CODECS:
        found = [row for row in theirs if row.partition == codec]
        assert [row.offset for row in found] == list(range(len(sent)))
        assert [
            (millis(row), row.key, row.value, tuple(map(tuple, row.headers or ()))) for row in found
        ] == sent
        assert {row.timestampType for row in found} == {0}
    assert in_order(connector.read(topic, format="triglot", includeHeaders="true")) == theirs


@pytest.mark.parametrize("release", ["0.8.2", "0.10.2"])
def test_a_topic_in_an_old_format_is_read_as_it_is_stored(
    connector: Connector, caller: Caller, release: str
) -> None:
    topic, magic = next(topics), int(release != "0.8.2")
    caller.create_topic(topic, message_format_version=release)
    plain = messages(b"a", None, b"c", magic=magic, keys=[b"k", b"l", None])
    inner = messages(b"d", b"e", magic=magic)
    for entries in (plain, wrapper(inner, magic=magic, timestamp_ms=NOW_MS + 1)):
        assert caller.produce(topic, entries, version=2 * magic).error_code == 0

    theirs = in_order(connector.read(topic))
    ours = in_order(connector.read(topic, format="triglot"))

    assert [row.value for row in theirs] == [b"a", None, b"c", b"d", b"e"]
    assert [row.key for row in theirs] == [b"k", b"l", None, None, None]
    assert [row.offset for row in theirs] == list(range(5))
    times = [NOW_MS, NOW_MS + 1, NOW_MS + 2, NOW_MS, NOW_MS + 1] if magic else [-1] * 5
    assert [millis(row) for row in theirs] == times
    assert {row.timestampType for row in theirs} == {0 if magic else -1}
    assert [row[:5] + row[6:] for row in ours] == [row[:5] + row[6:] for row in theirs]
    # No time is no time in ours, and the millisecond before 1970 in the connector's.
    assert [row.timestamp for row in ours] == [row.timestamp if magic else None for row in theirs]


def test_bounds_of_a_batch_are_offsets_per_partition(connector: Connector, caller: Caller) -> None:
    topic = filled(caller, 30, 20)
    bounds: dict[str, Any] = {
        "startingOffsets": {topic: {"0": 5, "1": -2}},
        "endingOffsets": {topic: {"0": 12, "1": -1}},
    }

    theirs = connector.read(topic, **bounds)

    assert offsets(theirs) == [(0, at) for at in range(5, 12)] + [(1, at) for at in range(20)]
    assert rows(theirs) == rows(connector.read(topic, format="triglot", **bounds))


def test_bounds_of_a_batch_are_times(connector: Connector, caller: Caller) -> None:
    topic = filled(caller, 30, 20)
    since, until = NOW_MS + 4_500, NOW_MS + 18_000

    for format in ("kafka", "triglot"):
        both = connector.read(
            topic, format, startingTimestamp=str(since), endingTimestamp=str(until)
        )
        one = connector.read(
            topic,
            format,
            startingOffsetsByTimestamp={topic: {"0": since, "1": NOW_MS + 19_000}},
            endingOffsetsByTimestamp={topic: {"0": until, "1": NOW_MS + 60_000}},
        )

        assert offsets(both) == [(partition, at) for partition in (0, 1) for at in range(5, 18)]
        assert offsets(one) == [(0, at) for at in range(5, 18)] + [(1, 19)]


def test_partitions_are_assigned_and_topics_chosen_by_a_pattern(
    connector: Connector, caller: Caller
) -> None:
    topic = filled(caller, 10, 10, 10)
    for name in ("east", "west"):
        caller.create_topic(f"{topic}-{name}")
        caller.produce(f"{topic}-{name}", batch(name.encode()))

    for format in ("kafka", "triglot"):
        assigned = connector.read(format=format, assign={topic: [0, 2]})
        matching = connector.read(format=format, subscribePattern=f"{topic}-.*st")

        assert offsets(assigned) == [(partition, at) for partition in (0, 2) for at in range(10)]
        assert [row.value for row in rows(matching)] == [b"east", b"west"]


def test_min_partitions_splits_a_topic_into_tasks(connector: Connector, caller: Caller) -> None:
    topic = filled(caller, 300, 100)

    split = connector.read(topic, minPartitions="8")

    assert split.rdd.getNumPartitions() == 8
    assert rows(split) == rows(connector.read(topic))
    assert len(rows(split)) == 400
    assert connector.read(topic, "triglot", minPartitions="8").rdd.getNumPartitions() == 8


def test_a_limit_cuts_a_stream_into_the_same_micro_batches_as_our_own_source_does(
    spark: SparkSession, connector: Connector, caller: Caller, tmp_path: Path
) -> None:
    topic = filled(caller, 100, 40, 7)
    ends = {}
    for format in ("kafka", "triglot"):
        reader = spark.readStream.format(format).options(**connector.servers, subscribe=topic)
        frame = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="60").load()
        query = connector.run(frame, tmp_path / format)
        ends[format] = [json.loads(batch.sources[0].endOffset) for batch in query.recentProgress]
    assert len(ends["kafka"]) == 3
    assert all(end.pop(TOPIC_IDS) for end in ends["triglot"])
    assert ends["kafka"] == ends["triglot"]


def test_a_reader_of_committed_records_sees_no_aborted_and_no_open_transaction(
    spark: SparkSession, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic("payments")
        broker.stop()
        log, _ = open_log(DiskFilesystem(), str(broker.data / "payments-0"), Settings())
        write_transactions(log)
        assert log.close(clean=True) is not None
        broker.start()
        connector = Connector(spark, broker.bootstrap)
        for isolation, wanted in (
            ("read_uncommitted", [0, 1, 2, 4, 5, 7, 8, 10]),
            ("read_committed", [0, 4, 5]),
        ):
            options = {"subscribe": "payments", "kafka_isolation_level": isolation}
            theirs = rows(connector.read(**options))
            assert [row.offset for row in theirs] == wanted
            assert rows(connector.read(format="triglot", **options)) == theirs


def test_a_driver_that_asks_as_a_consumer_in_a_group_gets_the_same(
    spark: SparkSession, connector: Connector, caller: Caller
) -> None:
    """As releases before 3.1 did: its driver joins a group to learn partitions and offsets."""
    topic = filled(caller, 20, 10)
    switch = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(switch, "true")
    try:
        found = rows(connector.read(topic))
    finally:
        spark.conf.unset(switch)
    assert found == rows(connector.read(topic))
    assert len(found) == 30


# Streaming.


def test_a_stream_goes_on_from_its_checkpoint_and_its_sink_has_each_record_once(
    connector: Connector, caller: Caller, tmp_path: Path
) -> None:
    topic, to = filled(caller, 40, 20), filled(caller, 0)
    frame = connector.stream(topic, maxOffsetsPerTrigger="45").select("key", "value")

    first = connector.run(frame, tmp_path, to)
    fill(caller, topic, 1, range(20, 30))
    second = connector.run(frame, tmp_path, to)

    assert (records_read(first), records_read(second)) == (60, 10)
    assert [len(first.recentProgress) >= 2, first.exception()] == [True, None]
    written = [(row.key, row.value) for row in rows(connector.read(to))]
    assert sorted(written) == sorted((row.key, row.value) for row in rows(connector.read(topic)))


def test_a_stream_finds_partitions_that_are_added_while_it_runs(
    connector: Connector, caller: Caller, tmp_path: Path
) -> None:
    topic = filled(caller, 10)
    query = connector.stream(topic).writeStream.format("noop").start()
    try:
        query.processAllAvailable()
        grow = CreatePartitionsRequest.Topic(name=topic, count=2, assignments=None)
        request = CreatePartitionsRequest(topics=[grow], timeout_ms=1000, validate_only=False)
        assert caller.call(request, 2).results[0].error_code == 0
        fill(caller, topic, 1, range(5))
        query.processAllAvailable()
    finally:
        query.stop()

    assert records_read(query) == 15
    assert json.loads(query.recentProgress[-1].sources[0].endOffset) == {topic: {"0": 10, "1": 5}}


@pytest.mark.parametrize("fail", ["true", "false"])
def test_deleted_records_fail_a_stream_unless_it_accepts_the_loss(
    connector: Connector, caller: Caller, tmp_path: Path, fail: str
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = filled(caller, 20)
    frame = connector.stream(topic, failOnDataLoss=fail)
    connector.run(frame, tmp_path)
    fill(caller, topic, 0, range(20, 60))
    caller.delete_records(topic, 50)

    if fail == "true":
        with pytest.raises(StreamingQueryException, match="data may have been lost"):
            connector.run(frame, tmp_path)
    else:
        assert records_read(connector.run(frame, tmp_path)) == 10


# Writing.


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_is_written_by_an_idempotent_producer_and_by_a_plain_one(
    spark: SparkSession, connector: Connector, caller: Caller, idempotent: bool
) -> None:
    topic = filled(caller, 0, 0)
    columns = (
        "cast(id as string) as key",
        "case when id % 5 > 0 then cast(id * id as string) end as value",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) as headers",
        "cast(id % 2 as int) as partition",
    )
    writer = (
        spark.range(100).selectExpr(*columns).write.format("kafka").options(**connector.servers)
    )
    options = {} if idempotent else {"kafka.enable.idempotence": "false"}
    writer.options(includeHeaders="true", topic=topic, **options).save()

    stored = [
        memoryview(bytes(caller.fetch(topic, partition=partition).records or b""))
        for partition in (0, 1)
    ]
    batches = [Batch(data[at : at + size]) for data in stored for at, size, _ in walk(data)]
    assert {batch.producer_id >= 0 for batch in batches} == {idempotent}
    found = connector.read(topic, includeHeaders="true").collect()
    assert len(found) == 100
    for row in found:
        number = int(row.key)
        assert row.partition == number % 2
        assert row.value == (b"%d" % number**2 if number % 5 else None)
        assert [tuple(header) for header in row.headers] == [("n", b"%d" % number)]
