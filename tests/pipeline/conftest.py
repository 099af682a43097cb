"""The broker and the one Spark session that the pipeline's tests share.

Both start when a test first asks for them: a test without `spark` needs no JVM. Each test uses
topics, state and output of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.support import fetched
from tests.support.broker_process import BrokerProcess
from tests.support.schema_registry import SchemaRegistry
from tests.support.spark_connector import connector_jars, spark_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

#: A short life is spent in starting: the second compiler and the parallel collector only cost.
JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session", autouse=True)
def without_pandas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Only Spark Connect needs pandas, which `triglot[pipeline]` does not bring. With this folder
    on the path, here and of workers, it is not there."""
    folder = tmp_path_factory.mktemp("without-pandas")
    (folder / "pandas.py").write_text("raise ImportError('pandas is not there')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of ours in a process of its own. It keeps records however old their times are."""
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data, settings={"log.retention.ms": "-1"}) as process:
        yield process


@pytest.fixture(scope="session")
def spark_runs() -> None:
    """Spark can be started on this machine; tests that ask for it are skipped otherwise, or fail
    where TEST_REQUIRE_CLIENTS has `spark`."""
    if importlib.util.find_spec("pyspark") is None:
        end_of_test("spark", "the pipeline's extra is not installed")
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        end_of_test("spark", "Spark needs Java, and there is none")


@pytest.fixture(scope="session")
def spark(
    spark_runs: None, without_pandas: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Spark in local mode on two threads, where `format("triglot")` is registered.

    Stop no query but your own, and leave the session's settings as they are.
    """
    from pyspark.sql import SparkSession

    from pipeline.source import register

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # As a user's session: it is `register` that lets workers find the checkout and its Python.
        patch.chdir(folder)
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            patch.delenv(name, raising=False)
        patch.setenv("PYTHONPATH", str(without_pandas))
        session = (
            SparkSession.builder.master("local[2]")
            .appName("triglot-tests")
            .config("spark.driver.extraJavaOptions", JVM_FLAGS)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.jars", spark_jars())
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def with_pandas(spark: SparkSession, without_pandas: Path) -> Iterator[None]:
    """Spark wants pandas in the driver for what passes columns through Python; not in workers."""
    try:
        connector_jars()
    except fetched.NotAvailable as reason:
        end_of_test("spark", f"Spark's Avro is not to be had: {reason}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [one for one in sys.path if one != str(without_pandas)])
        importlib.invalidate_caches()
        yield
    for name in [name for name in sys.modules if name.split(".")[0] == "pandas"]:
        del sys.modules[name]


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as running:
        yield running
