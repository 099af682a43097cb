"""10,000 partitions on one broker: memory, and starts after a clean stop and after `kill -9`.

Topics of 100 partitions each are made, the server is stopped and started; then every partition gets
one record, and the same is done again. Memory is VmRSS a second after the first answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka.cimpl import NewTopic

from bench import frames, machine, raw
from bench.case import Case, Figure
from bench.servers import Started

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

PARTITIONS = 100
MADE, STOPPED = "making the topics s", "clean stop s"
EMPTY_START, EMPTY_RSS = "start, all empty, ms", "RSS MiB, all empty"
USED_RSS = "RSS MiB, a record in each, before the stop"
START, RSS = "start, a record in each, ms", "RSS MiB, a record in each"
KILLED = "start after kill -9, ms"


class ManyPartitions(Case):
    """Each round makes them anew, beside the server that takes the other loads."""

    group = "10,000 partitions"
    name = f"topics of {PARTITIONS} partitions"
    figures = (
        *(Figure(MADE, 1, 10), Figure(EMPTY_START, 0, 2_000), Figure(EMPTY_RSS, 0, 120)),
        *(Figure(USED_RSS, 0, 200), Figure(STOPPED, 1, 10)),
        *(Figure(START, 0, 2_000), Figure(RSS, 0, 120), Figure(KILLED, 0, 4_000)),
    )

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Started) or server.name != "triglot":
            return {}
        topics = max(1, scale.partitions // PARTITIONS)
        partitions = min(PARTITIONS, scale.partitions)
        found: dict[str, float] = {}
        one = type(server)(folder / server.name)
        try:
            one.wait_until_ready()
            start_s = time.perf_counter()
            one.create_topics(
                [NewTopic(_name(n), partitions, replication_factor=1) for n in range(topics)]
            )
            found[MADE] = time.perf_counter() - start_s
            one.stop()
            one = type(server)(one.data, port=one.port)
            found[EMPTY_START] = one.answer_after_s() * 1000
            time.sleep(scale.idle_s)
            found[EMPTY_RSS] = machine.resident_mib(one.pid)
            for number in range(topics):
                _write_to_each(one, _name(number), partitions)
            found[USED_RSS] = machine.resident_mib(one.pid)
            start_s = time.perf_counter()
            one.stop()
            found[STOPPED] = time.perf_counter() - start_s
            one = type(server)(one.data, port=one.port)
            found[START] = one.answer_after_s() * 1000
            time.sleep(scale.idle_s)
            found[RSS] = machine.resident_mib(one.pid)
            one.kill()
            one = type(server)(one.data, port=one.port)
            found[KILLED] = one.answer_after_s() * 1000
        finally:
            one.stop()
        return found


def _name(number: int) -> str:
    return f"bench-many-{number:03d}"


def _write_to_each(server: Server, topic: str, partitions: int) -> None:
    batch = frames.record_batch(1, 100)
    requests = [
        frames.produce_frame(topic, batch, acks=-1, partition=number)
        for number in range(partitions)
    ]
    raw.blast(
        *(server, requests, "-w", str(partitions), "-n", str(partitions)),
        error_position=frames.produce_error_position(topic),
    )


CASES: tuple[Case, ...] = (ManyPartitions(),)
