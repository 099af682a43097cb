"""Records deleted at a broker, the log's start then inside of a batch: no copy has them again."""

from __future__ import annotations

import json
import re
import textwrap
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import confluent_kafka
import pyarrow.parquet as pq
import pytest

from client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from pipeline.delivering.delivery import Delivery
from pipeline.jobs.archive import Archive
from pipeline.jobs.audit import Audit, audit_range
from pipeline.jobs.audit_facts import of_json
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.replay import Replay
from pipeline.reading.plan import Range
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from protocol.records.legacy import build_messages
from tests.clients.available import end_of_test
from tests.clients.drivers.driver import CALL_TIMEOUT_S
from tests.pipeline.archive_runs import Runs
from tests.pipeline.mirroring import micro_batch, records, stored
from tests.pipeline.test_replay import run, without_spark
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_release import KAFKA_4

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.jobs.audit_facts import Facts

NOW_MS = 1_700_000_000_000
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "0.11.0"}
EACH, EDGE, END = 50, 77, 250
"""Records of a batch, the log's start inside of the second one, and the end of the log."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.delivering.mirror_job.Delivery", partial(Delivery, settle_s=0.1))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A second broker, to mirror to."""
    data = tmp_path_factory.mktemp("other") / "data"
    with BrokerProcess(data, settings={"log.retention.ms": "-1"}) as process:
        yield process


def rows_of(number: int) -> list[tuple[int, bytes, bytes, tuple[()]]]:
    return [
        (NOW_MS + offset, b"key", b"record %d" % offset, ())
        for offset in range(number * EACH, (number + 1) * EACH)
    ]


def fill(cluster: Cluster, topic: str, magic: int) -> None:
    """Five entries of fifty records, compressed, those of format 2 of a producer with an id."""
    codecs = (GZIP, LZ4, SNAPPY, NONE, ZSTD) if magic == 2 else (GZIP, LZ4, SNAPPY, GZIP, LZ4)
    for number, codec in enumerate(codecs):
        rows = rows_of(number)
        if magic == 2:
            made = build_batch(
                rows, codec=codec, producer_id=9, producer_epoch=0, base_sequence=number * EACH
            )
        else:
            made = build_messages(rows, magic=magic, codec=codec)
        cluster.produce(TopicPartition(topic, 0), [made], magic=magic)


def deleted(servers: str, topic: str, offset: int) -> None:
    host, _, port = servers.rpartition(":")
    with Caller(host, int(port)) as caller:
        assert caller.delete_records(topic, offset) == offset
    place = TopicPartition(topic, 0)
    with Cluster(servers) as cluster:
        assert cluster.offsets([place], EARLIEST) == {place: offset}


def values(first: int = EDGE, end: int = END) -> list[bytes]:
    return [b"record %d" % offset for offset in range(first, end)]


def copied(servers: str, topic: str) -> list[bytes | None]:
    return [one.value for one in records(stored(servers, topic))]


def audited(options: Audit, topic: str, start: int = EDGE, end: int = END) -> Facts:
    return of_json(audit_range(options.options, {topic: None}, Range(topic, 0, start, end)))


def archived(job: Archive, topic: str, *edges: int) -> int:
    """The records that the archive's tasks count; a file for each range between the edges."""
    ranges = [Range(topic, 0, *pair) for pair in pairwise(edges)]
    return sum(facts["records"] for facts in Runs(job).micro_batch(0, *ranges))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_deleted_records_are_in_no_mirror_archive_replay_or_audit(
    broker: BrokerProcess,
    other: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    magic: int,
) -> None:
    topic = f"deleted-{magic}"
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(topic, 1, {"message.format.version": FORMATS[magic]})
        fill(cluster, topic, magic)
    deleted(broker.bootstrap, topic, EDGE)
    # The broker goes on to send the whole batch.
    assert len(records(stored(broker.bootstrap, topic))) > END - EDGE

    mirror = Mirror(
        broker.bootstrap, other.bootstrap, str(tmp_path / "state"), (topic,), on_gap="skip"
    )
    micro_batch(mirror, commit=False)
    (facts,) = micro_batch(mirror)
    assert facts["counts"].get("sent", 0) == 0
    assert (facts["records"], facts["offsets_missing"]) == (END - EDGE, EDGE)
    assert copied(other.bootstrap, topic) == values()

    lake = Archive(str(tmp_path / "lake"), broker.bootstrap, topics=(topic,), shape="batches")
    assert archived(lake, topic, EDGE, 90, 180, END) == END - EDGE
    table = pq.read_table(tmp_path / "lake")
    assert [one.value for one in records(table["batch"].to_pylist())] == values()
    without_spark(monkeypatch)
    outcome = run(Replay(lake.to, other.bootstrap, rename="{topic}-replayed"))
    assert outcome.records == END - EDGE
    assert copied(other.bootstrap, f"{topic}-replayed") == values()

    told = audited(Audit(servers=broker.bootstrap), topic)
    assert told.entries == 4
    if magic == 2:
        assert told.records == END - EDGE


