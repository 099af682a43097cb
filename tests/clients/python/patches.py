"""Patches for old releases to run on a Python that is newer than they are.

Nothing that they send or understand is changed: only names and imports that Python took away. Each
function changes the folder into which the release was installed.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def kafka_python_0_9(folder: Path) -> None:
    """`async` became a keyword in 3.7, and StopIteration may no longer end a generator."""
    for name in ("base", "simple", "keyed"):
        _replace(folder / "kafka" / "producer" / f"{name}.py", r"\basync\b", "async_")
    _replace(folder / "kafka" / "protocol.py", r"raise StopIteration\(\)", "return")


def kafka_python_1_to_2_0(folder: Path) -> None:
    """The copy of six that is inside has no importer for Python 3.12 and newer."""
    (folder / "kafka" / "vendor" / "six.py").write_bytes((folder / "six.py").read_bytes())


def _replace(file: Path, pattern: str, by: str) -> None:
    text, count = re.subn(pattern, by, file.read_text(encoding="utf-8"))
    assert count, f"{file} has no {pattern}"
    file.write_text(text, encoding="utf-8")


def pykafka(folder: Path) -> None:
    """It takes a function from a module of setuptools that is gone, and installs its tests as a
    package "tests", which would hide ours."""
    text = "from packaging.version import parse as parse_version\n"
    (folder / "pkg_resources.py").write_text(text, encoding="utf-8")
    shutil.rmtree(folder / "tests")


PATCHES: dict[str, Callable[[Path], None]] = {
    "0.9.5": kafka_python_0_9,
    "1.4.7": kafka_python_1_to_2_0,
    "2.0.2": kafka_python_1_to_2_0,
}
