"""The logs of Kafka's transactional producers are read from our broker as from Kafka itself.

There is no transaction coordinator here yet, so Kafka makes the logs: transactions that were
committed, aborted and left open, between plain records. We serve a copy of its partition folder.
"""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from protocol.messages.fetch import FetchRequest
from protocol.records.batch import Batch
from protocol.records.layout import HEADER
from storage.disk import DiskFilesystem
from storage.identity import decode_partition_metadata
from storage.recovery import open_log
from tests.clients.available import end_of_test
from tests.clients.drivers.confluent_driver import ConfluentDriver, admin
from tests.clients.drivers.driver import CALL_TIMEOUT_S, KEEP_FOR_EVER
from tests.clients.drivers.program_driver import ProgramDriver
from tests.storage.logs import Settings
from tests.support.broker_process import BrokerProcess
from tests.support.caller import NOW_MS, batch
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.topic_store import open_topics
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.clients.available import Clients
    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java]

TOPIC = "payments"
CONFIGS = {**KEEP_FOR_EVER, "segment.bytes": "16384", "index.interval.bytes": "512"}
SEED = 7
ROUNDS = 90
ISOLATIONS = {"read_uncommitted": 0, "read_committed": 1}

Row = tuple[int, bytes]
Answer = tuple[int, int, int, list[tuple[int, int]] | None, int]


class Served(NamedTuple):
    """A server's answers to readers."""

    #: Offset and value of each record, by isolation level.
    records: dict[str, list[Row]]
    #: By isolation level: what ListOffsets calls the latest offset.
    latest: dict[str, int]
    #: By version, isolation and offset: error code, both watermarks, aborted transactions, and
    #: bytes of the records.
    fetched: dict[tuple[int, int, int], Answer]


class History(NamedTuple):
    by_kafka: Served
    #: The partition folder after `kill -9`, and after a clean stop.
    folders: dict[str, Path]
    #: Stopped cleanly, and to be stopped again by whoever starts it.
    kafka: KafkaProcess


def write_history(bootstrap: str) -> None:
    """Transactions of three producers, interleaved; one commits last, one never ends."""
    rng = random.Random(SEED)
    producers = {
        name: confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 900_000,
                "compression.codec": codec,
                "linger.ms": 0,
            }
        )
        for name, codec in (("a", "none"), ("b", "lz4"), ("c", "gzip"))
    }
    plain = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for producer in producers.values():
        producer.init_transactions(CALL_TIMEOUT_S)
    begun: set[str] = set()
    for number in range(ROUNDS):
        name = rng.choice((*producers, "plain"))
        last = number == ROUNDS - 1
        producer = plain if name == "plain" else producers[name]
        if name != "plain" and name not in begun:
            producer.begin_transaction()
            begun.add(name)
        for part in range(rng.randint(1, 6)):
            value = b"%s %d.%d " % (name.encode(), number, part) + rng.randbytes(
                rng.randint(0, 300)
            )
            producer.produce(TOPIC, value, partition=0)
        assert producer.flush(CALL_TIMEOUT_S) == 0
        if name in begun and rng.random() < 0.6 and not last:
            end = rng.choice((producer.commit_transaction, producer.abort_transaction))
            end(CALL_TIMEOUT_S)
            begun.discard(name)
    # The last stable offset must have something below and above it.
    for name in begun - {"c"}:
        producers[name].abort_transaction(CALL_TIMEOUT_S)
    if "c" not in begun:
        producers["c"].begin_transaction()
    producers["c"].produce(TOPIC, b"c open", partition=0)
    producers["c"].flush(CALL_TIMEOUT_S)
    producers["a"].begin_transaction()
    producers["a"].produce(TOPIC, b"a committed above an open one", partition=0)
    producers["a"].commit_transaction(CALL_TIMEOUT_S)


def consume(bootstrap: str, isolation: str, end: int) -> list[Row]:
    """All records that a real consumer shows, up to the end of what it may read."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
            "max.partition.fetch.bytes": 5_000,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    rows: list[Row] = []
    while True:
        message = consumer.poll(CALL_TIMEOUT_S)
        assert message is not None, f"{isolation}: nothing after {rows[-1:]}, end is {end}"
        error = message.error()
        if error is None:
            rows.append((message.offset() or 0, message.value() or b""))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return rows


def answers(server: ServerProcess, end: int) -> dict[tuple[int, int, int], Answer]:
    found = {}
    with WireClient(server.host, server.port) as client:
        for version in (4, 11, 12):
            for isolation in ISOLATIONS.values():
                for offset in range(end + 1):
                    entry = fetch(client, version, isolation, offset)
                    listed = entry.aborted_transactions
                    found[version, isolation, offset] = (
                        entry.error_code,
                        entry.high_watermark,
                        entry.last_stable_offset,
                        None
                        if listed is None
                        else [(t.producer_id, t.first_offset) for t in listed],
                        len(entry.records or b""),
                    )
    return found


def fetch(client: WireClient, version: int, isolation: int, offset: int) -> Any:
    wanted = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[FetchRequest.Topic(topic=TOPIC, partitions=[wanted])],
    )
    return client.call(request, version).responses[0].partitions[0]


def look(server: ServerProcess) -> Served:
    partition = TopicPartition(TOPIC, 0)
    levels = (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    latest = {}
    client = admin(server.bootstrap)
    for name, level in zip(ISOLATIONS, levels, strict=True):
        asked = client.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)
        latest[name] = asked[partition].result(CALL_TIMEOUT_S).offset
    return Served(
        {name: consume(server.bootstrap, name, latest[name]) for name in ISOLATIONS},
        latest,
        answers(server, latest["read_uncommitted"]),
    )


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Kafka's run: written, read, killed, started again, stopped."""
    root = tmp_path_factory.mktemp("kafka")
    try:
        kafka = KafkaProcess(root / "data")
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    folder = kafka.data / "logs" / f"{TOPIC}-0"
    folders = {name: root / name for name in ("killed", "stopped")}
    kafka.start()
    try:
        ConfluentDriver().create_topic(kafka.bootstrap, TOPIC, partitions=1, configs=CONFIGS)
        write_history(kafka.bootstrap)
        served = look(kafka)
        kafka.kill()
        shutil.copytree(folder, folders["killed"])
        kafka.start()
    finally:
        if kafka.run is not None:
            kafka.stop()
    shutil.copytree(folder, folders["stopped"])
    return History(served, folders, kafka)


