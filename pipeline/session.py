"""The Spark session that a job runs in: the one that is there, or one that is made for it.

    with session() as spark:                            local, on all cores
    with session(master="spark://host:7077") as spark:  on a cluster
    with session(remote="sc://host:15002") as spark:    through Spark Connect; needs no Java here

A session that is active already, in a notebook or a program of the user's, is used as it is and
never stopped. What goes wrong inside leaves as a Failure of one line. A JVM of our own
writes what it has to say to a file, which that line names where it tells more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline import scratch
from pipeline.errors import Failure, NotInstalled, SparkFailed, WrongUse
from pipeline.spark import java
from pipeline.spark.spark_failures import translated
from pipeline.spark.worker_python import worker_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""All cores; a task is tried four times, as on a cluster. Spark's `local[*]` does not try again."""
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Flags of a local JVM. It starts in half the CPU time, and the work is done in Python's tasks."""

AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{name}.maxLength={most}"
    for name, most in (("bytes", 64 << 20), ("string", 64 << 20), ("collectionItems", 16 << 20))
)
"""Room is made for as much as a value claims to have, and a JVM that has not got it ends."""

LOCAL_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"{SHORT_RUN} {AVRO_LIMITS}",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
CLUSTER_CONF = {"spark.sql.session.timeZone": "UTC", "spark.ui.showConsoleProgress": "false"}

ROOT = str(Path(__file__).resolve().parents[__name__.count(".")])
"""Where workers import us from: the checkout, or the folder that we are installed in."""

CORES_UNKNOWN = 8
LOG = "spark.log"
"""In the scratch folder; of this process's JVM, which outlives its sessions."""


class Where(NamedTuple):
    """The Spark to run on, as the user said it."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = {}

    @property
    def is_local(self) -> bool:
        """Whether its executors are threads of a JVM on this machine."""
        master = self.master or self.conf.get("spark.master") or LOCAL
        return self.remote is None and not under_spark_submit() and is_one_machine(master)


def is_one_machine(master: str) -> bool:
    """Whether a master's tasks have this machine's files and Python packages."""
    return master == "local" or master.startswith("local[")


def under_spark_submit() -> bool:
    """Whether a JVM runs already, and has this process as its child."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def active() -> SparkSession | None:
    """The session that a notebook, a shell or the caller's program has made; None without one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    # Asked in another thread than it was made in, Spark knows of no active one, but of an instance.
    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if session is None or "connect" in type(session).__module__:
        return session
    return session if session.sparkContext._jsc is not None else None


@contextlib.contextmanager
def session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    name: str = "triglot",
) -> Iterator[SparkSession]:
    """A session in which `format("triglot")` is known. Stopped at the end if it was made here.

    Raises WrongUse where one is active and another is asked for, or settings that only a new one
    can have, NotInstalled, NoJava, SparkFailed; and what is raised inside it as the Failure
    that it stands for.
    """
    where = Where(master, remote, dict(conf or {}))
    found = active()
    if found is not None:
        if master is not None or remote is not None:
            raise WrongUse("a Spark session is active already: stop it, or name no other to run on")
        _set_in(found, where.conf)
        with _translating(None):
            _prepare(found)
            yield found
        return
    with _translating(where):
        made = _connected(where, name) if where.remote is not None else _started(where, name)
        try:
            _prepare(made)
            yield made
        finally:
            _stop(made)


def _set_in(found: SparkSession, conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        try:
            found.conf.set(key, value)
        except Exception as error:
            raise WrongUse(
                f"the Spark session that is active does not take {key}={value}: set it where that "
                "session is made"
            ) from error


def cores(spark: SparkSession) -> int:
    """The number of tasks that run at once; of a cluster behind Spark Connect, CORES_UNKNOWN."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context, and says so in its own way
        return CORES_UNKNOWN


def tasks(spark: SparkSession) -> tuple[int, int] | None:
    """Done tasks, and all tasks, of the jobs that run now; None where none run, and through Spark
    Connect."""
    try:
        tracker = spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    except Exception:  # a JVM that has been stopped, or Spark Connect, each in its own way
        return None
    known = [stage for stage in stages if stage is not None]
    total = sum(stage.numTasks for stage in known)
    return (sum(stage.numCompletedTasks for stage in known), total) if total else None


def _prepare(spark: SparkSession) -> None:
    from pipeline.shipping import ship
    from pipeline.source import register

    ship(spark)  # nothing where the tasks run on this machine
    register(spark)


def _stop(spark: SparkSession) -> None:
    # A JVM that has died cannot be stopped, and what it died of is the failure to tell.
    with contextlib.suppress(Exception):
        spark.stop()


@contextlib.contextmanager
def _translating(where: Where | None) -> Iterator[None]:
    try:
        yield
    except Failure:
        raise
    except ImportError as error:
        raise NotInstalled(missing(error)) from error
    except Exception as error:
        own_jvm = where is not None and where.remote is None and not under_spark_submit()
        log = scratch.folder() / LOG if own_jvm else None
        failure = translated(error, log)
        if log is not None and isinstance(failure, SparkFailed):
            scratch.keep()
            with log.open("a", encoding="utf-8") as stream:
                traceback.print_exception(error, file=stream)
        raise failure from error


def missing(error: ImportError) -> str:
    """The line for a package of the pipeline that is not there, or too old."""
    reason = " ".join(str(error).split()) or repr(error)
    return f"{reason}: pip install triglot[pipeline]"


def _connected(where: Where, name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).remote(str(where.remote))
    for key, value in where.conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _started(where: Where, name: str) -> SparkSession:
    """On a JVM of our own; or on spark-submit's, which has its master and settings."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setAppName(name)
    settings = {**(LOCAL_CONF if where.is_local else CLUSTER_CONF), **where.conf}
    if where.master is not None:
        settings["spark.master"] = where.master
    elif not under_spark_submit():
        settings.setdefault("spark.master", LOCAL)
    for key, value in settings.items():
        conf.set(key, value)
    _quieten()
    with _environment(where):
        if SparkContext._gateway is None:
            launch: Callable[..., Any] = launch_gateway
            # Ctrl-C reaches the main thread alone. In the midst of this it would take away what
            # the JVM is about to need, which then fails and does not end.
            with (scratch.folder() / LOG).open("ab") as log, ThreadPoolExecutor(1) as launching:
                gateway = launching.submit(launch, conf, {"stdout": log, "stderr": log}).result()
            SparkContext(conf=conf, gateway=gateway)
        else:
            SparkContext(conf=conf)
        return SparkSession.builder.getOrCreate()


def _quieten() -> None:
    """Spark prints on standard error what it also raises."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextlib.contextmanager
def _environment(where: Where) -> Iterator[None]:
    """The environment that the JVM inherits, and hands down to its Python workers."""
    changed: dict[str, str | None] = {}
    if not under_spark_submit():
        changed["JAVA_HOME"] = java.find(os.environ).home(scratch.folder())
    if where.is_local:
        path = os.environ.get("PYTHONPATH")
        changed["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, path)))
        # The same interpreter with the same packages, whatever `python3` is.
        named = os.environ.get("PYSPARK_PYTHON")
        changed["PYSPARK_PYTHON"] = named or worker_python(scratch.folder())
    before = {key: os.environ.get(key) for key in changed}
    _set(changed)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for key, value in variables.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
