"""Consumers of 0.8 (Fetch 0) on a topic of format 2: everything they get has to be converted.

What is promised: a conversion is made once for all readers, its memory is bounded, and other
connections hardly notice it. The topic is larger than the cache of conversions.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from bench import frames, machine, raw
from bench.case import Case, Figure
from bench.fetch import Preloaded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

GROUP = "Older readers (Fetch 0) of 900 KB batches of 100 B records, raw load"

PINGS_PER_S = 1000
SAMPLE_EVERY_S = 0.02


def fetches(topic: str, batches: int, records_in_batch: int) -> list[bytes]:
    """One for each batch, from its first record."""
    return [
        frames.old_fetch_frame(topic, number * records_in_batch, version=0)
        for number in range(batches)
    ]


class OldReaders(Case):
    """Preloads the topic. A server that knows no Fetch 0, like the floor, is passed over."""

    group = GROUP

    def __init__(self, preloaded: Preloaded, name: str, *figures: Figure) -> None:
        self.name = name
        self.figures = figures
        self._preloaded = preloaded

    def prepare(self, server: Server, scale: Scale) -> None:
        if server.name != "floor":
            self._preloaded.fill(server, scale)

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name == "floor":
            return {}
        preloaded = self._preloaded
        batches = preloaded.batches(scale)
        requests = fetches(preloaded.topic, batches, preloaded.records_in_batch)
        return self.measured(server, scale, requests)

    def measured(
        self, server: Server, scale: Scale, requests: Sequence[bytes]
    ) -> Mapping[str, float]:
        raise NotImplementedError

    def read(self, server: Server, requests: Sequence[bytes], *options: str) -> raw.Blasted:
        at = frames.old_fetch_error_position(self._preloaded.topic, version=0)
        return raw.blast(server, requests, *options, error_position=at)


class Pings(OldReaders):
    """ApiVersions at fixed times on other connections, while one reader goes on and on."""

    def measured(
        self, server: Server, scale: Scale, requests: Sequence[bytes]
    ) -> Mapping[str, float]:
        seconds = scale.latency_s
        alone = self._ping(server, seconds)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(
                self.read, server, requests, "-t", str(seconds * 1.4), "-u", str(seconds * 0.2)
            )
            beside = self._ping(server, seconds, warm_up_s=seconds * 0.3)
            read = reading.result()
        return {
            "p99 ms alone": alone.p99_us / 1000,
            "p99 ms beside": beside.p99_us / 1000,
            "converted MB/s": read.bytes_received / read.seconds / 1e6,
        }

    def _ping(self, server: Server, seconds: float, *, warm_up_s: float = 0.0) -> raw.Blasted:
        options = ("-c", "4", "-r", str(PINGS_PER_S), "-t", str(seconds), "-u", str(warm_up_s))
        return raw.blast(server, [frames.api_versions_frame()], *options, error_position=4)


class Crowd(OldReaders):
    """One reader goes through the topic, then ten do so together, each from the start."""

    READERS = 10

    def measured(
        self, server: Server, scale: Scale, requests: Sequence[bytes]
    ) -> Mapping[str, float]:
        one = self.read(server, requests, "-n", str(len(requests)))
        # The load has each connection begin at another place of the file, which is the topic's
        # start each time.
        often = [*requests] * self.READERS
        ten = self.read(server, often, "-c", str(self.READERS), "-n", str(len(often)))
        return {
            "CPU-s/GB, one reader": one.cpu_s / one.bytes_received * 1e9,
            # A load of milliseconds may end between two readings of a CPU clock.
            "CPU of ten readers / of one": ten.cpu_s / one.cpu_s if one.cpu_s else 0.0,
        }


class Memory(OldReaders):
    """The growth of the process while a reader goes through the topic, at its largest.

    It is compared with what it was before it converted anything: the second round finds memory
    taken by the first.
    """

    def __init__(self, preloaded: Preloaded, name: str, *figures: Figure) -> None:
        super().__init__(preloaded, name, *figures)
        self._before_mib: dict[int, float] = {}

    def measured(
        self, server: Server, scale: Scale, requests: Sequence[bytes]
    ) -> Mapping[str, float]:
        largest = machine.resident_mib(server.pid)
        before = self._before_mib.setdefault(server.pid, largest)
        over = threading.Event()

        def watch() -> None:
            nonlocal largest
            while not over.wait(SAMPLE_EVERY_S):
                largest = max(largest, machine.resident_mib(server.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            self.read(server, requests, "-n", str(len(requests)))
        finally:
            over.set()
            watching.join()
        return {"MiB more at most": max(largest, machine.resident_mib(server.pid)) - before}


class Large(Preloaded):
    """A topic of ten thirds of what is fetched otherwise: 1 GB at full scale."""

    def __init__(self, value_bytes: int) -> None:
        super().__init__(value_bytes)
        self.topic = f"bench-old-large-{value_bytes}"

    def batches(self, scale: Scale) -> int:
        return max(2, scale.fetched_bytes * 10 // 3 // len(self.batch))


class Small(Preloaded):
    """A topic three times the size of the cache of conversions, at full scale."""

    def __init__(self, value_bytes: int) -> None:
        super().__init__(value_bytes)
        self.topic = f"bench-old-{value_bytes}"


_TOPIC = Small(100)
CASES: tuple[Case, ...] = (
    # First, while the process has not converted anything yet.
    Memory(Large(100), "a topic of 1 GB, one reader", Figure("MiB more at most", 0, 45)),
    Pings(
        _TOPIC,
        f"{PINGS_PER_S} pings/s beside one reader",
        Figure("p99 ms alone", 2, 0.2),
        Figure("p99 ms beside", 2, 3.0),
        Figure("converted MB/s", 0, 200),
    ),
    Crowd(
        _TOPIC,
        "a topic of 100 MB, ten readers",
        Figure("CPU-s/GB, one reader", 2, 4.0),
        Figure("CPU of ten readers / of one", 1, 3.0),
    ),
)
