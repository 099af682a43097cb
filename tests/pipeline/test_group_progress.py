"""The group that archive and mirror commit to: exactly what is durable, at once, also at the end;
and retention that waits for it loses nothing that the lake has not."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from client.cluster import Cluster
from pipeline import errors
from pipeline.archiving.publication import Publication
from pipeline.jobs.archive import archive
from pipeline.jobs.group_progress import check_group
from pipeline.jobs.mirror import mirror
from protocol.partitions import TopicPartition
from protocol.records.builder import build_batch
from tests.pipeline.archive_runs import archived
from tests.pipeline.test_archive_spark import filled
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.outcome import BatchDone


def committed(broker: BrokerProcess, group: str) -> dict[TopicPartition, int]:
    cluster = Cluster(broker.bootstrap)
    try:
        return {place: one.offset for place, one in cluster.committed(group).items()}
    finally:
        cluster.close()


class Asking:
    """A watch that asks after each micro-batch what the group has, as somebody else would."""

    def __init__(self, broker: BrokerProcess, group: str) -> None:
        self.broker = broker
        self.group = group
        self.done: list[BatchDone] = []
        self.seen: list[dict[TopicPartition, int]] = []

    def total(self, offsets: int | None) -> None:
        pass

    def batch(self, done: BatchDone) -> None:
        self.done.append(done)
        self.seen.append(committed(self.broker, self.group))


@pytest.mark.long
def test_the_group_has_what_is_published_after_each_micro_batch_and_at_the_end(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = filled(broker, partitions=2, batches=4)
    watch = Asking(broker, f"of-{topic}")

    archive(
        str(tmp_path / "lake"),
        servers=broker.bootstrap,
        topics=[topic],
        group=watch.group,
        max_offsets=1500,
        watch=watch,
        spark=spark,
    )

    assert len(watch.done) > 1
    for done, seen in zip(watch.done, watch.seen, strict=True):
        assert done.end_offsets.items() <= seen.items()
    whole = {TopicPartition(topic, 0): 2000, TopicPartition(topic, 1): 2000}
    assert committed(broker, watch.group) == whole


@pytest.mark.long
def test_a_group_that_was_deleted_gets_its_offsets_back_from_a_run_that_finds_nothing_new(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = filled(broker, partitions=1, batches=1)
    told: dict[str, Any] = {"servers": broker.bootstrap, "topics": [topic], "spark": spark}
    archive(str(tmp_path / "lake"), **told)  # of an archive that had no group

    archive(str(tmp_path / "lake"), **told, group=f"of-{topic}")

    assert committed(broker, f"of-{topic}") == {TopicPartition(topic, 0): 500}


@pytest.mark.long
def test_nothing_is_committed_of_a_micro_batch_that_was_not_published(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(broker, partitions=1, batches=1)
    told: dict[str, Any] = {"servers": broker.bootstrap, "topics": [topic], "spark": spark}

    def broken(*_: object) -> None:
        raise errors.Refused("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Publication, "publish", broken)
        with pytest.raises(Exception, match="no room"):
            archive(str(tmp_path / "lake"), **told, group=f"of-{topic}")
    assert committed(broker, f"of-{topic}") == {}

    archive(str(tmp_path / "lake"), **told, group=f"of-{topic}")
    assert committed(broker, f"of-{topic}") == {TopicPartition(topic, 0): 500}


@pytest.mark.long
def test_a_mirror_commits_what_the_destination_has(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    topic = filled(broker, partitions=1, batches=2)
    mirror(
        broker.bootstrap,
        broker.bootstrap,
        state=str(tmp_path / "state"),
        topics=[topic],
        rename="copy-of-{topic}",
        group=f"of-{topic}",
        spark=spark,
    )
    assert committed(broker, f"of-{topic}") == {TopicPartition(topic, 0): 1000}


def test_a_group_needs_a_broker_and_a_name() -> None:
    with pytest.raises(errors.WrongUse, match="needs a broker"):
        check_group("archive", "/data")
    with pytest.raises(errors.WrongUse, match="empty"):
        check_group("")


@pytest.mark.long
def test_nothing_that_retention_has_dropped_is_missing_in_the_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every record is due as soon as it is stored; a writer and an archive run side by side."""
    settings = {"log.retention.check.interval.ms": "50", "log.initial.task.delay.ms": "0"}
    configs = {
        "retention.ms": "0",
        "segment.bytes": "20000",
        "retention.wait.groups": "archive",
    }
    lake, count = tmp_path / "lake", 2000
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with Caller(broker.host, broker.port) as caller:
            caller.create_topic("orders", 1, **{k.replace(".", "_"): v for k, v in configs.items()})

        def write() -> None:
            with Caller(broker.host, broker.port) as writer:
                for number in range(count // 10):
                    now_ms = time.time_ns() // 1_000_000
                    rows = [(now_ms, None, b"%d" % (10 * number + at), ()) for at in range(10)]
                    assert writer.produce("orders", build_batch(rows)).error_code == 0

        writing = threading.Thread(target=write)
        writing.start()
        told: dict[str, Any] = {"servers": broker.bootstrap, "topics": ["orders"], "spark": spark}
        archive(str(lake), **told, group="archive")  # beside the writer
        writing.join()
        archive(str(lake), **told, group="archive")
        with Caller(broker.host, broker.port) as caller:
            until_s = time.monotonic() + 20
            while (start := caller.offset("orders", -2).offset) < count:
                assert time.monotonic() < until_s, f"the log still starts at {start}"
                time.sleep(0.1)

    assert [(row[1], row[4]) for row in archived(lake)] == [
        (offset, b"%d" % offset) for offset in range(count)
    ]
