"""A process of ours that is spoken to in lines: a Python module, run beside the broker.

The module is found where this one was, in a checkout as in an installation, and nowhere else. Its
standard input and output carry lines; what it says on standard error goes to our log. All calls
and callbacks are on the loop; nothing waits for the process.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
from typing import TYPE_CHECKING

from broker import logs
from broker.background.pipes import PipeReader, PipeWriter

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    Line = Callable[[bytes], None]

CODE_ROOT = __file__.rsplit(os.sep, __name__.count(".") + 1)[0] or os.sep
"""The folder that the outermost package of this module is in."""

BELOW_NORMAL = getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)
"""On Windows; elsewhere the process says itself that others go first."""
COMPLAINT_BYTES_MAX = 65_536
LINE_BYTES_MAX = 64 * 1024 * 1024
"""A line is collected up to here. A group of a thousand segments makes 20 KB."""


def spawn(module: str, *, inherited: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """Start the process. Any thread, for it takes some milliseconds; one that outlives the process,
    if that is to die with its parent. It has the `inherited` file descriptors under the same
    numbers, which Windows does not know. Raises OSError."""
    return subprocess.Popen(
        # -P: the folder that the broker was started in may hold a `broker` of somebody else's.
        [sys.executable, "-P", "-m", module],
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        creationflags=BELOW_NORMAL,
        pass_fds=inherited,
    )


def _environment() -> dict[str, str]:
    """Ours, with the path on which the process finds its module.

    Where packages are installed it does so anyway. Those folders are not named, for what PYTHONPATH
    names comes before the standard library, and somebody may have installed an old `enum`.
    """
    if CODE_ROOT in {*site.getsitepackages(), site.getusersitepackages()}:
        return dict(os.environ)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{CODE_ROOT}{os.pathsep}{path}" if path else CODE_ROOT}


class ChildProcess:
    """A process that `spawn` started. `on_line` gets each line it says; `on_end` its exit status,
    once, unless it was `kill`ed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: subprocess.Popen[bytes],
        *,
        on_line: Line,
        on_end: Callable[[int], None],
    ) -> None:
        self._process = process
        self._on_line = on_line
        self._on_end = on_end
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._received = bytearray()
        self._complained = bytearray()
        self._closed = False
        self._input = PipeWriter(loop, self._process.stdin)
        self._output = PipeReader(loop, self._process.stdout, self._heard)
        self._complaints = PipeReader(loop, self._process.stderr, self._complaint)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Send a line, which has its newline, as fast as the process takes it."""
        self._input.send(line)

    def finish(self) -> None:
        """End its input; it is expected to end then, and `on_end` is called."""
        self._input.close()

    def kill(self) -> None:
        """End it at once, and forget it. `gone` tells when it has really ended."""
        self._process.kill()
        self._close_pipes()

    def gone(self) -> bool:
        """Whether the process has ended; it touches no file after that."""
        return self._process.poll() is not None

    def _heard(self, data: bytes) -> None:
        if not data or len(self._received) > LINE_BYTES_MAX:
            self._ended()
            return
        self._received += data
        *lines, rest = self._received.split(b"\n")
        self._received = rest
        for line in lines:
            if self._closed:
                return  # killed by who got the line before
            self._on_line(bytes(line))

    def _complaint(self, data: bytes) -> None:
        *lines, rest = (self._complained + data).split(b"\n")
        self._complained = rest[:COMPLAINT_BYTES_MAX]
        if lines:
            text = b"\n".join(lines).decode(errors="replace")
            logs.warning("said by a process of ours", pid=self.pid, text=text)

    def _ended(self) -> None:
        """Its output has ended, and so it has, or is about to."""
        self._complaints.look()
        self._close_pipes()
        try:
            status = self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._on_end(status)

    def _close_pipes(self) -> None:
        self._closed = True
        self._output.close()
        self._complaints.close()
        self._input.close()
