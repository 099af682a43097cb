"""The distribution, built from a copy of the checkout and installed as users do it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support.broker_process import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGES = ("broker", "client", "config", "pipeline", "protocol", "storage", "testing", "tools")
"""What a wheel holds, below the one name that it installs."""
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


class Installation(NamedTuple):
    site_packages: Path
    bin: Path


def copied_sources(into: Path) -> Path:
    """A copy, because a build leaves a build/ folder behind whose stale files a later one takes."""
    into.mkdir()
    for name in SOURCES:
        shutil.copy(CHECKOUT / name, into / name)
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / name, into / name, ignore=ignored)
    return into


def built(source: Path, into: Path, *kinds: str) -> Path:
    """The wheel that `python -m build` makes of this folder, with no network."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), *kinds]
    run = subprocess.run(
        [*command, str(source)], capture_output=True, text=True, check=False, stdin=None
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = into.glob("*.whl")
    return wheel


def install(
    wheel: Path, folder: Path, *, dependencies: Iterable[str] | None = None
) -> Installation:
    """A virtual environment with the wheel in it; the dependencies are lent by this one.

    `dependencies` are the distributions that are lent, None for all that are installed here.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    installed = Installation(
        Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)})), folder / "bin"
    )
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"),
            *("--python", str(installed.bin / "python")),
            *("install", "--no-deps", "--no-index", "--no-compile", str(wheel)),
        ],
        check=True,
    )
    if dependencies is None:
        (installed.site_packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    else:
        for name in dependencies:
            _link(name, installed.site_packages)
    return installed


def _link(name: str, site_packages: Path) -> None:
    """Make all that a distribution has installed here importable there."""
    lent = distribution(name)
    for top in {file.parts[0] for file in lent.files or () if file.parts[0] != ".."}:
        (site_packages / top).symlink_to(str(lent.locate_file(top)))


def folder_of_a_user(folder: Path) -> Path:
    """A project in which `config`, `storage`, ... are other people's names."""
    for name in PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(
            "raise SystemExit('the folder of the user was imported')\n"
        )
    return folder


def environment(path: str | None, **more: str) -> dict[str, str]:
    """What a command of a user's shell gets, with this PYTHONPATH, and nothing of our own Spark."""
    ours = ("PYTHONPATH", "SPARK_", "PYSPARK_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**environ, **more} if path is None else {**environ, "PYTHONPATH": path, **more}
