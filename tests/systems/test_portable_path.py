"""Tests of what is done in another way on macOS and Windows, run in that way here.

`make test-portable` runs all tests of the broker so, in half an hour and more.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from config.platforms import PORTABLE, PORTABLE_VARIABLE
from tests.style.sources import CHECKOUT

PARTS = {
    "files": [
        f"tests/storage/test_{name}.py"
        for name in (
            *("bounded_filesystem", "data_dir", "directory_syncs", "disk_full", "failed_syncs"),
            *("filesystem", "log", "open_segments", "removal", "replacing", "retention"),
            *("truncation", "unsynced_filesystem"),
        )
    ],
    "network": ["tests/broker/network", "tests/broker/fetching", "tests/broker/background"],
    "brokers of tests": [
        f"tests/testing/test_{name}.py" for name in ("broker", "faults", "inline", "snapshots")
    ],
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
