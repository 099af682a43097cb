"""The examples of docs/testing.md, run as a user's tests, with real clients."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.style.sources import CHECKOUT
from tests.testing.test_plugin import TestRun

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (CHECKOUT / "docs/testing.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
FRAMEWORKS = {"FastStream": "faststream", "Faust": "faust", "Spark": "pyspark"}
OF_FRAMEWORKS = {
    name: next(one for one in EXAMPLES if re.search(rf"^(from|import) {module}", one, re.M))
    for name, module in FRAMEWORKS.items()
}


@pytest.mark.clients
def test_every_example_of_the_page_passes(tmp_path: Path) -> None:
    run = TestRun(tmp_path)
    examples = [one for one in EXAMPLES if one not in OF_FRAMEWORKS.values()]
    tests = sum(len(re.findall(r"^ *(?:async )?def test_", one, re.M)) for one in examples)
    heading = "import pytest\n\n"
    imports = (
        "from confluent_kafka import Producer\n"
        "from aiokafka import AIOKafkaProducer\n"
        "from testing import Broker\n"
    )
    for number, example in enumerate(examples):
        text = heading + imports + example.replace("triglot.testing", "testing")
        (tmp_path / f"test_example_{number}.py").write_text(text)
    run.write("", "asyncio_mode = auto\n")
    told = run.run(plugins=("pytest_asyncio.plugin",))
    assert tests == len(examples) == 10
    assert f"{tests + 1} passed" in told, told  # one of them has two values


@pytest.mark.clients
@pytest.mark.parametrize("framework", ["FastStream", "Faust"])
def test_an_application_of_a_framework_runs_on_it(framework: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(FRAMEWORKS[framework]) is None:
        end_of_test("python", f"{framework} is not installed")
    run = TestRun(tmp_path)
    run.write(OF_FRAMEWORKS[framework], "asyncio_mode = auto\n")
    assert "1 passed" in (told := run.run(plugins=("pytest_asyncio.plugin",))), told


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(600)  # a session of its own, which users' tests have, too
def test_a_query_of_spark_runs_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    if importlib.util.find_spec("pyspark") is None:
        end_of_test("spark", "the pipeline's extra is not installed")
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        end_of_test("spark", "Spark needs Java, and there is none")
    run = TestRun(tmp_path)
    run.write(OF_FRAMEWORKS["Spark"].replace("from triglot.", "from "))
    assert "1 passed" in (told := run.run()), told


def test_the_ini_file_of_the_page_is_taken(tmp_path: Path) -> None:
    run = TestRun(tmp_path)
    (ini,) = re.findall(r"```ini\n\[pytest\]\n(.*?)```", PAGE, flags=re.DOTALL)
    run.write(
        "def test_it(triglot):\n"
        "    assert triglot.settings['auto.create.topics.enable'] == 'false'\n"
        "    assert len(triglot.topic('orders').create(-1).ends()) == 3\n",
        ini,
    )
    assert "1 passed" in run.run()


def test_the_options_of_the_page_are_in_the_help(tmp_path: Path) -> None:
    run = TestRun(tmp_path)
    run.write("")
    told = run.run("--help")
    options = set(re.findall(r"`(--triglot-[a-z-]+)", PAGE))
    assert options == set(re.findall(r"--triglot-[a-z-]+", told))
    assert len(options) == 4
