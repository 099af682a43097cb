"""The session that a job runs in, and what becomes of failures inside it."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the pipeline's extra is not installed")

import pyarrow as pa

from client.cluster import Cluster, TopicPartition
from pipeline import scratch
from pipeline.columns.encode import encode_records
from pipeline.console import preflight
from pipeline.errors import CorruptData, NotInstalled, SparkFailed, WrongUse
from pipeline.session import Where, session, tasks
from pipeline.spark.java import find
from tests.support.broker_process import CHECKOUT, BrokerProcess
from tests.support.compacted import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def triglot_pipeline(
    *words: str, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *words],
        cwd=CHECKOUT,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def bad_record(number: int) -> str:
    from pipeline.errors import CorruptData

    raise CorruptData("orders-0 offset 5: bad checksum")


# With the session that is there


def test_a_session_that_is_active_is_used_and_not_stopped(spark: SparkSession) -> None:
    with session() as found:
        assert found is spark
    assert spark.range(3).count() == 3


def test_another_place_to_run_is_refused_while_a_session_is_active(spark: SparkSession) -> None:
    with (
        pytest.raises(WrongUse, match="a Spark session is active already"),
        session(master="local[1]"),
    ):
        pass


def test_a_setting_that_only_a_new_session_can_have_is_refused(spark: SparkSession) -> None:
    with (
        pytest.raises(WrongUse, match=r"active does not take spark\.executor\.memory=2g"),
        session(conf={"spark.executor.memory": "2g"}),
    ):
        pass


def test_a_failure_of_ours_in_a_task_comes_out_as_itself(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    bad = udf(bad_record, "string", useArrow=False)
    with pytest.raises(CorruptData) as raised, session() as found:
        found.range(0, 1, 1, 1).select(bad("id")).collect()
    assert str(raised.value) == "orders-0 offset 5: bad checksum"


def test_what_spark_itself_refuses_is_one_line(spark: SparkSession) -> None:
    with pytest.raises(SparkFailed) as raised, session() as found:
        found.range(3).selectExpr("assert_true(id < 2)").collect()
    assert str(raised.value).startswith("Spark failed: ")
    assert "\n" not in str(raised.value)
    assert "'(id < 2)' is not true" in str(raised.value)


def test_the_tasks_of_a_job_that_runs_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.functions import udf

    go_on = tmp_path / "now"

    def wait(number: int) -> str:
        while number and not go_on.exists():
            time.sleep(0.05)
        return ""

    waiting = udf(wait, "string", useArrow=False)
    rows = spark.range(0, 2, 1, 2).select(waiting("id"))
    job = threading.Thread(target=rows.collect)
    job.start()
    try:
        wait_until(lambda: tasks(spark) == (1, 2), "one of two tasks")
    finally:
        go_on.touch()
        job.join()
    # Spark counts a little later than it answers.
    wait_until(lambda: tasks(spark) is None, "the end of the job")


# Before there is one


def test_a_remote_is_checked_before_spark_s_client_tries_for_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight, "importable", lambda module: True)
    with pytest.raises(SparkFailed, match=r"no Spark Connect server answers at 127\.0\.0\.1:1: "):
        preflight.check_remote("sc://127.0.0.1:1")
    with pytest.raises(WrongUse, match="--remote wants sc://HOST:PORT, found 'localhost:15002'"):
        preflight.check_remote("localhost:15002")
    with pytest.raises(WrongUse, match="exclude each other"):
        preflight.check(Where(master="local", remote="sc://127.0.0.1:1"))


def test_a_master_is_asked_before_spark_tries_for_a_minute() -> None:
    with pytest.raises(SparkFailed, match=r"no Spark master answers at spark://127\.0\.0\.1:1,"):
        preflight.check_master("spark://127.0.0.1:1,127.0.0.1:2")
    with socket.create_server(("127.0.0.1", 0)) as standby:
        preflight.check_master(f"spark://127.0.0.1:1,127.0.0.1:{standby.getsockname()[1]}")
    preflight.check_master("yarn")


def test_what_spark_connect_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "importable", lambda module: module != "grpc")
    with pytest.raises(NotInstalled, match=r"packages grpc: pip install 'pyspark\[connect\]'"):
        preflight.check_remote("sc://127.0.0.1:1")


@pytest.mark.parametrize(
    ("where", "is_local"),
    [
        (Where(), True),
        (Where("local"), True),
        (Where("local[4]"), True),
        (Where("local-cluster[2,1,1024]"), False),
        (Where("spark://host:7077"), False),
        (Where(conf={"spark.master": "yarn"}), False),
        (Where(remote="sc://host"), False),
    ],
)
def test_only_a_local_master_has_this_machine_s_packages(where: Where, is_local: bool) -> None:
    assert where.is_local is is_local


KILLED = """
import os, signal
from pipeline import scratch
scratch.folder()
if {kept}:
    scratch.keep()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_but_not_what_lives_or_holds_a_log_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_made", None)
    alive = scratch.folder()
    left: dict[bool, set[Path]] = {}
    for kept in (False, True):
        before = set(tmp_path.iterdir())
        command = [sys.executable, "-c", KILLED.format(kept=kept)]
        environ = {**os.environ, "TMPDIR": str(tmp_path)}
        subprocess.run(command, cwd=CHECKOUT, env=environ, check=False)
        left[kept] = set(tmp_path.iterdir()) - before
        assert len(left[kept]) == 1
    scratch.sweep(tmp_path)
    assert set(tmp_path.iterdir()) == {alive, *left[True]}
    scratch.remove()
    atexit.unregister(scratch.remove)


