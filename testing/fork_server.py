"""The process that the brokers of a test run are forked from: it imports the broker once.

It is asked on its standard input, a socket (`testing.requests`); with a request to start a broker
comes the socket of that. At the end of either socket whoever reads it ends.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from testing.requests import READ_BYTES, RequestServer, Start
from testing.serving import serve_until_told

if TYPE_CHECKING and sys.platform != "win32":
    from collections.abc import Callable

    from testing.prepared import Prepared

assert sys.platform != "win32"


class ForkServer(RequestServer):
    """Starts brokers by forks. It never has a thread or a loop when it forks."""

    def __init__(self, requests: socket.socket) -> None:
        super().__init__(requests)
        self._sockets: list[int] = []
        self._pids: set[int] = set()
        self._started = 0
        self._is_warm = False
        self._prepared: Prepared | None = None

    def _end_all(self) -> None:
        for pid in list(self._pids):
            self._kill(pid)

    def _receive(self) -> bytes:
        data, descriptors, _, _ = socket.recv_fds(self._requests, READ_BYTES, 16)
        self._sockets += descriptors
        return data

    def _start(self, **words: Any) -> None:
        if self._started == 1:
            self._warm_up()  # there will be more
        self._started += 1
        start, told = Start(**words), self._sockets.pop(0)
        if self._prepared is not None and self._prepared.take(start, told):
            self._prepared = None
        else:
            if start.mark is not None:
                self._forget_prepared()  # which may have data where this one is to have its own
            self._fork(start, lambda: told, is_asked_for=True)
        os.close(told)

    def _prepare(self, **words: Any) -> None:
        # Most test runs never go back to a snapshot.
        from testing.folders import PREPARED_BYTES_MAX, bytes_in
        from testing.prepared import Prepared

        self._forget_prepared()
        start = Start(**words)
        assert start.mark is not None
        if bytes_in(Path(start.mark)) <= PREPARED_BYTES_MAX:
            self._warm_up()
            self._prepared = Prepared(start, partial(self._fork, is_asked_for=False))

    def _forget_prepared(self) -> None:
        if self._prepared is not None:
            self._kill(self._prepared.pid)
            self._prepared = None

    def _remove(self, folder: str) -> None:
        if self._prepared is not None and self._prepared.start.data.startswith(f"{folder}/"):
            self._forget_prepared()
        super()._remove(folder)

    def _fork(self, start: Start, told: Callable[[], int], *, is_asked_for: bool) -> int:
        """The pid of a new broker's process; `told` is as of `serve_until_told`."""
        pid = os.fork()
        if pid == 0:
            self._requests.close()
            _run(start, told, is_asked_for=is_asked_for)
        self._pids.add(pid)
        return pid

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


def _run(start: Start, told: Callable[[], int], *, is_asked_for: bool) -> NoReturn:
    """The forked process."""
    code = 1
    try:
        lines = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (lines, 2)):
            os.dup2(descriptor, place)
        code = serve_until_told(start, lambda: _for_output(told()), is_asked_for=is_asked_for)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _for_output(told: int) -> int:
    os.dup2(told, 1)
    return told


def main() -> None:
    """Serve the requests on standard input."""
    # Ctrl-C at a terminal goes to everybody there; the end of the test run is what counts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ForkServer(requests).run()


if __name__ == "__main__":
    main()
