"""A user's program ends, when the data source fails, with the line that tells what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

from client.cluster import Cluster, TopicPartition
from pipeline.dataframes.one_line import HIDE, RUNTIME, WORKER, in_one_line
from pipeline.errors import WrongUse, find
from protocol.records.builder import build_batch
from tests.support.broker_process import CHECKOUT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

PROGRAM = """
import sys

from pyspark.sql import SparkSession

from pipeline.source import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
spark.read.format("triglot").options(**options).load().show()
"""


def test_only_a_worker_leaves_the_traceback_out_and_only_of_our_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    monkeypatch.delenv(HIDE, raising=False)

    def fail(error: Exception) -> None:
        with pytest.raises(type(error)), in_one_line():
            raise error

    fail(WrongUse("no such option"))
    assert HIDE not in os.environ
    monkeypatch.setenv(RUNTIME, WORKER)
    fail(ZeroDivisionError())
    assert HIDE not in os.environ
    fail(WrongUse("no such option"))
    assert os.environ[HIDE] == "1"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a batch whose bytes were flipped."""
    data = tmp_path_factory.mktemp("damaged") / "data"
    with BrokerProcess(data) as process, Cluster(process.bootstrap) as cluster:
        cluster.create_topic("orders", 1)
        rows = [(1000, None, b"x" * 100, ())] * 10
        for _ in range(2):
            cluster.produce(TopicPartition("orders", 0), [build_batch(rows)])
    segment = data / "orders-0" / f"{0:020d}.log"
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2 + 70] ^= 1
    segment.write_bytes(raw)
    return data


def test_spark_s_exception_has_our_line_and_no_traceback_of_ours(
    spark: SparkSession, damaged: Path
) -> None:
    def read(**options: str) -> Callable[[], object]:
        frame = spark.read.format("triglot").options(**options)
        return lambda: frame.load().collect()

    path = str(damaged)
    for failing, line in (
        (
            read(path=path, subscibe="orders"),
            "client.errors.WrongUse: option subscibe is not known",
        ),
        (
            read(path=path, subscribe="order"),
            "client.errors.NoSuchTopic: there is no topic 'order'",
        ),
        (read(path=path, subscribe="orders"), "client.errors.CorruptData: orders-0 offset 10: "),
    ):
        with pytest.raises(Exception, match=line.partition(":")[0]) as caught:
            failing()
        told = str(caught.value)
        assert line in told
        assert 'File "' not in told
        assert find(told) is not None
        # Before it, in its line, is what Spark was about; after it what Spark always adds.
        after = told[told.index(line) :].splitlines()[1:]
        assert all("SQLSTATE" in rest or not rest.strip() for rest in after[:1]), told


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_plain_program_of_a_user_ends_with_the_line(spark_runs: None, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 1
    *_, last, state = ran.stderr.rstrip().splitlines()
    assert last.endswith(
        "client.errors.Unreachable: cannot connect to 127.0.0.1:1: connection refused"
    )
    assert state == " SQLSTATE: 38000"
    assert "pipeline/" not in ran.stderr
