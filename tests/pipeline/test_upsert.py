"""A topic's newest values as a Delta table: kept by key and offset, whatever is repeated."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from client.cluster import TopicPartition
from pipeline.archiving.reading import contents
from pipeline.errors import CorruptData, ForeignState, Refused, WrongUse
from pipeline.filesystem import locate
from pipeline.jobs.archive import Archive, archive
from pipeline.jobs.maintain import maintain
from pipeline.jobs.table_audit import TableAudit
from pipeline.left_out import LeftOut
from pipeline.reading.plan import Range
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.upserting.comparison import compare_range
from pipeline.upserting.current_table import CurrentTable
from pipeline.upserting.debezium import rows_of_events
from protocol.records.builder import build_batch
from tests.pipeline.archive_runs import Runs, Topic, archive_of, made
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture
def topic(caller: Caller) -> Topic:
    return made(caller)


def write(topic: Topic, *pairs: Pair, partition: int = 0) -> int:
    """One batch; the offset after it."""
    times = itertools.count(NOW_MS)
    records = [(next(times), key, value, ()) for key, value in pairs]
    appended = topic.caller.produce(topic.name, build_batch(records), partition=partition)
    return appended.base_offset + len(pairs)


def upsert_of(broker: BrokerProcess, folder: Path, *topics: Topic, **more: Any) -> Archive:
    return archive_of(broker, folder, *topics, table="delta", mode="upsert", **more)


def rows(folder: Path) -> dict[tuple[int, bytes], bytes]:
    """What Delta's own reader finds: the value of each key of each partition."""
    from deltalake import DeltaTable

    found = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    table = {(row["partition"], row["key"]): row["value"] for row in found}
    assert len(table) == len(found)
    return table


def state_of(folder: Path) -> str:
    import json

    return str(json.loads((folder / "_archive.json").read_text())["state"])


def test_the_newest_value_of_each_key_is_in_the_table_and_tombstones_delete(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    runs = Runs(upsert_of(broker, tmp_path / "users", topic))
    end = write(topic, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"gone", b"1"), (b"gone", None))
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    assert rows(runs.folder) == {(0, b"a"): b"2", (0, b"b"): b"1"}
    then = write(topic, (b"b", None), (b"c", b"3"), (b"never", None))
    runs.micro_batch(1, Range(topic.name, 0, end, then))
    assert rows(runs.folder) == {(0, b"a"): b"2", (0, b"c"): b"3"}
    table = CurrentTable.open(locate(str(runs.folder)), state_of(runs.folder))
    assert (table.last, table.end(TopicPartition(topic.name, 0))) == (1, then)


def test_a_key_is_of_its_partition_as_in_compaction(
    broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller, partitions=2)
    runs = Runs(upsert_of(broker, tmp_path / "users", topic))
    for partition in (0, 1):
        write(topic, (b"a", b"of %d" % partition), partition=partition)
    runs.micro_batch(0, Range(topic.name, 0, 0, 1), Range(topic.name, 1, 0, 1))
    assert rows(runs.folder) == {(0, b"a"): b"of 0", (1, b"a"): b"of 1"}


