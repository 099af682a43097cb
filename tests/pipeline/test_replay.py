"""An archive written back, with Spark's part played by a loop."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from client.cluster import Cluster, TopicPartition
from pipeline.archiving import archive_files
from pipeline.archiving.archive_files import list_files
from pipeline.archiving.parquet_writer import Compression
from pipeline.archiving.reading import rows_in_order
from pipeline.archiving.staged import StagedFile
from pipeline.columns.decode_batches import decode_batches
from pipeline.delivering.delivery import Delivery
from pipeline.delivering.replay_task import ReplayTask
from pipeline.errors import CorruptData, ForeignState, NoSuchTopic, OffsetsGone, Refused, WrongUse
from pipeline.filesystem import locate
from pipeline.jobs.replay import Replay
from pipeline.outcome import Outcome
from pipeline.reading.plan import Range
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4, NONE, ZSTD
from protocol.records.markers import Marker, encode_marker
from tests.pipeline.mirroring import archive, digest, footer, records, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from pipeline.archiving.archive_files import ArchiveFile
    from tests.support.broker_process import BrokerProcess

NOW_MS = 1_700_000_000_000


class Killed(BaseException):
    """The driver ends here."""


def without_spark(
    monkeypatch: pytest.MonkeyPatch, *, killed_after: int | None = None
) -> list[ReplayTask]:
    """Tasks run here, one after the other; the answers of those after some are never heard."""
    ran: list[ReplayTask] = []

    def run_tasks(
        spark: object,
        tasks: Sequence[ReplayTask],
        work: Callable[[ReplayTask], Any],
        *,
        parallel: int,
    ) -> Iterator[Any]:
        for task in tasks:
            ran.append(task)
            answer = work(task)
            if killed_after is not None and len(ran) > killed_after:
                raise Killed
            yield answer

    monkeypatch.setattr("pipeline.spark.range_query.run_tasks", run_tasks)
    monkeypatch.setattr("pipeline.delivering.replay_task.Delivery", partial(Delivery, settle_s=0.1))
    return ran


def run(job: Replay) -> Outcome:
    job.check()
    return job.run(None)  # type: ignore[arg-type]


def fill(servers: str, topic: str, *, batches: int = 24) -> None:
    """Records a second apart, with nulls and headers, in batches of three."""
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, 2)
        for number in range(batches):
            rows = [
                (
                    NOW_MS + (number * 3 + index) * 1000,
                    b"k%d" % index if index else None,
                    b"%d" % (number * 3 + index) if index < 2 else None,
                    (("h", b"x"),) if index == 1 else (),
                )
                for index in range(3)
            ]
            codec = (NONE, GZIP, LZ4, ZSTD)[number % 4]
            cluster.produce(TopicPartition(topic, number % 2), [build_batch(rows, codec=codec)])


@pytest.mark.parametrize("shape", ["batches", "records"])
def test_what_was_archived_comes_back_record_by_record(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    topic = f"back-{shape}"
    fill(broker.bootstrap, topic)
    without_spark(monkeypatch)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape=shape)
    job = Replay(folder, broker.bootstrap, rename="{topic}-again")
    outcome = run(job)
    assert outcome.records == 72
    for partition in range(2):
        source = stored(broker.bootstrap, topic, partition)
        copy = stored(broker.bootstrap, f"{topic}-again", partition)
        assert digest(copy) == digest(source)
        if shape == "batches":
            assert [entry[16:] for entry in copy] == [entry[16:] for entry in source]
        else:
            assert {Batch(memoryview(entry)).codec for entry in copy} <= {NONE, LZ4}
    # It is done, and says so; asked for again it is written again.
    assert run(job).line().startswith("replay: nothing to do")
    assert digest(stored(broker.bootstrap, f"{topic}-again"))[0] == 36
    run(Replay(folder, broker.bootstrap, rename="{topic}-again", again=True))
    assert digest(stored(broker.bootstrap, f"{topic}-again"))[0] == 72


@pytest.mark.parametrize("shape", ["batches", "records"])
def test_the_first_files_of_an_archive_may_be_removed_with_all_their_records(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    topic = f"removed-{shape}"
    fill(broker.bootstrap, topic)
    without_spark(monkeypatch)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape=shape, step=4)
    for file in list_files(folder):
        if not file.start:
            (tmp_path / "lake" / file.location.path.rpartition("/")[2]).unlink()
    run(Replay(folder, broker.bootstrap, rename="{topic}-again"))
    for partition in range(2):
        source = records(stored(broker.bootstrap, topic, partition))
        copy = records(stored(broker.bootstrap, f"{topic}-again", partition))
        assert [one.value for one in copy] == [one.value for one in source if one.offset >= 4]


@pytest.mark.parametrize("shape", ["batches", "records"])
def test_a_replay_that_was_killed_goes_on_where_it_was(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    topic = f"halfway-{shape}"
    fill(broker.bootstrap, topic)
    monkeypatch.setattr("pipeline.jobs.replay_turns.PIECE_BYTES", 1)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape=shape)
    job = Replay(folder, broker.bootstrap, rename="{topic}-again")
    for killed_after in (0, 1, 2):
        without_spark(monkeypatch, killed_after=killed_after)
        with pytest.raises(Killed):
            run(job)
    ran = without_spark(monkeypatch)
    run(job)
    assert len(ran) == 3
    for partition in range(2):
        assert digest(stored(broker.bootstrap, f"{topic}-again", partition)) == digest(
            stored(broker.bootstrap, topic, partition)
        )


@pytest.mark.parametrize("shape", ["batches", "records"])
def test_a_stretch_of_offsets_or_of_time_is_cut_to_the_record(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    topic = f"part-{shape}"
    fill(broker.bootstrap, topic)
    without_spark(monkeypatch)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape=shape)
    source = records(stored(broker.bootstrap, topic))
    run(Replay(folder, broker.bootstrap, rename="{topic}-offsets", from_offset=7, to_offset=20))
    copy = records(stored(broker.bootstrap, f"{topic}-offsets"))
    assert [(one.timestamp_ms, one.key, one.value, one.headers) for one in copy] == [
        (one.timestamp_ms, one.key, one.value, one.headers) for one in source[7:20]
    ]
    since, until = NOW_MS + 14_000, NOW_MS + 40_000
    run(Replay(folder, broker.bootstrap, rename="{topic}-times", since_ms=since, until_ms=until))
    copy = records(stored(broker.bootstrap, f"{topic}-times"))
    assert [one.timestamp_ms for one in copy] == [
        one.timestamp_ms for one in source if since <= one.timestamp_ms < until
    ]
    assert copy


def transactional(offset: int, producer: int, value: bytes) -> bytes:
    return build_batch(
        [(NOW_MS, None, value, ())], base_offset=offset, producer_id=producer, producer_epoch=0,
        base_sequence=offset, transactional=True,
    )  # fmt: skip


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    data = encode_marker(producer, 0, marker=Marker(commit, 0), timestamp_ms=NOW_MS)
    return offset.to_bytes(8, "big") + bytes(data[8:])


def archive_entries(folder: Path, topic: str, entries: list[bytes], *, step: int) -> None:
    """Entries of one offset each, so many in a file."""
    for start in range(0, len(entries), step):
        range_ = Range(topic, 0, start, min(start + step, len(entries)))
        name = archive_files.name_of(*range_[:4])
        with StagedFile(locate(str(folder)), name, "batches", Compression()) as file:
            data = b"".join(entries[range_.start : range_.end])
            file.add(
                decode_batches(data, topic=topic, partition=0, start=range_.start, end=range_.end)
            )
            file.finish(footer(range_, "batches"))


def test_aborted_transactions_stay_out_though_their_end_is_in_a_later_file(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [
        transactional(0, 1, b"rolled back"),
        transactional(1, 2, b"kept"),
        transactional(2, 1, b"rolled back"),
        marker(3, 1, commit=False),
        transactional(4, 1, b"kept too"),
        marker(5, 2, commit=True),
        marker(6, 1, commit=True),
        transactional(7, 2, b"has no end yet"),
    ]
    archive_entries(tmp_path / "lake", "transactions", entries, step=2)
    for piece_bytes in (1, 1 << 30):
        monkeypatch.setattr("pipeline.jobs.replay_turns.PIECE_BYTES", piece_bytes)
        without_spark(monkeypatch)
        name = f"transactions-{piece_bytes}"
        job = Replay(
            str(tmp_path / "lake"), broker.bootstrap, rename=name, topics=("transactions",)
        )
        # It may yet be committed, and what is replayed is not looked at again.
        with pytest.raises(OffsetsGone, match="began at offset 7 of transactions-0: archive more"):
            run(job)
        assert not stored(broker.bootstrap, name)
        run(dataclasses.replace(job, on_gap="skip"))
        assert [one.value for one in records(stored(broker.bootstrap, name))] == [
            b"kept",
            b"kept too",
        ]


def test_a_transaction_whose_end_lies_behind_what_is_wanted_was_committed_all_the_same(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [
        transactional(0, 1, b"committed"),
        transactional(1, 2, b"rolled back"),
        transactional(2, 1, b"not wanted"),
        marker(3, 2, commit=False),
        marker(4, 1, commit=True),
        transactional(5, 3, b"not wanted"),
    ]
    archive_entries(tmp_path / "lake", "ends", entries, step=1)
    without_spark(monkeypatch)
    run(Replay(str(tmp_path / "lake"), broker.bootstrap, rename="{topic}-again", to_offset=2))
    assert [one.value for one in records(stored(broker.bootstrap, "ends-again"))] == [b"committed"]


@pytest.mark.parametrize("shape", ["batches", "records"])
def test_files_of_other_times_are_not_opened(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    topic = f"hours-{shape}"
    fill(broker.bootstrap, topic)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape=shape)
    without_spark(monkeypatch)
    read: set[int] = set()

    def rows(
        file: ArchiveFile, columns: list[str], at_once: int, begin: int
    ) -> Iterator[pa.RecordBatch]:
        read.add(file.start)
        return rows_in_order(file, columns, at_once, begin)

    monkeypatch.setattr("pipeline.delivering.replay_task.rows_in_order", rows)
    # Files of 12 offsets, in each partition of 24 seconds.
    since, until = NOW_MS + 25_000, NOW_MS + 44_000
    run(Replay(folder, broker.bootstrap, rename="{topic}-again", since_ms=since, until_ms=until))
    assert read == ({12} if shape == "records" else {12, 24})
    wanted = [
        one.timestamp_ms
        for one in records(stored(broker.bootstrap, topic))
        if since <= one.timestamp_ms < until
    ]
    copy = records(stored(broker.bootstrap, f"{topic}-again"))
    assert [one.timestamp_ms for one in copy] == wanted


def test_an_archive_is_the_same_one_however_its_folder_is_spelled(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "spelled", batches=2)
    archive(broker.bootstrap, "spelled", tmp_path / "lake", shape="records")
    without_spark(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for folder in ("lake", "lake/", str(tmp_path / "lake"), (tmp_path / "lake").as_uri()):
        outcome = run(Replay(folder, broker.bootstrap, rename="{topic}-again"))
    assert outcome.records == 0
    assert len(records(stored(broker.bootstrap, "spelled-again"))) == 3


def test_records_are_put_into_batches_that_the_destination_takes(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, "narrow-records")
    folder = archive(broker.bootstrap, "narrow-records", tmp_path / "lake", shape="records")
    without_spark(monkeypatch)
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("narrow-again", 2, {"max.message.bytes": "150"})
    run(Replay(folder, broker.bootstrap, rename="narrow-again", topics=("narrow-records",)))
    for partition in range(2):
        copy = stored(broker.bootstrap, "narrow-again", partition)
        assert digest(copy) == digest(stored(broker.bootstrap, "narrow-records", partition))
        assert max(map(len, copy)) <= 150


def test_what_is_wrong_with_an_archive_is_told_before_anything_is_written(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "faulty"
    fill(broker.bootstrap, topic)
    without_spark(monkeypatch)
    folder = archive(broker.bootstrap, topic, tmp_path / "lake", shape="records")
    with pytest.raises(NoSuchTopic, match=r"no files of an archive in .*/nowhere"):
        Replay(str(tmp_path / "nowhere"), broker.bootstrap).check()
    with pytest.raises(NoSuchTopic, match=r"no files of an archive of others in"):
        Replay(folder, broker.bootstrap, topics=("others",)).check()
    with pytest.raises(WrongUse, match="codec 'brotli'"):
        Replay(folder, broker.bootstrap, codec="brotli").check()
    with pytest.raises(WrongUse, match="no offsets from 9 to 9"):
        Replay(folder, broker.bootstrap, from_offset=9, to_offset=9).check()
    with pytest.raises(WrongUse, match="1700000000000000000 is no time in milliseconds"):
        Replay(folder, broker.bootstrap, until_ms=1_700_000_000_000_000_000).check()
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("narrow", 1)
    with pytest.raises(Refused, match="has 1 partitions, and the archive has faulty-1"):
        Replay(folder, broker.bootstrap, topics=(topic,), rename="narrow").check()
    (tmp_path / "lake" / archive_files.name_of(topic, 0, 12, 24)).unlink()
    named = Replay(folder, broker.bootstrap, topics=(topic,), rename="faulty-again")
    with pytest.raises(OffsetsGone, match="lacks offsets 12 to 23 of faulty-0"):
        named.check()
    skipping = Replay(
        folder, broker.bootstrap, topics=(topic,), rename="faulty-again", on_gap="skip"
    )
    outcome = run(skipping)
    assert outcome.left_out.offsets_missing == 12
    assert outcome.records == 60
    archive(broker.bootstrap, topic, tmp_path / "lake", shape="records", step=8)
    with pytest.raises(CorruptData, match="both hold offset"):
        named.check()
    folder = archive(broker.bootstrap, topic, tmp_path / "whole", shape="records")
    state = str(tmp_path / "state")
    run(Replay(folder, broker.bootstrap, (topic,), "x", 0, 4, state=state))
    with pytest.raises(ForeignState, match="is of"):
        Replay(folder, broker.bootstrap, (topic,), "y", 0, 4, state=state).check()
