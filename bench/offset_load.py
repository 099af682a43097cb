"""A million committed offsets, and how long after a start they can be asked for.

The data directory is made by commits as they come from clients: 10,000 groups that commit 100
partitions each in one request, or 1,000,000 groups of one partition. Then the server is stopped, or
killed, and started again. The clock runs from exec until one OffsetFetch, for a group of every
partition of the topic of offsets, has no group that is still being loaded (error 14), asked anew
10 ms after each answer; what it says is checked. What is promised: 3 s.

Our broker has snapshots then, which the stop has written; it is also started without them, as after
a first run that was killed.

Estimate, on paper. Without snapshots: a start of 0.25 s, then 1.5 us for an entry in a commit of
100 and 2.5 us for a commit of its own (a header, a checksum, one record, a new group), on the
loop's core: 1.8 s and 2.8 s. With them: 24 MB of columns, of which each key is looked at (0.15 us),
0.4 s; or 45 MB of records, each of which is cut out, hashed and put in its place (1 us), 1.3 s. The
stop writes them at the speed of the disk, in 50 files: 0.5 s. Memory: 64 bytes for an entry, and
120 for the name of a group and its place.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import group_frames, machine, raw
from bench.case import Case, Figure
from bench.servers import Started, Triglot
from protocol.messages.offset_fetch import OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-load"
SHARDS = 50
"""Partitions of the topic of offsets, by default of any server."""
FILLED_AT_ONCE = 100_000
CONNECTIONS = 64
FILL_S, STOP_S, ANSWERED, CLEAN, KILLED, REPLAYED = (
    "making them s",
    "stop s, with snapshots",
    "first ApiVersions ms, clean stop",
    "loaded s, clean stop",
    "loaded s, kill -9",
    "loaded s, without snapshots",
)
SNAPSHOTS = "__consumer_offsets-*/*.checkpoint"
CPU, RSS = "broker CPU s until loaded, clean stop", "RSS MiB, loaded"
PATIENCE_S = 120.0
LOADING = 14


class FillingTriglot(Triglot):
    """Does not sync while the directory is made, which is not what is measured."""

    def _command(self) -> Sequence[str]:
        return [*super()._command(), "--set", "log.flush.policy=os"]


class Loading(Case):
    """Each round makes the directory anew, beside the server that takes the other loads."""

    group = "Start with committed offsets"

    def __init__(
        self, *, partitions: int, loaded_s: float, replayed_s: float, rss_mib: float
    ) -> None:
        self.name = f"{1_000_000 // partitions:,} groups x {partitions}"
        self.figures = (
            *(Figure(FILL_S, 1), Figure(STOP_S, 2, 0.5), Figure(ANSWERED, 0, 250)),
            *(Figure(CLEAN, 2, loaded_s), Figure(KILLED, 2, loaded_s)),
            Figure(REPLAYED, 2, replayed_s),
            *(Figure(CPU, 2, loaded_s), Figure(RSS, 0, rss_mib)),
        )
        self._partitions = partitions

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Started):
            return {}
        if not group_frames.speaks(server, group_frames.OFFSET_COMMIT):
            return {}
        found: dict[str, float] = {}
        names = [f"bench-load-{number:07d}" for number in range(scale.entries // self._partitions)]
        asked = one_of_each_shard(names)
        kind = type(server)
        filling = FillingTriglot if kind is Triglot else kind
        one: Started = filling(folder / server.name)
        try:
            one.wait_until_ready()
            one.create_topic(TOPIC, partitions=self._partitions)
            start_s = time.perf_counter()
            _fill(one, names, self._partitions)
            found[FILL_S] = time.perf_counter() - start_s
            stop_s = time.perf_counter()
            one.stop()
            found[STOP_S] = time.perf_counter() - stop_s
            one = kind(one.data, port=one.port)
            found[ANSWERED] = one.answer_after_s() * 1000
            found[CLEAN] = _loaded_after_s(one, asked, self._partitions - 1)
            found[CPU] = machine.cpu_seconds(one.pid)
            time.sleep(scale.idle_s)
            found[RSS] = machine.resident_mib(one.pid)
            one.kill()
            one = kind(one.data, port=one.port)
            one.answer_after_s()
            found[KILLED] = _loaded_after_s(one, asked, self._partitions - 1)
            if kind is Triglot:
                one.kill()
                for path in one.data.glob(SNAPSHOTS):
                    path.unlink()
                one = kind(one.data, port=one.port)
                one.answer_after_s()
                found[REPLAYED] = _loaded_after_s(one, asked, self._partitions - 1)
        finally:
            one.stop()
        return found


def _fill(server: Server, names: Sequence[str], partitions: int) -> None:
    """A commit of each group, once."""
    group_frames.wait_for_coordinator(server, names[:1])
    for start in range(0, len(names), FILLED_AT_ONCE):
        requests = [
            group_frames.offset_commit(name, TOPIC, range(partitions))
            for name in names[start : start + FILLED_AT_ONCE]
        ]
        dealt = ("-c", str(min(CONNECTIONS, len(requests))), "-d", "-n", "1")
        raw.blast(
            *(server, requests, *dealt, "-t", "240"),
            error_position=group_frames.offset_commit_error_position(TOPIC),
        )


def one_of_each_shard(names: Sequence[str]) -> list[str]:
    """The last group of every partition of the topic of offsets (fewer, if there are few groups).

    The partition is the absolute value of Java's hash of the name, modulo their number.
    """
    found: dict[int, str] = {}
    for name in reversed(names):
        hashed = 0
        for character in name.encode():
            hashed = (31 * hashed + character) & 0xFFFFFFFF
        found.setdefault(abs(hashed - (hashed >> 31 << 32)) % SHARDS, name)
        if len(found) == SHARDS:
            break
    return list(found.values())


def _loaded_after_s(server: Started, groups: Sequence[str], partition: int) -> float:
    """Seconds from exec to the answer in which none of these groups is being loaded."""
    version = group_frames.OFFSET_FETCH_VERSION
    asked = group_frames.offset_fetch_request(groups, TOPIC, [partition])
    request = group_frames.frame(asked, version)
    while time.perf_counter() - server.started_at_s < PATIENCE_S:
        answer = raw.ask(server.port, request)
        took_s = time.perf_counter() - server.started_at_s
        body = group_frames.body(answer, OffsetFetchResponse, version)
        found = OffsetFetchResponse.decode(version, body).groups
        codes = {each.error_code for each in found}
        if codes == {0}:
            offsets = {each.topics[0].partitions[0].committed_offset for each in found}
            if offsets != {group_frames.COMMITTED} or len(found) != len(groups):
                raise RuntimeError(f"{len(found)} groups were loaded with the offsets {offsets}")
            return took_s
        # Apache Kafka says 15 and 16 before it leads the partitions.
        if not codes <= {0, LOADING, 15, 16}:
            raise RuntimeError(f"{server.name} met the error codes {codes}")
        time.sleep(0.01)
    raise RuntimeError(f"not loaded after {PATIENCE_S:.0f} s:\n{server.output()}")


CASES: tuple[Case, ...] = (
    Loading(partitions=100, loaded_s=0.65, replayed_s=1.8, rss_mib=105),
    Loading(partitions=1, loaded_s=1.55, replayed_s=2.8, rss_mib=220),
)
