"""Writing: which partition, what bytes, and what is refused."""

from __future__ import annotations

import itertools
import pickle
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from client.cluster import Cluster, TopicPartition
from client.producing import Produced, ProduceUnknown, Producing
from pipeline import errors
from pipeline.dataframes.sending import Sending
from pipeline.dataframes.writer import Writer
from pipeline.delivering.partitioner import Sticky, murmur2
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.source import TriglotSource
from protocol.records.compression import NAMES
from protocol.records.crc import crc32c
from protocol.records.layout import (
    ATTRIBUTES_POSITION,
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    UINT32,
)
from protocol.records.walk import walk
from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.clients.records import FIRST_TIMESTAMP_MS, Record, Stored, assert_stored, some_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

CLIENT = ConfluentDriver()
PARTITIONS = 3
topics = (f"written-{number}" for number in itertools.count())


def new_topic(broker: BrokerProcess, partitions: int = PARTITIONS, **configs: str) -> str:
    topic = next(topics)
    named = {name.replace("_", "."): value for name, value in configs.items()}
    CLIENT.create_topic(broker.bootstrap, topic, partitions=partitions, configs=named)
    return topic


def write(broker: BrokerProcess, rows: pa.RecordBatch | list[pa.RecordBatch], **more: str) -> Any:
    """As a task does it, without Spark."""
    batches = rows if isinstance(rows, list) else [rows]
    options = {"kafka.bootstrap.servers": broker.bootstrap, **dotted(more)}
    writer = replace(Writer.of(options, from_arrow_schema(batches[0].schema)), turn=first_turn)
    return pickle.loads(pickle.dumps(writer)).write(iter(batches)).rows


def first_turn() -> int:
    return 0


def dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in options.items()}


def as_rows(records: list[Record], topic: str) -> pa.RecordBatch:
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": topic,
            "partition": record.partition,
            "offset": 0,
            "timestamp": record.timestamp_ms * 1000,
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in records
    ]
    return pa.RecordBatch.from_pylist(rows, RECORDS_AND_HEADERS)


def consumed(broker: BrokerProcess, topic: str) -> Stored:
    return CLIENT.consume(broker.bootstrap, topic)


def values(stored: Stored) -> dict[int, list[bytes | None]]:
    return {number: [record.value for _, record in found] for number, found in stored.items()}


# Which partition


@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), st.integers(0, 5))
def test_keys_hash_as_those_of_other_producers_do(keys: list[bytes | None], skipped: int) -> None:
    hashes = murmur2(pa.array(keys, pa.binary()).slice(skipped))
    for key, found in zip(keys[skipped:], hashes.tolist(), strict=True):
        if key is not None:
            assert found == murmur2_of_kafka_python(key) & 0xFFFF_FFFF


def test_rows_without_a_key_stay_together_for_a_batch_and_go_round() -> None:
    sticky = Sticky(start=2, batch_bytes=1000)
    assert sticky.spread(5, 250.0, 3).tolist() == [2, 2, 2, 2, 0]
    assert sticky.spread(5, 250.0, 3).tolist() == [0, 0, 0, 1, 1]
    # However large a row is, it is in some batch.
    assert sticky.spread(2, 5000.0, 3).tolist() == [1, 2]


def test_a_key_goes_where_the_producers_of_kafka_put_it(broker: BrokerProcess) -> None:
    ours, theirs = new_topic(broker, 7), new_topic(broker, 7)
    keys = [f"key-{number}" for number in range(200)]
    assert write(broker, pa.record_batch({"key": keys, "value": keys}), topic=ours) == 200
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"}
    )
    for key in keys:
        producer.produce(theirs, key=key, value=key)
    assert producer.flush(20) == 0
    assert values(consumed(broker, ours)) == values(consumed(broker, theirs))


