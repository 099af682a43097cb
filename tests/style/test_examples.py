"""The examples of README.md and of the demo, run as they stand against an installed broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
import yaml

from docs.recording import PICTURE, first_lines, typed
from tests.clients.available import end_of_test
from tests.style.sources import CHECKOUT
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.style.conftest import Started
    from tests.support.installed import Installation

pytestmark = pytest.mark.clients

SVG = "{http://www.w3.org/2000/svg}"


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


def test_the_example_that_the_readme_names_goes_on_where_it_was(started: Started) -> None:
    program = (CHECKOUT / "examples" / "hello.py").read_text(encoding="utf-8")
    assert "127.0.0.1:9092" in program

    program = program.replace("127.0.0.1:9092", f"127.0.0.1:{started.port}")
    printed = [output_of("-c", program) for _ in range(2)]

    assert printed == [[f"{offset} b'hello from kafka-python'"] for offset in range(2)]


def test_the_first_lines_of_the_readme_print_what_its_picture_shows(
    installation: Installation, tmp_path: Path
) -> None:
    if shutil.which("kcat") is None:
        end_of_test("kerberos", "kcat, a package of Debian's, is not installed")
    first, second = free_port(), free_port()
    there = {
        "127.0.0.1:9092": f"127.0.0.1:{first}",
        "9404": str(second),
        "triglot serve": f"triglot serve --listen 127.0.0.1:{first}",
        "triglot consume": f"triglot consume --bootstrap 127.0.0.1:{first}",
    }

    install, *others = first_lines()
    done = list(typed(others, bin=installation.bin, folder=tmp_path, instead=there))

    assert install == "pip install ."
    assert done[-2].printed == "an order\n"
    drawn = ElementTree.fromstring(PICTURE.read_text(encoding="utf-8"))
    shown = re.sub(r"\s", "", "".join(one.text or "" for one in drawn.iter(f"{SVG}text")))
    printed = [line for one in done[1:] for line in one.printed.splitlines()]
    for line in (*first_lines(), *printed):
        assert re.sub(r"\s", "", line) in shown, "make recording"


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
