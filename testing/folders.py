"""Where the data of a test's broker is, and what it begins with."""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from config.platforms import PORTABLE
from testing.errors import BrokerFailed

MEMORY_FOLDER = "/dev/shm"
MEMORY_BYTES_MAX = 256 << 20
"""Of a broker that is not given another number. A page of memory is taken when it is written to."""
PREPARED_BYTES_MAX = 16 << 20
"""The largest snapshot whose copy a process has that nobody may ever ask for."""
NOT_COPIED = shutil.ignore_patterns(".lock", ".triglot-reserve")


def place_of(memory: bool | int) -> str:
    """The folder for the data of all brokers, of a disk or in memory. Raises BrokerFailed."""
    if not memory:
        return tempfile.gettempdir()
    if PORTABLE:
        folder = tempfile.gettempdir()
        _say_once(f"data is in {folder}: only Linux has a file system in memory")
        return folder
    if not Path(MEMORY_FOLDER).is_dir():
        raise BrokerFailed(
            f"memory=True wants a file system in memory at {MEMORY_FOLDER}, and there is none: "
            "leave it out, and the data is in the folder for temporary files"
        )
    return MEMORY_FOLDER


@cache
def _say_once(what: str) -> None:
    """Where the report of a failed test shows it."""
    print(f"triglot: {what}", file=sys.stderr)


def bytes_max(memory: bool | int) -> int | None:
    """The most bytes of data of a broker that is in memory; None for what a disk takes."""
    if memory is True:
        return MEMORY_BYTES_MAX
    return memory or None


def new_folder(prefix: str, within: str) -> str:
    """A new folder. Raises BrokerFailed."""
    try:
        return tempfile.mkdtemp(prefix=prefix, dir=within)
    except OSError as error:
        raise BrokerFailed(
            f"{within} takes no folder for the data of a broker: {error.strerror or error} (the "
            "variable TMPDIR names the folder for temporary files)"
        ) from None


def bytes_in(directory: Path) -> int:
    """What a copy of it takes."""
    return sum(one.lstat().st_size for one in directory.rglob("*"))


def copy_data(directory: Path, into: Path) -> None:
    """Copy a data directory that no broker writes to. Raises BrokerFailed."""
    try:
        shutil.copytree(directory, into, ignore=NOT_COPIED)
    except (shutil.Error, OSError) as error:
        shutil.rmtree(into, ignore_errors=True)
        raise BrokerFailed(f"the data directory {directory} can't be copied: {error}") from None
