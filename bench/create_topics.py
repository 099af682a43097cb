"""CreateTopics: one topic at a time, and 1,000 in one request.

One connection with one request in flight, on a server of its own in every round, which is thrown
away with its topics. What is promised: one topic within 10 ms at p99, 1,000 in one request within
3 s. Before it, on the same disk: a bare loop of what one topic needs of the file system, an append
with its `fdatasync`, a folder and four files in it.

Estimate, on paper: one `fdatasync` of a small append 1 ms, a folder and four files 0.6 ms, settings
and answer 0.3 ms, sockets 0.1 ms: 2 ms. A request of 1,000 has one `fdatasync`: 1 s, and half of
that again for a busy disk.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from bench import frames, group_frames, raw
from bench.case import Case, Figure
from bench.servers import Started
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

VERSION = 5
"""The newest that Apache Kafka 2.4 to 4 and we speak alike."""
SINGLE, AT_ONCE = 500, 1_000
WARM_UP = 20
FILES = 4
RECORDS = b"r" * 200

P50, P99 = "one topic p50 ms", "one topic p99 ms"
BARE_P50, BARE_P99 = "bare loop p50 ms", "bare loop p99 ms"
TOOK, ALONE_P99 = "s", "produce alone p99 ms"
MEANWHILE_P50, MEANWHILE_P99 = "produce meanwhile p50 ms", "produce meanwhile p99 ms"
MEANWHILE_MAX = "produce meanwhile max ms"
PRODUCED_TO, RATE = "bench-produced", 500
TOGETHER, BARE_TOGETHER = "1,000 topics in one request s", "1,000 times the bare loop's files s"


class Creating(Case):
    group = "CreateTopics, one in flight"
    name = "topics of 1 partition"
    figures = (
        *(Figure(P50, 2, 2.0), Figure(P99, 2, 8.0)),
        *(Figure(BARE_P50, 2, 1.6), Figure(BARE_P99, 2, 6.0)),
        *(Figure(TOGETHER, 2, 1.5), Figure(BARE_TOGETHER, 2, 0.6)),
    )

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Started) or not server.starts_quickly or server.name == "floor":
            return {}
        topics, at_once = min(SINGLE, scale.groups), min(AT_ONCE, scale.groups)
        bare = [_bare(folder / "bare", number) for number in range(topics)]
        bare_together = sum(_bare_files(folder / f"{number}") for number in range(at_once))
        one = type(server)(folder / server.name)
        try:
            one.wait_until_ready()
            with socket.create_connection(("127.0.0.1", one.port), timeout=120) as connection:
                for number in range(WARM_UP):
                    _create(connection, [f"warm-{number}"])
                single = [_create(connection, [f"one-{number}"]) for number in range(topics)]
                many = [f"many-{number}" for number in range(at_once)]
                together = _create(connection, many)
        finally:
            one.stop()
        return {
            P50: _quantile(single, 0.5) * 1000,
            P99: _quantile(single, 0.99) * 1000,
            BARE_P50: _quantile(bare, 0.5) * 1000,
            BARE_P99: _quantile(bare, 0.99) * 1000,
            TOGETHER: together,
            BARE_TOGETHER: bare_together,
        }


def _create(connection: socket.socket, names: Sequence[str], partitions: int = 1) -> float:
    """Seconds until these topics are made."""
    topic = CreateTopicsRequest.Topic
    request = CreateTopicsRequest(
        topics=[
            topic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for name in names
        ],
        timeout_ms=60_000,
    )
    frame = group_frames.frame(request, VERSION)
    start_s = time.perf_counter()
    answer = raw.ask_on(connection, frame)
    took_s = time.perf_counter() - start_s
    body = group_frames.body(answer, CreateTopicsResponse, VERSION)
    codes = {entry.error_code for entry in CreateTopicsResponse.decode(VERSION, body).topics}
    if codes != {0}:
        raise RuntimeError(f"CreateTopics met the error codes {codes}")
    return took_s


def _bare(folder: Path, number: int) -> float:
    """Seconds of what one topic needs of the file system."""
    folder.mkdir(exist_ok=True)
    start_s = time.perf_counter()
    log = os.open(folder / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        os.write(log, RECORDS)
        os.fdatasync(log)
    finally:
        os.close(log)
    synced_s = time.perf_counter() - start_s
    return synced_s + _bare_files(folder / f"{number}")


def _bare_files(partition: Path) -> float:
    """Seconds to make a folder and the files in it."""
    start_s = time.perf_counter()
    partition.mkdir()
    for name in range(FILES):
        os.close(os.open(partition / f"{name}", os.O_RDWR | os.O_CREAT))
    return time.perf_counter() - start_s


def _quantile(times_s: list[float], part: float) -> float:
    return sorted(times_s)[min(len(times_s) - 1, int(len(times_s) * part))]


class CreatingMany(Case):
    """10,000 partitions in one request, while another client produces.

    The time is that of the first request. It is the file system's more than ours: ext4 without a
    journal leaves inodes alone for minutes after their files were deleted, and each new file goes
    over all of those that lie before it, so that a directory beside which 50,000 files have just
    gone takes 20 times as long.
    """

    group = "CreateTopics of 10,000 partitions in one request"

    def __init__(self, topics: int) -> None:
        self.name = f"{topics:,} topic{'s' if topics > 1 else ''}, acks=1 meanwhile"
        self.figures = (
            Figure(TOOK, 2, 4.0),
            *(Figure(ALONE_P99, 2, 0.6), Figure(MEANWHILE_P50, 2, 0.8)),
            *(Figure(MEANWHILE_P99, 2, 4.0), Figure(MEANWHILE_MAX, 2, 15.0)),
        )
        self._topics = topics

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Started) or server.name != "triglot":
            return {}
        partitions = max(scale.partitions, self._topics) // self._topics
        one = type(server)(folder / server.name)
        took: list[float] = []
        measured = threading.Event()

        def create() -> None:
            """Again and again, as long as somebody looks at what others feel of it."""
            with socket.create_connection(("127.0.0.1", one.port), timeout=120) as connection:
                while not measured.is_set():
                    names = [f"many-{len(took)}-{number}" for number in range(self._topics)]
                    took.append(_create(connection, names, partitions))

        creating = threading.Thread(target=create)
        try:
            one.wait_until_ready()
            one.create_topic(PRODUCED_TO)
            alone = _latency(one, scale.latency_s)
            creating.start()
            try:
                meanwhile = _latency(one, scale.latency_s)
            finally:
                measured.set()
                creating.join()
        finally:
            one.stop()
        return {
            TOOK: took[0],
            ALONE_P99: alone.p99_us / 1000,
            MEANWHILE_P50: meanwhile.p50_us / 1000,
            MEANWHILE_P99: meanwhile.p99_us / 1000,
            MEANWHILE_MAX: meanwhile.max_us / 1000,
        }


def _latency(server: Server, latency_s: float) -> raw.Blasted:
    """Produce at a rate that leaves the broker at rest most of the time."""
    request = frames.produce_frame(PRODUCED_TO, frames.record_batch(1, 100), acks=1)
    return raw.blast(
        *(server, [request], "-c", "4", "-r", str(RATE)),
        *("-t", str(latency_s / 3), "-u", str(latency_s / 30)),
        error_position=frames.produce_error_position(PRODUCED_TO),
    )


CASES: tuple[Case, ...] = (Creating(), CreatingMany(1), CreatingMany(AT_ONCE))
