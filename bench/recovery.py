"""Restart after `kill -9` under load: how long until the first answers, and does it grow?

200 partitions are filled with batches of 16 KB, then single records are written to all of them by
16 producers with acks=all, and in their midst the server is killed. It is started again on the same
directory, which then holds a tenth of the data in one case, and all of it in the other.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from bench import frames, raw
from bench.case import Case, Figure
from bench.servers import Started

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-recovery"
PARTITIONS = 200
BATCH_BYTES, VALUE_BYTES = 16_384, 1_000
PRODUCERS = 16
ANSWERED, PRODUCED, FETCHED = "first ApiVersions ms", "first produce ms", "first fetch ms"
#: Longer than this no start may take before the run is given up.
PATIENCE_S = 60.0


class KillUnderLoad(Case):
    """Figures are milliseconds from exec of the next start, which has to find out what is whole."""

    group = f"Restart after kill -9 under load, {PARTITIONS} partitions"

    def __init__(self, *, share: float, estimate: float) -> None:
        self.name = f"{share * 2:g} GB in batches of {BATCH_BYTES // 1000} KB"
        self.figures = tuple(Figure(name, 0, estimate) for name in (ANSWERED, PRODUCED, FETCHED))
        self._share = share

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Started) or server.name != "triglot":
            return {}
        found: dict[str, list[float]] = {figure.name: [] for figure in self.figures}
        one = type(server)(folder / server.name)
        try:
            one.wait_until_ready()
            one.create_topic(TOPIC, partitions=PARTITIONS)
            _fill(one, int(scale.recovered_bytes * self._share))
            for _ in range(scale.starts):
                _write_until_killed(one, scale.latency_s)
                one = type(server)(one.data, port=one.port)
                for name, took_ms in _first_answers(one):
                    found[name].append(took_ms)
        finally:
            one.stop()
        return {name: statistics.median(times) for name, times in found.items()}


def _fill(server: Server, size: int) -> None:
    batch = frames.record_batch(frames.records_in(BATCH_BYTES, VALUE_BYTES), VALUE_BYTES)
    requests = [
        frames.produce_frame(TOPIC, batch, acks=1, partition=number) for number in range(PARTITIONS)
    ]
    raw.blast(
        *(server, requests, "-c", "4", "-w", "5", "-n", str(size // len(batch))),
        error_position=frames.produce_error_position(TOPIC),
    )


def _write_until_killed(server: Started, seconds: float) -> None:
    """Records that go on for so long, and end with the server."""
    batch = frames.record_batch(1, 100)
    requests = [
        frames.produce_frame(TOPIC, batch, acks=-1, partition=number)
        for number in range(PARTITIONS)
    ]
    with raw.blasting(
        *(server, requests, "-c", str(PRODUCERS), "-s", "-t", "3600"),
        error_position=frames.produce_error_position(TOPIC),
    ):
        time.sleep(seconds)
        server.kill()


def _first_answers(server: Started) -> list[tuple[str, float]]:
    """Milliseconds from exec until each kind of request was first answered, one after the other."""
    produce = frames.produce_frame(TOPIC, frames.record_batch(1, 100), acks=-1)
    fetch = frames.fetch_frame(TOPIC, 0, wait_ms=0)
    times = [(ANSWERED, server.answer_after_s() * 1000)]
    for name, request, at in (
        (PRODUCED, produce, frames.produce_error_position(TOPIC)),
        (FETCHED, fetch, frames.fetch_error_position(TOPIC)),
    ):
        while raw.ask(server.port, request)[at : at + 2] != b"\0\0":
            if time.perf_counter() - server.started_at_s > PATIENCE_S:
                raise RuntimeError(f"no {name} after {PATIENCE_S:.0f} s:\n{server.output()}")
        times.append((name, (time.perf_counter() - server.started_at_s) * 1000))
    return times


CASES: tuple[Case, ...] = (
    KillUnderLoad(share=0.1, estimate=400),
    KillUnderLoad(share=1.0, estimate=600),
)
