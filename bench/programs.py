"""The C programs, compiled when first needed and again when their sources change."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
BINARIES = HERE / "floor" / "bin"

_SOURCES = {
    "floor": [f"floor/{name}" for name in ("floor.c", "answers.h", "log.h", "wire.h", "crc32c.h")],
    "blast": ["load/blast.c"],
}


class NoCompiler(Exception):
    """Neither gcc nor cc is installed, so there is neither floor nor raw load."""


def program(name: str) -> Path:
    """The executable `floor` or `blast`. Raises `NoCompiler`."""
    sources = [HERE / source for source in _SOURCES[name]]
    binary = BINARIES / name
    if binary.exists() and binary.stat().st_mtime > max(s.stat().st_mtime for s in sources):
        return binary
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompiler("install gcc to compile bench/floor and bench/load")
    BINARIES.mkdir(exist_ok=True)
    # The checksum instruction is in every x86-64 processor of the last fifteen years.
    machine = ["-msse4.2"] if platform.machine() == "x86_64" else []
    unfinished = binary.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-std=gnu11", "-Wall", "-Wno-unused-function", *machine]
    subprocess.run([*command, "-o", str(unfinished), str(sources[0])], check=True)
    unfinished.rename(binary)
    return binary