def adopt(folder: Path, data: Path) -> None:
    """Put a partition folder of Kafka's into a data directory of ours."""
    metadata = folder / "partition.metadata"
    topic_id = decode_partition_metadata(metadata.read_bytes(), str(metadata))
    open_topics(DiskFilesystem(), str(data)).create(TOPIC, topic_id, 1, CONFIGS)
    shutil.copytree(folder, data / f"{TOPIC}-0")


@pytest.fixture(scope="module", params=["killed", "stopped"])
def ours(
    request: pytest.FixtureRequest, history: History, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("ours") / "data")
    broker.start()
    broker.stop()
    adopt(history.folders[request.param], broker.data)
    with broker:
        yield broker


def test_kafka_has_written_what_these_tests_are_about(history: History) -> None:
    served = history.by_kafka
    committed, all_records = (
        served.records[name] for name in ("read_committed", "read_uncommitted")
    )
    assert 50 < len(committed) < len(all_records) - 20
    assert served.latest["read_committed"] < served.latest["read_uncommitted"] - 2
    assert all_records[-1][1] == b"a committed above an open one"
    for folder in history.folders.values():
        assert len(list(folder.glob("*.txnindex"))) > 1
        assert len(list(folder.glob("*.log"))) > 2


@pytest.mark.timeout(600)
def test_consumers_get_from_us_what_they_got_from_kafka(
    history: History, ours: BrokerProcess
) -> None:
    assert_alike(look(ours), history.by_kafka)


@pytest.mark.timeout(600)
def test_consumers_get_the_same_after_our_crash_and_our_clean_stop(
    history: History, ours: BrokerProcess
) -> None:
    ours.kill()
    ours.start()
    assert_alike(look(ours), history.by_kafka)
    assert ours.stop() == 0
    ours.start()
    assert_alike(look(ours), history.by_kafka)


def assert_alike(found: Served, wanted: Served) -> None:
    assert found.latest == wanted.latest
    for name in ISOLATIONS:
        assert found.records[name] == wanted.records[name], name
    different = {
        asked: (answer, wanted.fetched[asked])
        for asked, answer in found.fetched.items()
        if answer != wanted.fetched[asked]
    }
    assert not different


def test_the_java_consumer_gets_from_us_what_librdkafka_got_from_kafka(
    history: History, ours: BrokerProcess, clients: Clients
) -> None:
    java = clients.get("java-3.9")
    assert isinstance(java, ProgramDriver)
    for name in ISOLATIONS:
        stored = java.consume(ours.bootstrap, TOPIC, isolation=name)[0]
        rows = [(offset, record.value) for offset, record in stored]
        assert rows == history.by_kafka.records[name], name


def test_kafka_reads_the_transactions_that_our_log_ended(history: History) -> None:
    kafka = history.kafka
    expected = end_all(kafka.data / "logs" / f"{TOPIC}-0")
    # With this, Kafka believes our files without a look at the log.
    assert (kafka.data / "logs" / ".kafka_cleanshutdown").exists()
    kafka.start()
    try:
        rows = consume(kafka.bootstrap, "read_committed", -1)
    finally:
        kafka.stop()
    open_ones = {value for _, value in rows} & {b"c open", b"ours aborted"}
    assert not open_ones
    assert (
        rows[: len(history.by_kafka.records["read_committed"])]
        == (history.by_kafka.records["read_committed"])
    )
    values = [value for _, value in rows]
    assert values[-3:] == [b"a committed above an open one", b"ours committed", b"ours at the end"]
    assert rows[-1][0] == expected


def end_all(folder: Path) -> int:
    """Abort the transaction that Kafka left open, add two of ours, one aborted and one committed,
    and a record; the offset of that. All by our log on Kafka's files."""
    epoch = int((folder / "leader-epoch-checkpoint").read_text().split()[-2])
    settings = Settings(segment_bytes=16_384, index_interval_bytes=512)
    log, reports = open_log(DiskFilesystem(), str(folder), settings, leader_epoch=epoch)
    assert reports == []
    stable = log.last_stable_offset
    piece = log.read(stable, 1)
    assert piece is not None
    opened = Batch(memoryview(piece.read()))
    log.append_marker(
        opened.producer_id, opened.producer_epoch, commit=False, coordinator_epoch=0, now_ms=NOW_MS
    )
    for producer_id, value, commit in ((9_000, b"ours aborted", False), (9_001, b"", True)):
        raw = bytearray(
            batch(
                value or b"ours committed",
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )
        log.append(memoryview(raw), HEADER.unpack_from(raw), now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)
        log.append_marker(producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)
    raw = bytearray(batch(b"ours at the end"))
    offset = log.append(memoryview(raw), HEADER.unpack_from(raw), now_ms=NOW_MS)
    assert log.close(clean=True) is not None
    return offset
