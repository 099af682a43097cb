"""Commands of triglot in processes forked from one that has imported the broker.

What runs is what `python -m tools` runs, with the arguments, environment and streams of its own. It
only does not import again what every command before it has imported, which is most of what a start
costs. In `server()` the process that forks is started with the first command; it ends, with all
that runs then, when the test run does, also if that is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from config.platforms import PORTABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHECKOUT = Path(__file__).resolve().parents[2]

COMMAND_LINE = [sys.executable, "-m", "tools"]

REQUEST_BYTES = 1 << 17
"""An environment takes the most of it."""

AT_THE_START = ("LD_", "MALLOC_", "OPENSSL_", "PYTHON", "TRIGLOT_PORTABLE")
"""How the variables begin that only an interpreter of its own sees."""


class Forked:
    """A command that was started, as far as it is like a `subprocess.Popen`."""

    def __init__(self, status: int, stdout: int, stderr: int) -> None:
        """With the descriptors to read its pid and exit code from, and what it prints."""
        self._status = os.fdopen(status, "rb", buffering=0)
        self._code: int | None = None
        self._lock = threading.Lock()
        self.stdout: IO[str] | None = os.fdopen(stdout, errors="replace")
        self.stderr: IO[str] | None = os.fdopen(stderr, errors="replace")
        self.pid = self._read_number()

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            waiting = select.poll()
            waiting.register(self._status, select.POLLIN)
            if not waiting.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        with self._lock:  # two threads may wait
            if self._code is None:
                self._code = self._read_number()
                self._status.close()
            return self._code

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What it prints on both until it ends. It is killed after the time."""
        assert self.stdout is not None
        assert self.stderr is not None
        watch = threading.Timer(timeout, self.kill)
        watch.start()
        with self.stdout, self.stderr, ThreadPoolExecutor(2) as pool:
            out, err = pool.map(lambda stream: stream.read(), (self.stdout, self.stderr))
        self.wait()
        watch.cancel()
        return out, err

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _read_number(self) -> int:
        line = self._status.readline()
        assert line, "the process that forks commands has ended"
        return int(line)


class CommandServer:
    """The process that forks, for those who want a command."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                cwd=CHECKOUT,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
            )
        self._requests = ours

    def start(self, words: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> Forked:
        """Have the command of these words started."""
        request = {"words": list(words), "cwd": str(cwd), "environ": dict(environ)}
        ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        return Forked(*ours)

    def close(self) -> None:
        """Kill what still runs, and end."""
        self._requests.close()
        self._process.wait()


class _Forking:
    """Whether commands are forked, and the process that does it from the first one on."""

    def __init__(self) -> None:
        self.is_open = False
        self.at_the_start: dict[str, str] = {}
        self.server: CommandServer | None = None
        self.lock = threading.Lock()


_forking = _Forking()


@contextlib.contextmanager
def server() -> Iterator[None]:
    """Commands are forked meanwhile, where the system has what that takes."""
    _forking.is_open = sys.platform == "linux" and not PORTABLE
    _forking.at_the_start = _at_the_start(os.environ)
    try:
        yield
    finally:
        _forking.is_open = False
        if _forking.server is not None:
            _forking.server.close()
            _forking.server = None


def start(command: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> Forked | None:
    """Fork a command, whose line begins with `COMMAND_LINE`; None where it needs an interpreter of
    its own."""
    if not _forking.is_open or list(command[:3]) != COMMAND_LINE:
        return None
    if _at_the_start(environ) != _forking.at_the_start:
        return None
    with _forking.lock:
        _forking.server = _forking.server or CommandServer()
        return _forking.server.start(command[3:], cwd, environ)


def run(
    command: Sequence[str], *, environ: Mapping[str, str], timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself, in the checkout: what it printed, and its exit code."""
    forked = start(command, CHECKOUT, environ)
    if forked is None:
        return subprocess.run(
            command,
            cwd=CHECKOUT,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    out, err = forked.communicate(timeout)
    return subprocess.CompletedProcess(command, forked.wait(), out, err)


def _at_the_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(AT_THE_START)}


# The process that forks


class Command(NamedTuple):
    words: list[str]
    cwd: str
    environ: dict[str, str]

    def run(self) -> int:
        """Its exit code."""
        from tools.cli import main

        os.environ.clear()
        os.environ.update(self.environ)
        time.tzset()
        os.chdir(self.cwd)
        sys.argv = [f"{CHECKOUT}/tools/__main__.py", *self.words]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return main(self.words)


class Forks:
    """The commands that run. It never has a thread or a loop when it forks."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._events = selectors.DefaultSelector()
        self._events.register(requests, selectors.EVENT_READ)
        #: By the descriptor of a process: its pid, and where its end is told.
        self._running: dict[int, tuple[int, int]] = {}
        self._started = 0

    def serve(self) -> Command | None:
        """Fork until nobody asks any more; in each fork, the command that it is to run."""
        while True:
            for key, _ in self._events.select():
                if key.fd != self._requests.fileno():
                    self._tell_end(key.fd)
                    continue
                data, streams, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES, 3)
                if not data:
                    self._kill_all()
                    return None
                if self._forked(streams):
                    return Command(**json.loads(data))

    def _forked(self, streams: list[int]) -> bool:
        """Whether this is the fork."""
        self._started += 1
        if self._started == 2:  # there will be more
            from testing.rehearsal import warm_up

            warm_up()
        status, stdout, stderr = streams
        pid = os.fork()
        if pid == 0:
            nothing = os.open(os.devnull, os.O_RDONLY)
            for descriptor, place in ((nothing, 0), (stdout, 1), (stderr, 2)):
                os.dup2(descriptor, place)
            self._requests.close()
            self._events.close()
            others = (place for pair in self._running.items() for place in (pair[0], pair[1][1]))
            for descriptor in (nothing, *streams, *others):
                os.close(descriptor)
            return True
        os.close(stdout)
        os.close(stderr)
        assert sys.platform == "linux"
        process = os.pidfd_open(pid)
        self._running[process] = pid, status
        self._events.register(process, selectors.EVENT_READ)
        self._tell(status, pid)
        return False

    def _tell_end(self, process: int) -> None:
        pid, status = self._running.pop(process)
        self._events.unregister(process)
        os.close(process)
        self._tell(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os.close(status)

    def _tell(self, status: int, number: int) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(status, b"%d\n" % number)

    def _kill_all(self) -> None:
        for pid, _ in self._running.values():
            os.kill(pid, signal.SIGKILL)


def main() -> int:
    """Serve the requests on standard input; in a fork, run the command."""
    # Ctrl-C at a terminal goes to everybody there; the end of the test run is what counts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in ("broker.server", "tools.cli", "tools.serve"):
        import_module(module)
    requests = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    command = Forks(requests).serve()
    return 0 if command is None else command.run()


if __name__ == "__main__":
    sys.exit(main())
