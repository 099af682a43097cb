"""Single-record produce: requests/s, and CPU time of the broker for each.

With librdkafka the client, on its one core, is often slower than the server; then requests/s says
little and the CPU time says all: a saturated core answers 1e6 / (CPU us/request) requests/s. How
many requests lie in the socket when the server looks decides what one costs, so the raw load comes
with a window of 1 (every client waits for its answer) and of 5 (what clients allow by default).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import frames, librdkafka, machine, raw
from bench.case import Case, Figure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-single"
VALUE_BYTES = 100
RATE, COST, CEILING = "requests/s", "broker CPU us/request", "requests/s of a full core"


def _figures(estimate: float) -> tuple[Figure, ...]:
    return (Figure(COST, 1, estimate), Figure(RATE, 0), Figure(CEILING, 0, 1e6 / estimate))


def _rates(requests: int, cpu_s: float, wall_s: float) -> dict[str, float]:
    return {
        COST: cpu_s / requests * 1e6,
        RATE: requests / wall_s,
        # In a measurement of milliseconds a server may not have run at all.
        CEILING: requests / max(cpu_s, 1e-6),
    }


class ByLibrdkafka(Case):
    """Producers with batch.num.messages=1 and linger.ms=0, each with its connection."""

    group = f"Requests of one {VALUE_BYTES} B record, librdkafka, acks=1"

    def __init__(self, *, producers: int, estimate: float) -> None:
        self.name = f"{producers} connection{'s' if producers > 1 else ''}"
        self.figures = _figures(estimate)
        self._producers = producers

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        server.create_topic(TOPIC)
        try:
            with librdkafka.producers(
                server, TOPIC, count=self._producers, **librdkafka.SINGLE_RECORDS
            ) as loads:
                start_s, start_cpu_s = time.perf_counter(), machine.cpu_seconds(server.pid)
                librdkafka.produce_singly(
                    loads, TOPIC, records=scale.single_records, value=bytes(VALUE_BYTES)
                )
                cpu_s = machine.cpu_seconds(server.pid) - start_cpu_s
                wall_s = time.perf_counter() - start_s
            found = raw.survey(server, TOPIC)
        finally:
            server.delete_topic(TOPIC)
        if found.median_batch_bytes >= frames.BATCH_HEADER.size + 2 * VALUE_BYTES:
            raise RuntimeError("librdkafka sent several records in a request")
        return _rates(scale.single_records, cpu_s, wall_s)


class Raw(Case):
    """One request again and again, on many connections or few, waiting for answers or ahead."""

    group = f"Requests of one {VALUE_BYTES} B record, raw load, acks=1"

    def __init__(self, *, connections: int, window: int, estimate: float) -> None:
        plural = "s" if connections > 1 else ""
        self.name = f"{connections} connection{plural}, {window} in flight on each"
        self.figures = _figures(estimate)
        self._options = ("-c", str(connections), "-w", str(window))

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        request = frames.produce_frame(TOPIC, frames.record_batch(1, VALUE_BYTES), acks=1)
        server.create_topic(TOPIC)
        try:
            seconds = ("-t", str(scale.raw_s), "-u", str(scale.raw_s / 5))
            ran = raw.blast(
                *(server, [request], *self._options, *seconds),
                error_position=frames.produce_error_position(TOPIC),
            )
        finally:
            server.delete_topic(TOPIC)
        return _rates(ran.answers, ran.cpu_s, ran.seconds)


CASES: tuple[Case, ...] = (
    ByLibrdkafka(producers=1, estimate=10),
    ByLibrdkafka(producers=8, estimate=8),
    ByLibrdkafka(producers=64, estimate=10),
    Raw(connections=1, window=1, estimate=34),
    Raw(connections=1, window=5, estimate=14),
    Raw(connections=8, window=1, estimate=17),
    Raw(connections=8, window=5, estimate=10),
    Raw(connections=64, window=1, estimate=14),
    Raw(connections=64, window=5, estimate=10),
)
