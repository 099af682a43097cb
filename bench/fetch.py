"""Fetch: MB/s, and CPU time of the broker for a GB, of a topic that lies in the page cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import frames, librdkafka, machine, raw
from bench.case import Case, Figure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

LARGE = 900_000


class Preloaded:
    """A topic of equal batches of 900 KB, filled once for each server by the raw load."""

    def __init__(self, value_bytes: int) -> None:
        self.value_bytes = value_bytes
        self.topic = f"bench-fetch-{value_bytes}"
        self.batch = frames.record_batch(frames.records_in(LARGE, value_bytes), value_bytes)
        self.records_in_batch = frames.records_in(LARGE, value_bytes)
        self._filled: set[int] = set()

    def batches(self, scale: Scale) -> int:
        """Small records cost the client so much that a third of the bytes must do."""
        size = scale.fetched_bytes if self.value_bytes >= 500 else scale.fetched_bytes // 3
        return max(2, size // len(self.batch))

    def fill(self, server: Server, scale: Scale) -> None:
        if server.pid in self._filled:
            return
        self._filled.add(server.pid)
        server.create_topic(self.topic)
        request = frames.produce_frame(self.topic, self.batch, acks=1)
        raw.blast(
            *(server, [request], "-n", str(self.batches(scale))),
            error_position=frames.produce_error_position(self.topic),
        )


class ByLibrdkafka(Case):
    """A consumer reads the topic from its start, with its default fetch sizes (1 MiB)."""

    group = "Fetch, librdkafka, 1 partition"

    def __init__(self, preloaded: Preloaded, *, estimate: float) -> None:
        self.name = f"900 KB batches of {preloaded.value_bytes} B records"
        self.figures = (Figure("broker CPU-s/GB", 2, estimate), Figure("MB/s", 0))
        self._preloaded = preloaded

    def prepare(self, server: Server, scale: Scale) -> None:
        self._preloaded.fill(server, scale)

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        preloaded = self._preloaded
        batches = preloaded.batches(scale)
        records = batches * preloaded.records_in_batch
        start_cpu_s = machine.cpu_seconds(server.pid)
        records_per_s = librdkafka.consume(server, preloaded.topic, records=records)
        cpu_s = machine.cpu_seconds(server.pid) - start_cpu_s
        size = batches * len(preloaded.batch)
        return {
            "broker CPU-s/GB": cpu_s / size * 1e9,
            "MB/s": size / records * records_per_s / 1e6,
        }


class Raw(Case):
    """The same batches asked for by the raw load, which drops them unread."""

    group = "Fetch, raw load, 2 connections, 2 requests in flight on each"

    def __init__(self, preloaded: Preloaded, *, estimate: float) -> None:
        self.name = "900 KB batches"
        self.figures = (Figure("broker CPU-s/GB", 2, estimate), Figure("MB/s", 0))
        self._preloaded = preloaded

    def prepare(self, server: Server, scale: Scale) -> None:
        self._preloaded.fill(server, scale)

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        preloaded = self._preloaded
        requests = [
            frames.fetch_frame(preloaded.topic, batch * preloaded.records_in_batch)
            for batch in range(preloaded.batches(scale))
        ]
        seconds = ("-t", str(scale.raw_s), "-u", str(scale.raw_s / 5))
        ran = raw.blast(
            *(server, requests, "-c", "2", "-w", "2", *seconds),
            error_position=frames.fetch_error_position(preloaded.topic),
        )
        return {
            "broker CPU-s/GB": ran.cpu_s / ran.bytes_received * 1e9,
            "MB/s": ran.bytes_received / ran.seconds / 1e6,
        }


_LARGE_RECORDS = Preloaded(1000)
CASES: tuple[Case, ...] = (
    ByLibrdkafka(_LARGE_RECORDS, estimate=0.4),
    ByLibrdkafka(Preloaded(100), estimate=0.4),
    Raw(_LARGE_RECORDS, estimate=0.25),
)
