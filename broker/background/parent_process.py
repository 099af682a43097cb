"""What a process of ours has of the broker that started it: its lines, and its end."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING

from config.platforms import PORTABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

PR_SET_PDEATHSIG = 1


def lines() -> Iterator[bytes]:
    """Lines of standard input. At its end the process ends, in the middle of whatever it does."""
    came: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            came.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield came.get()


def die_with_parent() -> None:
    """Have the kernel kill us with the broker: a moment later another one may use our files.

    Only Linux can. Elsewhere the end of the input is noticed a little later.
    """
    if sys.platform != "linux" or PORTABLE:
        return
    import ctypes

    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(0)
