"""Produce: MB/s, and CPU time of the broker for a GB, at large and at small batches.

GB is 1e9 bytes of batches as they are sent and stored, with their headers. How large the batches
became is read back from the server and printed: a load that does not fill them compares nothing.
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

TOPIC = "bench-produce"
LARGE, SMALL = 900_000, 16_384


class ByLibrdkafka(Case):
    """Records as fast as librdkafka takes them, acks=1, in batches of one size."""

    group = "Produce, librdkafka, acks=1"

    def __init__(
        self, *, batch_bytes: int, value_bytes: int, partitions: int = 1, estimate: float
    ) -> None:
        spread = f", {partitions} partitions" if partitions > 1 else ""
        self.name = f"{batch_bytes // 1000} KB batches of {value_bytes} B records{spread}"
        self.figures = (
            Figure("broker CPU-s/GB", 2, estimate),
            Figure("MB/s", 0),
            Figure("batch bytes found", 0),
        )
        self._batch_bytes = batch_bytes
        self._value_bytes = value_bytes
        self._partitions = partitions

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        small = self._value_bytes < 500
        size = scale.produced_bytes_of_small if small else scale.produced_bytes_of_large
        records = size // self._value_bytes
        server.create_topic(TOPIC, partitions=self._partitions)
        try:
            with librdkafka.producers(
                server, TOPIC, batch_size=self._batch_bytes, **librdkafka.FULL_BATCHES
            ) as (load,):
                machine.warm_memory(2 * size, folder)
                start_s, start_cpu_s = time.perf_counter(), machine.cpu_seconds(server.pid)
                librdkafka.produce(
                    load,
                    TOPIC,
                    records=records,
                    value_bytes=self._value_bytes,
                    partitions=self._partitions,
                )
                cpu_s = machine.cpu_seconds(server.pid) - start_cpu_s
                wall_s = time.perf_counter() - start_s
            found = raw.survey(server, TOPIC)
        finally:
            server.delete_topic(TOPIC)
        sent_bytes = found.bytes_per_record * records
        return {
            "broker CPU-s/GB": cpu_s / sent_bytes * 1e9,
            "MB/s": sent_bytes / wall_s / 1e6,
            "batch bytes found": found.median_batch_bytes,
        }


class Replayed(Case):
    """The same batch again and again from the raw load: what the broker can take at most."""

    group = "Produce, raw load, acks=1, 4 connections, 5 requests in flight on each"

    def __init__(self, *, batch_bytes: int, value_bytes: int, estimate: float) -> None:
        self.name = f"{batch_bytes // 1000} KB batches of {value_bytes} B records"
        self.figures = (
            Figure("broker CPU-s/GB", 2, estimate),
            Figure("MB/s", 0),
            Figure("requests/s", 0),
        )
        self._records = frames.records_in(batch_bytes, value_bytes)
        self._value_bytes = value_bytes

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        batch = frames.record_batch(self._records, self._value_bytes)
        server.create_topic(TOPIC)
        try:
            request = frames.produce_frame(TOPIC, batch, acks=1)
            count = max(10, 2 * scale.produced_bytes_of_large // len(batch))
            machine.warm_memory(2 * count * len(batch), folder)
            ran = raw.blast(
                *(server, [request], "-c", "4", "-w", "5", "-n", str(count)),
                error_position=frames.produce_error_position(TOPIC),
            )
        finally:
            server.delete_topic(TOPIC)
        answered_bytes = ran.answers * len(batch)
        return {
            "broker CPU-s/GB": ran.cpu_s / answered_bytes * 1e9,
            "MB/s": answered_bytes / ran.seconds / 1e6,
            "requests/s": ran.answers / ran.seconds,
        }


CASES: tuple[Case, ...] = (
    ByLibrdkafka(batch_bytes=LARGE, value_bytes=1000, estimate=0.6),
    ByLibrdkafka(batch_bytes=LARGE, value_bytes=100, estimate=0.6),
    ByLibrdkafka(batch_bytes=SMALL, value_bytes=1000, estimate=1.5),
    ByLibrdkafka(batch_bytes=SMALL, value_bytes=100, estimate=1.7),
    ByLibrdkafka(batch_bytes=SMALL, value_bytes=1000, partitions=4, estimate=1.5),
    Replayed(batch_bytes=LARGE, value_bytes=1000, estimate=0.5),
    Replayed(batch_bytes=SMALL, value_bytes=1000, estimate=1.3),
)
