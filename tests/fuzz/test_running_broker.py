"""Spoiled requests to a running broker, while a well-behaved client must not notice.

`TEST_FUZZ_FACTOR` multiplies the count, `FUZZ_SEED` gives other frames.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.frames import Mutator
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch, records_in

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = int(os.environ.get("FUZZ_SEED", "20261120"))
FACTOR = int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
FRAMES = 10_000 * FACTOR
CONNECTIONS = 20
FRAMES_PER_CONNECTION = 40

#: A spoiled CreateTopics may well ask for thousands of partitions, and get them.
SLOWEST_ANSWER_S = 8.0
#: How long to wait for an answer to a spoiled frame, most of which come in less than 1 ms.
NOTICE_S = 0.003

#: ApiVersions v0, which has an answer after nearly anything.
PROBE = bytes.fromhex("0000000b 0012 0000 00000001 0001 74")
MAX_GROWTH_BYTES = 100 << 20


class Vandal:
    """One connection that is sent spoiled frames until it is closed, by either side."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._address = (broker.host, broker.port)
        self._socket: socket.socket | None = None
        self._sent = 0
        self.opened = 0

    def send(self, data: bytes) -> None:
        """Send a frame, and wait until the broker has taken notice of it."""
        if self._socket is None or self._sent >= FRAMES_PER_CONNECTION:
            self.finish()
            self._socket = socket.create_connection(self._address, timeout=10)
            self._socket.setblocking(False)
            self._sent = 0
            self.opened += 1
        self._sent += 1
        try:
            # What does not fit at once is a frame cut by a client that went away.
            whole = self._socket.send(data + PROBE) == len(data) + len(PROBE)
        except OSError:
            whole = False
        if not whole or self._is_closed():
            self.finish()

    def _is_closed(self) -> bool:
        """Read what comes, if something does; whether that was the end."""
        assert self._socket is not None
        # A fetch that waits, or a frame that is not complete, is not answered.
        select.select([self._socket], [], [], NOTICE_S)
        try:
            while self._socket.recv(1 << 16):
                pass
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def finish(self) -> None:
        """Stop sending and read until the broker closes: it has handled all that came whole."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            self._socket.settimeout(SLOWEST_ANSWER_S)
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(1 << 16):
                pass
        self._socket.close()
        self._socket = None


class Watcher:
    """A client that writes and reads all the while, and looks at every answer."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failure: BaseException | None = None
        self.rounds = 0
        self.slowest_s = 0.0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with Caller(self._broker.host, self._broker.port, timeout_s=60) as caller:
                while not self._stopping.wait(0.002):
                    started_s = time.monotonic()
                    self._round(caller, b"round %d" % self.rounds)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - started_s)
                    self.rounds += 1
        except BaseException as error:
            self.failure = error

    def _round(self, caller: Caller, value: bytes) -> None:
        appended = caller.produce("watched", batch(value))
        assert (appended.error_code, appended.base_offset) == (0, self.rounds)
        fetched = caller.fetch("watched", self.rounds)
        assert (fetched.error_code, fetched.high_watermark) == (0, self.rounds + 1)
        assert records_in(fetched.records) == [(self.rounds, value)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", settings={"log.flush.policy": "os"})
    process.start()
    yield process
    if process.run is not None:
        process.kill()


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.timeout(120 * FACTOR + 60)
def test_spoiled_frames_harm_nobody_else(broker: BrokerProcess) -> None:
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic("watched")
    before = resident_bytes(broker.pid)
    mutator = Mutator(SEED)
    vandals = [Vandal(broker) for _ in range(CONNECTIONS)]

    with Watcher(broker) as watcher:
        for number in range(FRAMES):
            vandals[number % CONNECTIONS].send(mutator.frame())
            if number % 500 == 0:
                assert resident_bytes(broker.pid) - before < MAX_GROWTH_BYTES, f"frame {number}"
        for vandal in vandals:
            vandal.finish()

    print(
        watcher.rounds,
        watcher.slowest_s,
        sum(v.opened for v in vandals),
        (resident_bytes(broker.pid) - before) >> 20,
    )
    assert watcher.failure is None
    assert watcher.rounds > 50
    assert watcher.slowest_s < SLOWEST_ANSWER_S
    assert sum(vandal.opened for vandal in vandals) > FRAMES // 20
    assert resident_bytes(broker.pid) - before < MAX_GROWTH_BYTES
    with Caller(broker.host, broker.port) as caller:
        assert caller.end_offset("watched") == watcher.rounds
    run = broker.run
    assert run is not None
    assert broker.stop() == 0
    said = run.output()
    assert "a handler failed" not in said, said[-3000:]
    assert "Traceback" not in said, said[-3000:]
