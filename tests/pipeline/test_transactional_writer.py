"""Shares of a data frame in transactions, each written as a task does it, without Spark."""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from client.cluster import LATEST, Cluster, TopicPartition
from client.transactions import TransactionalProducer
from pipeline import errors
from pipeline.dataframes.shares import BATCH_ID, QUERY_ID
from pipeline.dataframes.writer import Writer
from pipeline.dataframes.writer_options import WriterOptions
from tests.pipeline.transactional_history import written_values

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

topics = (f"shares-{number}" for number in itertools.count())


class Task:
    """What Spark tells a task of itself: its number and, in a stream, query and micro-batch."""

    def __init__(self, number: int, query: str | None = None, batch: int | None = None) -> None:
        self._number = number
        self._properties = {QUERY_ID: query, BATCH_ID: None if batch is None else str(batch)}

    def partitionId(self) -> int:
        return self._number

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = next(topics)
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(name, 2)
    return name


@pytest.fixture
def write(broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    def share(task: Task, *values: str, writer: Writer | None = None, **more: str) -> Any:
        """What a task does, and the driver with its answer."""
        monkeypatch.setattr("pyspark.TaskContext.get", lambda: task)
        found = writer or writer_of(streaming=task.getLocalProperty(QUERY_ID) is not None, **more)
        written = pickle.loads(pickle.dumps(found)).write(iter(rows(*values)))
        return found, pickle.loads(pickle.dumps(written))

    def write(task: Task, *values: str, **more: Any) -> int:
        writer, written = share(task, *values, **more)
        writer.end([written], committed=True)
        return int(written.rows)

    def writer_of(*, streaming: bool, **more: str) -> Writer:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": topic,
            "transactionalId": f"prefix-{topic}",
            **more,
        }
        return Writer.of(options, from_arrow_schema(rows("")[0].schema), streaming=streaming)

    write.writer = writer_of  # type: ignore[attr-defined]
    write.share = share  # type: ignore[attr-defined]
    return write


def rows(*values: str) -> list[pa.RecordBatch]:
    partitions = pa.array([len(value) % 2 for value in values], pa.int32())
    batch = pa.record_batch({"value": list(values), "partition": partitions})
    return [batch.slice(0, 1), batch.slice(1)]


def committed(broker: BrokerProcess, topic: str) -> list[bytes]:
    places = [TopicPartition(topic, partition) for partition in range(2)]
    return [
        value
        for place in places
        for value in written_values(broker.bootstrap, place, committed=True)
    ]


def test_a_share_of_a_micro_batch_that_is_repeated_is_written_once(
    broker: BrokerProcess, topic: str, write: Any
) -> None:
    for batch in range(3):
        for _ in range(2):
            assert write(Task(0, "q", batch), f"{batch}", f"{batch}a") == 2
            assert write(Task(1, "q", batch), f"{batch}b") == 1
    assert committed(broker, topic) == [
        *(b"0a", b"0b", b"1a", b"1b", b"2a", b"2b"),
        *(b"0", b"1", b"2"),
    ]
    # A task without rows asks for nothing.
    assert write(Task(2, "q", 3)) == 0


