"""Start-up: time from exec to the first ApiVersions answer, and memory of an idle server.

Each start has a process of its own, beside the one that takes the other loads. The client connects
in a tight loop, so what it adds is one refused connection at most.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from bench import frames, machine, raw
from bench.case import Case, Figure
from bench.servers import Started
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

FIRST, AGAIN = "first start ms", "start after a clean stop ms"
IDLE, USED = "idle RSS MiB", "RSS MiB after a record"
TOPIC = "bench-idle"


class Start(Case):
    """Starts on an empty data directory and once more on the one that this left behind."""

    group = "Start"
    name = "exec to first answer"
    figures = (Figure(FIRST, 0, 220), Figure(AGAIN, 0, 220), Figure(IDLE, 1, 38), Figure(USED, 1))

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Started):
            return {}
        firsts: list[float] = []
        agains: list[float] = []
        memory: dict[str, float] = {}
        for number in range(scale.starts if server.starts_quickly else 1):
            data = folder / f"{server.name}-{number}"
            one = type(server)(data, port=free_port())
            try:
                firsts.append(one.answer_after_s() * 1000)
                time.sleep(scale.idle_s)
                memory[IDLE] = machine.resident_mib(one.pid)
                _use(one.port)
                memory[USED] = machine.resident_mib(one.pid)
            finally:
                one.stop()
            if server.starts_quickly:
                two = type(server)(data, port=free_port())
                try:
                    agains.append(two.answer_after_s() * 1000)
                finally:
                    two.stop()
        times = {FIRST: statistics.median(firsts)}
        if agains:
            times[AGAIN] = statistics.median(agains)
        return {**times, **memory}


def _use(port: int) -> None:
    """One Metadata that makes a topic, and one record; tried again while the topic is made."""
    request = frames.produce_frame(TOPIC, frames.record_batch(1, 100), acks=1)
    at = frames.produce_error_position(TOPIC)
    for _ in range(50):
        raw.ask(port, frames.metadata_frame(TOPIC))
        if raw.ask(port, request)[at : at + 2] == b"\0\0":
            return
        time.sleep(0.1)
    raise RuntimeError("a record was not taken within five seconds of asking for its topic")


CASES: tuple[Case, ...] = (Start(),)
