"""The pipeline as it is installed: the notebook, the command of the image, and spark-submit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pipeline.archiving.archive_files import list_files
from tests.pipeline.conftest import JVM_FLAGS
from tests.support.broker_process import CHECKOUT
from tests.support.caller import Caller
from tests.support.compacted import keyed, wait_until
from tests.support.installed import (
    Installation,
    built,
    copied_sources,
    environment,
    folder_of_a_user,
    install,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(300)]

AS_JUPYTER = """
import sys, nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text") or sorted(output.data))
"""
"""Runs a notebook in a kernel of this Python, and prints what its cells have put out."""

RECORDS = 30
KEYS = ("blue", "green", "red")
STOPPED_BY_SIGTERM = 143
SHORT_RUN = {"JDK_JAVA_OPTIONS": JVM_FLAGS}
"""For those who set no flags of Java themselves."""


@pytest.fixture(scope="module")
def installation(spark_runs: None, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installed")
    wheel = built(copied_sources(folder / "source"), folder / "dist", "--wheel")
    return install(wheel, folder / "venv")


@pytest.fixture(scope="module")
def demo(broker: BrokerProcess) -> str:
    """The broker, with such records in the demo's topic as its producer writes."""
    rows = [(KEYS[number % 3].encode(), b"record %d" % number) for number in range(RECORDS)]
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic("demo")
        caller.produce("demo", keyed(*rows))
    return broker.bootstrap


def output_of(words: list[object], folder: Path, environ: Mapping[str, str]) -> str:
    run = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    return run.stdout


@pytest.mark.clients
def test_the_notebook_runs_where_the_user_has_packages_of_our_names(
    installation: Installation, demo: str, tmp_path: Path
) -> None:
    # The folder is first on the path of the driver and of its workers.
    environ = environment(".", BOOTSTRAP=demo, FOLDER=str(tmp_path / "lake"), **SHORT_RUN)
    notebook = CHECKOUT / "examples" / "pipeline_notebook.ipynb"
    words = [installation.bin / "python", "-c", AS_JUPYTER, notebook]

    said = output_of(words, folder_of_a_user(tmp_path), environ)

    for key in KEYS:
        assert re.search(rf"\| *{key}\| +{RECORDS // len(KEYS)}\|", said)
    assert f"{RECORDS} records kept, {RECORDS} in the topic" in said
    assert "['text/html', 'text/plain']" in said
    assert "</html>" in (tmp_path / "lake" / "report.html").read_text()


@pytest.mark.clients
def test_the_demos_pipeline_archives_the_topic_and_stops_in_order(
    installation: Installation, demo: str, tmp_path: Path
) -> None:
    services = yaml.safe_load((CHECKOUT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    program, *words = services["pipeline"]["command"]
    in_its_place = {"broker:9092": demo, "/lake/demo": str(tmp_path / "demo"), "10s": "1s"}
    process = subprocess.Popen(
        [installation.bin / program, *(in_its_place.get(word, word) for word in words)],
        cwd=tmp_path,
        env=environment(None),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: archived(tmp_path / "demo") == RECORDS, "the archive", within_s=200)
        process.terminate()
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == STOPPED_BY_SIGTERM, said
    assert "Traceback" not in said
    assert archived(tmp_path / "demo") == RECORDS


def archived(folder: Path) -> int:
    """Records of the demo's topic in the files that are there."""
    if not folder.exists():
        return 0
    return sum(file.end - file.start for file in list_files(str(folder)) if file.topic == "demo")


def test_a_program_for_spark_submit_sends_what_its_executors_lack(
    installation: Installation, demo: str, tmp_path: Path
) -> None:
    import pyspark

    spark_submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environ = environment(
        None,
        PYSPARK_DRIVER_PYTHON=str(installation.bin / "python"),
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        **SHORT_RUN,
    )
    words = ["--master", "local-cluster[1,1,512]", "--conf", "spark.executor.memory=512m"]
    program = CHECKOUT / "examples" / "pipeline_submit.py"

    said = output_of([spark_submit, *words, program, demo, "demo"], tmp_path, environ)

    assert said.splitlines() == [f"{key}: {RECORDS // len(KEYS)}" for key in KEYS]