def test_what_a_killed_attempt_has_begun_is_never_seen(
    broker: BrokerProcess, topic: str, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # As a process leaves it that is killed.
        patch.setattr(TransactionalProducer, "close", lambda producer: None)
        patch.setattr(TransactionalProducer, "send_offsets", killed)
        with pytest.raises(KeyboardInterrupt):
            write(Task(0, "q", 0), "a", "b")
    assert committed(broker, topic) == []
    write(Task(0, "q", 0), "a", "b")
    assert committed(broker, topic) == [b"a", b"b"]


def test_nothing_is_seen_before_all_tasks_have_succeeded(
    broker: BrokerProcess, topic: str, write: Any
) -> None:
    # The task was not given all its rows, as what makes them failed, and has no message.
    writer, _ = write.share(Task(0, "q", 0), "a")
    _, other = write.share(Task(1, "q", 0), "c")
    assert committed(broker, topic) == []
    writer.end([None, other], committed=False)
    with Cluster(broker.bootstrap) as cluster:
        places = cluster.partitions([topic])
        ends = cluster.offsets(places, LATEST)
        assert cluster.offsets(places, LATEST, committed_only=True) == ends
    writer, first = write.share(Task(0, "q", 0), "a", "b")
    _, other = write.share(Task(1, "q", 0), "c")
    writer.end([first, other], committed=True)
    assert committed(broker, topic) == [b"a", b"b", b"c"]


def test_a_driver_that_is_killed_between_two_commits_goes_on_with_the_second(
    broker: BrokerProcess, topic: str, write: Any
) -> None:
    for _ in range(2):
        writer, first = write.share(Task(0, "q", 0), "a")
        _, second = write.share(Task(1, "q", 0), "b")
        writer.end([first], committed=True)
    writer.end([first, second], committed=True)
    assert committed(broker, topic) == [b"a", b"b"]


def test_a_transaction_that_somebody_has_ended_meanwhile_is_told(topic: str, write: Any) -> None:
    writer, prepared = write.share(Task(0, "q", 0), "a")
    write(Task(0, "q", 0), "a")
    with pytest.raises(errors.Refused, match=r"is not open any more: it took longer than 600 s"):
        writer.end([prepared], committed=True)


def killed(producer: TransactionalProducer, *_: object) -> None:
    while producer._in_flight:
        producer._take_answer()
    raise KeyboardInterrupt


def test_rows_that_come_to_other_tasks_than_before_are_told(topic: str, write: Any) -> None:
    write(Task(0, "q", 0), "a", "b")
    with pytest.raises(errors.ForeignState, match="wrote 2 rows in epoch 0, and now has 3 for it"):
        write(Task(0, "q", 0), "a", "b", "c")
    # But not by a task, which may not have been given all rows.
    write.share(Task(0, "q", 0), "a")


def test_a_checkpoint_that_is_older_than_what_was_written_is_told(topic: str, write: Any) -> None:
    write(Task(0, "q", 5), "a")
    with pytest.raises(errors.ForeignState, match="has written epoch 5 already, and is to write 4"):
        write(Task(0, "q", 4), "a")


def test_another_query_with_the_same_prefix_begins_anew(
    broker: BrokerProcess, topic: str, write: Any
) -> None:
    write(Task(0, "q", 5), "a")
    write(Task(0, "other", 0), "a")
    write(Task(0, "other", 0), "a")
    assert committed(broker, topic) == [b"a", b"a"]


def test_a_write_is_done_again_unless_it_has_the_same_epoch(
    broker: BrokerProcess, topic: str, write: Any
) -> None:
    # Two attempts of a task of one write; and the write again.
    one = write.writer(streaming=False)
    for _ in range(2):
        write(Task(0), "a", writer=one)
    write(Task(0), "a")
    assert committed(broker, topic) == [b"a", b"a"]
    for _ in range(2):
        write(Task(0), "b", transactionalEpoch="7")
    write(Task(0), "b", transactionalEpoch="8")
    assert committed(broker, topic) == [b"a", b"a", b"b", b"b"]
    with pytest.raises(errors.ForeignState, match="written epoch 8 already, and is to write 7"):
        write(Task(0), "b", transactionalEpoch="7")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"transactionalId": "x" * 201}, "want 1 to 200 characters"),
        ({"transactionalId": "x", "magic": "1"}, "transactions need format 2"),
        ({"transactionalEpoch": "1"}, "give a 'transactionalId'"),
        ({"transactionalId": "x", "transactionalEpoch": "-1"}, "want 0 to"),
        ({"transactionalId": "x", "kafka.transaction.timeout.ms": "10"}, "want 1000 to"),
        ({"kafka.transactional.id": "x"}, "did you mean 'transactionalId'"),
    ],
)
def test_options_of_transactions_that_will_not_do_are_told(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(errors.WrongUse) as raised:
        WriterOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", **options})
    assert words in str(raised.value)


def test_a_stream_numbers_its_writes_itself(write: Any) -> None:
    with pytest.raises(errors.WrongUse, match="a stream numbers its writes by itself"):
        write.writer(streaming=True, transactionalEpoch="1")


def test_a_transaction_that_the_broker_finds_too_long_is_told(write: Any) -> None:
    with pytest.raises(errors.Refused, match=r"no transaction open for 3600 s: ask for less"):
        write(Task(0), "a", **{"kafka.transaction.timeout.ms": "3600000"})