def test_a_null_partition_is_chosen_and_a_given_one_is_kept(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    rows = pa.record_batch(
        {
            "value": ["a", "b", "c", "d"],
            "key": [None, "key", None, None],
            "partition": pa.array([2, None, 0, None], pa.int32()),
        }
    )
    write(broker, rows, topic=topic)
    of_key = (murmur2_of_kafka_python(b"key") & 0x7FFF_FFFF) % PARTITIONS
    found = values(consumed(broker, topic))
    assert b"a" in found[2]
    assert b"c" in found[0]
    assert b"b" in found[of_key]
    assert b"d" in found[0]


def test_small_writes_of_rows_without_a_key_do_not_all_begin_at_one_partition(
    broker: BrokerProcess,
) -> None:
    topic, rows = new_topic(broker), pa.record_batch({"value": ["v"]})
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    writer = Writer.of(options, from_arrow_schema(rows.schema))
    assert len({writer.turn() for _ in range(100)}) > 1
    writer = replace(writer, turn=iter((0, 1, 5, 6)).__next__)
    for _ in range(4):
        writer.write(iter([rows]))
    assert values(consumed(broker, topic)) == {0: [b"v"] * 2, 1: [b"v"], 2: [b"v"]}


def test_rows_of_many_topics_are_parted_and_keep_their_order(broker: BrokerProcess) -> None:
    names = [new_topic(broker, 1), new_topic(broker, 1)]
    texts = [str(number) for number in range(500)]
    chosen = [names[number % 3 % 2] for number in range(500)]
    rows = pa.record_batch({"value": texts, "topic": chosen})
    write(broker, [rows.slice(0, 100), rows.slice(100)])
    for name in names:
        wanted = [text.encode() for text, topic in zip(texts, chosen, strict=True) if topic == name]
        assert values(consumed(broker, name)) == {0: wanted}
    # The option has precedence over the column.
    write(broker, rows, topic=names[0])
    assert len(consumed(broker, names[0])[0]) == chosen.count(names[0]) + 500


# What bytes


@pytest.mark.parametrize("codec", NAMES)
def test_records_are_read_by_a_plain_consumer_in_every_codec(
    broker: BrokerProcess, codec: str
) -> None:
    topic, records = new_topic(broker), some_records(300, CLIENT.abilities)
    write(broker, as_rows(records, topic), kafka_compression_type=codec, kafka_batch_size="9000")
    assert_stored(records, consumed(broker, topic))
    with Cluster(broker.bootstrap) as cluster:
        log = cluster.fetch(TopicPartition(topic, 0), 0).entries
    codecs = [log[at + ATTRIBUTES_POSITION + 1] & CODEC_MASK for at, _, _ in walk(log)]
    assert codecs == [NAMES.index(codec)] * len(codecs)
    assert len(codecs) > 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_are_written_in_the_format_that_is_asked_for(
    broker: BrokerProcess, magic: int
) -> None:
    release = ("0.9.0", "0.10.0", "0.11.0")[magic]
    topic = new_topic(broker, 1, message_format_version=release)
    rows = pa.record_batch({"key": ["k", None], "value": ["v", None]})
    write(broker, rows, topic=topic, magic=str(magic))
    found = [(record.key, record.value) for _, record in consumed(broker, topic)[0]]
    assert found == [(b"k", b"v"), (None, None)]
    with Cluster(broker.bootstrap) as cluster:
        log = cluster.fetch(TopicPartition(topic, 0), 0).entries
    assert {found_magic for _, _, found_magic in walk(log)} == {magic}


def test_rows_without_a_time_have_that_of_their_writing(broker: BrokerProcess) -> None:
    topic = new_topic(broker, 1)
    before = int(time.time() * 1000)
    write(broker, pa.record_batch({"value": ["now"]}), topic=topic)
    ((_, record),) = consumed(broker, topic)[0]
    assert before <= record.timestamp_ms <= time.time() * 1000


def test_batches_are_passed_on_as_they_are(broker: BrokerProcess) -> None:
    origin, copy = new_topic(broker), new_topic(broker)
    records = some_records(400, CLIENT.abilities)
    for begin, codec in zip(range(0, 400, 80), NAMES, strict=True):
        some = records[begin : begin + 80]
        CLIENT.produce(broker.bootstrap, origin, some, codec=codec, idempotent=True)
    source = TriglotSource(
        {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": origin,
            "shape": "batches",
        }
    )
    reader = source.reader(source.schema())
    for part in reader.partitions():
        write(broker, list(reader.read(part)), topic=copy)
    assert consumed(broker, copy) == consumed(broker, origin)
    with Cluster(broker.bootstrap) as cluster:
        for partition in range(PARTITIONS):
            logs = [
                cluster.fetch(TopicPartition(topic, partition), 0).entries
                for topic in (origin, copy)
            ]
            assert sections(logs[0]) == sections(logs[1]) != []


def test_a_broker_that_remembers_a_batch_stores_it_twice_only_when_told_to(
    broker: BrokerProcess,
) -> None:
    origin, copy = new_topic(broker, 1), new_topic(broker, 1)
    records = [Record(0, FIRST_TIMESTAMP_MS, None, b"%d" % number) for number in range(9)]
    CLIENT.produce(broker.bootstrap, origin, records, codec="none", idempotent=True)
    with Cluster(broker.bootstrap) as cluster:
        batch = bytes(cluster.fetch(TopicPartition(origin, 0), 0).entries)
    for expected, more in ((9, {}), (9, {}), (18, {"keepProducers": "false"})):
        write(broker, batch_rows([batch]), topic=copy, **more)
        assert len(consumed(broker, copy)[0]) == expected


class Answers:
    """A cluster that answers as it is told: to each Produce how many entries it has stored."""

    timeout_s = 30.0

    def __init__(self, *stored: int | None) -> None:
        self.stored = list(stored)
        self.sent: list[list[bytes]] = []

    def begin_produce(self, partition: TopicPartition, entries: list[bytes], magic: int) -> Any:
        self.sent.append(entries)
        return Producing(partition, None, [], "")  # type: ignore[arg-type]

    def finish_produce(self, begun: Producing) -> int:
        known = self.stored.pop(0)
        if known is None:
            return 0
        why = Produced(-1, 0, "connection lost")
        raise ProduceUnknown(begun.partition, [why] * known, why, rest=False)

    def produce(self, partition: TopicPartition, entries: list[bytes], magic: int) -> int:
        return self.finish_produce(self.begin_produce(partition, entries, magic))


def test_what_may_not_have_been_stored_is_sent_again_until_time_is_up() -> None:
    place, entries, now = TopicPartition("orders", 0), [b"1", b"2", b"3"], itertools.count(step=9)
    sleeps: list[float] = []

    def sending(answers: Answers) -> Sending:
        return Sending(answers, clock=lambda: float(next(now)), sleep=sleeps.append)  # type: ignore[arg-type]

    answers = Answers(None, 1, 0, None)
    sender = sending(answers)
    sender.send(place, [b"0"], 2)
    sender.send(place, entries, 2)
    sender.finish()
    sender.finish()
    assert answers.sent == [[b"0"], entries, entries[1:], entries[1:]]
    assert len(sleeps) == 2
    sender = sending(Answers(*[0] * 9))
    sender.send(place, entries, 2)
    with pytest.raises(errors.Unreachable, match=r"orders-0.*connection lost"):
        sender.finish()


def sections(log: memoryview) -> list[bytes]:
    """The entries of a log without their base offsets and leader epochs, which a broker sets."""
    return [
        bytes(log[at + 8 : at + 12]) + bytes(log[at + 16 : at + size]) for at, size, _ in walk(log)
    ]


# What is refused


def test_what_is_no_batch_and_what_only_a_broker_writes(broker: BrokerProcess) -> None:
    topic = new_topic(broker, 1)
    stored = Record(0, FIRST_TIMESTAMP_MS, b"k", b"v")
    CLIENT.produce(broker.bootstrap, topic, [stored], codec="none", idempotent=False)
    with Cluster(broker.bootstrap) as cluster:
        batch = bytes(cluster.fetch(TopicPartition(topic, 0), 0).entries)
    control = bytearray(batch)
    control[ATTRIBUTES_POSITION + 1] |= CONTROL_BIT
    UINT32.pack_into(control, CRC_POSITION, crc32c(memoryview(control)[CHECKED_POSITION:]))
    batches = [bytes(control), batch]
    assert write(broker, batch_rows(batches), topic=topic) == 2
    assert len(consumed(broker, topic)[0]) == 2
    for bad in (b"", b"no batch", batch[:-1], batch + b"x"):
        with pytest.raises(errors.CorruptData, match=rf"{len(bad)} bytes for {topic}-0"):
            write(broker, batch_rows([bad]), topic=topic)
    with pytest.raises(errors.WrongUse, match="has a null"):
        write(broker, batch_rows([None]), topic=topic)


def batch_rows(batches: Sequence[bytes | None]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "batch": pa.array(batches, pa.binary()),
            "partition": pa.array([0] * len(batches), pa.int32()),
        }
    )


