"""The process that the brokers of a test run are forked from: it imports the broker once.

It is asked on its standard input, a socket (`testing.requests`); with a request to start a broker
comes the socket of that. At the end of either socket whoever reads it ends.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

from testing.requests import READ_BYTES, RequestServer
from testing.serving import serve_until_told

if TYPE_CHECKING and sys.platform != "win32":
    from testing.spare import Spare

assert sys.platform != "win32"


class ForkServer(RequestServer):
    """Starts brokers by forks. It never has a thread or a loop when it forks."""

    def __init__(self, requests: socket.socket) -> None:
        super().__init__(requests)
        self._sockets: list[int] = []
        self._pids: set[int] = set()
        self._started = 0
        self._is_warm = False
        self._waiting: Spare | None = None

    def _end_all(self) -> None:
        for pid in list(self._pids):
            self._kill(pid)

    def _receive(self) -> bytes:
        data, descriptors, _, _ = socket.recv_fds(self._requests, READ_BYTES, 16)
        self._sockets += descriptors
        return data

    def _start(
        self, settings: dict[str, str], log: str, bytes_max: int | None, spare: bool
    ) -> None:
        if self._started == 1:
            self._warm_up()  # there will be more
        self._started += 1
        told = self._sockets.pop(0)
        if spare and self._waiting is not None and self._waiting.is_ready():
            self._waiting.hand_over(told, settings=settings, log=log, bytes_max=bytes_max)
            self._waiting = None
        else:
            pid = os.fork()
            if pid == 0:
                self._requests.close()
                _run(settings, log, told, bytes_max)
            self._pids.add(pid)
        os.close(told)

    def _spare(self, within: str) -> None:
        if self._waiting is None:
            from testing.spare import Spare  # most test runs never go back to a snapshot

            self._warm_up()
            self._waiting = Spare(self._requests, within, _run)
            self._pids.add(self._waiting.pid)

    def _warm_up(self) -> None:
        if not self._is_warm:
            from testing.rehearsal import warm_up  # of no use to the first broker

            warm_up()
            self._is_warm = True

    def _stop(self, pid: int) -> None:
        if pid in self._pids:
            os.kill(pid, signal.SIGTERM)
        self._answer()

    def _pause(self, pid: int) -> None:
        if pid in self._pids:
            os.kill(pid, signal.SIGSTOP)
            _, status = os.waitpid(pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                self._pids.discard(pid)
        self._answer()

    def _resume(self, pid: int) -> None:
        if pid in self._pids:
            os.kill(pid, signal.SIGCONT)
        self._answer()

    def _wait(self, pid: int) -> None:
        self._answer(exit_code=self._reap(pid))

    def _kill(self, pid: int) -> None:
        if pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            self._reap(pid)

    def _reap(self, pid: int) -> int | None:
        """Its exit code, negative for a signal; None if it has been asked for before."""
        if pid not in self._pids:
            return None
        self._pids.discard(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run(settings: dict[str, str], log: str, told: int, bytes_max: int | None) -> NoReturn:
    """The forked process."""
    code = 1
    try:
        lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (told, 1), (lines, 2)):
            os.dup2(descriptor, place)
        code = serve_until_told(settings, bytes_max, told)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serve the requests on standard input."""
    # Ctrl-C at a terminal goes to everybody there; the end of the test run is what counts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ForkServer(requests).run()


if __name__ == "__main__":
    main()
