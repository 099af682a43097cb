"""OffsetFetch of 1,000 partitions of one group, as a consumer with as many asks after joining.

One commit of all partitions first; then the same request again and again on one connection. The
broker's CPU time is that of a whole request and its answer of 20 KB, sockets and all, while the
load spins, so that nobody has to be woken; round trips are of a load that sleeps. What is promised:
at most 1 ms in the broker.

Estimate, on paper: 3 us to read 4 KB into a list, 300 us to look 1,000 up (0.3 us each), 250 us to
make and 350 us to encode 1,000 entries by the flat encoder, 30 us for the sockets: 0.95 ms.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import group_frames, raw
from bench.case import Case, Figure
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-thousand"
PARTITIONS = 1_000
CPU, P50, P99 = "broker CPU ms/request", "round trip p50 ms", "round trip p99 ms"
COMMIT_MS = "commit of all of them ms"


class Fetching(Case):
    group = "OffsetFetch of many partitions of one group, one in flight"

    def __init__(self, partitions: int, *, cpu_ms: float, p50_ms: float, p99_ms: float) -> None:
        self.name = f"{partitions:,} partitions"
        self.figures = (
            *(Figure(CPU, 3, cpu_ms), Figure(P50, 2, p50_ms), Figure(P99, 2, p99_ms)),
            Figure(COMMIT_MS, 2),
        )
        self._partitions = partitions

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not group_frames.speaks(server, group_frames.OFFSET_COMMIT):
            return {}
        partitions = max(2, min(self._partitions, scale.partitions))
        group = f"bench-{time.time_ns() // 1000}"
        server.create_topic(TOPIC, partitions=partitions)
        try:
            group_frames.wait_for_coordinator(server, [group])
            commit_ms = _commit(server, group, partitions)
            asked = group_frames.offset_fetch_request([group], TOPIC, range(partitions))
            request = group_frames.frame(asked, group_frames.OFFSET_FETCH_VERSION)
            _check(raw.ask(server.port, request), partitions)
            at = group_frames.offset_fetch_error_position(group, TOPIC, partitions)
            timing = ("-t", str(scale.raw_s), "-u", str(scale.raw_s / 5))
            spun = raw.blast(server, [request], *timing, error_position=at)
            slept = raw.blast(server, [request], "-s", *timing, error_position=at)
        finally:
            server.delete_topic(TOPIC)
        return {
            CPU: spun.cpu_s / spun.answers * 1000,
            **{P50: slept.p50_us / 1000, P99: slept.p99_us / 1000, COMMIT_MS: commit_ms},
        }


def _commit(server: Server, group: str, partitions: int) -> float:
    """Milliseconds of one commit of all partitions."""
    version = group_frames.OFFSET_COMMIT_VERSION
    request = group_frames.offset_commit(group, TOPIC, range(partitions))
    start_s = time.perf_counter()
    answer = raw.ask(server.port, request)
    took_ms = (time.perf_counter() - start_s) * 1000
    body = group_frames.body(answer, OffsetCommitResponse, version)
    (topic,) = OffsetCommitResponse.decode(version, body).topics
    codes = {each.error_code for each in topic.partitions}
    if codes != {0}:
        raise RuntimeError(f"the commit met the error codes {codes}")
    return took_ms


def _check(answer: bytes, partitions: int) -> None:
    """Raises if the answer is not what was committed."""
    version = group_frames.OFFSET_FETCH_VERSION
    body = group_frames.body(answer, OffsetFetchResponse, version)
    (group,) = OffsetFetchResponse.decode(version, body).groups
    found = {
        each.partition_index: each.committed_offset
        for topic in group.topics
        for each in topic.partitions
    }
    if group.error_code or found != dict.fromkeys(range(partitions), group_frames.COMMITTED):
        raise RuntimeError(f"error {group.error_code}, {len(found)} partitions, not as committed")


CASES: tuple[Case, ...] = (Fetching(PARTITIONS, cpu_ms=0.95, p50_ms=1.0, p99_ms=1.5),)