def test_a_destination_that_refuses_is_told_with_its_reason(broker: BrokerProcess) -> None:
    topic = new_topic(broker, 1, max_message_bytes="1000")
    with pytest.raises(errors.Refused, match=rf"{topic}-0 .*MESSAGE_TOO_LARGE"):
        write(broker, pa.record_batch({"value": ["x" * 5000]}), topic=topic)


def test_a_row_for_a_topic_or_partition_that_is_not_there(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    for rows, words in (
        (pa.record_batch({"value": ["x"], "topic": [topic + "x"]}), f"'{topic}'"),
        (
            pa.record_batch(
                {"value": ["x"], "topic": [topic], "partition": pa.array([3], pa.int32())}
            ),
            f"partition 3 of topic '{topic}', which has 3",
        ),
    ):
        with pytest.raises(errors.NoSuchTopic) as raised:
            write(broker, rows)
        assert words in str(raised.value)
    with pytest.raises(errors.WrongUse, match="null topic"):
        write(broker, pa.record_batch({"value": ["x"], "topic": pa.array([None], pa.string())}))


def test_a_topic_is_not_overwritten() -> None:
    source = TriglotSource({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"})
    with pytest.raises(errors.WrongUse, match="append"):
        source.writer(from_arrow_schema(pa.schema({"value": pa.binary()}.items())), True)


# With Spark


def test_what_spark_writes_is_what_was_read(broker: BrokerProcess, spark: SparkSession) -> None:
    origin, of_records, of_batches = (new_topic(broker) for _ in range(3))
    records = some_records(1_000, CLIENT.abilities)
    CLIENT.produce(broker.bootstrap, origin, records, codec="zstd", idempotent=False)
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    for shape, copy in (("records", of_records), ("batches", of_batches)):
        rows = (
            spark.read.format("triglot")
            .options(**servers, subscribe=origin, shape=shape)
            .options(**({"includeHeaders": "true"} if shape == "records" else {}))
            .load()
        )
        rows.write.format("triglot").mode("append").options(**servers, topic=copy).save()
    assert_stored(records, consumed(broker, of_records))
    with Cluster(broker.bootstrap) as cluster:
        for partition in range(PARTITIONS):
            logs = [
                cluster.fetch(TopicPartition(topic, partition), 0).entries
                for topic in (origin, of_batches)
            ]
            assert sections(logs[0]) == sections(logs[1]) != []


def test_a_destination_that_is_not_there_is_found_in_what_spark_says(
    broker: BrokerProcess, spark: SparkSession
) -> None:
    topic = new_topic(broker)
    writer = spark.range(3).selectExpr("string(id) AS value").write.format("triglot")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic + "x"}
    with pytest.raises(Exception, match="NoSuchTopic") as raised:
        writer.mode("append").options(**options).save()
    failure = errors.find(str(raised.value))
    assert isinstance(failure, errors.NoSuchTopic)
    assert topic in str(failure)


@pytest.mark.long
def test_a_stream_is_written_and_goes_on_after_a_stop(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    origin, copy = new_topic(broker), new_topic(broker)
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    records = some_records(200, CLIENT.abilities)

    def run() -> Any:
        read = {**servers, "subscribe": origin, "startingOffsets": "earliest"}
        rows = spark.readStream.format("triglot").options(**read, includeHeaders="true").load()
        query = (
            rows.writeStream.format("triglot")
            .options(**servers, topic=copy, checkpointLocation=str(tmp_path / "state"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for some in (records[:150], records[150:]):
        CLIENT.produce(broker.bootstrap, origin, some, codec="lz4", idempotent=False)
        run()
    assert_stored(records, consumed(broker, copy))
