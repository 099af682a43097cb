"""The process that the brokers of a test run are forked from: it imports the broker once.

It is told what to do on its standard input, a socket, one JSON object a line:

    {"do": "start", "settings": {...}, "log": FILE, "bytes_max": N or null}
                                                       and a socket with it; answered by the broker
    {"do": "own", "folder": FOLDER}                    to be removed at the end; no answer
    {"do": "kill", "pid": N}                           kill it; no answer
    {"do": "remove", "folder": FOLDER}                 remove it; no answer
    {"do": "signal", "pid": N, "signal": M}            answered {} once the signal is sent
    {"do": "pause", "pid": N}                          answered {} when it does nothing any more
    {"do": "wait", "pid": N}                           answered {"exit_code": M} when it has ended

Each broker writes lines to its socket: {"event": "forked", "pid": N}, then {"event": "ready", ...}
as `triglot serve --json` does, or {"event": "refused", "why": TEXT}. Calls of the interface of its
faults come there, {"method": ..., "target": ..., "body": TEXT}, each answered by {"event":
"answer", "status": N, "answer": ...}. At the end of either socket, which comes with the end of the
test run however that ended, whoever reads it ends too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from broker import logs
from broker.faults.injection import FaultInjection
from broker.server import StartRefused, new_event_loop, serve, start
from config import ConfigError, load
from testing.settings import SETTINGS
from testing.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from config import BrokerSettings

Request = dict[str, Any]

READ_BYTES = 1 << 16


class ForkServer:
    """Reads requests until there are no more. It never has a thread or a loop when it forks."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._unread = b""
        self._sockets: list[int] = []
        self._pids: set[int] = set()
        self._folders: list[str] = []
        self._started = 0

    def run(self) -> None:
        """Do what is asked, and at the end leave neither a broker nor its data."""
        while (request := self._next()) is not None:
            getattr(self, f"_{request.pop('do')}")(**request)
        for pid in list(self._pids):
            self._kill(pid)
        for folder in self._folders:
            remove(folder)

    def _next(self) -> Request | None:
        while b"\n" not in self._unread:
            data, descriptors, _, _ = socket.recv_fds(self._requests, READ_BYTES, 16)
            self._sockets += descriptors
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        request: Request = json.loads(line)
        return request

    def _answer(self, **answer: object) -> None:
        self._requests.sendall(json.dumps(answer).encode() + b"\n")

    def _start(self, settings: dict[str, str], log: str, bytes_max: int | None) -> None:
        if self._started == 1:
            # There will be more: what a first start compiles is then there for all of them.
            warm_up()
        self._started += 1
        told = self._sockets.pop(0)
        pid = os.fork()
        if pid == 0:
            self._requests.close()
            _run(settings, log, told, bytes_max)
        os.close(told)
        self._pids.add(pid)

    def _own(self, folder: str) -> None:
        self._folders.append(folder)

    def _remove(self, folder: str) -> None:
        remove(folder)

    def _signal(self, pid: int, signal: int) -> None:
        if pid in self._pids:
            os.kill(pid, signal)
        self._answer()

    def _pause(self, pid: int) -> None:
        if pid in self._pids:
            os.kill(pid, signal.SIGSTOP)
            _, status = os.waitpid(pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                self._pids.discard(pid)
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


def remove(folder: str) -> None:
    """Remove a folder, if it is there."""
    import shutil  # of no use before the first broker is gone

    shutil.rmtree(folder, ignore_errors=True)


def warm_up() -> None:
    """Do here what brokers of tests do first, twice over the same data, and keep the collector away
    from what is there then: all of them begin with what was imported and compiled for it."""
    import tempfile  # of no use to the first broker, as what follows

    from testing.first_requests import after_restart, at_first

    logs.warm_up()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory(prefix="triglot-") as folder:
        settings = load(overrides={"log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0"})
        for ask in (at_first, after_restart):
            loop = new_event_loop()
            try:
                loop.run_until_complete(_ask(loop, settings, ask))
            finally:
                loop.close()
    gc.collect()
    gc.freeze()


async def _ask(
    loop: asyncio.AbstractEventLoop, settings: BrokerSettings, ask: Callable[[str], None]
) -> None:
    running = await start(settings, loop)
    await asyncio.to_thread(ask, f"{running.host}:{running.port}")
    await running.stop()
    await loop.shutdown_default_executor()  # a process with threads is not to be forked


def _run(settings: dict[str, str], log: str, told: int, bytes_max: int | None) -> NoReturn:
    """The forked process: a broker until a signal, or the end of who wanted it."""
    code = 1
    try:
        lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (told, 1), (lines, 2)):
            os.dup2(descriptor, place)
        _tell(event="forked", pid=os.getpid())
        faults = FaultsBySocket(told)
        threading.Thread(target=faults.read_calls, daemon=True).start()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        logs.configure()
        around = surroundings(settings["log.dirs"], bytes_max)
        serve(
            load(overrides=settings, overrides_from=SETTINGS), around, as_json=True, testing=faults
        )
        code = 0
    except (ConfigError, StartRefused) as error:
        _tell(event="refused", why=str(error))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class FaultsBySocket(FaultInjection):
    """Faults on which nobody has a say but the test run: there is no port."""

    def __init__(self, told: int) -> None:
        super().__init__()
        self._told = told

    def read_calls(self) -> None:
        """Hand the calls to the loop, in a thread of their own; at their end the process ends, also
        one whose loop is busy."""
        with open(self._told, "rb", closefd=False) as calls:
            for line in calls:
                assert self.loop is not None, "a call before the broker is ready"
                self.loop.call_soon_threadsafe(self._answer, line)
        os._exit(1)

    def _answer(self, line: bytes) -> None:
        call = json.loads(line)
        status, answer = self.interface.call(call["method"], call["target"], call["body"].encode())
        _tell(event="answer", status=status, answer=answer)


def _tell(**told: object) -> None:
    print(json.dumps(told), flush=True)


def main() -> None:
    """Serve the requests on standard input."""
    # Ctrl-C at a terminal goes to everybody there; the end of the test run is what counts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ForkServer(requests).run()


if __name__ == "__main__":
    main()
