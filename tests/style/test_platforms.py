"""Nothing is called that macOS or Windows lacks: their own stubs say so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.style.sources import CHECKOUT

OF_LINUX = r"^broker/(processes|supervision)/"
"""Rooms that `tools.serve` enters on Linux alone."""
PRODUCT = ("protocol", "config", "storage", "broker", "client", "testing", "tools")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_what_python_lacks_on_a_system_is_not_used_there(system: str) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-error-summary", "--no-warn-unreachable"),
            *("--platform", system, "--cache-dir", f".mypy_cache/{system}"),
            *("--exclude", OF_LINUX, *PRODUCT),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
