"""A replay whose times are shifted, of records and of batches in every format."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from pipeline.console.cli_flags import shift_ms
from pipeline.errors import ForeignState, WrongUse
from pipeline.jobs.replay import Replay
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages, wrap_messages
from tests.pipeline.mirroring import archive, records, stored
from tests.pipeline.test_replay import NOW_MS, Killed, fill, run, without_spark
from tests.support.caller import Caller

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

WEEK_MS = 7 * 86_400_000


def times(broker: BrokerProcess, topic: str, partition: int = 0) -> list[int]:
    return [one.timestamp_ms for one in records(stored(broker.bootstrap, topic, partition))]


@pytest.mark.parametrize("shape", ["batches", "records"])
@pytest.mark.parametrize("by_ms", [WEEK_MS, -90_000])
def test_all_records_come_so_much_later_and_are_otherwise_the_same(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, by_ms: int
) -> None:
    topic = f"shifted-{shape}-{by_ms}"
    fill(broker.bootstrap, topic)
    without_spark(monkeypatch)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape=shape)

    run(Replay(folder, broker.bootstrap, rename="{topic}-again", shift_ms=by_ms))

    for partition in range(2):
        before = records(stored(broker.bootstrap, topic, partition))
        after = records(stored(broker.bootstrap, f"{topic}-again", partition))
        assert [
            (one.timestamp_ms - by_ms, one.key, one.value, list(one.headers)) for one in after
        ] == [(one.timestamp_ms, one.key, one.value, list(one.headers)) for one in before]


def test_old_formats_are_shifted_as_the_batches_that_they_become(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(NOW_MS + at, None, b"%d" % at, ()) for at in range(3)]
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("shifted-old", 1, {"message.format.version": "0.10.2"})
    plain = build_messages(rows, magic=1)
    wrapper = wrap_messages(plain, codec=1, magic=1, offset=2)
    with Caller(broker.host, broker.port) as caller:
        for sent in (plain, wrapper):
            assert caller.produce("shifted-old", sent, version=2).error_code == 0
    without_spark(monkeypatch)
    lake = tmp_path / "lake"
    folder = archive(broker.bootstrap, "shifted-old", lake, shape="batches", partitions=1)

    run(Replay(folder, broker.bootstrap, rename="{topic}-again", shift_ms=WEEK_MS))

    assert times(broker, "shifted-old-again") == [
        NOW_MS + WEEK_MS + at for _ in range(2) for at in range(3)
    ]


def test_a_stretch_is_chosen_by_the_times_of_the_archive_and_begins_where_it_is_told(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "shifted-stretch"
    fill(broker.bootstrap, topic)
    without_spark(monkeypatch)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape="records")
    run(Replay(folder, broker.bootstrap, rename="{topic}-all", start_at_ms=5_000_000))
    assert min(times(broker, f"{topic}-all")) == 5_000_000

    stretch = {"since_ms": NOW_MS + 10_000, "until_ms": NOW_MS + 20_000}
    run(
        Replay(folder, broker.bootstrap, rename="{topic}-some", start_at_ms=5_000_000, **stretch)  # type: ignore[arg-type]
    )
    found = times(broker, f"{topic}-some") + times(broker, f"{topic}-some", 1)
    assert sorted(found) == [5_000_000 + 1000 * at for at in range(10)]


def test_a_replay_that_was_killed_goes_on_with_the_shift_that_it_began_with(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "shifted-killed"
    fill(broker.bootstrap, topic)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape="records", step=10)
    monkeypatch.setattr("pipeline.jobs.replay_turns.PIECE_BYTES", 1)
    without_spark(monkeypatch, killed_after=3)
    job = partial(Replay, folder, broker.bootstrap, rename="{topic}-again")
    with pytest.raises(Killed):
        run(job(start_at_ms=1_000_000))

    without_spark(monkeypatch)
    with pytest.raises(ForeignState, match="shifted by"):
        run(job())
    run(job(start_at_ms=9_000_000))  # as `now` is when it is given again

    found = times(broker, f"{topic}-again") + times(broker, f"{topic}-again", 1)
    assert sorted(found) == [1_000_000 + 1000 * at for at in range(72)]


def test_an_archive_of_batches_does_not_tell_where_it_begins(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("shifted-unknown", 1)
        batch = build_batch([(NOW_MS, None, b"x", ())])
        cluster.produce(TopicPartition("shifted-unknown", 0), [batch])
    without_spark(monkeypatch)
    lake = tmp_path / "lake"
    folder = archive(broker.bootstrap, "shifted-unknown", lake, shape="batches", partitions=1)
    with pytest.raises(WrongUse, match="does not tell its earliest time"):
        run(Replay(folder, broker.bootstrap, rename="{topic}-again", start_at_ms=1))
    run(Replay(folder, broker.bootstrap, rename="{topic}-again", start_at_ms=1, since_ms=NOW_MS))
    assert times(broker, "shifted-unknown-again") == [1]


@pytest.mark.parametrize(
    ("text", "ms"), [("+7d", WEEK_MS), ("-90m", -5_400_000), ("1.5h", 5_400_000), ("-20ms", -20)]
)
def test_shifts_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert shift_ms(text) == ms
