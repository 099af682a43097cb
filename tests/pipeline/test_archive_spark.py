"""Archives that Spark makes: micro-batches, failures between them, a driver that is killed."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import errors
from pipeline.archiving.archive_files import list_files
from pipeline.archiving.publication import Publication
from pipeline.jobs.archive import Archive, archive
from protocol.records.builder import build_batch
from tests.support.broker_process import CHECKOUT
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.outcome import BatchDone
    from tests.support.broker_process import BrokerProcess

LZ4 = 3
KILLED_AFTER_FILES = 4
PATIENCE_S = 150.0
names = (f"spark-archived-{number}" for number in itertools.count())


def filled(broker: BrokerProcess, *, partitions: int, batches: int, each: int = 500) -> str:
    """A new topic with so many batches in each partition, every value another."""
    name = next(names)
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic(name, partitions)
        for partition in range(partitions):
            for number in range(batches):
                records = [
                    (NOW_MS + index, b"%d" % index, b"%d/%d/%d" % (partition, number, index), ())
                    for index in range(each)
                ]
                caller.produce(name, build_batch(records, codec=LZ4), partition=partition)
    return name


def assert_each_once(spark: SparkSession, folder: Path, *, partitions: int, each: int) -> None:
    """All offsets of all partitions are in the archive's files, none twice."""
    from pyspark.sql import functions as f

    rows = spark.read.parquet(str(folder)).groupBy("partition")
    found = rows.agg(
        f.count("*"), f.countDistinct("offset"), f.min("offset"), f.max("offset"), f.count("value")
    ).collect()
    assert sorted(map(tuple, found)) == [
        (partition, each, each, 0, each - 1, each) for partition in range(partitions)
    ]


class Watching:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.totals: list[int | None] = []
        self.done: list[BatchDone] = []

    def total(self, offsets: int | None) -> None:
        self.totals.append(offsets)

    def batch(self, done: BatchDone) -> None:
        self.done.append(done)


def test_an_archive_is_what_the_source_reads_and_goes_on_where_it_ended(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = filled(broker, partitions=2, batches=4)
    watch = Watching()
    given: dict[str, Any] = {
        "to": str(tmp_path / "lake"),
        "servers": broker.bootstrap,
        "topics": [topic],
        "file_offsets": 700,
        "spark": spark,
    }
    outcome = archive(**given, max_offsets=2000, watch=watch)
    assert (outcome.records, outcome.batches, outcome.details["files"]) == (4000, 2, 8)
    assert watch.totals == [4000]
    assert [done.offsets for done in watch.done] == [2000, 2000]
    assert {str(key): end for key, end in watch.done[-1].end_offsets.items()} == {
        f"{topic}-0": 2000,
        f"{topic}-1": 2000,
    }
    read = (
        spark.read.format("triglot")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    files = spark.read.parquet(str(tmp_path / "lake"))
    assert files.dtypes == read.dtypes
    ours, theirs = (frame.orderBy("partition", "offset").collect() for frame in (files, read))
    assert len(ours) == 4000
    assert ours == theirs
    again = archive(**given)
    assert (again.records, again.batches) == (0, 0)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_failure_around_the_commit_costs_no_record_and_doubles_none(
    after: bool,
    spark: SparkSession,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = filled(broker, partitions=2, batches=4)
    job = Archive(str(tmp_path / "lake"), broker.bootstrap, topics=(topic,), max_offsets=2000)
    publish = Publication.publish

    def failing(self: Publication, batch_id: int, files: dict[str, str], *more: Any) -> None:
        if batch_id == 1 and not after:
            raise errors.Refused("the disk is full")
        publish(self, batch_id, files, *more)
        if batch_id == 1:
            raise errors.Refused("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Publication, "publish", failing)
        with pytest.raises(Exception, match="the disk is full"):
            job.run(spark)
    assert len(list_files(job.to)) == (4 if after else 2)
    outcome = job.run(spark)
    assert outcome.records == (0 if after else 2000)
    assert_each_once(spark, tmp_path / "lake", partitions=2, each=2000)


@pytest.mark.long
def test_many_small_partitions_share_tasks_and_have_a_file_each(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = filled(broker, partitions=60, batches=1, each=3)
    outcome = archive(str(tmp_path / "lake"), servers=broker.bootstrap, topics=[topic], spark=spark)
    assert (outcome.records, outcome.batches, outcome.details["files"]) == (180, 1, 60)
    assert_each_once(spark, tmp_path / "lake", partitions=60, each=3)
    read = (
        spark.read.format("triglot")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
    )
    for options, tasks in (({}, 8), ({"minPartitions": "2"}, 60), ({"maxPartitions": "7"}, 7)):
        rows = read.options(**options).load()
        assert rows.rdd.getNumPartitions() == tasks
        assert rows.select("partition", "offset").distinct().count() == 180


ARCHIVING = """
import sys
from pipeline.jobs.archive import archive
from pipeline.session import session
with session(master="local[2]") as spark:
    archive(sys.argv[1], servers=sys.argv[2], topics=[sys.argv[3]], max_offsets=2000, spark=spark)
"""


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_driver_that_is_killed_costs_no_record_and_doubles_none(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = filled(broker, partitions=2, batches=30)
    lake = tmp_path / "lake"
    killed = subprocess.Popen(
        [sys.executable, "-c", ARCHIVING, str(lake), broker.bootstrap, topic],
        cwd=CHECKOUT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        limit = time.monotonic() + PATIENCE_S
        while len(list(lake.glob("*.parquet"))) < KILLED_AFTER_FILES:
            assert killed.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.02)
    finally:
        # Its JVM and Python workers are of the same group.
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    done = len(list_files(str(lake)))
    assert KILLED_AFTER_FILES <= done < 30
    archive(str(lake), servers=broker.bootstrap, topics=[topic], spark=spark)
    assert_each_once(spark, lake, partitions=2, each=15_000)
    found = list_files(str(lake))
    assert sum(file.rows for file in found) == 30_000
