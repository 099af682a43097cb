"""A stretch of time as offsets, and archive and mirror of it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import errors
from pipeline.dataframes.stream_source import StreamReader
from pipeline.filesystem import locate
from pipeline.jobs.archive import archive
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.stretch import Stretch, Times, stretch_of
from pipeline.reading.options import SourceOptions
from pipeline.spark.micro_batches import MicroBatch
from pipeline.state import State
from protocol.records.builder import build_batch
from tests.pipeline.archive_runs import archived, made
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as connected:
        yield connected


def write(caller: Caller, topic: str, *batches: list[int], partition: int = 0) -> None:
    """Batches of records with these timestamps, in seconds after NOW_MS."""
    for seconds in batches:
        rows = [(NOW_MS + 1000 * at, None, b"at %d" % at, ()) for at in seconds]
        assert caller.produce(topic, build_batch(rows), partition=partition).error_code == 0


def at(seconds: int) -> int:
    return NOW_MS + 1000 * seconds


def found(
    broker: BrokerProcess,
    folder: Path,
    topic: str,
    since: int | None,
    until: int | None,
    *,
    whole_batches: bool = False,
) -> tuple[dict[str, int], dict[str, int] | None]:
    """Where the partitions of a topic begin and end."""
    told = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "shape": "ranges"}
    options = SourceOptions.parse(told, streaming=True)
    times = Times(*(one and at(one) for one in (since, until)))
    with contextlib.closing(State.open(str(folder), {"job": "test"})) as state:
        source = options.source()
        stretch = stretch_of(times, state, source, options, whole_batches=whole_batches)
        source.close()
    assert stretch.starting is not None
    begins = json.loads(stretch.starting)[topic]
    return begins, None if stretch.ending is None else json.loads(stretch.ending)[topic]


def test_each_partition_begins_at_its_first_record_of_the_time_and_ends_before_the_next(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller, partitions=3).name
    write(caller, topic, [10, 20], [30, 40])
    write(caller, topic, [5], [35], partition=1)

    assert found(broker, tmp_path / "a", topic, 20, 40) == (
        {"0": 1, "1": 1, "2": 0},
        {"0": 3, "1": 2, "2": 0},
    )
    assert found(broker, tmp_path / "b", topic, None, 30)[0] == {"0": 0, "1": 0, "2": 0}
    assert found(broker, tmp_path / "c", topic, 90, None) == ({"0": 4, "1": 2, "2": 0}, None)


def test_what_was_found_stays_whatever_comes_meanwhile(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller).name
    write(caller, topic, [10, 20])
    first = found(broker, tmp_path / "a", topic, 10, 90)
    write(caller, topic, [30])
    assert found(broker, tmp_path / "a", topic, 10, 90) == first == ({"0": 0}, {"0": 2})


def test_no_record_of_the_time_lies_below_the_stretch_where_times_do_not_rise(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller).name
    write(caller, topic, [50], [10], [30], [20], [60], [25])
    begins, ends = found(broker, tmp_path / "a", topic, 20, 40)
    assert begins == {"0": 0}
    assert ends == {"0": 0}  # the first record at or after 40 s is the first of all
    assert found(broker, tmp_path / "b", topic, 20, 55) == ({"0": 0}, {"0": 4})


def test_an_end_inside_of_a_batch_is_the_end_of_the_batch_where_batches_are_whole(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller).name
    write(caller, topic, [10, 20, 30, 40], [50])
    whole = found(broker, tmp_path / "a", topic, 20, 30, whole_batches=True)
    assert whole == ({"0": 1}, {"0": 4})
    assert found(broker, tmp_path / "b", topic, 20, 30) == ({"0": 1}, {"0": 2})
    assert found(broker, tmp_path / "c", topic, 20, 50, whole_batches=True)[1] == {"0": 4}


def test_a_stream_of_ranges_ends_where_it_is_told(broker: BrokerProcess, caller: Caller) -> None:
    topic = made(caller, partitions=2).name
    write(caller, topic, [1, 2, 3])
    write(caller, topic, [1, 2, 3], partition=1)
    told = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "shape": "ranges",
        "startingOffsets": "earliest",
        "endingOffsets": json.dumps({topic: {"0": 2}}),
    }
    reader = StreamReader(SourceOptions.parse(told, streaming=True))
    reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    reader.stop()
    assert end[topic] == {"0": 2, "1": 0}


def test_times_that_make_no_sense_are_refused() -> None:
    with pytest.raises(errors.WrongUse, match="no time between"):
        Times(5, 5).check(starting="earliest", every_s=None)
    with pytest.raises(errors.WrongUse, match="exclude each other"):
        Times(5, None).check(starting="latest", every_s=None)
    with pytest.raises(errors.WrongUse, match="goes on for ever"):
        Times(None, 5).check(starting="earliest", every_s=10.0)


def test_no_times_are_no_stretch() -> None:
    nothing: Any = None
    assert stretch_of(Times(), nothing, nothing, nothing, whole_batches=True) == Stretch(None, None)


def test_a_state_of_other_times_is_refused_and_one_without_goes_on(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller).name
    write(caller, topic, [10])
    found(broker, tmp_path / "a", topic, 10, 20)
    state = State(locate(str(tmp_path / "a")))
    with pytest.raises(errors.ForeignState, match="was begun with --since"):
        Times(at(11), at(20)).check_state(state)
    Times().check_state(state)
    Times(at(10), at(20)).check_state(state)

    begun = State(locate(str(tmp_path / "b")))
    begun.location.make()
    Times(at(10)).check_state(begun)
    end = {topic: {"0": 1}}
    MicroBatch(0, end, end, True, "", "").write(begun)
    with pytest.raises(errors.ForeignState, match="begun with no times"):
        Times(at(10)).check_state(begun)


@pytest.mark.long
def test_an_archive_has_the_records_of_the_time_and_goes_on_with_the_same_end(
    spark: SparkSession, broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller, partitions=2).name
    write(caller, topic, [10, 20], [30, 40])
    write(caller, topic, [15, 35], [36], partition=1)
    told: dict[str, Any] = {
        "servers": broker.bootstrap,
        "topics": [topic],
        "since_ms": at(20),
        "until_ms": at(36),
        "spark": spark,
    }
    archive(str(tmp_path / "lake"), **told)
    write(caller, topic, [25])
    archive(str(tmp_path / "lake"), **told)
    assert [row[4] for row in archived(tmp_path / "lake")] == [b"at 20", b"at 30", b"at 35"]


def test_a_mirror_begins_inside_of_a_batch_and_takes_the_last_one_whole(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller).name
    write(caller, topic, [10, 20, 30], [40, 50, 60])
    mirror = Mirror(
        broker.bootstrap,
        broker.bootstrap,
        str(tmp_path / "state"),
        (topic,),
        rename="copy-of-{topic}",
        since_ms=at(20),
        until_ms=at(50),
    )
    mirror.check()
    with (
        mirror._source() as source,
        contextlib.closing(State.open(mirror.state, {"job": "test"})) as state,
    ):
        told = mirror._in_stretch(state, source)
    assert json.loads(told.starting) == {topic: {"0": 1}}
    assert told.ending is not None
    assert json.loads(told.ending) == {topic: {"0": 6}}
