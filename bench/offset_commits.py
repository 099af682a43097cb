"""Consumers that commit after every record: one partition in a request, one request in flight.

Members of classic groups, each with its connection, commit again and again, without metadata. What
is promised: one of them gets 0.6 times the rate of a bare loop that appends the bytes of such a
commit and calls `fdatasync`, on the broker's core and the same disk, just before and just after;
64 of them get ten times the rate of one, which is measured just before with the first of them.

The long run has 64 members of one group, so that all commits go to one partition of the topic of
offsets, whose segments fill up (100 MiB by default) and are compacted while more is written: memory
must stay where it is after the first seconds, and the topic small.

Estimate, on paper: a round trip of one is that of a produce with acks=all (0.40 ms where the sync
alone is 0.22 ms; 2026-11-21-storage.md), for a commit is smaller but takes the group and the table
some 15 us more: 0.5 times the bare loop. Of 64 the broker's core is the bound: 20 us for a request
and its share of a sync, as for produce (28 us a request there), and 15 us more: 43 us, 23,000/s.
A commit of one partition is about 150 B on disk, so 60 s of that are 200 MB and two segments.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from bench import group_frames, machine, raw
from bench.case import Case, Figure
from bench.group_commit import bare_loop
from bench.group_members import ClassicGroup, connections, leave, settle
from bench.servers import Started
from protocol.messages.offset_fetch import OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-offsets"
MANY = 64
RATE, P50, P99, CPU = "commits/s", "p50 ms", "p99 ms", "broker CPU us/commit"
BARE_RATE, TO_BARE = "bare loop syncs/s", "commits/s / bare loop"
ALONE_RATE, TO_ONE = "commits/s of one", "commits/s / those of one"
GREW = "RSS grew by MiB"

WRITTEN, LARGEST, SIZE = "written MiB", "topic at its largest MiB", "topic at the end MiB"
EARLY_RSS, LATE_RSS = "RSS MiB after a sixth of the time", "RSS MiB at the end"
LOOKS = 24


class Committing(Case):
    group = "Commits of one partition, one in flight"

    def __init__(self, *, groups: int, members: int, of_bare: float, of_one: float = 0) -> None:
        many = groups * members > 1
        self._groups, self._members = groups, members
        self.name = "1 connection"
        if many:
            what = "64 members of one group" if groups == 1 else "64 groups of one member"
            self.name = f"{groups * members} connections, {what}"
        against = (Figure(ALONE_RATE, 0), Figure(TO_ONE, 1, of_one)) if many else ()
        self.figures = (
            *(Figure(RATE, 0), Figure(P50), Figure(P99), Figure(CPU, 1)),
            *(Figure(BARE_RATE, 0), Figure(TO_BARE, 2, of_bare), *against, Figure(GREW, 1, 0.5)),
        )

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not group_frames.speaks(server, group_frames.OFFSET_COMMIT):
            return {}
        groups = _names(self._groups)
        count = self._groups * self._members
        batch = group_frames.stored_commit(groups[0], TOPIC, 0)
        found: dict[str, float] = {}
        took_s = bare_loop(batch, folder, scale.latency_s / 2)
        server.create_topic(TOPIC, partitions=count)
        try:
            requests, settled = _members(server, groups, self._members)
            alone = _committed(server, requests[:1], scale.latency_s / 2)
            before_mib = machine.resident_mib(server.pid)
            ran = _committed(server, requests, scale.latency_s)
            found[GREW] = max(0.0, machine.resident_mib(server.pid) - before_mib)
            _check(server, groups[-1], self._members - 1 if self._groups == 1 else count - 1)
            leave(server, settled)
        finally:
            server.delete_topic(TOPIC)
        took_s += bare_loop(batch, folder, scale.latency_s / 2)
        rate, alone_rate = ran.answers / ran.seconds, alone.answers / alone.seconds
        bare_rate = len(took_s) / sum(took_s)
        found |= {RATE: rate, P50: ran.p50_us / 1000, P99: ran.p99_us / 1000}
        found |= {CPU: ran.cpu_s / ran.answers * 1e6}
        found |= {BARE_RATE: bare_rate, TO_BARE: rate / bare_rate}
        if count > 1:
            found |= {ALONE_RATE: alone_rate, TO_ONE: rate / alone_rate}
        return found


class LongRun(Case):
    """On a server of its own, whose data directory is looked at meanwhile."""

    group = "Commits of 64 members of one group for a minute, default settings"
    name = "64 connections"
    figures = (
        *(Figure(RATE, 0, 23_000), Figure(EARLY_RSS, 1), Figure(LATE_RSS, 1)),
        *(Figure(WRITTEN, 0, 200), Figure(LARGEST, 0, 200), Figure(SIZE, 0, 120)),
    )

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not isinstance(server, Started):
            return {}
        if not group_frames.speaks(server, group_frames.OFFSET_COMMIT):
            return {}
        groups = _names(1)
        batch = group_frames.stored_commit(groups[0], TOPIC, 0)
        rss_mib: list[float] = []
        sizes: list[int] = []
        seconds = scale.latency_s * 20
        one = type(server)(folder / server.name)
        try:
            one.wait_until_ready()
            one.create_topic(TOPIC, partitions=MANY)
            requests, _ = _members(one, groups, MANY)
            with ThreadPoolExecutor(1) as beside:
                running = beside.submit(_committed, one, requests, seconds, warm_up=0)
                for _ in range(LOOKS):
                    time.sleep(seconds / (LOOKS + 1))
                    rss_mib.append(machine.resident_mib(one.pid))
                    sizes.append(_topic_bytes(one.data))
                ran = running.result()
            # The cleaner looks every 15 s; the last segment that was closed is its to clean.
            time.sleep(scale.latency_s * 6)
            sizes.append(_topic_bytes(one.data))
        finally:
            one.stop()
        return {
            **{RATE: ran.answers / ran.seconds, WRITTEN: ran.answers * len(batch) / 2**20},
            **{EARLY_RSS: rss_mib[LOOKS // 6 - 1], LATE_RSS: rss_mib[-1]},
            **{LARGEST: max(sizes) / 2**20, SIZE: sizes[-1] / 2**20},
        }


def _names(groups: int) -> list[str]:
    """Groups that no earlier round had, so that none has members left over."""
    return [f"bench-{time.time_ns() // 1000}-{number}" for number in range(groups)]


def _members(
    server: Server, groups: Sequence[str], members: int
) -> tuple[list[bytes], list[ClassicGroup]]:
    """A commit of each member, to a partition of its own, and the groups that have settled."""
    group_frames.wait_for_coordinator(server, groups)
    count = len(groups) * members
    with connections(server.port, count) as sockets:
        made = [
            ClassicGroup(name, TOPIC, count, sockets[number * members : (number + 1) * members])
            for number, name in enumerate(groups)
        ]
        settle(made)
    of_all = [member for group in made for member in group.members]
    requests = [
        group_frames.offset_commit(
            member.group.group_id,
            TOPIC,
            [number],
            member_id=member.member_id,
            generation_id=member.generation_id,
        )
        for number, member in enumerate(of_all)
    ]
    return requests, made


def _committed(
    server: Server, requests: Sequence[bytes], seconds: float, *, warm_up: float = 0.2
) -> raw.Blasted:
    """Each of these requests again and again on its own connection."""
    timing = ("-t", str(seconds), "-u", str(seconds * warm_up))
    return raw.blast(
        *(server, requests, "-c", str(len(requests)), "-d", "-s", *timing),
        error_position=group_frames.offset_commit_error_position(TOPIC),
    )


def _check(server: Server, group: str, partition: int) -> None:
    """Raises if the last member's commit is not what the broker holds."""
    version = group_frames.OFFSET_FETCH_VERSION
    request = group_frames.offset_fetch_request([group], TOPIC, [partition])
    answer = raw.ask(server.port, group_frames.frame(request, version))
    body = group_frames.body(answer, OffsetFetchResponse, version)
    (found,) = OffsetFetchResponse.decode(version, body).groups[0].topics[0].partitions
    if found.committed_offset != group_frames.COMMITTED:
        raise RuntimeError(f"{group}, partition {partition}: offset {found.committed_offset}")


def _topic_bytes(data: Path) -> int:
    """Logs and indexes of the topic of offsets, as blocks of the disk."""
    total = 0
    for folder in data.rglob("__consumer_offsets-*"):
        for file in folder.iterdir() if folder.is_dir() else ():
            try:
                total += file.stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total


CASES: tuple[Case, ...] = (
    Committing(groups=1, members=1, of_bare=0.5),
    Committing(groups=1, members=MANY, of_bare=5.0, of_one=10.0),
    Committing(groups=MANY, members=1, of_bare=5.0, of_one=10.0),
)
LONG_CASES: tuple[Case, ...] = (LongRun(),)
