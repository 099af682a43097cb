"""A broker's process that is there before it is asked for: it is forked, and has started and
stopped a broker once, on data of its own.

Half of the time that a forked process takes for its first start goes into pages that it shares with
the one that forked it, until it writes to them. This one has that behind it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from testing.rehearsal import rehearse, run_until_crash
from testing.requests import READ_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

assert sys.platform != "win32"


class Spare:
    """The process, as the one that has forked it sees it."""

    def __init__(self, requests: socket.socket, within: str, run: Callable[..., NoReturn]) -> None:
        """It calls `run` with what `hand_over` is given. Its data of its own are in the folder
        `within`; `requests` is what it leaves to the one that forks it."""
        directory = f"{within}/rehearsed"
        if not Path(directory).exists():
            run_until_crash(directory)
        self._socket, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            requests.close()
            _wait(theirs, directory, run)
        theirs.close()

    def is_ready(self) -> bool:
        """Whether it would begin at once."""
        self._socket.setblocking(False)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self._socket.setblocking(True)

    def hand_over(self, told: int, **words: Any) -> None:
        """Have it run; `told` is a descriptor that it gets."""
        line = json.dumps(words).encode() + b"\n"
        sent = socket.send_fds(self._socket, [line], [told])
        if rest := line[sent:]:  # who has all of it may have closed its end
            self._socket.sendall(rest)
        self._socket.close()


def _wait(asked: socket.socket, directory: str, run: Callable[..., NoReturn]) -> NoReturn:
    """The forked process; it ends when nobody can ask it any more."""
    try:
        rehearse(directory)
        asked.sendall(b"\n")
        line, descriptors, _, _ = socket.recv_fds(asked, READ_BYTES, 1)
        while line and not line.endswith(b"\n"):
            line += asked.recv(READ_BYTES)
    except BaseException:
        import traceback

        traceback.print_exc()
        line = b""
    if not line:
        os._exit(0)
    asked.close()
    run(told=descriptors[0], **json.loads(line))