# In a process of its own, as users run it


def test_a_jvm_that_does_not_start_is_one_line_that_names_its_log(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    fill(broker.bootstrap, "session-any", 1)
    run = triglot_pipeline(
        "audit",
        *("--from", broker.bootstrap, "--conf", "spark.driver.memory=999999g"),
        environ={"TMPDIR": str(tmp_path)},
    )
    assert run.returncode == 12, run.stderr
    (log,) = tmp_path.glob("triglot-spark-*/spark.log")
    assert run.stderr == (
        "triglot pipeline: Spark did not start: Could not reserve enough space for "
        f"1048574951424KB object heap (Spark's own words: {log})\n"
    )
    assert "Could not reserve" in log.read_text()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_run_that_ctrl_c_ends_has_told_of_its_work_and_leaves_nothing_else(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    fill(broker.bootstrap, "session-orders", 100)
    (tmp_path / "tmp").mkdir()
    command = [
        *(sys.executable, "-m", "pipeline", "archive", "--every", "1s", "--json"),
        *("--from", broker.bootstrap, "--topic", "session-orders"),
        *("--to", str(tmp_path / "lake"), "--report", str(tmp_path / "run.svg")),
    ]
    with subprocess.Popen(
        command,
        cwd=CHECKOUT,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        assert run.stdout is not None
        told = run.stdout.readline()
        # To all of its processes, as a terminal does.
        os.killpg(run.pid, signal.SIGINT)
        out, err = run.communicate()
    assert (run.returncode, err) == (
        130,
        "triglot pipeline: archive stopped after 100 records; "
        "the same command goes on from there\n",
    )
    progress, stopped = json.loads(told), json.loads(out.splitlines()[-1])
    assert progress["end_offsets"] == {"session-orders-0": 100}
    assert progress["run"]["lag"] == 0
    assert (stopped["event"], stopped["records"], stopped["exit"]) == ("stopped", 100, 130)
    assert (tmp_path / "run.svg").read_text().startswith("<svg ")
    assert list(tmp_path.glob("tmp/triglot-*")) == []


JAVA_THAT_TELLS = """\
#!/bin/sh
case "$*" in *launcher.Main*) ;; *SparkSubmit*) echo $$ >{told}.part; mv {told}.part {told} ;; esac
exec {java} "$@"
"""


@pytest.mark.long
def test_ctrl_c_while_the_jvm_starts_leaves_no_jvm(
    tmp_path: Path, broker: BrokerProcess, spark_runs: None
) -> None:
    fill(broker.bootstrap, "session-early", 1)
    told, wrapper = tmp_path / "pid", tmp_path / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    java = find(os.environ).executable
    wrapper.write_text(JAVA_THAT_TELLS.format(told=told, java=java))
    wrapper.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "pipeline", "audit", "--from", broker.bootstrap],
        cwd=CHECKOUT,
        env={**os.environ, "JAVA_HOME": str(tmp_path / "java")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        wait_until(told.exists, "the JVM")
        run.send_signal(signal.SIGINT)
        _, err = run.communicate()
    assert (run.returncode, "audit stopped" in err) == (130, True)
    jvm = Path("/proc", told.read_text().strip())
    wait_until(lambda: not jvm.exists(), "the end of the JVM")


def fill(servers: str, topic: str, records: int) -> None:
    rows = pa.record_batch(
        [pa.nulls(records, pa.binary()), pa.array([b"x" * 10] * records, pa.binary())],
        names=["key", "value"],
    )
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, 1)
        cluster.produce(TopicPartition(topic, 0), encode_records(rows))
