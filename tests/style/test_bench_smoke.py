"""Every benchmark runs and gives all of its figures. What they are is not asserted: no timing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from bench.convert import CASES, CHECKS, TWINS
from protocol.records.transcode import IMPLEMENTATION
from tests.style.sources import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

    from bench.convert import InAProcess

GROUPS = ("produce", "fetch", "single", "latency", "startup")
SERVERS = ("triglot", "floor")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        shutil.which("gcc") is None and shutil.which("cc") is None,
        reason="the floor and the raw load are C programs, and no C compiler is installed",
    ),
]


def measured(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """The table and the data that `python -m bench` wrote with tiny loads."""
    table = tmp_path / "table.md"
    command = [sys.executable, "-m", "bench", "--tiny", "--output", str(table), *arguments]
    ran = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=500
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return table.read_text(), json.loads(table.with_suffix(".json").read_text())


@pytest.mark.parametrize("group", GROUPS)
def test_a_benchmark_gives_all_its_figures_for_both_servers(group: str, tmp_path: Path) -> None:
    table, data = measured(tmp_path, "--only", group)
    assert data["figures"]
    for figure in data["figures"]:
        for server in SERVERS:
            # A load of milliseconds may end between two readings of a CPU clock: 0 is a number too.
            assert len(figure["rounds"][server]) == 1, (figure["load"], figure["figure"], server)
            assert figure["rounds"][server][0] >= 0
        assert f"| {figure['load']} | {figure['figure']} |" in table
    assert "triglot / floor" in table


@pytest.mark.long
@pytest.mark.parametrize(("group", "cases"), [("convert", CASES), ("checks", CHECKS)])
def test_a_benchmark_of_the_loops_gives_all_its_figures_for_both(
    group: str, cases: tuple[InAProcess, ...], tmp_path: Path
) -> None:
    if IMPLEMENTATION != "compiled":
        pytest.skip("the loops in C are not built (make compiled)")
    table, data = measured(tmp_path, "--only", group)
    assert {figure["group"] for figure in data["figures"]} == {case.group for case in cases}
    for figure in data["figures"]:
        for twin in TWINS:
            assert figure["rounds"][twin][0] > 0, (figure["load"], figure["figure"], twin)
    assert "compiled / interpreted" in table


def test_readers_of_0_8_are_measured_at_our_broker_alone(tmp_path: Path) -> None:
    _, data = measured(tmp_path, "--only", "old-readers", "--against", "triglot")
    assert data["figures"]
    for figure in data["figures"]:
        assert len(figure["rounds"]["triglot"]) == 1, (figure["load"], figure["figure"])


@pytest.mark.long
@pytest.mark.parametrize(
    "group",
    [
        *("recovery", "group-commit", "time-search", "many-partitions", "validation"),
        *("transactions", "transactional-data", "transaction-load"),
    ],
)
def test_a_benchmark_of_storage_gives_all_its_figures(group: str, tmp_path: Path) -> None:
    _, data = measured(tmp_path, "--only", group, "--against", "triglot")
    assert data["figures"]
    for figure in data["figures"]:
        (found,) = figure["rounds"]["triglot"]
        assert found > 0 or figure["estimate"] == 0, (figure["load"], figure["figure"])


@pytest.mark.long
@pytest.mark.parametrize(
    "group",
    [
        "offset-commits",
        "offset-commits-long",
        "offset-fetch",
        "offset-load",
        "offset-memory",
        "group-heartbeats",
        "group-join",
    ],
)
def test_a_benchmark_of_groups_gives_all_its_figures(group: str, tmp_path: Path) -> None:
    _, data = measured(tmp_path, "--only", group, "--against", "triglot")
    assert data["figures"]
    for figure in data["figures"]:
        # Memory need not have grown, and a CPU clock need not have moved.
        assert len(figure["rounds"]["triglot"]) == 1, (figure["load"], figure["figure"])


def test_a_report_names_the_machine_and_the_command(tmp_path: Path) -> None:
    table, data = measured(tmp_path, "--only", "latency", "--against", "floor")
    assert {"date", "cpu", "cores", "memory", "kernel", "python"} <= set(data["machine"])
    assert "--only latency" in table
