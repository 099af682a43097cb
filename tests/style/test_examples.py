"""The examples of the README and of the demo, run as they stand against an installed broker."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.style.sources import CHECKOUT

if TYPE_CHECKING:
    from tests.style.conftest import Started

pytestmark = pytest.mark.clients


def output_of(*arguments: str, **environ: str) -> list[str]:
    """The lines that this environment's Python prints, run in the folder of the examples."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=CHECKOUT / "examples",
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_example_of_the_readme_goes_on_where_it_was(started: Started) -> None:
    program = (CHECKOUT / "examples" / "hello.py").read_text(encoding="utf-8")
    assert "127.0.0.1:9092" in program

    program = program.replace("127.0.0.1:9092", f"127.0.0.1:{started.port}")
    printed = [output_of("-c", program) for _ in range(2)]

    assert printed == [[f"{offset} b'hello from kafka-python'"] for offset in range(2)]


def test_the_clients_of_the_demo_exchange_records(started: Started) -> None:
    demo = yaml.safe_load((CHECKOUT / "compose.yaml").read_text(encoding="utf-8"))["services"]

    def run(service: str, **environ: str) -> list[str]:
        python, *arguments = demo[service]["command"]
        assert python == "python"
        return output_of(*arguments, BOOTSTRAP=f"127.0.0.1:{started.port}", COUNT="5", **environ)

    written = run("producer", EVERY_MS="10")
    read = run("consumer")

    assert written == [f"wrote record {number} to offset {number}" for number in range(5)]
    assert len(read) == 5
    assert read[4] == "4: green -> record 4 (number=4 from=producer.py)"
