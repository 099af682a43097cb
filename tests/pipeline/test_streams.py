"""`spark.readStream.format("triglot")`: from offsets to the next ones, and on after a stop."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from client.cluster import Cluster, TopicPartition
from pipeline import errors
from pipeline.archiving.archive_job import ArchiveTask
from pipeline.archiving.layout import Layout
from pipeline.archiving.parquet_writer import Compression
from pipeline.dataframes.range_reader import ranges_of
from pipeline.delivering.mirror_job import Delivered, MirrorTask
from pipeline.filesystem import locate
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import TOPIC_IDS, Range
from pipeline.source import TriglotSource
from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.records import FIRST_TIMESTAMP_MS, Record
from tests.support.caller import Caller
from tests.support.fake_source import FakeSource

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.dataframes.stream_source import StreamReader
    from tests.support.broker_process import BrokerProcess

CLIENT = ConfluentDriver()
ALL = ReadAllAvailable()
topics = (f"stream-{number}" for number in itertools.count())


class Topic:
    """A new topic of the shared broker, whose records are numbered as they are written."""

    def __init__(self, broker: BrokerProcess, partitions: int = 2) -> None:
        self.bootstrap = broker.bootstrap
        self.name = next(topics)
        self._written = 0
        CLIENT.create_topic(self.bootstrap, self.name, partitions=partitions, configs={})

    def make_again(self) -> None:
        host, _, port = self.bootstrap.rpartition(":")
        with Caller(host, int(port)) as caller:
            caller.delete_topic(self.name)
            caller.create_topic(self.name, 2)

    def write(self, count: int, *, partition: int = 0) -> None:
        values = range(self._written, self._written + count)
        records = [Record(partition, FIRST_TIMESTAMP_MS, None, b"%d" % value) for value in values]
        CLIENT.produce(self.bootstrap, self.name, records, codec="lz4", idempotent=False)
        self._written += count

    def options(self, **more: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.name,
            "startingOffsets": "earliest",
            **more,
        }

    def reader(self, **more: str) -> StreamReader:
        return stream_reader(**self.options(**more))

    def at(self, *offsets: int) -> dict[str, dict[str, int]]:
        return {self.name: {str(partition): offset for partition, offset in enumerate(offsets)}}


def ranges(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    return [
        tuple(range_)[1:4] for part in reader.partitions(start, end) for range_ in ranges_of(part)
    ]


def plain(offset: dict[str, Any] | None) -> dict[str, Any]:
    """Without the ids of topics."""
    assert offset is not None
    return {name: value for name, value in offset.items() if name != TOPIC_IDS}


# Without Spark


def test_a_stream_goes_from_its_first_offsets_to_the_ends(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    topic.write(5)
    topic.write(3, partition=1)
    reader = topic.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert (plain(start), plain(end)) == (topic.at(0, 0), topic.at(5, 3))
    assert ranges(reader, start, end) == [(0, 0, 5), (1, 0, 3)]
    assert reader.latestOffset(end, ALL) == end
    assert ranges(reader, end, end) == []
    assert topic.reader(startingOffsets="latest").initialOffset() == end


def test_a_limit_counts_offsets_and_is_shared_out_and_the_lag_is_reported(
    broker: BrokerProcess,
) -> None:
    topic = Topic(broker)
    topic.write(60)
    topic.write(30, partition=1)
    reader = topic.reader(maxOffsetsPerTrigger="30")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    assert reader.reportLatestOffset() is None
    assert plain(reader.latestOffset(topic.at(0, 0), limit)) == topic.at(20, 10)
    assert plain(reader.reportLatestOffset()) == topic.at(60, 30)
    # Spark may ask for everything whatever the limit of the options is.
    assert plain(reader.latestOffset(topic.at(0, 0), ALL)) == topic.at(60, 30)


def test_what_came_after_the_start_is_not_read_once(broker: BrokerProcess) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(5)
    reader = topic.reader()
    reader.prepareForTriggerAvailableNow()
    topic.write(5)
    CLIENT.create_partitions(topic.bootstrap, topic.name, 2)
    topic.write(5, partition=1)
    assert plain(reader.latestOffset(topic.at(0), ALL)) == topic.at(5)
    # A checkpoint may be beyond what was there at the start: nothing is read a second time.
    assert reader.latestOffset(topic.at(8), ALL) == topic.at(8)
    assert reader.latestOffset(topic.at(5, 3), ALL) == topic.at(5, 3)


def test_a_partition_that_appears_is_written_down_before_it_is_read(broker: BrokerProcess) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(5)
    reader = topic.reader()
    CLIENT.create_partitions(topic.bootstrap, topic.name, 2)
    topic.write(4, partition=1)
    seen = reader.latestOffset(topic.at(5), ALL)
    assert plain(seen) == topic.at(5, 0)
    assert ranges(reader, topic.at(5), seen) == []
    end = reader.latestOffset(seen, ALL)
    assert ranges(reader, seen, end) == [(1, 0, 4)]


def test_a_topic_that_was_made_again_is_a_gap_or_is_read_on_from_its_end(
    broker: BrokerProcess,
) -> None:
    topic = Topic(broker)
    topic.write(5)
    with pytest.raises(errors.OffsetsGone, match=rf"{topic.name}-0 ends at offset 5"):
        topic.reader().latestOffset(topic.at(50, 0), ALL)
    skips = topic.reader(failOnDataLoss="false")
    end = skips.latestOffset(topic.at(50, 0), ALL)
    assert (plain(end), ranges(skips, topic.at(50, 0), end)) == (topic.at(5, 0), [])
    assert skips.latestOffset(end, ALL) == end


def test_an_offset_has_the_ids_of_its_topics_and_one_without_gets_them_with_what_is_new(
    broker: BrokerProcess,
) -> None:
    topic = Topic(broker)
    topic.write(5)
    reader = topic.reader()
    with Cluster(broker.bootstrap) as cluster:
        ids = {name: one.hex() for name, one in cluster.topic_ids([topic.name]).items()}
    assert reader.initialOffset()[TOPIC_IDS] == ids
    # As a checkpoint of a version before has it.
    assert reader.latestOffset(topic.at(5, 0), ALL) == topic.at(5, 0)
    assert reader.latestOffset(topic.at(3, 0), ALL) == {**topic.at(5, 0), TOPIC_IDS: ids}
    assert reader.reportLatestOffset() == {**topic.at(5, 0), TOPIC_IDS: ids}


def test_a_topic_made_again_between_two_micro_batches_is_noticed_although_it_has_more_offsets(
    broker: BrokerProcess,
) -> None:
    topic = Topic(broker)
    topic.write(5)
    fails, skips = topic.reader(), topic.reader(failOnDataLoss="false")
    end = fails.latestOffset(fails.initialOffset(), ALL)
    planned = fails.partitions(topic.at(0, 0), end)
    topic.make_again()
    topic.write(8)

    # Nothing of the new one is read in its place, be it planned before ...
    with pytest.raises(errors.OffsetsGone, match=f"{topic.name}-0 was deleted before offsets"):
        list(fails.read(planned[0]))
    # ... or after, by a reader that knew it, or by one that only knows the checkpoint.
    for reader in (fails, topic.reader()):
        with pytest.raises(
            errors.OffsetsGone, match=f"topic {topic.name} was deleted, and made again"
        ):
            reader.latestOffset(end, ALL)

    again = skips.latestOffset(end, ALL)
    assert (plain(again), ranges(skips, end, again)) == (topic.at(0, 0), [])
    assert again[TOPIC_IDS] != end[TOPIC_IDS]
    last = skips.latestOffset(again, ALL)
    assert (plain(last), ranges(skips, again, last)) == (topic.at(8, 0), [(0, 0, 8)])


def test_tasks_that_read_by_themselves_do_not_take_a_topic_made_again_for_the_one_planned(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = Topic(broker)
    topic.write(5)
    reader = topic.reader(shape="ranges")
    start = reader.initialOffset()
    (planned,) = reader.partitions(start, reader.latestOffset(start, ALL))
    # As Spark hands them to the tasks of a job.
    (rows,) = reader.read(planned)
    (range_,) = (Range(*row.values()) for row in rows.to_pylist())
    topic.make_again()
    topic.write(8)
    source = SourceOptions.parse(topic.options(shape="ranges"), streaming=True)
    lake = locate(str(tmp_path / "lake"))
    archiving = ArchiveTask(source, lake, Layout("records"), None, Compression())
    mirroring = MirrorTask(source, topic.bootstrap, "{topic}-copy", True, Delivered({}), False)
    for task in (archiving, mirroring):
        with pytest.raises(errors.OffsetsGone, match=f"{topic.name}-0 was deleted before offsets"):
            task.work(range_, 0)  # type: ignore[attr-defined]


def test_the_group_is_told_how_far_the_stream_came(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    topic.reader(commitGroup=f"group-of-{topic.name}").commit(topic.at(7, 3))
    with Cluster(broker.bootstrap) as cluster:
        partitions = cluster.partitions([topic.name])
        told = cluster.committed_offsets(f"group-of-{topic.name}", partitions)
    assert told == {TopicPartition(topic.name, 0): 7, TopicPartition(topic.name, 1): 3}


def test_the_group_is_told_nothing_of_a_partition_that_was_deleted(broker: BrokerProcess) -> None:
    topic = Topic(broker)
    group = f"group-of-{topic.name}"
    reader = topic.reader(commitGroup=group, failOnDataLoss="false")
    reader.latestOffset(topic.at(0, 0, 4), ALL)
    reader.commit(topic.at(0, 0, 4))
    with Cluster(broker.bootstrap) as cluster:
        told = cluster.committed_offsets(group, cluster.partitions([topic.name]))
    assert told == {TopicPartition(topic.name, 0): 0, TopicPartition(topic.name, 1): 0}


def test_a_topic_that_was_deleted_stops_what_reads_to_the_end_as_it_stops_any_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = reading_from(monkeypatch, 5)
    reached = {"gone": {"0": 3}, "orders": {"0": 2}}
    for selection in ({"subscribe": "gone,orders"}, {"assign": '{"gone":[0],"orders":[0]}'}):
        skips = stream_reader(**selection, failOnDataLoss="false")
        fails = stream_reader(**selection)
        for reader in (skips, fails):
            reader.prepareForTriggerAvailableNow()
        source.log("orders", 0).append(b"later")
        end = skips.latestOffset(reached, ALL)
        assert end == {"orders": {"0": source.log("orders", 0).end - 1}}
        # Nor does it stop one later, when nothing is known of the topic any more.
        assert skips.latestOffset(end, ALL) == end
        with pytest.raises(errors.OffsetsGone, match="gone-0 is in the checkpoint and not read"):
            fails.latestOffset(reached, ALL)
        with pytest.raises(errors.NoSuchTopic, match="gone"):
            fails.initialOffset()


@pytest.mark.parametrize(
    "bound", [{}, {"startingTimestamp": "7000"}, {"startingOffsets": '{"orders":{"0":-1}}'}]
)
def test_a_stream_of_committed_records_begins_with_the_first_open_transaction_at_the_latest(
    monkeypatch: pytest.MonkeyPatch, bound: dict[str, str]
) -> None:
    reading_from(monkeypatch, 10).log("orders", 0).stable = 5
    committed = {"kafka.isolation.level": "read_committed"}
    reader = stream_reader(subscribe="orders", **committed, **bound)
    start = reader.initialOffset()
    assert start == {"orders": {"0": 5}}
    assert reader.latestOffset(start, ALL) == start


def reading_from(monkeypatch: pytest.MonkeyPatch, records: int) -> FakeSource:
    """What every reader reads from: orders-0, with so many records, one in each second."""
    source = FakeSource()
    for second in range(records):
        source.log("orders", 0).append(b"x", timestamp_ms=1000 * second)
    monkeypatch.setattr(SourceOptions, "source", lambda _: source)
    return source


def stream_reader(**options: str) -> StreamReader:
    source = TriglotSource({"kafka.bootstrap.servers": "127.0.0.1:1", **options})
    made: StreamReader = source.streamReader(source.schema())  # type: ignore[assignment]
    return made


def test_a_reader_that_has_been_used_can_be_sent_to_a_task(broker: BrokerProcess) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(5)
    reader = topic.reader()
    parts = reader.partitions(topic.at(0), reader.latestOffset(topic.at(0), ALL))
    sent, sent_parts = pickle.loads(pickle.dumps((reader, parts)))
    values = [value.as_py() for rows in sent.read(sent_parts[0]) for value in rows["value"]]
    assert values == [b"0", b"1", b"2", b"3", b"4"]
    reader.stop()


# With Spark


class Sink:
    """Takes micro-batches as they come: what was in them, and which ones there were."""

    def __init__(self) -> None:
        self.values: Counter[int] = Counter()
        self.batches: list[tuple[int, list[int]]] = []
        self.fails_after: int | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        values = sorted(int(row.value) for row in rows.select("value").collect())
        self.batches.append((batch_id, values))
        if self.fails_after is not None and batch_id >= self.fails_after:
            raise RuntimeError("the sink was told to fail")
        self.values.update(values)


def run(spark: SparkSession, options: dict[str, str], state: Path, sink: Sink) -> Any:
    """Read what there is, and the progress of the last micro-batch."""
    stream = spark.readStream.format("triglot").options(**options).load()
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(state))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query.lastProgress


def test_a_stream_goes_on_where_it_stopped_and_repeats_what_failed(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic, sink = Topic(broker), Sink()
    options = topic.options(maxOffsetsPerTrigger="40")
    topic.write(60)
    topic.write(60, partition=1)
    sink.fails_after = 2
    with pytest.raises(Exception, match="told to fail"):
        run(spark, options, tmp_path / "state", sink)
    (*_, (failed, values)) = sink.batches
    assert [number for number, _ in sink.batches] == [0, 1, 2]
    # More has come and partitions were added: the micro-batch that failed is what it was.
    topic.write(10)
    CLIENT.create_partitions(topic.bootstrap, topic.name, 3)
    topic.write(10, partition=2)
    sink.fails_after = None
    sink.batches.clear()
    progress = run(spark, options, tmp_path / "state", sink)
    assert sink.batches[0] == (failed, values)
    assert sink.values == Counter(range(140))
    assert progress.sources[0].endOffset == progress.sources[0].latestOffset


@pytest.mark.long
def test_a_query_notices_between_two_runs_that_its_topic_was_made_again(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic, sink = Topic(broker), Sink()
    topic.write(5)
    run(spark, topic.options(), tmp_path / "state", sink)
    topic.make_again()
    topic.write(8)
    with pytest.raises(Exception, match="OffsetsGone") as raised:
        run(spark, topic.options(), tmp_path / "state", sink)
    failure = errors.find(str(raised.value))
    assert isinstance(failure, errors.OffsetsGone)
    assert str(failure).startswith(f"topic {topic.name} was deleted, and made again, since it was")
    run(spark, topic.options(failOnDataLoss="false"), tmp_path / "state", sink)
    assert sink.values == Counter(range(13))


def test_records_that_retention_took_stop_a_stream_unless_it_may_lose_them(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic, sink = Topic(broker, partitions=1), Sink()
    topic.write(10)
    run(spark, topic.options(), tmp_path / "state", sink)
    topic.write(20)
    CLIENT.delete_records(topic.bootstrap, topic.name, 25)
    with pytest.raises(Exception, match="OffsetsGone") as raised:
        run(spark, topic.options(), tmp_path / "state", sink)
    failure = errors.find(str(raised.value))
    assert isinstance(failure, errors.OffsetsGone)
    assert str(failure).startswith(f"{topic.name}-0: offsets 10 to 24 were deleted")
    run(spark, topic.options(failOnDataLoss="false"), tmp_path / "state", sink)
    assert sink.values == Counter([*range(10), *range(25, 30)])


def test_a_stream_of_a_topic_that_is_not_there_says_so(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic = Topic(broker)
    with pytest.raises(Exception, match="NoSuchTopic") as raised:
        run(spark, topic.options(subscribe=topic.name + "x"), tmp_path / "state", Sink())
    failure = errors.find(str(raised.value))
    assert isinstance(failure, errors.NoSuchTopic)
    assert f"did you mean '{topic.name}'" in str(failure)
