"""Jobs of which something is killed in the middle: a Python worker, an executor, the driver.

The command is what a user types. A run that loses a worker or an executor has to end well by
itself; one whose driver was killed, when it is started again. What is there then is exact. Each
round is another job with another victim; `make test-kill-pipeline` has twenty in each place, or as
many as TEST_PIPELINE_KILLS says.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from client.cluster import LATEST, Cluster, TopicPartition
from pipeline.spark.worker_python import worker_python
from protocol.records.builder import build_batch
from protocol.records.compression import LZ4
from tests.clients.available import end_of_test
from tests.pipeline.mirroring import archive
from tests.pipeline.spark_places import DRIVER, LOCAL, connect, end, standalone, victims
from tests.pipeline.transactional_history import written_values
from tests.support.broker_process import CHECKOUT
from tests.support.transaction_ends import wait_for_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.pipeline.spark_places import Place
    from tests.support.broker_process import BrokerProcess

ROUNDS = int(os.environ.get("TEST_PIPELINE_KILLS", "1"))
# A cluster and a server take minutes for a round.
PLACES = ("local", "standalone", "connect") if "TEST_PIPELINE_KILLS" in os.environ else ("local",)
RECORDS, PARTITIONS, EACH = 60_000, 2, 100
MICRO_BATCHES = 10
PATIENCE_S = 600.0
"""For one run, on a machine that has other things to do."""
NOW_MS = 1_700_000_000_000
SOURCE = "to-be-killed"
numbers = itertools.count()


class Round:
    """A job from SOURCE to a place of its own."""

    def __init__(self, servers: str, lake: str, folder: Path) -> None:
        self.servers = servers
        self.folder = folder
        self.copy = f"{SOURCE}-{folder.name}"
        topic = ("--topic", SOURCE, "--max-offsets", str(RECORDS // MICRO_BATCHES))
        source = ("--from", servers, *topic)
        state = ("--state", str(folder / "state"))
        to_lake = ("archive", *source, "--to", str(folder / "lake"))
        renamed = ("--rename", f"{{topic}}-{folder.name}", *state)
        mirror = ("mirror", *source, "--to", servers, *renamed)
        transactional = ("--transactional-id", self.copy)
        replayed = (*renamed, *transactional)
        self.jobs: tuple[tuple[str, tuple[str, ...], Callable[[], None]], ...] = (
            ("archive", to_lake, self.check_files),
            ("archive to Delta", (*to_lake, "--table", "delta"), self.check_delta),
            ("mirror", mirror, self.check_copy),
            ("mirror in transactions", (*mirror, *transactional), self.check_copy),
            (
                "replay in transactions",
                ("replay", "--from", lake, "--to", servers, *replayed),
                self.check_copy,
            ),
        )

    def reached(self, output: Path, job: str) -> int:
        """The records that are there, and may not be committed yet."""
        if job.startswith("archive"):
            return sum(event["records"] for event in events(output) if event["event"] == "progress")
        with Cluster(self.servers) as cluster:
            if self.copy not in cluster.topics():
                return 0
            return sum(cluster.offsets(places(self.copy), LATEST).values())

    def check_files(self) -> None:
        self.check_rows(pq.read_table(self.folder / "lake", columns=["partition", "value"]))

    def check_delta(self) -> None:
        from deltalake import DeltaTable

        files = DeltaTable(str(self.folder / "lake")).file_uris()
        columns = ["partition", "value"]
        self.check_rows(pa.concat_tables(pq.read_table(one, columns=columns) for one in files))

    def check_rows(self, rows: pa.Table) -> None:
        for partition in range(PARTITIONS):
            found = rows.filter(pa.compute.equal(rows["partition"], partition))["value"]
            assert sorted(found.to_pylist()) == sorted(values_of(partition))

    def check_copy(self) -> None:
        with Cluster(self.servers) as cluster:
            wait_for_ends(cluster, places(self.copy))
        for place in places(self.copy):
            found = written_values(self.servers, place, committed=True)
            assert found == values_of(place.partition)


def places(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def values_of(partition: int) -> list[bytes]:
    return [b"%d" % number for number in range(partition, RECORDS, PARTITIONS)]


def events(output: Path) -> list[dict[str, Any]]:
    """What a run has told so far, without a line that it is in the midst of."""
    lines = output.read_bytes().split(b"\n")[:-1] if output.exists() else []
    return [json.loads(line) for line in lines if line.startswith(b"{")]


@pytest.fixture(scope="module")
def lake(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> str:
    """SOURCE as an archive of batches; it is filled for it."""
    with Cluster(broker.bootstrap) as cluster:
        cluster.create_topic(SOURCE, PARTITIONS)
        for place in places(SOURCE):
            values = values_of(place.partition)
            for begin in range(0, len(values), EACH):
                rows = [(NOW_MS, b"k", value, ()) for value in values[begin : begin + EACH]]
                cluster.produce(place, [build_batch(rows, codec=LZ4)])
    folder = tmp_path_factory.mktemp("killed") / "lake"
    step = RECORDS // PARTITIONS // MICRO_BATCHES
    return archive(broker.bootstrap, SOURCE, folder, shape="batches", step=step)


@contextlib.contextmanager
def place_of(name: str, folder: Path) -> Iterator[Place]:
    if name == "local":
        yield LOCAL
        return
    with standalone(folder) if name == "standalone" else connect(folder) as place:
        yield place


def run(words: tuple[str, ...], place: Place, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pipeline", *words, "--json", *place.flags]
    with output.open("wb") as out:
        return subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env={**os.environ, "PYSPARK_PYTHON": worker_python(output.parent)},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def killed(victim: str, place: Place, process: subprocess.Popen[bytes]) -> int:
    """Kill all workers, one executor, or the driver with what it has started; how many processes
    were hit. Between two tasks there may be no worker."""
    if victim == DRIVER:
        os.killpg(process.pid, signal.SIGKILL)
        end(process)
        return 1
    found = victims(victim, place.roots or (process.pid,))
    if victim != "worker":
        found = found[:1]
    hit = 0
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            hit += 1
    return hit


def one_round(round_: Round, job: int, victim: str, place: Place, chance: random.Random) -> None:
    name, words, check = round_.jobs[job]
    output = round_.folder / "output"
    wanted = RECORDS * chance.uniform(0.05, 0.6)
    process = run(words, place, output)
    deadline = time.monotonic() + PATIENCE_S
    try:
        hit = 0
        while not hit:
            there = round_.reached(output, name)
            assert process.poll() is None, output.read_text()[-3000:]
            assert time.monotonic() < deadline, output.read_text()[-3000:]
            hit = killed(victim, place, process) if there >= wanted else 0
            time.sleep(0.02)
        # In its middle: some was there, and not all.
        assert 0 < there < RECORDS
        if victim == DRIVER:
            assert not [event for event in events(output) if event["event"] == "done"]
            output = round_.folder / "again"
            process = run(words, place, output)
        code = process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            end(process)
    assert code == 0, output.read_text()[-3000:]
    assert events(output)[-1]["event"] == "done"
    check()
    told = f"{place.name}: {name}, {victim} killed ({hit}) at {there:,} of {RECORDS:,} records"
    print(f"{told}: exact", flush=True)


@pytest.mark.long
@pytest.mark.timeout(0 if ROUNDS > 2 else 1800)
@pytest.mark.parametrize("name", PLACES)
def test_what_is_killed_in_the_middle_costs_no_record_and_doubles_none(
    name: str, spark_runs: None, broker: BrokerProcess, lake: str, tmp_path: Path
) -> None:
    if name == "connect" and importlib.util.find_spec("grpc_status") is None:
        end_of_test("spark", "the client of Spark Connect needs pip install pyspark[connect]")
    chance = random.Random(name)
    # So that two rounds in each place are of other jobs and victims.
    first = PLACES.index(name)
    with place_of(name, tmp_path / "spark") as place:
        for number in range(first, first + ROUNDS):
            folder = tmp_path / f"round-{next(numbers)}"
            folder.mkdir()
            round_ = Round(broker.bootstrap, lake, folder)
            victim = place.victims[number % len(place.victims)]
            one_round(round_, number % len(round_.jobs), victim, place, chance)