def test_a_micro_batch_that_is_repeated_brings_no_deleted_key_back(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    runs = Runs(upsert_of(broker, tmp_path / "users", topic))
    first = write(topic, (b"a", b"1"), (b"b", b"1"))
    second = write(topic, (b"a", None))
    runs.micro_batch(0, Range(topic.name, 0, 0, first))
    job = runs.start()
    results = runs.work(job, 1, [Range(topic.name, 0, first, second)])
    job.commit(1, results)
    # Killed before Spark has noted it: the same plan again, with the work of before or anew.
    job.commit(1, results)
    again = runs.start()
    assert [facts["records"] for facts in runs.work(again, 1, [Range(topic.name, 0, 0, 2)])] == [0]
    again.commit(1, runs.work(again, 1, [Range(topic.name, 0, first, second)]))
    assert rows(runs.folder) == {(0, b"b"): b"1"}
    assert not (runs.folder / "_staging" / "1").exists()


def test_tasks_that_were_killed_leave_nothing_in_the_table(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    runs = Runs(upsert_of(broker, tmp_path / "users", topic))
    end = write(topic, (b"a", b"1"))
    job = runs.start()
    abandoned = runs.work(job, 0, [Range(topic.name, 0, 0, end)])
    assert abandoned[0]["newest"] == 1
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    assert rows(runs.folder) == {(0, b"a"): b"1"}


def test_a_topic_that_was_made_anew_is_refused(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    runs = Runs(upsert_of(broker, tmp_path / "users", topic))
    end = write(topic, (b"a", b"1"), (b"b", b"1"))
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    with pytest.raises(Refused, match=f"{topic.name}-0 up to offset 1 already, and was to get 0"):
        runs.micro_batch(1, Range(topic.name, 0, 0, end))


def test_a_record_without_a_key_ends_the_run_or_is_counted(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    end = write(topic, (b"a", b"1"), (None, b"2"))
    strict = Runs(upsert_of(broker, tmp_path / "strict", topic))
    with pytest.raises(CorruptData, match="offset 1: a record without a key"):
        strict.micro_batch(0, Range(topic.name, 0, 0, end))
    lenient = Runs(upsert_of(broker, tmp_path / "lenient", topic, on_corrupt="skip"))
    (facts,) = lenient.micro_batch(0, Range(topic.name, 0, 0, end))
    assert (facts["records"], facts["newest"], facts["offsets_corrupt"]) == (2, 1, 1)
    assert rows(lenient.folder) == {(0, b"a"): b"1"}


def test_maintenance_of_the_table_does_not_change_what_is_merged_next(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    runs = Runs(upsert_of(broker, tmp_path / "users", topic))
    end = 0
    for number in range(3):
        then = write(topic, (b"a", b"%d" % number), (b"key %d" % number, b"x"))
        runs.micro_batch(number, Range(topic.name, 0, end, then))
        end = then
    table = DeltaTable(str(runs.folder))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    table.cleanup_metadata()
    runs.start().commit(2, runs.work(runs.start(), 2, [Range(topic.name, 0, 0, end)]))
    then = write(topic, (b"a", b"new"), (b"key 0", None))
    runs.micro_batch(3, Range(topic.name, 0, end, then))
    wanted = {(0, b"a"): b"new", (0, b"key 1"): b"x", (0, b"key 2"): b"x"}
    assert rows(runs.folder) == wanted


def test_maintain_puts_the_files_of_merges_together_and_what_is_merged_next_is_right(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    runs = Runs(upsert_of(broker, tmp_path / "users", topic))
    end = 0
    for number in range(4):
        then = write(topic, (b"key %d" % number, b"x"))
        runs.micro_batch(number, Range(topic.name, 0, end, then))
        end = then
    before = rows(runs.folder)
    files = len(DeltaTable(str(runs.folder)).file_uris())
    told = maintain(str(runs.folder), keep_s=0, dry_run=True)
    assert (told.details["files put together"], rows(runs.folder)) == (files, before)

    done = maintain(str(runs.folder), keep_s=0)
    assert done.details["files put together"] == files == 4
    assert len(DeltaTable(str(runs.folder)).file_uris()) == 1
    told = maintain(str(runs.folder), keep_s=0, dry_run=True)
    assert told.details["files put together"] == 0
    assert rows(runs.folder) == before

    # What was done is known still, and a key that is deleted now does not come back.
    runs.start().commit(3, runs.work(runs.start(), 3, [Range(topic.name, 0, 0, end)]))
    then = write(topic, (b"key 0", None))
    runs.micro_batch(4, Range(topic.name, 0, end, then))
    before.pop((0, b"key 0"))
    assert rows(runs.folder) == before


def test_folders_of_another_mode_are_refused_in_a_line(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    write(topic, (b"a", b"1"))
    Runs(upsert_of(broker, tmp_path / "users", topic)).start()
    with pytest.raises(ForeignState, match="is of mode 'upsert', not of None"):
        Runs(archive_of(broker, tmp_path / "users", topic, table="delta")).start()
    with pytest.raises(WrongUse, match="mode upsert merges records into a Delta table"):
        archive_of(broker, tmp_path / "other", topic, mode="upsert").check()
    with pytest.raises(ForeignState, match="is a table of newest values, which has not all"):
        contents(str(tmp_path / "users"))


def test_random_histories_end_as_the_comparison_says(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    chance = random.Random(20261125)
    runs = Runs(upsert_of(broker, tmp_path / "users", topic))
    partition, end = TopicPartition(topic.name, 0), 0
    model: dict[tuple[int, bytes], bytes] = {}
    for number in range(6):
        pairs: list[Pair] = [
            (
                b"key %d" % chance.randrange(12),
                chance.choice([None, b"%d" % chance.random().__hash__()]),
            )
            for _ in range(chance.randrange(1, 30))
        ]
        then = write(topic, *pairs)
        for key, value in pairs:
            assert key is not None
            model.pop((0, key), None)
            if value is not None:
                model[0, key] = value
        runs.micro_batch(number, Range(topic.name, 0, end, then))
        end = then
        assert rows(runs.folder) == model
    write(topic, (b"key 1", b"behind the table"))
    table = CurrentTable.open(locate(str(runs.folder)), state_of(runs.folder))
    source = runs.archive.parsed()
    found = compare_range(
        source, Range(topic.name, 0, 0, end + 1), table.rows_of(partition), end, LeftOut()
    )
    assert (found.differences, found.equal + found.written_over) == (0, len(model))


def test_an_audit_tells_the_keys_with_which_a_table_is_wrong(
    spark: SparkSession, broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    topic = made(caller, partitions=2)
    runs = Runs(upsert_of(broker, tmp_path / "users", topic))
    for partition in (0, 1):
        write(topic, (b"a", b"1"), (b"b", b"1"), (b"dead", None), partition=partition)
    runs.micro_batch(0, Range(topic.name, 0, 0, 3), Range(topic.name, 1, 0, 3))
    write(topic, (b"a", b"2"), partition=1)
    job = TableAudit(str(runs.folder), servers=broker.bootstrap)
    job.check()
    right = job.run(spark)
    assert right.failure() is None
    assert right.lines() == ["2 partitions compared: 3 equal, 1 written over"]
    DeltaTable(str(runs.folder)).delete("key = X'62' AND partition = 0")
    wrong = job.run(spark)
    assert wrong.lines()[0] == f"{topic.name}-0 below offset 3: key 'b', offset 1: missing"
    failure = wrong.failure()
    assert failure is not None
    assert "differs from its topics in 1 keys" in str(failure)


def test_an_audit_against_what_is_no_such_table_is_refused(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    write(topic, (b"a", b"1"))
    Runs(archive_of(broker, tmp_path / "plain", topic)).start()
    for folder in ("plain", "nowhere"):
        with pytest.raises(ForeignState, match="is no table of newest values"):
            TableAudit(str(tmp_path / folder), servers=broker.bootstrap).check()


EVENT = b'{"before":null,"after":%s,"source":{"table":"users"},"op":"%s","ts_ms":1}'
WRAPPED = b'{"schema":{"type":"struct"},"payload":%s}'


def test_the_events_of_debezium_are_rows_and_deletions(
    broker: BrokerProcess, topic: Topic, tmp_path: Path
) -> None:
    runs = Runs(upsert_of(broker, tmp_path / "users", topic, envelope="debezium"))
    end = write(
        topic,
        (b"1", EVENT % (b'{"id": 1, "name": "\xc3\xa5", "big": 12345678901234567890}', b"r")),
        (b"2", WRAPPED % (EVENT % (b'{"id":2,"n":1.10}', b"c"))),
        (b"3", EVENT % (b'{"id":3}', b"c")),
        (b"3", b'{"before":{"id":3},"after":null,"op":"d"}'),
        (b"3", None),
        (b"4", EVENT % (b'{"id":4}', b"c")),
        (b"4", b'{"before":{"id":4},"after":null,"op":"d"}'),
        (b"m", b'{"op":"m","message":{"prefix":"p"}}'),
    )
    runs.micro_batch(0, Range(topic.name, 0, 0, end))
    assert rows(runs.folder) == {
        (0, b"1"): b'{"id":1,"name":"\xc3\xa5","big":12345678901234567890}',
        (0, b"2"): b'{"id":2,"n":1.1}',
    }
    table = CurrentTable.open(locate(str(runs.folder)), state_of(runs.folder))
    found = compare_range(
        runs.archive.parsed(),
        Range(topic.name, 0, 0, end),
        table.rows_of(TopicPartition(topic.name, 0)),
        end,
        LeftOut(),
        "debezium",
    )
    assert (found.differences, found.equal) == (0, 2)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\x00\x00\x00\x00\x01", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[1]", "it has no `op`"),
        (b'{"op":"c","after":[]}', "an event of op 'c' without `after`"),
        (b'{"op":"c","after":{"x":NaN}}', "not JSON compliant"),
        (b'{"op":"t"}', r"all rows were removed at the source \(op 't'\)"),
        (b'{"op":"?"}', r"op '\?' is not known"),
    ],
)
def test_what_is_no_event_of_debezium_is_refused_in_a_line(value: bytes, why: str) -> None:
    row = dict.fromkeys(RECORDS_AND_HEADERS.names) | {"key": b"k", "value": value}
    row |= {"topic": "t", "partition": 0, "offset": 7, "timestampType": 0}
    records = pa.Table.from_pylist([row], RECORDS_AND_HEADERS)
    with pytest.raises(CorruptData, match=f"t-0 offset 7: no change event of .*{why}"):
        rows_of_events(records, Range("t", 0, 0, 9), None)
    left_out = LeftOut()
    assert rows_of_events(records, Range("t", 0, 0, 9), left_out).num_rows == 0
    assert left_out.offsets_corrupt == 1


@pytest.mark.long
def test_spark_keeps_a_table_of_newest_values_run_after_run(
    spark: SparkSession, broker: BrokerProcess, caller: Caller, tmp_path: Path
) -> None:
    topic = made(caller, partitions=3)
    told = {"servers": broker.bootstrap, "topics": [topic.name], "table": "delta", "mode": "upsert"}
    folder = tmp_path / "users"
    for partition in range(3):
        write(
            topic, *((b"%d" % (key % 50), b"%d" % key) for key in range(100)), partition=partition
        )
    outcome = archive(str(folder), spark=spark, max_offsets=200, **told)  # type: ignore[arg-type]
    assert (outcome.records, outcome.batches) == (300, 2)
    wanted = {(part, b"%d" % key): b"%d" % (50 + key) for part in range(3) for key in range(50)}
    assert rows(folder) == wanted
    write(topic, *((b"%d" % key, None) for key in range(40)), partition=1)
    outcome = archive(str(folder), spark=spark, **told)  # type: ignore[arg-type]
    assert (outcome.records, outcome.details["keys merged"]) == (40, 40)
    assert rows(folder) == {
        key: value for key, value in wanted.items() if key[0] != 1 or int(key[1]) >= 40
    }
