"""Records of transactions are read from triglot and from Apache Kafka as consumers read them, and
from the data directories of both."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from client.cluster import LATEST, Cluster, TopicPartition
from pipeline.errors import WrongUse
from pipeline.jobs.audit import Audit, audit_range
from pipeline.jobs.audit_facts import of_json
from pipeline.reading.data_directory import DataDirectory
from pipeline.reading.plan import Range, ending_offsets
from pipeline.reading.ranges import read_range, records_of
from tests.clients.available import end_of_test
from tests.clients.drivers.driver import KEEP_FOR_EVER
from tests.pipeline.transactional_history import Row, consume, write_history
from tests.support.broker_process import BrokerProcess
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.reading.source import Source

# Inside the first test that wants them, jars may have to be fetched.
OF_KAFKA = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(600)]

PAYMENTS = TopicPartition("payments", 0)
CONFIGS = {**KEEP_FOR_EVER, "segment.bytes": "16384"}
FETCH_BYTES = 1500
"""A few batches: every transaction below spans several fetches."""
ISOLATIONS = {False: "read_uncommitted", True: "read_committed"}


class History(NamedTuple):
    server: BrokerProcess | KafkaProcess
    #: By `committed_only`: what a consumer of that isolation level is shown.
    consumed: dict[bool, list[Row]]


@pytest.fixture(scope="module", params=["triglot", pytest.param("kafka", marks=OF_KAFKA)], ids=str)
def history(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[History]:
    data = tmp_path_factory.mktemp(request.param) / "data"
    server: BrokerProcess | KafkaProcess
    if request.param == "triglot":
        server = BrokerProcess(data)
    else:
        try:
            server = KafkaProcess(data)
        except NotAvailable as reason:
            end_of_test("java", f"Apache Kafka: {reason}")
    with server:
        with Cluster(server.bootstrap) as cluster:
            cluster.create_topic(PAYMENTS.topic, 1, CONFIGS)
        # Whoever loses it ends its transaction.
        opened = write_history(server.bootstrap, PAYMENTS.topic)
        consumed = {
            only: consume(server.bootstrap, PAYMENTS.topic, name)
            for only, name in ISOLATIONS.items()
        }
        yield History(server, consumed)
        del opened


def logs_of(history: History) -> Path:
    server = history.server
    return server.data if isinstance(server, BrokerProcess) else server.logs


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
    with Cluster(history.server.bootstrap) as cluster:
        check(cluster, history)


def test_aborted_transactions_span_fetches(history: History) -> None:
    with Cluster(history.server.bootstrap) as cluster:
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
    with Cluster(history.server.bootstrap) as cluster:
        assert cluster.offsets(place, LATEST, committed_only=True) == {PAYMENTS: first_open}
        assert cluster.offsets(place, LATEST)[PAYMENTS] > history.consumed[False][-1][0]
        # Nothing is as late as that: the end.
        assert cluster.offsets(place, 2**50, committed_only=True) == {PAYMENTS: first_open}


def test_a_stream_of_committed_records_goes_up_to_the_open_transaction(history: History) -> None:
    pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from pipeline.source import TriglotSource

    def read_by(isolation: str) -> list[Row]:
        source = TriglotSource({
            "kafka.bootstrap.servers": history.server.bootstrap, "subscribe": PAYMENTS.topic,
            "startingOffsets": "earliest", "kafka.isolation.level": isolation,
        })  # fmt: skip
        reader: Any = source.streamReader(source.schema())
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        return [
            (row["offset"], row["value"])
            for part in reader.partitions(start, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]

    for only, isolation in ISOLATIONS.items():
        assert read_by(isolation) == history.consumed[only]


def test_an_audit_counts_what_is_stored_of_transactions_and_finds_no_holes(
    history: History,
) -> None:
    with Cluster(history.server.bootstrap) as cluster:
        end = cluster.offsets([PAYMENTS], LATEST)[PAYMENTS]
    job = Audit(servers=history.server.bootstrap)
    found = of_json(audit_range(job.options, {PAYMENTS.topic: None}, Range(*PAYMENTS, 0, end)))
    # Markers are entries, and no records.
    assert (found.records, found.control, found.transactional) == (60, 5, 46 + 5)
    assert (found.first_offset, found.last_offset, found.holes) == (0, end - 1, 0)


def test_a_directory_that_a_broker_holds_is_refused(history: History) -> None:
    with pytest.raises(WrongUse, match=f"is in use by process {history.server.pid}: stop that"):
        DataDirectory(str(logs_of(history)))


def test_its_directory_is_read_as_consumers_read_it(history: History, tmp_path: Path) -> None:
    """A copy that is made while nobody writes is what `kill -9` would leave."""
    copy = shutil.copytree(logs_of(history), tmp_path / "copy")
    with DataDirectory(str(copy)) as directory:
        check(directory, history)
        assert directory.topic_configs(PAYMENTS.topic) == CONFIGS
