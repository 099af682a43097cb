"""Where Spark runs second copies of slow tasks nothing is written, and reading goes on."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.archive_runs import made
from tests.pipeline.conftest import JVM_FLAGS
from tests.support.broker_process import CHECKOUT
from tests.support.caller import Caller
from tests.support.installed import environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PROGRAM = """
import sys
sys.path.insert(0, {checkout!r})
from pyspark.sql import SparkSession
from pipeline.errors import WrongUse
from pipeline.jobs.archive import archive
from pipeline.session import session
from pipeline.spark.spark_failures import translated

SparkSession.builder.master("local[2]").config("spark.speculation", "true").config(
    "spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").config(
    "spark.driver.bindAddress", "127.0.0.1").config(
    "spark.driver.extraJavaOptions", {flags!r}).getOrCreate()
at = {{"kafka.bootstrap.servers": {servers!r}}}
with session() as spark:
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.read.format("triglot").options(**at, subscribe={topic!r}).load()
    print("read", rows.count())
    written = rows.select("value").write.format("triglot").options(**at, topic={topic!r})
    streamed = spark.readStream.format("triglot").options(**at, subscribe={topic!r}).load()
    writing = streamed.select("value").writeStream.format("triglot")
    writing = writing.options(**at, topic={topic!r}, checkpointLocation="state")
    for begin in (
        lambda: written.mode("append").save(),
        lambda: writing.trigger(availableNow=True).start().awaitTermination(),
        lambda: archive("lake", servers={servers!r}, topics=[{topic!r}]),
    ):
        try:
            begin()
            print("not refused")
        except Exception as error:
            print(type(translated(error, None)).__name__, translated(error, None))
    print("read", rows.count())
"""


def test_neither_sink_nor_job_writes_where_tasks_run_twice(
    broker: BrokerProcess, spark_runs: None, tmp_path: Path
) -> None:
    with Caller(broker.host, broker.port) as caller:
        topic = made(caller)
        topic.write(1)
    told = {"servers": broker.bootstrap, "topic": topic.name, "flags": JVM_FLAGS}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(checkout=str(CHECKOUT), **told)],
        cwd=tmp_path,
        env=environment(None, PYSPARK_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        check=False,
    )
    first, *refused, last = run.stdout.splitlines()
    assert (first, last) == ("read 20", "read 20"), run.stdout + run.stderr
    assert len(refused) == 3
    for line in refused:
        assert line.startswith("WrongUse spark.speculation is true"), line
        assert line.endswith("start Spark with --conf spark.speculation=false")
