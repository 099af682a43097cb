"""Tests of the parts that are other ones on macOS and Windows, run on these here.

`make test-portable` runs all tests of the broker so, in an hour.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from config.platforms import PORTABLE, PORTABLE_VARIABLE
from tests.style.sources import CHECKOUT

PARTS = {
    "files": ["tests/storage/test_log.py"],
}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(PORTABLE, reason="the portable path is the one that all tests have here")
@pytest.mark.parametrize("part", PARTS)
def test_a_part_holds_on_the_portable_path(part: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "TEST_FAILURES"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long"]
        + [str(CHECKOUT / name) for name in PARTS[part]],
        cwd=CHECKOUT,
        env={**environ, PORTABLE_VARIABLE: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
