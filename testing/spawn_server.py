"""The process that starts the brokers of a test run where they are not forked.

Windows has no fork, and on macOS the system's own libraries do not stand it. So each broker is a
process that imports what it needs: a third of a second. Its pipes are tied to a socket of the test
run by two threads here, which is what `testing.processes` speaks to on every system.

It is asked on a connection that it makes (`testing.requests`), to the port in its first argument;
the line that it begins with, and begins that of each broker with, is in TESTING_TOKEN: so
the test run knows that nobody else has connected.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from testing.requests import READ_BYTES, RequestServer, Start

TOKEN = "TESTING_TOKEN"
"""The variable with the line that a connection begins with."""


class Spawned:
    """A broker, and the socket of who wanted it."""

    def __init__(self, start: Start, told: socket.socket) -> None:
        with Path(start.log).open("ab") as lines:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.spawned"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=lines,
                bufsize=0,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._told = told
        self._sending = threading.Lock()
        self.send(**start._asdict())
        for passing in (self._pass_on_answers, self._pass_on_calls):
            threading.Thread(target=passing, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, **told: object) -> None:
        """Tell it something, if it is still there."""
        self._send(json.dumps(told).encode() + b"\n")

    def _send(self, line: bytes) -> None:
        with self._sending, contextlib.suppress(OSError, ValueError):
            self._input.write(line)

    def _pass_on_answers(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._output.read(READ_BYTES):
                self._told.sendall(data)
        self._output.close()
        with contextlib.suppress(OSError):
            self._told.shutdown(socket.SHUT_WR)

    def _pass_on_calls(self) -> None:
        """Nobody is there any more at their end: then it ends too."""
        with contextlib.suppress(OSError), self._told.makefile("rb") as calls:
            for line in calls:
                self._send(line)
        with self._sending, contextlib.suppress(OSError):
            self._input.close()

    def kill(self) -> int:
        self._process.kill()
        return self.wait()

    def wait(self) -> int:
        code = self._process.wait()
        self._told.close()
        return code

    def pause(self) -> None:
        if sys.platform == "win32":
            _of_all_threads("NtSuspendProcess", self._process)
        else:
            os.kill(self.pid, signal.SIGSTOP)
            os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        if sys.platform == "win32":
            _of_all_threads("NtResumeProcess", self._process)
        else:
            os.kill(self.pid, signal.SIGCONT)


class SpawnServer(RequestServer):
    """Starts each broker as a new process."""

    def __init__(self, requests: socket.socket, token: str) -> None:
        super().__init__(requests)
        self._token = token
        self._brokers: dict[int, Spawned] = {}

    def _end_all(self) -> None:
        for pid in list(self._brokers):
            self._kill(pid)

    def _start(self, port: int, **words: Any) -> None:
        """None is there before it is asked for."""
        broker = Spawned(Start(**words), connected(port, self._token))
        self._brokers[broker.pid] = broker

    def _stop(self, pid: int) -> None:
        if pid in self._brokers:
            self._brokers[pid].send(stop=True)
        self._answer()

    def _pause(self, pid: int) -> None:
        if pid in self._brokers:
            self._brokers[pid].pause()
        self._answer()

    def _resume(self, pid: int) -> None:
        if pid in self._brokers:
            self._brokers[pid].resume()
        self._answer()

    def _wait(self, pid: int) -> None:
        """None if it has been asked for before."""
        broker = self._brokers.pop(pid, None)
        self._answer(exit_code=None if broker is None else broker.wait())

    def _kill(self, pid: int) -> None:
        broker = self._brokers.pop(pid, None)
        if broker is not None:
            broker.kill()


def connected(port: int, token: str) -> socket.socket:
    """A connection to the test run."""
    one = socket.create_connection(("127.0.0.1", port))
    one.sendall(token.encode())
    return one


def _of_all_threads(function: str, process: subprocess.Popen[bytes]) -> None:
    """Call what Windows has for debuggers."""
    import ctypes

    handle: int = process._handle  # type: ignore[attr-defined]
    getattr(ctypes.WinDLL("ntdll"), function)(ctypes.c_void_p(int(handle)))  # type: ignore[attr-defined,unused-ignore]


def main() -> None:
    """Serve the requests of the test run that has started this."""
    # Ctrl-C at a terminal goes to everybody there; the end of the test run is what counts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    token = os.environ.pop(TOKEN)
    SpawnServer(connected(int(sys.argv[1]), token), token).run()


if __name__ == "__main__":
    main()
