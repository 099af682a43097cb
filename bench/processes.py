"""CPU time of one and of several processes for the same requests, and the rate per wall second.

Each of eight partitions has a connection of its own to its leader, with a few requests on the way,
one batch each. The CPU is that of all processes and their supervisor, so it does not matter who
has to wait for the cores; the rate does. Rounds alternate, and medians count.

    python -m bench.processes [--rounds 3] [--processes 2] [--load-grows]

With --load-grows each of several processes has as many requests on the way as one process has:
what shares a sync is then the same.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.servers import CHECKOUT
from protocol.messages.metadata import MetadataRequest
from tests.support.caller import Caller, batch, produce_request
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST, TOPIC, PARTITIONS, IN_FLIGHT = "127.0.0.1", "t", 8, 8
CASES = ((16_384, 1, 24_000), (100, 1, 40_000), (100, -1, 24_000))
"""Bytes of a record, acks, requests of all connections together."""


class Found(NamedTuple):
    """CPU in us a request, and requests a second."""

    cpu_us: float
    rate: float


class Served:
    """A directory that so many processes serve."""

    def __init__(self, processes: int, data: str) -> None:
        words = ["serve", "--json", "--data", data, "--listen", f"{HOST}:0", "--log-level", "error"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools", *words, "--processes", str(processes)],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        ready: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.ports: list[int] = ready.get("ports", [ready["port"]])
        with Caller(HOST, self.ports[0]) as caller:
            caller.create_topic(TOPIC, PARTITIONS)
            topics = [MetadataRequest.Topic(name=TOPIC)]
            asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            (topic,) = caller.call(asked, 9).topics
        self.leaders = {one.partition_index: one.leader_id - 1 for one in topic.partitions}

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()

    def cpu_s(self) -> float:
        """Of the supervisor and its processes, or of the one that there is."""
        ticks = 0
        for pid in (self.process.pid, *self.children()):
            with open(f"/proc/{pid}/stat") as status:  # noqa: PTH123 - the kernel's
                fields = status.read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def children(self) -> Iterator[int]:
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:  # noqa: PTH123 - the kernel's
            yield from map(int, children.read().split())


def drive(port: int, frame: bytes, count: int, in_flight: int) -> None:
    """Send the same request so often, and read the answers."""
    with socket.create_connection((HOST, port)) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = one.makefile("rb")
        sent = received = 0
        while received < count:
            while sent < count and sent - received < in_flight:
                one.sendall(frame)
                sent += 1
            answers.read(struct.unpack(">i", answers.read(4))[0])
            received += 1


def measured(processes: int, size: int, acks: int, count: int, *, in_flight: int) -> Found:
    with tempfile.TemporaryDirectory() as data:
        served = Served(processes, data)
        wire = WireClient.__new__(WireClient)
        wire.client_id = "bench"
        value = os.urandom(size)
        senders = []
        for partition, leader in served.leaders.items():
            request = produce_request((TOPIC, partition, batch(value)), acks=acks)
            frame = wire.frame(request, 9, 1)
            words = (served.ports[leader], frame, count // PARTITIONS, in_flight)
            senders.append(threading.Thread(target=drive, args=words))
        before_s, began_s = served.cpu_s(), time.monotonic()
        for one in senders:
            one.start()
        for one in senders:
            one.join()
        took_s, cpu_s = time.monotonic() - began_s, served.cpu_s() - before_s
        served.stop()
    return Found(cpu_s / count * 1e6, count / took_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--load-grows", action="store_true")
    arguments = parser.parse_args()
    several = arguments.processes
    for size, acks, count in CASES:
        found: dict[int, list[Found]] = {1: [], several: []}
        for _ in range(arguments.rounds):
            for processes in (1, several):
                in_flight = IN_FLIGHT * (processes if arguments.load_grows else 1)
                one = measured(processes, size, acks, count, in_flight=in_flight)
                found[processes].append(one)
        cpu_us, rate = (
            {n: statistics.median(getattr(one, name) for one in found[n]) for n in found}
            for name in Found._fields
        )
        print(
            f"{size} B, acks={acks}: CPU {cpu_us[1]:.1f} us a request, {cpu_us[several]:.1f} by "
            f"{several} processes ({cpu_us[several] / cpu_us[1]:.2f}); {rate[1]:.0f}/s and "
            f"{rate[several]:.0f}/s ({rate[several] / rate[1]:.2f}); load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
