"""A real file system of a few megabytes, to be filled.

    with small_disk(tmp_path / "disk", size_bytes=24 << 20) as folder:
        BrokerProcess(folder / "data")

It is a tmpfs, which takes the rights to mount one; without them the test is skipped.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def small_disk(folder: Path, *, size_bytes: int) -> Iterator[Path]:
    """The folder with an empty file system of this size mounted on it."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=755", "triglot-test"]
    try:
        done = subprocess.run(
            [*command, str(folder)], capture_output=True, text=True, timeout=20, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a tmpfs can't be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], timeout=20, check=True)


def free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
