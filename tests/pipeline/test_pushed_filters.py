"""Filters that decide what is fetched give the rows that they give when they come after it."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from client.cluster import Cluster, TopicPartition
from pipeline.dataframes.pushed_filters import PushedFilters
from pipeline.dataframes.range_reader import ranges_of
from pipeline.reading.plan import Range, split
from pipeline.source import TriglotSource, register
from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.fake_source import FakeSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, Row, SparkSession
    from pyspark.sql.datasource import Filter

SWITCH = "spark.sql.python.filterPushdown.enabled"
TIME_MS = 1_700_000_000_000
RECORDS = 30
TOPICS = ("clicks", "orders")


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def rows_of(source: FakeSource) -> list[dict[str, Any]]:
    return [
        {"topic": place.topic, "partition": place.partition, "offset": first, "timestamp": at(time)}
        for place, log in source.logs.items()
        for time, first in log.times
    ]


@pytest.fixture(scope="module")
def filled() -> FakeSource:
    """Records one to a batch, whose times go up and down."""
    chance = random.Random(19)
    source = FakeSource()
    for topic in TOPICS:
        for partition in range(3):
            log = source.log(topic, partition)
            for number in range(RECORDS):
                log.append(b"x", timestamp_ms=TIME_MS + number + chance.randrange(6))
    return source


OFFSETS = st.integers(-2, RECORDS + 2)
TIMES = st.integers(-3, RECORDS + 8).map(lambda number: at(TIME_MS + number))
VALUES = {
    "topic": st.sampled_from([*TOPICS, "others"]),
    "partition": st.integers(-1, 4),
    "offset": OFFSETS,
    "timestamp": TIMES,
}
KINDS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from([*KINDS, In, IsNotNull, Not]))
    if kind is IsNotNull:
        return IsNotNull((name,))
    if kind is In:
        return In((name,), tuple(draw(st.lists(VALUES[name], min_size=1, max_size=4))))
    if kind is Not:
        return Not(EqualTo((name,), draw(VALUES[name])))
    made: Filter = kind((name,), draw(VALUES[name]))
    return made


def matches(row: dict[str, Any], filter_: Filter) -> bool:
    match filter_:
        case Not(child=child):
            return not matches(row, child)
        case IsNotNull(attribute=(name,)):
            return row[name] is not None
        case In(attribute=(name,), value=values):
            return row[name] in values
        case (
            EqualTo(attribute=(name,), value=value) | EqualNullSafe(attribute=(name,), value=value)
        ):
            return bool(row[name] == value)
        case GreaterThan(attribute=(name,), value=value):
            return bool(row[name] > value)
        case GreaterThanOrEqual(attribute=(name,), value=value):
            return bool(row[name] >= value)
        case LessThan(attribute=(name,), value=value):
            return bool(row[name] < value)
        case LessThanOrEqual(attribute=(name,), value=value):
            return bool(row[name] <= value)
    raise AssertionError(filter_)


@given(st.lists(filters(), max_size=4))
@settings(deadline=None)
def test_no_row_that_matches_is_left_out(filled: FakeSource, chosen: list[Filter]) -> None:
    pushed = PushedFilters()
    pushed.add(chosen)
    starts = dict.fromkeys(filled.logs, 0)
    ends = dict.fromkeys(filled.logs, RECORDS)
    ranges = split(*pushed.narrowed(filled, starts, ends))
    assert all(0 <= one.start < one.end <= RECORDS for one in ranges)
    fetched = {
        (one.topic, one.partition, offset) for one in ranges for offset in range(one.start, one.end)
    }
    for row in rows_of(filled):
        if all(matches(row, filter_) for filter_ in chosen):
            assert (row["topic"], row["partition"], row["offset"]) in fetched, row


def narrowed(source: FakeSource, *chosen: Filter) -> list[Range]:
    pushed = PushedFilters()
    pushed.add(chosen)
    starts, ends = dict.fromkeys(source.logs, 0), dict.fromkeys(source.logs, RECORDS)
    return split(*pushed.narrowed(source, starts, ends))


def test_what_cannot_match_is_not_fetched(filled: FakeSource) -> None:
    place = (EqualTo(("topic",), "orders"), In(("partition",), (1, 7)))
    assert narrowed(filled, *place) == [Range("orders", 1, 0, RECORDS)]
    between = (GreaterThan(("offset",), 4), LessThanOrEqual(("offset",), 9))
    assert narrowed(filled, *place, *between) == [Range("orders", 1, 5, 10)]
    assert narrowed(filled, *place, In(("offset",), (3, 8))) == [Range("orders", 1, 3, 9)]
    (late,) = narrowed(filled, *place, GreaterThanOrEqual(("timestamp",), at(TIME_MS + 25)))
    assert 15 < late.start < late.end == RECORDS
    assert narrowed(filled, EqualTo(("topic",), "others")) == []
    assert narrowed(filled, GreaterThan(("timestamp",), at(TIME_MS + 10**6))) == []
    assert len(narrowed(filled, StringStartsWith(("topic",), "o"), IsNotNull(("value",)))) == 6


# A broker


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    name = "pushed"
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(name, 3)
        for number in range(30):
            rows = [(TIME_MS + 10 * number + index % 4, None, b"v", ()) for index in range(10)]
            cluster.produce(TopicPartition(name, number % 3), [build_batch(rows)])
    return name


def options(broker: BrokerProcess, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **more}


def test_a_reader_takes_filters_only_where_that_is_asked_for(
    broker: BrokerProcess, topic: str
) -> None:
    """PySpark refuses such a reader where its switch is off, for queries without a filter too."""
    plain = TriglotSource(options(broker, topic))
    reader = plain.reader(plain.schema())
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters  # type: ignore[attr-defined]
    pushing = TriglotSource(options(broker, topic, pushFilters="true"))
    reader = pushing.reader(pushing.schema())
    chosen: list[Filter] = [EqualTo(("partition",), 1), GreaterThan(("offset",), 90)]
    # Spark applies all of them again.
    assert list(reader.pushFilters(chosen)) == chosen
    (part,) = reader.partitions()
    assert [range_[:4] for range_ in ranges_of(part)] == [(topic, 1, 91, 100)]


def test_spark_gives_the_same_rows_with_filters_pushed_and_without(
    broker: BrokerProcess, topic: str, spark: SparkSession
) -> None:
    pushing = spark.newSession()
    pushing.conf.set(SWITCH, "true")
    register(pushing)
    plain = spark.read.format("triglot").options(**options(broker, topic)).load().collect()
    assert len(plain) == 300
    wanted = pushing.read.format("triglot").options(**options(broker, topic, pushFilters="true"))
    since = at(TIME_MS + 150)
    offset, partition, time = F.col("offset"), F.col("partition"), F.col("timestamp")
    late = time >= F.lit(since).cast("timestamp")
    queries: list[tuple[Column, Callable[[Row], bool]]] = [
        (
            (F.col("topic") == topic) & partition.isin(0, 2) & late,
            lambda row: row.partition != 1 and row.timestamp.timestamp() >= since.timestamp(),
        ),
        ((offset < 3) | (partition == 2), lambda row: row.offset < 3 or row.partition == 2),
    ]
    for query, right in queries:
        found = sorted(wanted.load().where(query).collect())
        assert found == sorted(row for row in plain if right(row))
        assert 0 < len(found) < 300
    # Why it is not the default. Once this fails, Spark has mended it.
    twice = wanted.load()
    assert twice.where((partition == 1) & (offset < 5)).count() == 5
    assert twice.count() == 5
    with pytest.raises(Exception, match=SWITCH):
        spark.read.format("triglot").options(
            **options(broker, topic, pushFilters="true")
        ).load().count()
    # Other tests find the session that is active, which this one was not to change.
    spark.createDataFrame([(1,)], "number int")
