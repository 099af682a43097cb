"""What a user gets: one name in the environment, and a command that works from any folder."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker._version import VERSION
from tests.style.sources import CHECKOUT, FLOORS, python_files

if TYPE_CHECKING:
    from tests.style.conftest import Distribution, Installation

COMPILED = "triglot/_flat/protocol/records/_loops"
"""The extension module, which a build without a compiler lacks, and its stub."""


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_a_wheel_installs_the_single_name_triglot(distribution: Distribution) -> None:
    top = {name.partition("/")[0] for name in names_in(distribution.wheel)}
    assert top == {"triglot", f"triglot-{VERSION}.dist-info"}


def test_a_wheel_holds_every_module_of_the_floors_and_nothing_else(
    distribution: Distribution,
) -> None:
    modules = {name for name in names_in(distribution.wheel) if name.startswith("triglot/")}
    modules = {name for name in modules if not name.startswith(COMPILED)}
    flat = set(python_files(*FLOORS)) - {"broker/_launch.py"}
    assert modules == {"triglot/__init__.py", "triglot/__main__.py"} | {
        f"triglot/_flat/{path}" for path in flat
    }


def test_the_record_loops_are_compiled_where_there_is_a_compiler(
    distribution: Distribution, installation: Installation
) -> None:
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None and "TEST_REQUIRE_COMPILED" not in os.environ:
        pytest.skip(f"no compiler {compiler}")
    assert COMPILED + sysconfig.get_config_var("EXT_SUFFIX") in names_in(distribution.wheel)
    flat = installation.site_packages / "triglot" / "_flat"
    run = subprocess.run(
        [
            *(installation.bin / "python", "-c"),
            "from protocol.records.transcode import IMPLEMENTATION; print(IMPLEMENTATION)",
        ],
        cwd=flat,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "compiled\n"


def test_a_source_distribution_builds_the_same_wheel(distribution: Distribution) -> None:
    with (
        zipfile.ZipFile(distribution.wheel) as direct,
        zipfile.ZipFile(distribution.wheel_of_sdist) as of_sdist,
    ):
        assert sorted(direct.namelist()) == sorted(of_sdist.namelist())
        for name in direct.namelist():
            if not name.endswith("/RECORD"):
                assert direct.read(name) == of_sdist.read(name), name


def test_the_locks_hold_every_dependency_that_the_metadata_names(
    distribution: Distribution,
) -> None:
    with zipfile.ZipFile(distribution.wheel) as archive:
        metadata = archive.read(f"triglot-{VERSION}.dist-info/METADATA").decode()
    wanted = {
        line.removeprefix("Requires-Dist: ").partition(">")[0]
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    }
    locked = {
        line.partition("==")[0]
        for line in (CHECKOUT / "requirements.lock").read_text().splitlines()
        if not line.startswith("#")
    }
    # python-snappy brings cramjam, which is where zstd comes from as well; google-re2 has not been
    # built for every platform, and is an extra.
    assert locked == wanted | {"cramjam", "google-re2"}


@pytest.fixture
def folder_with_a_config_of_its_own(tmp_path: Path) -> Path:
    """A user's project, in which `config`, `storage`, ... are other people's names."""
    for name in FLOORS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "raise SystemExit('the folder of the user was imported')\n"
        )
    return tmp_path


@pytest.mark.parametrize("path", [None, "."], ids=["", "PYTHONPATH=."])
@pytest.mark.parametrize("command", [["triglot"], ["python", "-m", "triglot"]], ids=" ".join)
def test_the_command_works_from_a_folder_that_has_its_own_config(
    command: list[str],
    path: str | None,
    folder_with_a_config_of_its_own: Path,
    installation: Installation,
) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environ["PYTHONPATH"] = path

    run = subprocess.run(
        [installation.bin / command[0], *command[1:], "version"],
        cwd=folder_with_a_config_of_its_own,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert VERSION in run.stdout
    assert run.stderr == ""


def test_importing_the_installed_name_leaves_the_path_alone(
    installation: Installation, tmp_path: Path
) -> None:
    program = "import sys; before = list(sys.path); import triglot; assert sys.path == before"
    subprocess.run([installation.bin / "python", "-c", program], cwd=tmp_path, check=True)


STARTS_THE_CLEANER = """
import asyncio, sys, triglot
sys.path.insert(0, triglot.__file__.rpartition("/")[0] + "/_flat")
from broker.child_process import ChildProcess, spawn

async def run():
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    said = []
    def end(status):
        said.append(status)
        ended.set()
    def line(text):
        said.append(text.decode())
        child.finish()
    process = spawn("broker.cleaner_process")
    child = ChildProcess(loop, process, on_line=line, on_end=end)
    child.send(b'{"plan": "{}", "bytes_per_second": null}\\n')
    await asyncio.wait_for(ended.wait(), 20)
    print(said)

asyncio.run(run())
"""


@pytest.mark.parametrize("path", [None, "."], ids=["", "PYTHONPATH=."])
def test_an_installed_broker_starts_its_own_process_for_compaction(
    path: str | None, folder_with_a_config_of_its_own: Path, installation: Installation
) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environ["PYTHONPATH"] = path
    run = subprocess.run(
        [installation.bin / "python", "-P", "-c", STARTS_THE_CLEANER],
        cwd=folder_with_a_config_of_its_own,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    # A plan without anything in it is refused, and the end of its input ends the process.
    assert '"error": "TypeError' in run.stdout, run.stdout + run.stderr
    assert run.stdout.rstrip().endswith(", 0]"), run.stdout
