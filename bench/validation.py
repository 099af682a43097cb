"""Produce at each level of checks: what a look at the records adds to the CPU time of a request.

One broker of ours changes `validation.level` from window to window, in an order of chance: two
processes differ by more than what is measured here.
"""

from __future__ import annotations

import os
import random
import statistics
from typing import TYPE_CHECKING

from bench import frames, machine, raw
from bench.case import Case, Figure
from bench.servers import Running, Triglot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-validation"
LEVELS = ("header", "records", "strict")
WINDOWS = 5
"""Of each level in a round."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""By which the system counts a process's time: a window that took less counts as one."""
NOW_MS = 1_700_000_000_000
BATCH_BYTES = "batch bytes"


def cost(level: str) -> str:
    return f"broker CPU us/request, {level}"


def ratio(level: str) -> str:
    return f"{level} / header"


def lines(count: int, value_bytes: int) -> list[tuple[int, None, bytes, tuple[()]]]:
    """Records as a log of web requests has them, ten in a millisecond: gzip makes a third of them,
    or less of longer ones."""
    rng = random.Random(1)
    words = b"GET POST /index.html /account /search 200 404 Mozilla Firefox Safari".split()
    made = []
    for index in range(count):
        value = b"%s %d" % (rng.randbytes(12).hex().encode(), NOW_MS + index)
        while len(value) < value_bytes:
            value += b" " + rng.choice(words)
        made.append((NOW_MS + index // 10, None, value[:value_bytes], ()))
    return made


class Checked(Case):
    """The same batch again and again, 4 connections, 5 requests in flight on each."""

    def __init__(self, codec: int, count: int, value_bytes: int, *, estimate: float) -> None:
        from protocol.records.compression import NAMES

        self.group = f"Produce by level of checks, codec {NAMES[codec]}, raw load, acks=1"
        self.name = f"{count:,} records of {value_bytes:,} B"
        self.figures = (
            *(Figure(cost(level), 1) for level in LEVELS),
            *(Figure(ratio("records"), 2, estimate), Figure(ratio("strict"), 2)),
            Figure(BATCH_BYTES, 0),
        )
        self._codec, self._count, self._value_bytes = codec, count, value_bytes

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        from protocol.records.builder import build_batch

        if not isinstance(server, Triglot | Running):
            return {}  # the setting is ours
        batch = build_batch(lines(self._count, self._value_bytes), codec=self._codec)
        request = frames.produce_frame(TOPIC, batch, acks=1)
        count = max(20, min(3_000, scale.produced_bytes_of_small // len(batch)))
        found: dict[str, list[float]] = {level: [] for level in LEVELS}
        server.create_topic(TOPIC, configs={"retention.bytes": "100000000"})
        try:
            machine.warm_memory(scale.produced_bytes_of_large, folder)
            for _ in range(WINDOWS):
                for level in random.sample(LEVELS, len(LEVELS)):
                    server.set_config("validation.level", level)
                    ran = raw.blast(
                        *(server, [request], "-c", "4", "-w", "5", "-n", str(count)),
                        error_position=frames.produce_error_position(TOPIC),
                    )
                    found[level].append(max(ran.cpu_s, TICK_S) / ran.answers * 1e6)
        finally:
            server.delete_topic(TOPIC)
        by_header = found["header"]
        return {
            **{cost(level): statistics.median(found[level]) for level in LEVELS},
            **{
                ratio(level): statistics.median(
                    one / other for one, other in zip(found[level], by_header, strict=True)
                )
                for level in LEVELS[1:]
            },
            BATCH_BYTES: len(batch),
        }


PLAIN = {
    **{(1, 100): 1.01, (1, 1_000): 1.01, (10, 100): 1.02, (10, 1_000): 1.01, (100, 100): 1.05},
    **{(150, 100): 1.06, (100, 1_000): 1.02, (1_000, 100): 1.12, (1_000, 1_000): 1.02},
    **{(9_000, 100): 1.13},
}
"""Estimates of what `records` costs beside `header`: 7 ns a record and 0.1 us a call, of 10 us a
request and 0.45 s/GB."""
PACKED = ((1, 100), (150, 100), (1_000, 100), (1_000, 1_000))
CASES = (
    *(Checked(0, *size, estimate=estimate) for size, estimate in PLAIN.items()),
    *(Checked(codec, *size, estimate=1.02) for codec in range(1, 5) for size in PACKED),
)
