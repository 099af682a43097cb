"""Spark writes in transactions: tasks are killed in the middle of their rows, drivers anywhere."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client.cluster import LATEST, Cluster, TopicPartition
from protocol.records.builder import build_batch
from tests.clients.available import end_of_test
from tests.pipeline.mirroring import archive
from tests.pipeline.transactional_history import consume, written_values
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.compacted import wait_until
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess
from tests.support.transaction_ends import wait_for_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

KILLS = 2
RECORDS = 6_000
NOW_MS = 1_700_000_000_000


def fill(servers: str, topic: str, records: int, *, each: int = 50) -> None:
    """Numbers, in turn in two partitions."""
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, 2)
        for partition in range(2):
            numbers = range(partition, records, 2)
            for begin in range(0, len(numbers), each):
                rows = [
                    (NOW_MS, b"k", b"%d" % number, ()) for number in numbers[begin : begin + each]
                ]
                cluster.produce(TopicPartition(topic, partition), [build_batch(rows)])


def written(servers: str, topic: str, *, committed: bool = True) -> list[bytes]:
    return [
        value
        for partition in range(2)
        for value in written_values(servers, TopicPartition(topic, partition), committed=committed)
    ]


def all_once(records: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(records))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_rows_of_a_task_that_was_killed_are_seen_only_when_it_has_succeeded(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Where what makes the rows is killed, who writes them sees their end."""
    from pyspark.sql.functions import udf

    fill(broker.bootstrap, "to-be-summed", 4_000)
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("summed", 2)
    reached, seen_by_readers = tmp_path / "reached", tmp_path / "seen"

    def value(read: bytes) -> bytes:
        if read == b"3999" and not reached.exists():
            reached.touch()
            while not seen_by_readers.exists():
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(read)

    of_rows = udf(value, "binary", useArrow=False)("value").alias("value")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "to-be-summed"}
    reading = spark.readStream.format("triglot").options(**options, startingOffsets="earliest")
    for attempt in range(2):
        query = (
            reading.load()
            .select(of_rows, "partition")
            .writeStream.format("triglot")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", "summed")
            .option("transactionalId", "sums")
            .option("kafka.batch.size", "1024")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if attempt == 0:
            # The task of the other partition writes its rows meanwhile.
            wait_until(
                lambda: written(broker.bootstrap, "summed", committed=False) != [],
                "rows of the other task",
                within_s=300,
            )
            seen_by_readers.touch()
            with pytest.raises(Exception, match="Python worker"):
                query.awaitTermination()
            assert written(broker.bootstrap, "summed", committed=False)
            assert written(broker.bootstrap, "summed") == []
        else:
            query.awaitTermination()
    seen = [consume(broker.bootstrap, "summed", "read_committed", number) for number in range(2)]
    assert sorted(value for of_partition in seen for _, value in of_partition) == all_once(4_000)


# Minutes each: Apache Kafka with `make test-transactions`.
@pytest.fixture(
    scope="module",
    params=["triglot", *(["kafka"] if "TEST_TRANSACTIONS_ON_KAFKA" in os.environ else [])],
)
def destination(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    data = tmp_path_factory.mktemp(request.param) / "data"
    server: BrokerProcess | KafkaProcess
    if request.param == "triglot":
        server = BrokerProcess(data, settings={"log.retention.ms": "-1"})
    else:
        try:
            server = KafkaProcess(data, settings={"log.retention.ms": "-1"})
        except NotAvailable as reason:
            end_of_test("java", f"Apache Kafka: {reason}")
    with server:
        yield server


class Driver:
    """`transactional_driver` in a process group of its own, with its JVM and its workers."""

    def __init__(self, *words: str, log: Path) -> None:
        command = [sys.executable, "-m", "tests.pipeline.transactional_driver", *words]
        self._log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, cwd=CHECKOUT, stdout=out, stderr=out, start_new_session=True
            )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def finish(self) -> None:
        try:
            code = self.process.wait(180)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        assert code == 0, self._log.read_text()[-3000:]

    def kill_workers(self) -> None:
        """The processes of its tasks, which the JVM has forked by a daemon of its own."""
        parents = _parents()
        forks = {pid for pid, parent in parents.items() if _is_daemon(pid) and _is_daemon(parent)}
        ours = {pid for pid in forks if self.process.pid in _ancestors(pid, parents)}
        assert ours
        for pid in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_for(self, servers: str, topic: str, offsets: int) -> None:
        """Until the topic has so many offsets, committed or not."""
        places = [TopicPartition(topic, number) for number in range(2)]
        with Cluster(servers) as cluster:
            deadline = time.monotonic() + 200
            while sum(cluster.offsets(places, LATEST).values()) < offsets:
                assert time.monotonic() < deadline, self._log.read_text()[-3000:]
                assert self.process.poll() is None, self._log.read_text()[-3000:]
                time.sleep(0.05)  # what is waited for needs the processor


def _parents() -> dict[int, int]:
    """Of each process its parent."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    return found


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while pid in parents:
        pid = parents[pid]
        found.append(pid)
    return found


def _is_daemon(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_stream_whose_driver_and_tasks_are_killed_writes_each_record_once(
    spark_runs: None, destination: BrokerProcess | KafkaProcess, tmp_path: Path
) -> None:
    servers = destination.bootstrap
    fill(servers, "events", RECORDS)
    with Cluster(servers) as cluster:
        cluster.create_topic("copies", 2)
    words = ("stream", servers, "events", "copies", str(tmp_path))
    chance = random.Random(17)
    for number in range(KILLS):
        driver = Driver(*words, log=tmp_path / "log")
        driver.wait_for(servers, "copies", 1_500 * (number + 1) + chance.randrange(400))
        driver.kill()
    Driver(*words, log=tmp_path / "log").finish()
    assert (tmp_path / "killed-once").exists()
    with Cluster(servers) as cluster:
        wait_for_ends(cluster, cluster.partitions(["copies"]))
    seen = [consume(servers, "copies", "read_committed", number) for number in range(2)]
    assert sorted(value for of_partition in seen for _, value in of_partition) == all_once(RECORDS)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_replay_whose_tasks_and_driver_are_killed_writes_each_record_once(
    spark_runs: None, broker: BrokerProcess, tmp_path: Path
) -> None:
    servers, records = broker.bootstrap, 300_000
    fill(servers, "stored", records, each=100)
    folder = archive(servers, "stored", tmp_path / "lake", shape="batches", step=10_000)
    with Cluster(servers) as cluster:
        cluster.create_topic("stored-again", 2)
    words = ("replay", servers, folder, "{topic}-again")
    driver = Driver(*words, log=tmp_path / "log")
    driver.wait_for(servers, "stored-again", 30_000)
    driver.kill_workers()
    driver.wait_for(servers, "stored-again", 200_000)
    driver.kill()
    Driver(*words, log=tmp_path / "log").finish()
    seen = [consume(servers, "stored-again", "read_committed", number) for number in range(2)]
    assert sorted(value for of_partition in seen for _, value in of_partition) == all_once(records)
    assert len(written(servers, "stored-again", committed=False)) > records
