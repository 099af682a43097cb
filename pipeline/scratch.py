"""A folder of this process in the temporary directory: its JVM's log, and what executors are sent.

It goes when the process ends. That of a process that was killed is removed by the next one that
makes its own, and one whose log somebody was told to read stays.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from pathlib import Path

PREFIX = "triglot-spark-"
LOCK = "lock"
"""Held while the process lives; not there where the folder is to stay."""
_made: Path | None = None


def folder() -> Path:
    """The same one until the process ends."""
    global _made
    if _made is None:
        sweep(Path(tempfile.gettempdir()))
        _made = Path(tempfile.mkdtemp(prefix=PREFIX))
        _hold(_made)
        atexit.register(remove)
    return _made


def keep() -> None:
    """Let the folder stay when the process ends."""
    atexit.unregister(remove)
    (folder() / LOCK).unlink(missing_ok=True)


def remove() -> None:
    """Remove the folder, at the end of the process."""
    if _made is not None:
        shutil.rmtree(_made, ignore_errors=True)


def sweep(temporary: Path) -> None:
    """Remove the folders of processes that were killed."""
    for left in temporary.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), (left / LOCK).open() as lock:
            if sys.platform == "win32":
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)


def _hold(made: Path) -> None:
    lock = os.open(made / "locking", os.O_RDWR | os.O_CREAT, 0o600)
    if sys.platform == "win32":
        return  # Spark's jobs are not run there
    # Not every filesystem can do it. Under its name it is locked already, or another process would
    # sweep it away.
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
        (made / "locking").rename(made / LOCK)
