"""The distribution, built from a copy of the checkout, installed and started as users do it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.style.dockerfile import stages
from tests.style.sources import CHECKOUT, FLOORS
from tests.support.server_process import RunningProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

READY_LINE = re.compile(r"listening on 127\.0\.0\.1:(?P<port>\d+)")
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


class Distribution(NamedTuple):
    wheel: Path
    """Built straight from the checkout."""
    wheel_of_sdist: Path
    """Built from the source distribution, as pip does where no wheel fits."""


class Installation(NamedTuple):
    site_packages: Path
    bin: Path


def built(source: Path, into: Path, *kinds: str) -> Path:
    """The wheel that `python -m build` makes of this folder, with no network."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), *kinds]
    run = subprocess.run(
        [*command, str(source)], capture_output=True, text=True, check=False, stdin=None
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = into.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    # A copy, because a build leaves a build/ folder behind whose stale files a later one takes in.
    folder = tmp_path_factory.mktemp("distribution")
    for name in SOURCES:
        (folder / "source").mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / name, folder / "source" / name)
    for name in FLOORS:
        shutil.copytree(
            CHECKOUT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    of_sdist = built(folder / "source", folder / "from-sdist")
    return Distribution(built(folder / "source", folder / "direct", "--wheel"), of_sdist)


@pytest.fixture(scope="session")
def installation(
    distribution: Distribution, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """A virtual environment with the wheel in it; the dependencies are lent by this one."""
    folder = tmp_path_factory.mktemp("installation")
    venv.create(folder, with_pip=False, symlinks=True)
    installed = Installation(
        Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)})), folder / "bin"
    )
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"),
            *("--python", str(installed.bin / "python")),
            *("install", "--no-deps", "--no-index", "--no-compile", str(distribution.wheel)),
        ],
        check=True,
    )
    (installed.site_packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return installed


class Started(NamedTuple):
    port: str
    bin: Path
    """The folder with the command that was started."""


@pytest.fixture(scope="session")
def started(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """The installed broker, run by the command of the container image."""
    folder = tmp_path_factory.mktemp("container")
    in_its_place = {"/data": str(folder / "data"), "0.0.0.0:9092": "127.0.0.1:0"}
    image = stages(CHECKOUT / "Dockerfile")[-1]
    program, *arguments = (in_its_place.get(word, word) for word in image.only("CMD").command())
    process = RunningProcess(
        [str(installation.bin / program), *arguments],
        cwd=folder,
        environ={"PYTHONUNBUFFERED": "1"},
        ready_line=READY_LINE,
    )
    try:
        ready = process.wait_until_ready(timeout_s=20)
    except BaseException:
        process.kill()
        raise
    yield Started(ready["port"], installation.bin)
    code = process.terminate()
    assert code == 0, process.output()
