"""CPU time of one and of several processes for the same requests, and the rate per wall second.

The load is one `blast` for each of the several processes, which asks for the partitions that this
one leads; one process is asked by as many, for the same. Each has four connections. The CPU is that
of all processes and their supervisor, so it does not matter who has to wait for the cores; the rate
does. Rounds alternate, and medians count.

    python -m bench.processes [--rounds 5] [--processes 2] [--load same|each|paced]

How many requests a process finds when it looks decides what one costs, so the load comes in three
forms: as many requests on the way whatever the number of processes is (same), as many for each
process as for the one (each), and so many a second at fixed times (paced).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import frames, machine
from bench.programs import program
from bench.servers import CHECKOUT
from protocol.messages.metadata import MetadataRequest
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOST, TOPIC, PARTITIONS, CONNECTIONS, IN_FLIGHT = "127.0.0.1", "t", 8, 4, 8


class Case(NamedTuple):
    """What is written; requests of all loads together, and how many of them a second when paced."""

    record_bytes: int
    acks: int
    requests: int
    paced: int


CASES = (
    Case(16_384, 1, 60_000, 6_000),
    Case(100, 1, 120_000, 12_000),
    Case(100, -1, 40_000, 3_000),
)


class Found(NamedTuple):
    """CPU in us a request, and requests a second."""

    cpu_us: float
    rate: float


class Served:
    """A directory that so many processes serve."""

    def __init__(self, processes: int, data: str, *settings: str) -> None:
        words = ["serve", "--json", "--data", data, "--listen", f"{HOST}:0", "--log-level", "error"]
        words += [word for one in settings for word in ("--set", one)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools", *words, "--processes", str(processes)],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        ready: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.ports: list[int] = ready.get("ports", [ready["port"]])

    def create_topic(self, name: str, **configs: str) -> None:
        with Caller(HOST, self.ports[0]) as caller:
            caller.create_topic(name, PARTITIONS, **configs)

    def leaders(self, name: str) -> dict[int, int]:
        """The number of the process that leads each partition of a topic."""
        with Caller(HOST, self.ports[0]) as caller:
            topics = [MetadataRequest.Topic(name=name)]
            asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            (topic,) = caller.call(asked, 9).topics
        return {one.partition_index: one.leader_id - 1 for one in topic.partitions}

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()

    def cpu_s(self) -> float:
        """Of the supervisor and its processes, or of the one that there is."""
        return sum(map(machine.cpu_seconds, (self.process.pid, *self.children())))

    def children(self) -> Iterator[int]:
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:  # noqa: PTH123 - the kernel's
            yield from map(int, children.read().split())


def measured(processes: int, several: int, case: Case, load: str) -> Found:
    requests, paced = case.requests // several, case.paced // several
    in_flight = IN_FLIGHT
    if load == "each":
        in_flight *= processes
    if load == "paced":
        options = ["-r", str(paced), "-t", str(requests / paced)]
    else:
        options = ["-s", "-w", str(in_flight), "-n", str(requests)]
    with tempfile.TemporaryDirectory() as data:
        served = Served(processes, data)
        served.create_topic(TOPIC)
        before_s, began_s = served.cpu_s(), time.monotonic()
        told = blast(served, TOPIC, case.record_bytes, case.acks, several, options)
        took_s, cpu_s = time.monotonic() - began_s, served.cpu_s() - before_s
        served.stop()
    answers = sum(one["answers"] for one in told)
    return Found(cpu_s / answers * 1e6, answers / took_s)


def blast(
    served: Served, topic: str, record_bytes: int, acks: int, count: int, options: Sequence[str]
) -> list[dict[str, int]]:
    """What so many loads at once have counted, each of requests for its share of the partitions.
    Raises RuntimeError for an answer with an error."""
    record = batch(os.urandom(record_bytes))
    position = str(frames.produce_error_position(topic))
    leaders, running = served.leaders(topic), []
    with tempfile.TemporaryDirectory() as folder:
        for number, share in enumerate(shares(leaders, count)):
            path = f"{folder}/{number}"
            with open(path, "wb") as file:  # noqa: PTH123 - beside its name in a command
                for partition in share:
                    file.write(frames.produce_frame(topic, record, acks=acks, partition=partition))
            port = str(served.ports[leaders[share[0]]])
            words = ["-p", port, "-f", path, "-c", str(CONNECTIONS), "-e", position, *options]
            running.append(
                subprocess.Popen([str(program("blast")), *words], stdout=subprocess.PIPE)
            )
        told = [json.loads(one.communicate()[0]) for one in running]
    if any(one["errors"] for one in told):
        raise RuntimeError(f"requests were answered with errors: {told}")
    return told


def shares(leaders: dict[int, int], count: int) -> Sequence[list[int]]:
    """The partitions of each load: those of one process, or of one a part by count."""
    if len(set(leaders.values())) == count:
        return [[p for p, one in leaders.items() if one == leader] for leader in range(count)]
    partitions = sorted(leaders)
    return [partitions[number::count] for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--load", choices=("same", "each", "paced"), default="same")
    arguments = parser.parse_args()
    several = arguments.processes
    for case in CASES:
        found: dict[int, list[Found]] = {1: [], several: []}
        for _ in range(arguments.rounds):
            for processes in (1, several):
                found[processes].append(measured(processes, several, case, arguments.load))
        cpu_us, rate = (
            {n: statistics.median(getattr(one, name) for one in found[n]) for n in found}
            for name in Found._fields
        )
        pairs = list(zip(found[1], found[several], strict=True))
        costs, rates = (
            statistics.median(getattr(b, name) / getattr(a, name) for a, b in pairs)
            for name in Found._fields
        )
        print(
            f"{case.record_bytes} B, acks={case.acks}: CPU {cpu_us[1]:.1f} us a request, "
            f"{cpu_us[several]:.1f} by {several} processes ({costs:.2f}); {rate[1]:.0f}/s and "
            f"{rate[several]:.0f}/s ({rates:.2f}); load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
