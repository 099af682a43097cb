"""Search by time in a log of 1,000 segments: one call, and one ListOffsets over a socket.

Timestamps rise from batch to batch, and the times asked for are drawn at random from the whole log,
so that each search goes to another segment. Warm: as many searches have been made
before as there are segments, twice over.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from bench import frames, machine, raw
from bench.case import Case, Figure
from bench.servers import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server
    from storage.log import Log

TOPIC = "bench-times"
FIRST_MS = 1_700_000_000_000
RECORDS, VALUE_BYTES = 36, 100
"""A batch is 4 KB, so that nearly every one has its index entries."""
BATCHES_IN_SEGMENT = 16
P50, P99 = "p50 us", "p99 us"
WARM_UP = 2
SEARCHES = 5


def batches(count: int) -> list[bytes]:
    """Batches whose timestamps follow each other."""
    return [
        frames.record_batch(RECORDS, VALUE_BYTES, now_ms=FIRST_MS + number * RECORDS)
        for number in range(count)
    ]


def segment_bytes(batch: bytes) -> int:
    """A size that takes so many batches and not one more."""
    return len(batch) * BATCHES_IN_SEGMENT + len(batch) // 2


def measured(search: Callable[[int], int], segments: int) -> dict[str, float]:
    """Searches for times all over the log; `search` gives the offset, which is checked."""
    chance = random.Random(1)
    count = segments * BATCHES_IN_SEGMENT
    times_us: list[float] = []
    for number in range((WARM_UP + SEARCHES) * segments):
        batch = chance.randrange(count)
        start_s = time.perf_counter()
        found = search(FIRST_MS + batch * RECORDS)
        took_us = (time.perf_counter() - start_s) * 1e6
        if found != batch * RECORDS:
            raise RuntimeError(f"found offset {found}, wanted {batch * RECORDS}")
        if number >= WARM_UP * segments:
            times_us.append(took_us)
    times_us.sort()
    return {P50: times_us[len(times_us) // 2], P99: times_us[len(times_us) * 99 // 100]}


class InProcess(Case):
    """`Log.offset_for_timestamp`, in a process of its own on the broker's core."""

    group = "Search by time, warm, records at random"
    name = "one call, 1,000 segments"
    figures = (Figure(P50, 0, 40), Figure(P99, 0, 80))

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name != "triglot":
            return {}
        command = [sys.executable, "-m", "bench.time_search", str(scale.segments)]
        with machine.on_broker_core():
            ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"{self.name}: {ran.stderr.strip()}")
        found: dict[str, float] = json.loads(ran.stdout)
        return found


class OverASocket(Case):
    """ListOffsets 1 on one connection, with the round trip and a client in Python in it."""

    group = InProcess.group
    name = "ListOffsets over a socket, 1,000 segments"
    figures = (Figure(P50, 0, 120), Figure(P99, 0, 250))

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if server.name == "floor":
            return {}
        made = batches(scale.segments * BATCHES_IN_SEGMENT)
        sizes = {"segment.bytes": str(segment_bytes(made[0])), "retention.ms": "-1"}
        server.create_topic(TOPIC, configs=sizes)
        try:
            requests = [frames.produce_frame(TOPIC, batch, acks=1) for batch in made]
            raw.blast(
                *(server, requests, "-w", "5", "-n", str(len(requests))),
                error_position=frames.produce_error_position(TOPIC),
            )
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

                def search(timestamp_ms: int) -> int:
                    request = frames.list_offsets_frame(TOPIC, timestamp_ms)
                    return frames.offset_in(raw.ask_on(connection, request), TOPIC)

                return measured(search, scale.segments)
        finally:
            server.delete_topic(TOPIC)


CASES: tuple[Case, ...] = (InProcess(), OverASocket())


def new_log(folder: str, segments: int) -> Log:
    from config.broker import BrokerSettings
    from config.topic import TopicSettings
    from protocol.records.layout import HEADER
    from storage.disk import DiskFilesystem
    from storage.recovery import open_log

    made = batches(segments * BATCHES_IN_SEGMENT)
    sizes = {"segment.bytes": str(segment_bytes(made[0]))}
    log, _ = open_log(DiskFilesystem(), folder, TopicSettings.of(BrokerSettings(), sizes))
    for batch in made:
        view = memoryview(bytearray(batch))
        log.append(view, HEADER.unpack_from(view))
        log.write()
    return log


def main(segments: str) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        log = new_log(folder, int(segments))

        def search(timestamp_ms: int) -> int:
            found = log.offset_for_timestamp(timestamp_ms)
            return -1 if found is None else found[1]

        if len(log.segments) < int(segments):
            raise SystemExit(f"the log has {len(log.segments)} segments and not {segments}")
        print(json.dumps(measured(search, int(segments))))
        log.close(clean=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