def test_a_directory_read_by_path_tells_and_gives_only_what_is_left(
    other: BrokerProcess, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data") as process, Cluster(process.bootstrap) as cluster:
        cluster.create_topic("by-path", 1, {"retention.ms": "-1"})
        fill(cluster, "by-path", 2)
        deleted(process.bootstrap, "by-path", EDGE)
        running = audited(Audit(servers=process.bootstrap), "by-path")
    checkpoint = (tmp_path / "data" / "log-start-offset-checkpoint").read_text()
    assert f"by-path 0 {EDGE}" in checkpoint
    facts = audited(Audit(path=str(tmp_path / "data")), "by-path")
    assert facts == running
    assert facts.records == END - EDGE
    lake = Archive(
        str(tmp_path / "lake"), path=str(tmp_path / "data"), topics=("by-path",), shape="batches"
    )
    assert archived(lake, "by-path", EDGE, END) == END - EDGE


def test_a_start_inside_of_a_batch_is_where_a_mirror_and_an_archive_begin(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("begun", 1)
        fill(cluster, "begun", 2)
    starting = json.dumps({"begun": {"0": 120}})
    mirror = Mirror(
        broker.bootstrap, other.bootstrap, str(tmp_path / "state"), ("begun",), starting=starting
    )
    (facts,) = micro_batch(mirror)
    assert facts["records"] == END - 120
    assert copied(other.bootstrap, "begun") == values(120)
    lake = Archive(
        str(tmp_path / "lake"), broker.bootstrap, topics=("begun",), shape="batches",
        starting=starting,
    )  # fmt: skip
    assert archived(lake, "begun", 120, 130, 180, END) == END - 120
    # Told another one, the archive goes on as it began.
    later = Archive(
        lake.to, broker.bootstrap, topics=("begun",), shape="batches",
        starting=json.dumps({"begun": {"0": 249}}),
    )  # fmt: skip
    assert Runs(later).start().task.begins == {TopicPartition("begun", 0): 120}


def test_what_is_left_of_a_transaction_is_mirrored_if_it_was_committed(
    broker: BrokerProcess, other: BrokerProcess, tmp_path: Path
) -> None:
    topic = "in-transactions"
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(topic, 1)
    for number, name in enumerate(("aborted", "committed")):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 1000}
        )
        producer.init_transactions(CALL_TIMEOUT_S)
        producer.begin_transaction()
        for offset in range(10):
            producer.produce(topic, f"{name} {offset}".encode(), partition=0)
        assert producer.flush(CALL_TIMEOUT_S) == 0
        if number:
            producer.commit_transaction(CALL_TIMEOUT_S)
        else:
            producer.abort_transaction(CALL_TIMEOUT_S)
    # Ten aborted records, their marker, ten committed ones, their marker.
    for start, left, audit, markers in ((4, 0, 16, 2), (14, 3, 7, 1)):
        deleted(broker.bootstrap, topic, start)
        facts = audited(Audit(servers=broker.bootstrap), topic, start, 22)
        assert (facts.records, facts.control) == (audit, markers)
        mirror = Mirror(
            broker.bootstrap, other.bootstrap, str(tmp_path / f"state-{start}"), (topic,),
            rename=f"{{topic}}-{start}", on_gap="skip",
        )  # fmt: skip
        micro_batch(mirror)
        expected = [b"committed %d" % number for number in range(left, 10)]
        assert copied(other.bootstrap, f"{topic}-{start}") == expected


def test_records_that_were_archived_before_are_found_as_the_page_says(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    topic = "to-erase"
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(topic, 1)
        rows = [(NOW_MS, b"user-%d" % number, b"v", ()) for number in range(50)]
        cluster.produce(TopicPartition(topic, 0), [build_batch(rows)])
    lake = Archive(str(tmp_path / "lake" / "orders"), broker.bootstrap, topics=(topic,))
    archived(lake, topic, 0, 10, 20, 50)
    page = (CHECKOUT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    section = page[page.index("## What was deleted") :]
    (code,) = re.findall(r"```python\n(.*?)```", section[: section.index("\n## ")], re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(textwrap.dedent(code), {})
    assert capsys.readouterr().out == "[{'partition': 0, 'offset': 17}]\n"


# Apache Kafka


@pytest.mark.long
@pytest.mark.clients
@pytest.mark.java
@pytest.mark.timeout(600)
def test_records_deleted_at_apache_kafka_come_back_nowhere(
    other: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        kafka = KafkaProcess(tmp_path / "kafka", release=KAFKA_4)
    except NotAvailable as reason:
        end_of_test("java", f"Apache Kafka 4: {reason}")
    topic = "kafka-deleted"
    with kafka:
        with Cluster(kafka.bootstrap) as cluster:
            cluster.create_topic(topic, 1, {"retention.ms": "-1"})
            fill(cluster, topic, 2)
        deleted(kafka.bootstrap, topic, EDGE)
        whole = [Batch(memoryview(one)) for one in stored(kafka.bootstrap, topic)]
        assert whole[0].base_offset < EDGE
        mirror = Mirror(
            kafka.bootstrap, other.bootstrap, str(tmp_path / "state"), (topic,), on_gap="skip"
        )
        micro_batch(mirror)
        lake = Archive(str(tmp_path / "lake"), kafka.bootstrap, topics=(topic,), shape="batches")
        assert archived(lake, topic, EDGE, 180, END) == END - EDGE
        # And back into Kafka, which takes the batch that was made anew.
        without_spark(monkeypatch)
        for keep in (False, True):
            name = f"{{topic}}-{keep}".lower()
            run(Replay(lake.to, kafka.bootstrap, rename=name, keep_producers=keep))
            assert copied(kafka.bootstrap, name.format(topic=topic)) == values()
        running = audited(Audit(servers=kafka.bootstrap), topic)
    assert copied(other.bootstrap, topic) == values()
    assert running.records == END - EDGE
    logs = next(tmp_path.rglob("log-start-offset-checkpoint")).parent
    assert audited(Audit(path=str(logs)), topic) == running
    with Cluster(other.bootstrap) as cluster:
        place = TopicPartition(topic, 0)
        assert cluster.offsets([place], LATEST) == {place: END - EDGE}
