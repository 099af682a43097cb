"""The Python of Spark's workers: what it imports, and where it is left as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from pipeline.spark.worker_python import worker_python
from protocol.records.builder import build_batch
from tests.support.broker_process import CHECKOUT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_700_000_000_000
ASK = "import pyspark, py4j; print(pyspark.__file__, py4j.__file__)"
INSTALLED = Path(pyspark.__file__).parents[1]


def _asked(python: str, *path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [python, "-c", ASK]
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def test_workers_import_pyspark_where_it_is_installed_and_not_from_the_archive_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    archives = sorted((INSTALLED / "pyspark" / "python" / "lib").glob("*.zip"), reverse=True)
    assert [one.name.partition("-")[0] for one in archives] == ["pyspark.zip", "py4j"]
    assert _asked(sys.executable, *archives).count(".zip") == 2
    python = worker_python(tmp_path)
    found = f"{INSTALLED / 'pyspark' / '__init__.py'} {INSTALLED / 'py4j' / '__init__.py'}"
    assert _asked(python, *archives) == found
    assert _asked(python) == found
    assert worker_python(tmp_path) == python


def test_the_rest_of_the_path_stays_as_it_is_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    folders = [tmp_path / "a * b", tmp_path / "it's", tmp_path / "c"]
    for folder in folders:
        folder.mkdir()
    given = [folders[0], Path("/spark/python/lib/pyspark.zip"), *folders[1:]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, given))}
    asked = subprocess.check_output(
        [worker_python(tmp_path), "-c", "import sys; print(*sys.path, sep='\\n')"],
        env=environment,
        text=True,
    )
    there = asked.splitlines()
    assert [one for one in there if one.startswith(str(tmp_path))] == [*map(str, folders)]
    assert not [one for one in there if one.endswith("pyspark.zip")]


def test_another_spark_and_a_folder_where_nothing_may_be_executed_leave_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert worker_python(tmp_path) == sys.executable
    monkeypatch.delenv("SPARK_HOME")
    (tmp_path / "python").write_text("#!/bin/sh\n")
    (tmp_path / "python").chmod(0o600)
    assert worker_python(tmp_path) == sys.executable


def test_the_workers_of_a_session_import_the_installed_pyspark(spark: SparkSession) -> None:
    def place(_: int) -> str:
        return str(pyspark.__file__)

    (found,) = spark.sparkContext.parallelize([0], 1).map(place).collect()
    assert Path(found).parents[1] == INSTALLED


def test_records_become_columns_without_pandas() -> None:
    """Its import takes each new Python process of Spark's longer than all of ours."""
    assert find_spec("pandas") is not None
    program = (
        "import sys\n"
        "from pipeline.columns.decode import decode_pieces\n"
        "place = dict(topic='orders', partition=3, start=0, end=100, headers=True)\n"
        "pieces = decode_pieces(sys.stdin.buffer.read(), **place)\n"
        "print(sum(piece.num_rows for piece in pieces), 'pandas' in sys.modules)"
    )
    entries = build_batch(
        [(NOW_MS, b"k", b"v", [("h", b"w")]), (-1, None, b"v", ()), (NOW_MS, b"k", None, ())]
    )

    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CHECKOUT,
        input=entries,
        capture_output=True,
        check=False,
    )

    assert ended.stdout == b"3 False\n", ended.stderr.decode()
