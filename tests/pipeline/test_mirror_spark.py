"""Mirror and replay as Spark runs them, with a driver that fails on both sides of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client.cluster import Cluster, TopicPartition
from pipeline.delivering.mirror_job import MirrorJob
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.replay import Replay
from protocol.records.builder import build_batch
from protocol.records.compression import LZ4
from tests.pipeline.mirroring import archive, digest, stored

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.outcome import BatchDone
    from tests.support.broker_process import BrokerProcess

NOW_MS = 1_700_000_000_000
TOPIC = "through-spark"


class Watching:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.offsets: int | None = None
        self.done: list[BatchDone] = []

    def total(self, offsets: int | None) -> None:
        self.offsets = offsets

    def batch(self, done: BatchDone) -> None:
        self.done.append(done)


def fill(servers: str) -> None:
    with Cluster(servers) as cluster:
        if TOPIC in cluster.topics():
            return
        cluster.create_topic(TOPIC, 2)
        for number in range(60):
            rows = [(NOW_MS + index, b"k", b"%d" % number, ()) for index in range(10)]
            cluster.produce(TopicPartition(TOPIC, number % 2), [build_batch(rows, codec=LZ4)])


def same(servers: str, copy: str) -> None:
    for partition in range(2):
        found = stored(servers, copy, partition)
        assert digest(found) == digest(stored(servers, TOPIC, partition))
        assert digest(found)[0] == 300


@pytest.mark.long
def test_each_record_arrives_once_with_failures_before_and_after_commits(
    spark: SparkSession,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = broker.bootstrap
    fill(servers)
    mirror = Mirror(
        servers, servers, str(tmp_path / "state"), (TOPIC,), rename="copy-{topic}", max_offsets=300
    )
    mirror.check()
    commit = MirrorJob.commit

    def failing(batch_id: int, *, before: bool) -> None:
        def fail(job: MirrorJob, current: int, results: list[dict[str, Any]]) -> None:
            if current == batch_id and before:
                raise RuntimeError("failed on purpose")
            commit(job, current, results)
            if current == batch_id:
                raise RuntimeError("failed on purpose")

        monkeypatch.setattr(MirrorJob, "commit", fail)

    failing(0, before=True)
    with pytest.raises(Exception, match="failed on purpose"):
        mirror.run(spark)
    failing(1, before=False)
    with pytest.raises(Exception, match="failed on purpose"):
        mirror.run(spark)
    monkeypatch.setattr(MirrorJob, "commit", commit)
    watching = Watching()
    outcome = mirror.run(spark, watching)
    assert watching.offsets == 300
    assert [done.batch_id for done in watching.done] == [1]
    assert outcome.details == {"sets that were there already": 30}
    assert watching.done[0].end_offsets == {TopicPartition(TOPIC, index): 300 for index in (0, 1)}
    same(servers, f"copy-{TOPIC}")


def test_an_archive_is_written_back(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    servers = broker.bootstrap
    fill(servers)
    watching = Watching()
    folder = archive(servers, TOPIC, tmp_path / "lake", shape="batches", step=100)
    replayed = Replay(folder, servers, rename="replayed-{topic}")
    replayed.check()
    outcome = replayed.run(spark, watching)
    assert (outcome.records, watching.offsets) == (600, 600)
    same(servers, f"replayed-{TOPIC}")
