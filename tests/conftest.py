"""Profiles of the property tests: the same examples each time, so that a failure is no surprise.

`--hypothesis-profile=long` looks for new ones instead.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from config.platforms import PORTABLE
from tests.support import forked_commands

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where this is set, as in many containers, each of the hundreds of brokers and commands that the
# tests start would compile every module again, which takes longer than the rest of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No deadline per example: on a shared machine it would measure the neighbours.
settings.register_profile("quick", derandomize=True, deadline=None, database=None)
settings.register_profile("long", max_examples=5_000, deadline=None, print_blob=True)
settings.load_profile("quick")


@pytest.fixture(scope="session", autouse=True)
def commands_are_forked() -> Iterator[None]:
    """Brokers of tests start in a tenth of the time that an interpreter of their own takes."""
    with forked_commands.server():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if PORTABLE:
        reason = pytest.mark.skip(reason="the portable path does without it")
        for item in items:
            if item.get_closest_marker("linux"):
                item.add_marker(reason)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The name of a test that failed, for .ci/run, which tries it again without neighbours."""
    file = os.environ.get("TEST_FAILURES")
    if file and report.failed:
        with Path(file).open("a") as failures:
            failures.write(report.nodeid + "\n")
