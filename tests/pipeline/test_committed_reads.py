"""Records of transactions are read from Apache Kafka as its own consumers read them, and from its
data directory."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING

from client.cluster import LATEST, Cluster, TopicPartition
from pipeline.errors import WrongUse
from pipeline.reading.data_directory import DataDirectory
from pipeline.reading.plan import Range, ending_offsets
from pipeline.reading.ranges import read_range, records_of
from tests.clients.available import end_of_test
from tests.clients.drivers.driver import CALL_TIMEOUT_S, KEEP_FOR_EVER
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.reading.plan import Source

# Inside the first test that wants them, jars may have to be fetched.
pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(600)]

PAYMENTS = TopicPartition("payments", 0)
CONFIGS = {**KEEP_FOR_EVER, "segment.bytes": "16384"}
FETCH_BYTES = 1500
"""A few batches: every transaction below spans several fetches."""
ISOLATIONS = {False: "read_uncommitted", True: "read_committed"}

Row = tuple[int, bytes]


class History(NamedTuple):
    kafka: KafkaProcess
    #: By `committed_only`: what a consumer of that isolation level is shown.
    consumed: dict[bool, list[Row]]


def producer(bootstrap: str, name: str | None = None) -> confluent_kafka.Producer:
    settings: dict[str, str | int] = {"bootstrap.servers": bootstrap, "linger.ms": 0}
    if name is None:
        return confluent_kafka.Producer(settings)
    made = confluent_kafka.Producer(settings | {"transactional.id": name})
    made.init_transactions(CALL_TIMEOUT_S)
    made.begin_transaction()
    return made


def write(to: confluent_kafka.Producer, name: str, batches: int) -> None:
    for number in range(batches):
        value = b"%s %d " % (name.encode(), number) + b"x" * 300
        to.produce(PAYMENTS.topic, value, partition=0)
        # Each is a batch of its own.
        assert to.flush(CALL_TIMEOUT_S) == 0


def write_history(bootstrap: str) -> None:
    """Interleaved: transactions of 12 batches that are committed, aborted, and aborted again by the
    same producer; then one that stays open, and a committed one above it."""
    plain = producer(bootstrap)
    committed, aborted = producer(bootstrap, "c"), producer(bootstrap, "a")
    for part in range(4):
        write(plain, f"plain {part}", 2)
        write(committed, f"committed {part}", 3)
        write(aborted, f"aborted {part}", 3)
    committed.commit_transaction(CALL_TIMEOUT_S)
    aborted.abort_transaction(CALL_TIMEOUT_S)
    write(plain, "between", 2)
    aborted.begin_transaction()
    committed.begin_transaction()
    write(aborted, "again", 12)
    write(committed, "while the other aborts", 2)
    aborted.abort_transaction(CALL_TIMEOUT_S)
    committed.commit_transaction(CALL_TIMEOUT_S)
    write(plain, "before the open one", 2)
    opened = producer(bootstrap, "o")
    write(opened, "open", 6)
    committed.begin_transaction()
    write(committed, "above the open one", 2)
    committed.commit_transaction(CALL_TIMEOUT_S)
    write(plain, "last", 2)


def consume(bootstrap: str, isolation: str) -> list[Row]:
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False,
        "enable.partition.eof": True, "isolation.level": isolation,
    })  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(*PAYMENTS, OFFSET_BEGINNING)])
    rows: list[Row] = []
    while True:
        message = consumer.poll(CALL_TIMEOUT_S)
        assert message is not None, f"{isolation}: nothing after {rows[-1:]}"
        error = message.error()
        if error is None:
            rows.append((message.offset() or 0, message.value() or b""))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return rows


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    try:
        kafka = KafkaProcess(tmp_path_factory.mktemp("kafka") / "data")
    except NotAvailable as reason:
        end_of_test("java", f"Apache Kafka: {reason}")
    with kafka:
        with Cluster(kafka.bootstrap) as cluster:
            cluster.create_topic(PAYMENTS.topic, 1, CONFIGS)
        write_history(kafka.bootstrap)
        yield History(
            kafka, {only: consume(kafka.bootstrap, name) for only, name in ISOLATIONS.items()}
        )


def read(source: Source, start: int = 0, *, committed_only: bool) -> list[Row]:
    end = ending_offsets(source, [PAYMENTS], committed_only=committed_only)[PAYMENTS]
    rows = records_of(
        source,
        Range(*PAYMENTS, start, end),
        committed_only=committed_only,
        fetch_bytes=FETCH_BYTES,
    )
    return [
        (offset.as_py(), value.as_py())
        for batch in rows
        for offset, value in zip(batch["offset"], batch["value"], strict=True)
    ]


def check(source: Source, history: History) -> None:
    """A source has what consumers were shown, from any offset on."""
    for only, shown in history.consumed.items():
        assert read(source, committed_only=only) == shown
    shown = history.consumed[True]
    for offset in range(0, shown[-1][0], 7):
        rest = [row for row in shown if row[0] >= offset]
        assert read(source, offset, committed_only=True) == rest


def test_the_history_has_all_kinds_of_transactions(history: History) -> None:
    everything, committed = history.consumed[False], history.consumed[True]
    assert len(everything) == 60
    kinds = {value.split()[0] for _, value in everything}
    assert kinds - {value.split()[0] for _, value in committed} == {
        b"aborted", b"again", b"open", b"above", b"last",
    }  # fmt: skip


def test_a_cluster_is_read_as_consumers_read_it(history: History) -> None:
    with Cluster(history.kafka.bootstrap) as cluster:
        check(cluster, history)


def test_aborted_transactions_span_fetches(history: History) -> None:
    with Cluster(history.kafka.bootstrap) as cluster:
        end = cluster.offsets([PAYMENTS], LATEST, committed_only=True)[PAYMENTS]
        wanted = Range(*PAYMENTS, 0, end)
        chunks = list(read_range(cluster, wanted, committed_only=True, fetch_bytes=FETCH_BYTES))
    assert len(chunks) > 10
    told = [set(chunk.aborted) for chunk in chunks]
    spanning = [before & after for before, after in pairwise(told)]
    assert len(set().union(*spanning)) == 2


def test_the_end_of_committed_records_is_where_the_open_transaction_begins(
    history: History,
) -> None:
    first_open = next(offset for offset, value in history.consumed[False] if value[:5] == b"open ")
    place = [PAYMENTS]
    with Cluster(history.kafka.bootstrap) as cluster:
        assert cluster.offsets(place, LATEST, committed_only=True) == {PAYMENTS: first_open}
        assert cluster.offsets(place, LATEST)[PAYMENTS] > history.consumed[False][-1][0]
        # Nothing is as late as that: the end.
        assert cluster.offsets(place, 2**50, committed_only=True) == {PAYMENTS: first_open}


def test_a_directory_that_kafka_holds_is_refused(history: History) -> None:
    with pytest.raises(WrongUse, match=f"is in use by process {history.kafka.pid}: stop that"):
        DataDirectory(str(history.kafka.logs))


def test_its_directory_is_read_as_consumers_read_it(history: History, tmp_path: Path) -> None:
    """A copy that is made while nobody writes is what `kill -9` would leave."""
    copy = shutil.copytree(history.kafka.logs, tmp_path / "copy")
    with DataDirectory(str(copy)) as directory:
        check(directory, history)
        assert directory.topic_configs(PAYMENTS.topic) == CONFIGS
