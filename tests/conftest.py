"""Profiles of the property tests: the same examples each time, so that a failure is no surprise.

`--hypothesis-profile=long` looks for new ones instead.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

# Where this is set, as in many containers, each of the hundreds of brokers and commands that the
# tests start would compile every module again, which takes longer than the rest of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No deadline per example: on a shared machine it would measure the neighbours.
settings.register_profile("quick", derandomize=True, deadline=None, database=None)
settings.register_profile("long", max_examples=5_000, deadline=None, print_blob=True)
settings.load_profile("quick")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The name of a test that failed, for .ci/run, which tries it again without neighbours."""
    file = os.environ.get("TEST_FAILURES")
    if file and report.failed:
        with Path(file).open("a") as failures:
            failures.write(report.nodeid + "\n")
