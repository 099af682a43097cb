"""Ack latency at a fixed rate: p50 and p99, from the time when a record should have been sent.

An open loop: the load does not wait for answers, and a record that had to queue behind a slow one
counts the time it queued. The load wakes up a little before each record is due, so its own lateness
is not in it; waking up for an answer is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import frames, raw
from bench.case import Case, Figure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-latency"


class OpenLoop(Case):
    """Requests of one 100 B record at fixed times over four connections."""

    group = "Ack latency in an open loop, raw load, 4 connections"

    def __init__(self, *, rate: int, acks: int, p50_ms: float, p99_ms: float) -> None:
        self.name = f"{rate} records/s, acks={'all' if acks == -1 else acks}"
        self.figures = (Figure("p50 ms", 2, p50_ms), Figure("p99 ms", 2, p99_ms))
        self._rate = rate
        self._acks = acks

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        request = frames.produce_frame(TOPIC, frames.record_batch(1, 100), acks=self._acks)
        server.create_topic(TOPIC)
        try:
            seconds = ("-t", str(scale.latency_s), "-u", str(scale.latency_s / 10))
            ran = raw.blast(
                *(server, [request], "-c", "4", "-r", str(self._rate), *seconds),
                error_position=frames.produce_error_position(TOPIC),
            )
        finally:
            server.delete_topic(TOPIC)
        return {"p50 ms": ran.p50_us / 1000, "p99 ms": ran.p99_us / 1000}


CASES: tuple[Case, ...] = (
    OpenLoop(rate=500, acks=1, p50_ms=0.1, p99_ms=0.4),
    OpenLoop(rate=5000, acks=1, p50_ms=0.08, p99_ms=0.4),
    OpenLoop(rate=500, acks=-1, p50_ms=0.35, p99_ms=1.0),
    OpenLoop(rate=5000, acks=-1, p50_ms=0.5, p99_ms=1.5),
)
