"""Dead letters in a topic, as librdkafka reads them: cut off anywhere, each is there once."""

from __future__ import annotations

import datetime
import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from client.cluster import Cluster
from client.transactions import TransactionalProducer
from pipeline.archiving import archive_files
from pipeline.archiving.parquet_writer import Compression
from pipeline.archiving.staged import StagedFile
from pipeline.delivering import transactional
from pipeline.errors import Refused, WrongUse
from pipeline.filesystem import locate
from pipeline.reading.options import SourceOptions
from pipeline.state import State
from pipeline.values import dead_letter_topic
from pipeline.values.dead_letter_topic import DeadLetterTopic, check_topic
from pipeline.values.decode_tasks import DEAD_LETTERS
from tests.pipeline.transactional_history import consumed
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

names = (f"dead-letters-{number}" for number in itertools.count())
AT = datetime.datetime(2026, 11, 25, 10, tzinfo=datetime.UTC)
LETTERS = 40
"""Of each file."""


class Crash(Exception):
    """The machine goes down."""


class Runs:
    """Runs of an archive whose dead letters go to a topic of its own."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.name = next(names)
        self.folder = locate(str(folder / "lake"))
        self._source = SourceOptions(servers=broker.bootstrap, topics=("orders",))
        self._state = str(folder / "state")
        self._open: State | None = None
        self._id = f"{self.name}-state"

    def start(self) -> DeadLetterTopic:
        """A run begins, after the one before it has ended."""
        if self._open is not None:
            self._open.close()
        self._open = State.open(self._state, {"job": "archive"})
        letters = DeadLetterTopic(self.name, self.folder, self._open, self._source, self._id)
        letters.finish()
        return letters

    def stage(self, letters: DeadLetterTopic, batch_id: int, partitions: int = 1) -> dict[str, str]:
        """As tasks do it: a file of LETTERS letters for each partition."""
        files = {}
        for partition in range(partitions):
            start = batch_id * LETTERS
            name = archive_files.name_of("orders", partition, start, start + LETTERS)
            told: dict[str, Any] = {"cluster": None, "batch": batch_id, "shape": "records"}
            with StagedFile(
                letters.folder.under("_staging", str(batch_id)),
                f"{name}.1",
                "records",
                Compression(),
                schema=DEAD_LETTERS,
            ) as file:
                rows = [letter(partition, start + number) for number in range(LETTERS)]
                file.add(pa.RecordBatch.from_pylist(rows, schema=DEAD_LETTERS))
                end = start + LETTERS
                told |= {"topic": "orders", "partition": partition, "start": start, "end": end}
                file.finish(archive_files.metadata(**told))
            files[name] = f"{name}.1"
        return files

    def close(self) -> None:
        if self._open is not None:
            self._open.close()


def letter(partition: int, offset: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": partition,
        "offset": offset,
        "timestamp": AT,
        "timestampType": 0,
        "key": None if offset % 3 == 0 else b"key %d" % offset,
        "value": b"value %d of %d" % (offset, partition),
        "headers": [{"key": "n", "value": b"%d" % offset}] if offset % 2 else None,
        "reason": "the value is no good",
    }


@pytest.fixture
def runs(broker: BrokerProcess, tmp_path: Path) -> Iterator[Runs]:
    made = Runs(broker, tmp_path)
    yield made
    made.close()


def test_a_letter_is_the_record_as_it_came_with_headers_that_tell_where_it_was(
    broker: BrokerProcess, runs: Runs
) -> None:
    letters = runs.start()
    letters.publish(0, runs.stage(letters, 0))
    found = consumed(broker.bootstrap, runs.name, "read_committed")
    assert len(found) == LETTERS
    for offset, message in enumerate(found):
        wanted = letter(0, offset)
        assert (message.key(), message.value()) == (wanted["key"], wanted["value"])
        assert message.timestamp()[1] == AT.timestamp() * 1000
        assert message.headers() == [
            *[(one["key"], one["value"]) for one in wanted["headers"] or ()],
            ("__triglot.errors.topic", b"orders"),
            ("__triglot.errors.partition", b"0"),
            ("__triglot.errors.offset", b"%d" % offset),
            ("__triglot.errors.message", b"the value is no good"),
        ]
    assert not letters.folder.exists()


def test_letters_go_to_the_partition_of_the_same_number_as_far_as_there_are_such(
    broker: BrokerProcess, runs: Runs
) -> None:
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic(runs.name, 2)
    letters = runs.start()
    letters.publish(0, runs.stage(letters, 0, partitions=3))
    for partition, sources in ((0, (0, 2)), (1, (1,))):
        found = consumed(broker.bootstrap, runs.name, "read_committed", partition)
        assert [message.value() for message in found] == [
            letter(source, offset)["value"] for source in sources for offset in range(LETTERS)
        ]


@pytest.mark.parametrize(
    ("step", "after"), [("send", 0), ("send", 3), ("commit", 0), ("commit", 2)]
)
def test_a_crash_at_any_point_leaves_each_letter_once(
    step: str, after: int, broker: BrokerProcess, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight letters are a transaction, and there are five in each of two partitions."""
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic(runs.name, 2)
    monkeypatch.setattr(dead_letter_topic, "ROWS_AT_ONCE", 8)
    monkeypatch.setattr(transactional, "TRANSACTION_BYTES", 1)
    letters = runs.start()
    letters.publish(0, runs.stage(letters, 0))
    done: list[object] = []
    going_on = getattr(TransactionalProducer, step)

    def crashing(*given: Any) -> None:
        # A commit is made, and its answer comes to nobody.
        if step == "commit":
            going_on(*given)
        if len(done) == after:
            raise Crash
        done.append(given)
        if step == "send":
            going_on(*given)

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalProducer, step, crashing)
        with pytest.raises(Crash):
            letters.publish(1, runs.stage(letters, 1, partitions=2))
    again = runs.start()
    # The micro-batch is decoded once more, as its rows were not published.
    again.publish(1, runs.stage(again, 1, partitions=2))
    again.publish(2, {})
    again.publish(3, runs.stage(again, 3))
    expected = {0: (0, 1, 3), 1: (1,)}
    for partition, batches in expected.items():
        found = consumed(broker.bootstrap, runs.name, "read_committed", partition)
        assert [message.value() for message in found] == [
            letter(partition, batch * LETTERS + number)["value"]
            for batch in batches
            for number in range(LETTERS)
        ]


def test_what_was_staged_and_not_noted_is_cleared_away(broker: BrokerProcess, runs: Runs) -> None:
    letters = runs.start()
    runs.stage(letters, 0)
    again = runs.start()
    assert not again.folder.exists()
    assert consumed(broker.bootstrap, runs.name, "read_committed") == []


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"path": "data", "topics": ("orders",)}, "give --dead-letters a folder"),
        ({"servers": "a:1", "topics": ("orders", "dead")}, "would come back for ever"),
        ({"servers": "a:1", "pattern": ".*"}, "would come back for ever"),
    ],
)
def test_a_topic_that_cannot_have_the_letters_is_refused_beforehand(
    source: Mapping[str, Any], told: str
) -> None:
    with pytest.raises(WrongUse, match=told):
        check_topic("dead", SourceOptions(**source))


def test_a_topic_that_knows_no_transactions_is_refused_beforehand(broker: BrokerProcess) -> None:
    name = next(names)
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(name, 1, {"message.format.version": "0.10.2"})
    with pytest.raises(Refused, match="stores record format 1, and transactions need format 2"):
        check_topic(name, SourceOptions(servers=broker.bootstrap, topics=("orders",)))
