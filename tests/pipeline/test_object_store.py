"""Archives in S3, on a real server of it: states, publication, and a way to it that fails."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from pipeline import errors, object_store
from pipeline.archiving.archive_files import names_in
from pipeline.archiving.coverage import Coverage
from pipeline.dataframes.stream_source import StreamReader
from pipeline.filesystem import locate
from pipeline.jobs.archive import Archive
from pipeline.jobs.replay import Replay
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.spark.range_loop import run_loop
from pipeline.spark.range_query import work_on
from pipeline.state import State
from pipeline.tables.table import Catalog
from tests.clients.available import end_of_test
from tests.pipeline.archive_runs import Topic, archive_of, made, rows_of
from tests.pipeline.faulty_store import FaultyStore
from tests.pipeline.mirroring import digest, stored
from tests.pipeline.test_replay import Killed, without_spark
from tests.pipeline.test_replay import run as replayed
from tests.support import s3_server
from tests.support.broker_process import CHECKOUT
from tests.support.caller import Caller
from tests.support.compacted import wait_until
from tests.support.fetched import NotAvailable
from tests.support.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipeline.archiving.coverage import Covered
    from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.long, pytest.mark.go, pytest.mark.timeout(300)]

CUT_OFF = 6
IDENTITY = {"job": "archive", "cluster": "c"}
numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with S3Server(tmp_path_factory.mktemp("s3") / "data") as server:
            yield server
    except NotAvailable as reason:
        end_of_test("go", str(reason))


@pytest.fixture(scope="module")
def store(server: S3Server) -> Iterator[FaultyStore]:
    """The way to the server that all take; a test makes it fail."""
    with (
        FaultyStore(server.port, Random(7), one_in=0) as store,
        pytest.MonkeyPatch.context() as env,
    ):
        for name, value in s3_server.environ(store.endpoint).items():
            env.setenv(name, value)
        object_store._client.cache_clear()
        object_store._client().create_bucket(Bucket="lake")
        yield store
        object_store._client.cache_clear()


def new_place() -> str:
    return f"s3://lake/at-{next(numbers)}"


@pytest.fixture(autouse=True)
def there_again(store: FaultyStore) -> Iterator[None]:
    yield
    store.gone_after, store.gone, store.one_in = None, False, 0
    object_store._client.cache_clear()


@pytest.fixture
def place(store: FaultyStore) -> str:
    return new_place()


@pytest.fixture
def impatient(store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No request is made a second time."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    object_store._client.cache_clear()
    yield
    object_store._client.cache_clear()


def test_a_note_written_by_another_run_ends_the_one_that_does_not_know_of_it(place: str) -> None:
    first = State.open(place, IDENTITY)
    first.write("done", {"batch": 1})
    second = State.open(place, IDENTITY)
    assert second.take_over("done", {})["batch"] == 1

    with pytest.raises(errors.ForeignState, match="two runs use one state"):
        first.write("done", {"batch": 2})

    second.write("done", {"batch": 3})
    assert State.open(place, IDENTITY).read("done") == {"batch": 3}


def test_of_runs_that_begin_a_note_at_once_one_has_it(place: str) -> None:
    runs = [State.open(place, IDENTITY) for _ in range(8)]
    assert {run.read("id") for run in runs} == {None}
    had: list[int] = []

    def begin(number: int) -> None:
        with contextlib.suppress(errors.ForeignState):
            runs[number].write("id", {"id": number})
            had.append(number)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (winner,) = had
    assert State.open(place, IDENTITY).read("id") == {"id": winner}


class InThisProcess:
    """Tasks without Spark, of a run that the next one finds ended."""

    session = ""

    def __init__(self) -> None:
        self.tag = f"run-{next(numbers)}"

    def do(self, job: Any, shares: Any, number: int) -> list[dict[str, Any]]:
        task = pickle.loads(pickle.dumps(job))
        return [
            facts
            for share in shares
            for facts in json.loads(json.dumps(work_on(task, number, share)))
        ]

    def end(self, session: str, tag: str) -> None:
        pass

    def wait(self, seconds: float) -> None:
        pass


def run(job: Archive) -> None:
    """What `Archive.run` does, with such tasks."""
    job.check()
    options = job.parsed()
    with (
        contextlib.closing(options.source()) as source,
        contextlib.closing(State.open(f"{job.to}/_state", job.identity(source))) as state,
    ):
        made = job.job(state, "cluster")
        reader = StreamReader(options)
        try:
            run_loop(reader, made, InThisProcess(), state=state)
        finally:
            reader.stop()


def left_behind(place: str) -> list[str]:
    """What is staged, or was begun to be."""
    staging = locate(f"{place}/_staging")
    found = object_store._client()
    bucket, _, prefix = staging.path.partition("/")
    listed = found.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    begun = found.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", [])
    return [one["Key"] for one in (*listed, *begun)]


def rows(place: str) -> list[tuple[Any, ...]]:
    """Of all that a reader finds who knows nothing of archives, in the form of `Topic.rows`."""
    lake = locate(place)
    table = pq.read_table(lake.path, filesystem=lake.filesystem, schema=RECORDS_AND_HEADERS)
    return rows_of(table)


def test_a_store_that_goes_away_at_any_request_costs_no_record_and_doubles_none(
    store: FaultyStore, broker: BrokerProcess, impatient: None
) -> None:
    random = Random(3)
    cut_off = 0
    with Caller(broker.host, broker.port) as caller:
        topic = made(caller, partitions=2)
        for partition in range(2):
            topic.write(3, partition=partition)
        wanted = sorted(topic.rows(), key=lambda row: row[:2])
        for _ in range(CUT_OFF):
            job = archive_of(broker, new_place(), topic, max_offsets=40, file_offsets=20)
            for _ in range(2):
                store.gone_after = store.requests + random.randrange(90)
                with contextlib.suppress(errors.Refused, errors.CorruptData):
                    run(job)
                cut_off += store.gone
                store.gone_after, store.gone = None, False
            run(job)
            assert rows(job.to) == wanted
            assert left_behind(job.to) == []
    assert cut_off > CUT_OFF


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_in_a_store_takes_a_micro_batch_that_was_cut_off_once_and_is_replayed(
    server: S3Server,
    broker: BrokerProcess,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    catalog = Catalog("shop.orders", "tests", {"type": "sql", "uri": uri})
    add = Coverage.add
    kills: list[int] = []

    def killed(coverage: Coverage, batch_id: int, ranges: Sequence[Covered]) -> None:
        # The table has the files by now.
        if batch_id == 1 and not kills:
            kills.append(batch_id)
            raise Killed
        add(coverage, batch_id, ranges)

    # Not by way of this process: deltalake waits for answers with Python's lock held.
    for name, value in s3_server.environ(server.endpoint).items():
        monkeypatch.setenv(name, value)
    object_store._client.cache_clear()
    monkeypatch.setattr(Coverage, "add", killed)
    without_spark(monkeypatch)
    with Caller(broker.host, broker.port) as caller:
        topic = made(caller, partitions=2)
        for partition in range(2):
            topic.write(3, partition=partition)
    job = archive_of(broker, place, topic, max_offsets=40, file_offsets=20)
    job = replace(job, table=kind, catalog=catalog if kind == "iceberg" else None)
    with pytest.raises(Killed):
        run(job)
    run(job)
    replayed(Replay(place, broker.bootstrap, rename="{topic}-again", catalog=job.catalog))
    assert left_behind(place) == []
    for partition in range(2):
        wanted = stored(broker.bootstrap, topic.name, partition)
        assert digest(stored(broker.bootstrap, f"{topic.name}-again", partition)) == digest(wanted)


def test_requests_that_are_throttled_broken_or_cut_are_made_again(
    store: FaultyStore, broker: BrokerProcess, place: str
) -> None:
    with Caller(broker.host, broker.port) as caller:
        topic = made(caller, partitions=2)
        for partition in range(2):
            topic.write(3, partition=partition)
        job = archive_of(broker, place, topic, max_offsets=40, file_offsets=20)
        store.one_in = 6
        try:
            run(job)
        finally:
            store.one_in = 0
        assert rows(place) == sorted(topic.rows(), key=lambda row: row[:2])
    assert min(store.faults.values()) > 0, store.faults


def test_what_a_uri_has_in_it_beside_a_place_is_refused_and_not_printed() -> None:
    for uri in (
        f"s3://{s3_server.ACCESS_KEY}:{s3_server.SECRET_KEY}@lake/orders",
        f"s3://lake/orders?secret_key={s3_server.SECRET_KEY}",
    ):
        with pytest.raises(errors.WrongUse, match=r"s3://lake/orders .* environment") as refused:
            locate(uri)
        assert s3_server.SECRET_KEY not in str(refused.value)


def test_a_command_that_loses_its_store_ends_with_a_line_and_the_next_goes_on(
    store: FaultyStore, broker: BrokerProcess, place: str, tmp_path: Path, spark_runs: None
) -> None:
    with Caller(broker.host, broker.port) as caller:
        topic = made(caller, partitions=4)
        for partition in range(4):
            topic.write(10, partition=partition)
        command = [
            *(sys.executable, "-m", "pipeline", "archive", "--from", broker.bootstrap, "--quiet"),
            *("--topic", topic.name, "--to", place, "--max-offsets", "100"),
        ]
        environ = {**os.environ, "AWS_MAX_ATTEMPTS": "2"}

        def end() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False
            )

        store.gone_after = store.requests + 60
        lost = end()
        store.gone_after, store.gone = None, False
        assert lost.returncode == errors.EXIT_CODES[errors.Refused], lost.stderr
        assert len(lost.stderr.splitlines()) == 1, lost.stderr
        assert s3_server.SECRET_KEY not in lost.stderr + lost.stdout

        killed = subprocess.Popen(
            command, cwd=CHECKOUT, env=environ, stdout=subprocess.DEVNULL, start_new_session=True
        )
        there = files_in(place)
        try:
            wait_until(lambda: files_in(place) > there, "a micro-batch", within_s=100)
            assert killed.poll() is None
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
        assert len(rows(place)) < len(topic.rows())

        done = end()
        assert done.returncode == 0, done.stderr
        assert rows(place) == sorted(topic.rows(), key=lambda row: row[:2])

        copy = Topic(caller, f"{topic.name}.again", 4)
        caller.create_topic(copy.name, 4)
        command = [
            *(sys.executable, "-m", "pipeline", "replay", "--from", place, "--quiet"),
            *("--to", broker.bootstrap, "--rename", "{topic}.again"),
        ]
        replayed = end()
        assert replayed.returncode == 0, replayed.stderr
        assert copy.rows() == topic.rows()


def files_in(place: str) -> int:
    time.sleep(0.05)
    return len(names_in(locate(place)))
