"""A server in a process of its own: started, waited for, stopped, killed.

What `BrokerProcess` and `KafkaProcess` have in common. The last `KEPT_LINES` lines that the
process printed are kept, so that a failing test can say what the server said.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import random
import socket
import subprocess
import threading
import time
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

#: Lines of output kept for failure messages; older ones are dropped.
KEPT_LINES = 400

#: Time for a server to end after SIGTERM before it is killed and the test fails.
STOP_TIMEOUT_S = 60.0

#: Linux gives others to connections.
SERVER_PORTS = range(20_000, 32_768)


class ServerFailed(AssertionError):
    """The server did not start, did not stop, or ended on its own. The text has its last lines."""


class Process(Protocol):
    """What is asked of a process, as of a `subprocess.Popen`."""

    pid: int
    stdout: IO[str] | None
    stderr: IO[str] | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class RunningProcess:
    """One run of a program. Threads drain its output, so it never blocks on a full pipe."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        ready_line: re.Pattern[str],
        process: Process | None = None,
    ) -> None:
        """`process` is the command if that has been started in another way."""
        self._ready_line = ready_line
        self._ready: re.Match[str] | None = None
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._ready_or_ended = threading.Event()
        self._process: Process = process or subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = (
            threading.Thread(target=self._drain_stdout, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._drain_stderr, args=(self._process.stderr,), daemon=True),
        )
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it, as in `subprocess`."""
        return self._process.poll()

    def wait_until_ready(self, *, timeout_s: float) -> re.Match[str]:
        """The ready line on standard output. Raises `ServerFailed` if it does not come in time."""
        self._ready_or_ended.wait(timeout_s)
        if self._ready is not None:
            return self._ready
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0 if self._ready_or_ended.is_set() else 0)
        if self.exit_code is not None:
            raise self.failure(f"ended with {self.exit_code} before it was ready")
        raise self.failure(f"was not ready within {timeout_s} s")

    def terminate(self) -> int:
        """SIGTERM, and the exit code. A process that ignores it is killed and named."""
        if self.exit_code is not None:
            self._close()
            raise self.failure(f"had ended on its own with {self.exit_code}")
        self._process.terminate()
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failure(f"did not end within {STOP_TIMEOUT_S} s of SIGTERM") from None
        self._close()
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def failure(self, what: str) -> ServerFailed:
        return ServerFailed(f"the server {what}; its last lines:\n{self.output()}")

    def output(self) -> str:
        """The last lines of both streams, in about the order they came."""
        return "\n".join(self._lines)

    def _close(self) -> None:
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _drain_stdout(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.append(line.rstrip("\n"))
            if self._ready is None:
                self._ready = self._ready_line.search(line)
                if self._ready is not None:
                    self._ready_or_ended.set()
        self._ready_or_ended.set()

    def _drain_stderr(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.append(line.rstrip("\n"))


class ServerProcess:
    """A server with a data directory and a port, through any number of runs.

    The port is picked at the first start and kept afterwards, because clients reconnect to it.
    As a context manager it is started on entry and stopped on exit.
    """

    host = "127.0.0.1"
    START_TIMEOUT_S = 60.0
    READY_LINE: re.Pattern[str]

    def __init__(self, data: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.settings = dict(settings or {})
        self.port = 0
        self.run: RunningProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Start it and wait until it is ready. Raises `ServerFailed` with what it printed."""
        assert self.run is None, "it is running"
        run = self._launch()
        try:
            ready = run.wait_until_ready(timeout_s=self.START_TIMEOUT_S)
            self._ready(ready)
        except BaseException:
            run.kill()
            raise
        self.run = run

    def stop(self) -> int:
        """Ask it to end by SIGTERM; its exit code. Raises `ServerFailed` if it does not end."""
        run, self.run = self._running(), None
        return run.terminate()

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would."""
        run, self.run = self._running(), None
        run.kill()

    def output(self) -> str:
        """The last lines that the present run printed."""
        return self._running().output()

    def _launch(self) -> RunningProcess:
        raise NotImplementedError

    def _ready(self, line: re.Match[str]) -> None:
        """What the ready line tells."""

    def _running(self) -> RunningProcess:
        assert self.run is not None, "it is not running"
        return self.run

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.run is not None:
            self.stop()


_candidates = itertools.cycle(random.SystemRandom().sample(SERVER_PORTS, len(SERVER_PORTS)))
"""Each once before any comes again: who asks for several gets several."""


def free_port(in_a_row: int = 1) -> int:
    """A port that nobody listens on at this moment, the first of so many, for servers that cannot
    pick one.

    It lies below those that the system gives to connections and to port 0: none of these takes it
    before the server does.
    """
    for port in itertools.islice(_candidates, len(SERVER_PORTS)):
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for one in range(port, port + in_a_row):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", one))
            return port
    raise ServerFailed("no port is free")


def wait_until_listening(host: str, port: int, *, timeout_s: float) -> bool:
    """Whether a connection could be made before the time was over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return True
        time.sleep(0.05)
    return False
