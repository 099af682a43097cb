"""A broker in a forked process: what `triglot serve` runs, without the time that imports take.

Thousands of starts in a test are then a matter of minutes. The process that forks must have one
thread only, and no event loop. What the broker prints is in the file `output`.

    with ForkedBroker(folder, output) as broker:
        caller = broker.connect()
        broker.kill()
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from broker import logs
from broker.event_loop import new_event_loop
from broker.network.dispatch import served
from broker.server import StartRefused, serve
from config import ConfigError, load
from protocol.registry import APIS
from storage.disk import DiskFilesystem
from storage.metadata.loading import load as load_metadata
from tests.damage.callers import PlainCaller
from tests.support.server_process import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

READY_WITHIN_S = 20.0
STOPPED_WITHIN_S = 20.0

REFUSED = 3
"""The exit code of a broker that says in words why it does not start."""


CALLED = {0: (1, 2, 9), 1: (1, 3, 12), 2: (11,), 3: (12,), 9: (9,), 18: (4,), 19: (7,)}
"""The requests of the tests, by key, and their versions."""


def warm_up(data: Path | None = None) -> None:
    """Import and compile in this process what each broker would again. With a directory, what
    reading its metadata takes too."""
    logs.warm_up()
    new_event_loop().close()
    for module in (
        "broker.network.dispatch",
        "broker.coordinator.loading.snapshotting",
        "storage.receive_times",
    ):
        importlib.import_module(module)
    served()
    for key, versions in CALLED.items():
        for version in versions:
            APIS[key].request.decoder(version)
            APIS[key].response.encoder(version)
    if data is not None:
        load_metadata(DiskFilesystem(), str(data))
    gc.collect()
    gc.freeze()


class Refused(Exception):
    """The broker did not start and said why."""


class ForkedBroker:
    """One run of a broker. Raises Refused, or ServerFailed if it ended in another way."""

    def __init__(
        self, data: Path, output: Path, *, settings: Mapping[str, str] | None = None
    ) -> None:
        self._data = data
        self._output = output
        self._callers: list[PlainCaller] = []
        self.pid = 0
        # Bound for as long as this object lives, so that no other process is given the port; the
        # broker may bind it as well, since both reuse addresses and this one never listens.
        self._port_holder = socket.socket()
        self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port_holder.bind(("127.0.0.1", 0))
        self.port: int = self._port_holder.getsockname()[1]
        self._settings = {
            "log.dirs": str(data),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            **(settings or {}),
        }

    def start(self) -> None:
        self.pid = os.fork()
        if not self.pid:
            os._exit(self._serve())
        self._wait_until_ready()

    def _serve(self) -> int:
        """The life of the forked process; its exit code."""
        output = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        try:
            logs.configure()
            serve(load(overrides=self._settings))
        except (StartRefused, ConfigError) as error:
            os.write(2, f"refused: {error}\n".encode())
            return REFUSED
        except BaseException:
            import traceback

            os.write(2, traceback.format_exc().encode())
            return 1
        return 0

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                self._callers.append(PlainCaller("127.0.0.1", self.port))
            except ConnectionRefusedError:
                self._see_it_run()
            else:
                return
            if time.monotonic() > deadline_s:
                self.kill()
                raise ServerFailed(f"not ready within {READY_WITHIN_S} s:\n{self.said()}")
            time.sleep(0.001)

    def _see_it_run(self) -> None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return
        self.pid = 0
        if os.waitstatus_to_exitcode(status) == REFUSED:
            raise Refused(self.said().rpartition("refused: ")[2].strip())
        raise ServerFailed(f"ended with {os.waitstatus_to_exitcode(status)}:\n{self.said()}")

    def caller(self) -> PlainCaller:
        """The connection that was made when the broker was ready, or a new one if that is gone."""
        if self._callers and self._callers[-1].lost:
            self._callers.append(PlainCaller("127.0.0.1", self.port))
        return self._callers[-1]

    def said(self) -> str:
        """What it has printed, and those before it on this output."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM. Raises ServerFailed if it does not end with 0."""
        code = self._end(signal.SIGTERM)
        if code:
            raise ServerFailed(f"ended with {code} when it was stopped:\n{self.said()}")

    def close(self) -> None:
        """Kill it if it runs, and give its port back."""
        if self.pid:
            self.kill()
        self._port_holder.close()

    def _end(self, number: int) -> int:
        pid, self.pid = self.pid, 0
        if not pid:
            return 0
        os.kill(pid, number)
        for caller in self._callers:
            caller.close()
        self._callers.clear()
        deadline_s = time.monotonic() + STOPPED_WITHIN_S
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline_s:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
