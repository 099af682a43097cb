"""What others feel while 1,000 batches of 100 MiB come at once: `python -m bench.bombs`.

The bombs come over 100 connections that do not wait for answers. Meanwhile five clients do
something every few milliseconds: one produces a record, one reads, one produces a small compressed
set that has to be opened as well, one a larger such set, for which a thread is needed, and for one
the broker converts. Printed are p50, p99 and the maximum of their round trips, before the bombs and
while these are worked off, and by how much the broker's memory grew.

Kinds: `zeros` is one record of 100 MiB, `tiny` fifteen million records of seven bytes, both in a
gzip batch for a topic that stores another codec; `stored` are tiny ones that were stored unopened
and have to be converted for old readers.

The clients measure from Python: on a machine with other work, run it with a real-time priority
(`chrt -f 20`), which the broker inherits.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.records.crc import crc32c
from tests.handlers.test_connections import resident_bytes
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, Target, batch, fetch_request, produce_request

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECTIONS, EACH = 100, 10
EXPANDED = 100 << 20
GZIP = 1
PLAIN, OPENED, STORED = "plain", "opened", "stored"
EVERY_S = 0.005


def batch_of(body: bytes, count: int) -> bytes:
    """A batch of format 2 with a gzip payload."""
    data = bytearray(batch(b"")[:61] + gzip.compress(body, 6))
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, GZIP)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def varint(number: int) -> bytes:
    number = number << 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def record(value: bytes, delta: int) -> bytes:
    body = b"\0\0" + varint(delta) + b"\x01" + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def zeros() -> bytes:
    return batch_of(record(bytes(EXPANDED), 0), 1)


def tiny() -> bytes:
    one = record(b"", 0)
    count = EXPANDED // len(one)
    return batch_of(one * count, count)


class Client:
    """Does one thing every few milliseconds and keeps how long each took."""

    def __init__(self, broker: BrokerProcess, name: str, act: Callable[[Caller], Any]) -> None:
        self.name = name
        self.took_ms: list[float] = []
        self._act = act
        self._caller = Caller(broker.host, broker.port, timeout_s=600)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(EVERY_S):
            began = time.perf_counter()
            self._act(self._caller)
            self.took_ms.append((time.perf_counter() - began) * 1000)

    def figures(self) -> str:
        took, self.took_ms = sorted(self.took_ms), []
        if not took:
            return f"{self.name:>10}: no answer"
        p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
        return (
            f"{self.name:>10}: {len(took):5d} round trips, p50 {statistics.median(took):7.2f} ms, "
            f"p99 {p99:8.2f} ms, max {took[-1]:8.2f} ms"
        )

    def stop(self) -> None:
        self._done.set()
        self._thread.join(60)


def clients(broker: BrokerProcess) -> list[Client]:
    small = batch(*[b"value"] * 10, codec=GZIP)

    def fetch(version: int) -> Callable[[Caller], Any]:
        return lambda caller: caller.fetch(PLAIN, version=version, max_wait_ms=0)

    # Too large to be opened on the loop, and no more than a producer often sends.
    large = batch(*[os.urandom(100) for _ in range(2000)], codec=GZIP)
    return [
        Client(broker, "large", lambda caller: caller.produce(OPENED, large, acks=1)),
        Client(broker, "produce", lambda caller: caller.produce(PLAIN, batch(b"v"), acks=1)),
        Client(broker, "fetch", fetch(12)),
        Client(broker, "opened", lambda caller: caller.produce(OPENED, small, acks=1)),
        Client(broker, "converted", fetch(2)),
    ]


def bombard(broker: BrokerProcess, kind: str, bomb: bytes) -> list[Caller]:
    """Send all bombs; the connections that are still owed an answer for each of theirs."""
    callers = [Caller(broker.host, broker.port, timeout_s=3600) for _ in range(CONNECTIONS)]
    for number in range(EACH):
        for caller in callers:
            if kind == "stored":
                frame = caller.frame(fetch_request(Target(STORED, number)), 2, number)
            else:
                frame = caller.frame(produce_request((OPENED, 0, bomb), acks=1), 9, number)
            caller.send_raw(frame)
    return callers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bombs", description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["zeros", "tiny", "stored"])
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to look at most")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        bomb = zeros() if kind == "zeros" else tiny()
        with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "d") as broker:
            with Caller(broker.host, broker.port, timeout_s=60) as admin:
                admin.create_topic(PLAIN)
                admin.create_topic(OPENED, compression_type="lz4")
                admin.create_topic(STORED)
                admin.produce(PLAIN, batch(*[b"value"] * 100))
                for _ in range(EACH if kind == "stored" else 0):
                    admin.produce(STORED, bomb)
            watched = clients(broker)
            print(f"{kind}: a bomb of {len(bomb)} bytes", flush=True)
            time.sleep(5)
            for one in watched:
                print(f"  before  {one.figures()}")
            before = resident_bytes(broker.pid)
            callers = bombard(broker, kind, bomb)
            most, until = 0, time.monotonic() + arguments.seconds
            while time.monotonic() < until:
                most = max(most, resident_bytes(broker.pid))
                time.sleep(0.05)
            for one in watched:
                print(f"  during  {one.figures()}")
            print(f"  memory grew by {(most - before) >> 20} MiB at most", flush=True)
            broker.kill()
            for caller in callers:
                caller.close()


if __name__ == "__main__":
    main()
