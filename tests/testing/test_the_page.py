"""The examples of docs/testing.md, run as a user's tests, with real clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.style.sources import CHECKOUT
from tests.testing.test_plugin import TestRun

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (CHECKOUT / "docs/testing.md").read_text(encoding="utf-8")


@pytest.mark.clients
def test_every_example_of_the_page_passes(tmp_path: Path) -> None:
    run = TestRun(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
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
