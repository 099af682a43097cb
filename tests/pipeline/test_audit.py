"""An audit of what a broker stored, over a socket and from its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from pipeline.errors import NoSuchTopic, Unreachable
from pipeline.jobs.audit import RANGE_OFFSETS, Audit, audit, audit_range
from pipeline.jobs.audit_facts import Facts, joined, of_json
from pipeline.left_out import LeftOut
from pipeline.outcome import BatchDone
from pipeline.reading.options import SourceOptions
from pipeline.reading.plan import Range
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4
from protocol.records.legacy import build_messages
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

PLACE = TopicPartition("orders", 0)
TIME_MS = 1_700_000_000_000
FORMAT = "message.format.version"


def produce(cluster: Cluster) -> None:
    """Ten batches of ten records, a wrapper of three messages, two messages, and a second topic."""
    records = [(TIME_MS + number, b"k", b"v" * 50, ()) for number in range(10)]
    for _ in range(10):
        cluster.produce(PLACE, [build_batch(records, codec=LZ4)])
    cluster.create_topic("old", 1, {FORMAT: "0.10.2"})
    messages = [(TIME_MS, b"k", b"v", ())] * 3
    old = TopicPartition("old", 0)
    cluster.produce(old, [build_messages(messages, magic=1, codec=GZIP)], magic=1)
    cluster.produce(old, [build_messages(messages[:2], magic=1)], magic=1)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("audited") / "data") as process:
        with Cluster(process.bootstrap) as cluster:
            cluster.create_topic("orders", 2)
            produce(cluster)
        yield process


class Told:
    def __init__(self) -> None:
        self.offsets: int | None = None
        self.done: list[BatchDone] = []

    def total(self, offsets: int | None) -> None:
        self.offsets = offsets

    def batch(self, done: BatchDone) -> None:
        self.done.append(done)


def facts_of(job: Audit, topic: str, start: int, end: int) -> Facts:
    return of_json(
        json.loads(json.dumps(audit_range(job.options, {topic: None}, Range(topic, 0, start, end))))
    )


def test_a_range_is_told_from_its_headers(stored: BrokerProcess) -> None:
    job = Audit(servers=stored.bootstrap)
    made = facts_of(job, "orders", 0, 100)
    assert (made.entries, made.records, made.formats) == (10, 100, {"2": 10})
    assert made.codecs == {"lz4": 10}
    assert (made.first_offset, made.last_offset, made.holes) == (0, 99, 0)
    assert (made.earliest_ms, made.latest_ms, made.backwards) == (TIME_MS + 9, TIME_MS + 9, 0)
    old = facts_of(job, "old", 0, 5)
    assert (old.entries, old.records, old.unopened, old.formats) == (3, 2, 1, {"1": 3})


def test_batches_on_an_edge_between_two_tasks_are_counted_once(stored: BrokerProcess) -> None:
    job = Audit(servers=stored.bootstrap)
    parts = [facts_of(job, "orders", start, end) for start, end in ((0, 37), (37, 64), (64, 100))]
    assert joined(parts) == facts_of(job, "orders", 0, 100)


def test_a_stopped_directory_tells_the_same_and_damage_is_placed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process, Cluster(process.bootstrap) as cluster:
        cluster.create_topic("orders", 2)
        produce(cluster)
        running = facts_of(Audit(servers=process.bootstrap), "orders", 0, 100)
    job = Audit(path=str(tmp_path / "data"))
    assert facts_of(job, "orders", 0, 100) == running
    segment = tmp_path / "data" / "orders-0" / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    batch_bytes = len(data) // 10
    data[3 * batch_bytes + 70] ^= 1
    segment.write_bytes(data)
    made = facts_of(job, "orders", 0, 100)
    assert (made.entries, made.records, made.left_out.batches_corrupt) == (9, 90, 1)
    assert made.left_out.examples[0].startswith("orders-0 offsets 30 to 39: ")


def test_what_is_not_there_is_told_before_a_jvm_starts(stored: BrokerProcess) -> None:
    Audit(servers=stored.bootstrap).check()
    with pytest.raises(NoSuchTopic, match="did you mean 'orders'"):
        Audit(servers=stored.bootstrap, topics=("order",)).check()
    with pytest.raises(NoSuchTopic, match=f"no topic on {stored.bootstrap} matches 'order'"):
        Audit(servers=stored.bootstrap, pattern="order").check()
    with pytest.raises(Unreachable):
        Audit(servers="127.0.0.1:1").check()


def test_a_broker_without_topics_is_told_before_a_jvm_starts(
    stored: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SourceOptions, "select", lambda options, source: [])
    with pytest.raises(NoSuchTopic, match=f"{stored.bootstrap} has no topics"):
        Audit(servers=stored.bootstrap).check()


def test_an_audit_on_spark_tells_of_all_topics(stored: BrokerProcess, spark: SparkSession) -> None:
    told = Told()
    found = audit(servers=stored.bootstrap, spark=spark, watch=told)
    places = [(one.topic, one.partition) for one in found.partitions]
    assert places == [("old", 0), ("orders", 0), ("orders", 1)]
    assert (found.records, found.offsets, found.left_out) == (102, 105, LeftOut())
    assert told.offsets == 105 == sum(done.offsets for done in told.done)
    stops = [one.topic for one in found.findings if one.kind == "stops"]
    assert stops == ["old"] * 2
    assert json.loads(json.dumps(found.as_json()))["findings"][0]["line"].startswith("setting")
    assert any("lz4 100%" in line for line in found.lines())


def test_a_large_partition_is_shared_out() -> None:
    from pipeline.jobs.audit import _pieces

    whole = Range("orders", 0, 5, 5 + 2 * RANGE_OFFSETS + 1)
    pieces = _pieces(whole)
    assert [piece.size for piece in pieces] == [RANGE_OFFSETS, RANGE_OFFSETS, 1]
    assert (pieces[0].start, pieces[-1].end) == (whole.start, whole.end)
