"""Brokers in processes of their own, and the process that starts them.

A test run has one of these, started with its first broker: a fork server, or on systems other than
Linux one that starts each broker anew. It and all brokers end with the test run, also when that is
killed: each holds one end of a socket whose other end closes then.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.platforms import PORTABLE
from testing.errors import BrokerFailed
from testing.folders import new_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testing.requests import Start

READ_BYTES = 1 << 16
ANSWER_WITHIN_S = 60.0
"""Time for the fork server to answer; it may have to wait for a broker's clean stop."""
KILL_AFTER_S = 20.0
"""Time for a broker to stop before it is killed."""
RUN = "import gc; gc.disable(); from {module} import main; main()"
"""Nothing of what is imported is for the collector, whose looks take a tenth of the time."""
KEPT_LINES = 40
"""Lines of the log that a failure shows."""


class BrokerServer:
    """The process of this one that starts brokers, and the folders that it removes at the end."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._socket, self._process = self._launched()
        self._socket.settimeout(ANSWER_WITHIN_S)
        self._folders: dict[str, str] = {}
        atexit.register(self.close)

    def _launched(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        """The process, and the socket by which it is asked."""
        raise NotImplementedError

    def _start(self, request: dict[str, object]) -> socket.socket:
        """Have a broker started; the socket by which it is spoken to."""
        raise NotImplementedError

    def folder(self, within: str) -> Path:
        """A new folder for a broker's files, below one of this test run in `within`. Raises
        BrokerFailed."""
        with self._lock:
            if within not in self._folders:
                self._folders[within] = new_folder("triglot-", within)
                self._send({"do": "own", "folder": self._folders[within]})
            return Path(new_folder("broker-", self._folders[within]))

    def prepare(self, start: Start) -> None:
        """Have a process begin with this start, in place of one that was prepared before. Raises
        BrokerFailed."""

    def start(self, start: Start) -> BrokerProcess:
        """Have a broker started, and do not wait for it. Raises BrokerFailed."""
        with self._lock:
            ours = self._start({"do": "start", **start._asdict()})
        return BrokerProcess(self, ours, Path(start.log))

    def do(self, what: str, **more: object) -> None:
        """Have something done that has no answer, before what is asked for next."""
        with self._lock:
            self._send({"do": what, **more})

    def ask(self, do: str, **more: object) -> dict[str, Any]:
        """The answer to a request that has one."""
        with self._lock:
            self._send({"do": do, **more})
            answer = b""
            while not answer.endswith(b"\n"):
                received = self._socket.recv(READ_BYTES)
                if not received:
                    raise self._gone()
                answer += received
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """End it, and with it all brokers and their data."""
        if os.getpid() != self.pid:
            return  # a copy, made by a fork of the test run
        atexit.unregister(self.close)
        self._socket.close()
        self._process.wait()

    def _send(self, request: Mapping[str, object]) -> None:
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            raise self._gone() from None

    def _gone(self) -> BrokerFailed:
        code = self._process.poll()
        return BrokerFailed(f"the process that brokers are started by has ended (exit code {code})")


if sys.platform != "win32":

    class ForkServer(BrokerServer):
        """Has brokers forked; their sockets are passed to it."""

        def _launched(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
            ours, theirs = socket.socketpair()
            with theirs:
                return ours, _run_module("fork_server", stdin=theirs.fileno())

        def prepare(self, start: Start) -> None:
            self.do("prepare", **start._asdict())

        def _start(self, request: dict[str, object]) -> socket.socket:
            ours, theirs = socket.socketpair()
            line = json.dumps(request).encode() + b"\n"
            with theirs:
                try:
                    sent = socket.send_fds(self._socket, [line], [theirs.fileno()])
                    self._socket.sendall(line[sent:])
                except OSError:
                    raise self._gone() from None
            return ours


class SpawnServer(BrokerServer):
    """Has each broker started anew; sockets are connections that it makes to a port of ours."""

    def _launched(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        import secrets  # slow to import, and of no use to those that are forked

        self._token = secrets.token_hex(16)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(ANSWER_WITHIN_S)
        self._port: int = self._listener.getsockname()[1]
        process = _run_module(
            "spawn_server", str(self._port), stdin=subprocess.DEVNULL, token=self._token
        )
        return self._accepted(), process

    def _start(self, request: dict[str, object]) -> socket.socket:
        self._send({**request, "port": self._port})
        return self._accepted()

    def _accepted(self) -> socket.socket:
        """The next connection of those who know the token. Raises BrokerFailed."""
        import hmac

        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                raise BrokerFailed("the process that starts brokers does not answer") from None
            one.settimeout(ANSWER_WITHIN_S)
            if hmac.compare_digest(_begin_of(one, len(self._token)), self._token.encode()):
                return one
            one.close()

    def close(self) -> None:
        if os.getpid() == self.pid:
            self._listener.close()
        super().close()


def _begin_of(one: socket.socket, size: int) -> bytes:
    received = b""
    with contextlib.suppress(OSError):
        while len(received) < size and (data := one.recv(size - len(received))):
            received += data
    return received


def _run_module(
    name: str, *arguments: str, stdin: int, token: str | None = None
) -> subprocess.Popen[bytes]:
    """Run a module of this package as a process."""
    package = __name__.rpartition(".")[0]
    root = str(Path(__file__).resolve().parents[package.count(".") + 1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    told = {} if token is None else {"TESTING_TOKEN": token}
    return subprocess.Popen(
        # -P: a module of the test's folder does not take the place of one of Python's.
        [sys.executable, "-P", "-c", RUN.format(module=f"{package}.{name}"), *arguments],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **told, "PYTHONPATH": os.pathsep.join(paths)},
    )


_server: BrokerServer | None = None


def broker_server() -> BrokerServer:
    """The one of this process, started when first asked for."""
    global _server
    if _server is None or _server.pid != os.getpid():
        if sys.platform == "win32" or PORTABLE:
            _server = SpawnServer()
        else:
            _server = ForkServer()
    return _server


class BrokerProcess:
    """One run of a broker."""

    def __init__(self, server: BrokerServer, told: socket.socket, log: Path) -> None:
        self._server = server
        self._socket = told
        self._log = log
        self._unread = b""
        self._calling = threading.Lock()
        self.was_called = False
        """Whether its faults have been spoken of."""
        self._pid = 0

    def wait_until_ready(self, timeout_s: float) -> int:
        """Its port. Raises BrokerFailed."""
        deadline = time.monotonic() + timeout_s
        told = self._told(deadline)
        while told is not None and told["event"] != "ready":
            if told["event"] == "refused":
                self._server.ask("wait", pid=self._pid)
                raise BrokerFailed(f"the broker can't start: {told['why']}")
            self._pid = told["pid"]
            told = self._told(deadline)
        if told is not None:
            port: int = told["port"]
            return port
        if time.monotonic() < deadline and self._pid:
            code = self._server.ask("wait", pid=self._pid)["exit_code"]
            raise self._failed(f"ended with exit code {code} before it was ready")
        if self._pid:
            self.kill()
        elif time.monotonic() < deadline:
            raise self._failed("ended before it had begun")
        raise self._failed(f"was not ready within {timeout_s:g} s")

    def _told(self, deadline: float) -> dict[str, Any] | None:
        """The next line that it wrote; None if there is none by then, or any more."""
        while b"\n" not in self._unread:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                received = self._socket.recv(READ_BYTES)
            except OSError:  # its time is over, or it has died with something unread
                return None
            if not received:
                return None
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def call(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """Call the interface of its faults: the status of HTTP and the answer. Raises
        BrokerFailed."""
        line = json.dumps({"method": method, "target": target, "body": body.decode()})
        with self._calling:
            self.was_called = True
            self._socket.settimeout(ANSWER_WITHIN_S)
            with contextlib.suppress(OSError):  # what follows tells that it is gone
                self._socket.sendall(line.encode() + b"\n")
            told = self._told(time.monotonic() + ANSWER_WITHIN_S)
        if told is None:
            raise self._failed("does not answer, or has ended")
        return told["status"], told["answer"]

    @property
    def pid(self) -> int:
        return self._pid

    def has_ended(self) -> bool:
        """Whether it is gone, by itself or by a signal."""
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def terminate(self) -> None:
        """SIGTERM, and wait for its clean end. Raises BrokerFailed if it had ended already."""
        if self.has_ended():
            code = self._server.ask("wait", pid=self._pid)["exit_code"]
            raise self._failed(f"had ended on its own with exit code {code}")
        self._server.ask("stop", pid=self._pid)
        self._socket.settimeout(KILL_AFTER_S)
        try:
            while self._socket.recv(READ_BYTES):
                pass
        except TimeoutError:
            self.kill()
            raise self._failed(f"did not end within {KILL_AFTER_S:g} s of being told to") from None
        code = self._server.ask("wait", pid=self._pid)["exit_code"]
        self._socket.close()
        if code != 0:
            raise self._failed(f"ended with exit code {code} when it was stopped")

    def kill(self) -> None:
        """Kill it as a crash does, and wait until it is gone."""
        self._server.do("kill", pid=self._pid)
        self._server.ask("wait", pid=self._pid)
        self._socket.close()

    def discard(self) -> None:
        """Have it killed, and do not wait for it; the next broker is started after its end."""
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while not self._pid and (told := self._told(deadline)) is not None:
            self._pid = told["pid"]  # the first line of one that was begun and not waited for
        self._server.do("kill", pid=self._pid)
        self._socket.close()

    def pause(self) -> None:
        """Stop all of its threads where they are."""
        self._server.ask("pause", pid=self._pid)

    def resume(self) -> None:
        """Let it go on."""
        self._server.ask("resume", pid=self._pid)

    def _failed(self, what: str) -> BrokerFailed:
        lines = log_of(self._log).splitlines()[-KEPT_LINES:]
        more = "; its last lines:\n" + "\n".join(lines) if lines else "; it logged nothing"
        return BrokerFailed(f"the broker {what}{more}")


def log_of(file: Path) -> str:
    """What a broker has logged so far."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
