"""A new group whose members start at the same moment: how long until each holds its share?

Classic members send their JoinGroup back to back, each on a connection of its own, and do what the
Java consumer does: ask for an id, join with it, sync, and join again when they are told to. What is
promised is the time from the last JoinGroup that any of them sends to the last answer to SyncGroup:
at most 50 ms. In it are the 15 ms for which a lone member's assignment is held back, and the 30 ms
without a join that end the rebalance of several (broker.coordinator.classic.gathering). A
member that held a share too early hears of the others by its next heartbeat, which here comes after
100 ms and not 3 s; the time from the first JoinGroup has that in it.

Members of the newer protocol have no such moment: partitions go from hand to hand by heartbeats.
All of them heartbeat without a pause, in turn, until everyone holds its share at the same epoch.
That leaves what the broker and the wire need, and the number of heartbeats; a real member waits up
to 5 s before one of these unless it has something to tell.

The client is one thread of Python, some 100 us a member. Apache Kafka waits 3 s for more members of
a new group by default (`group.initial.rebalance.delay.ms`), triglot those ms.

Estimate, on paper: 20 members send 60 requests of some 60 us and wait for a write of the group and
its sync (0.3 ms): 1 ms for one member, 1.5 for 3, 6 for 20; and 14 more for one, 30 for several. By
heartbeats: a sync for each.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import consumer_members, group_frames, group_members
from bench.case import Case, Figure
from bench.group_members import ClassicGroup, connections

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-joins"
PARTITIONS = 60
LAST_P50, LAST_P99 = "from the last JoinGroup p50 ms", "from the last JoinGroup p99 ms"
FIRST_P50 = "from the first JoinGroup p50 ms"
P50, P99, BEATS = "p50 ms", "p99 ms", "heartbeats of a member"
SAMPLES, FEWEST = 100, 3


def _name(members: int) -> str:
    return f"{members} member{'s' if members > 1 else ''}"


class Sampled(Case):
    """One new group after the other, up to `SAMPLES`, for as long as a load of latency takes."""

    def __init__(self, members: int) -> None:
        self.name = _name(members)
        self._members = members

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not self._served(server):
            return {}
        samples: list[tuple[float, float]] = []
        server.create_topic(TOPIC, partitions=PARTITIONS)
        try:
            group_frames.wait_for_coordinator(server, ["bench"])
            end_s = time.perf_counter() + 2 * scale.latency_s
            while len(samples) < FEWEST or time.perf_counter() < end_s:
                if len(samples) == SAMPLES:
                    break
                samples.append(self._sample(server, f"bench-{time.time_ns() // 1000}"))
        finally:
            server.delete_topic(TOPIC)
        return self._found(
            sorted(sample[0] for sample in samples), sorted(sample[1] for sample in samples)
        )

    def _served(self, server: Server) -> bool:
        return group_frames.speaks(server, group_frames.OFFSET_COMMIT)

    def _sample(self, server: Server, group_id: str) -> tuple[float, float]:
        raise NotImplementedError

    def _found(self, first: list[float], second: list[float]) -> dict[str, float]:
        """Figures of what `_sample` gave, each sorted."""
        raise NotImplementedError


class Classic(Sampled):
    group = "A new classic group, until every member holds its share"

    def __init__(self, members: int, *, last_ms: float) -> None:
        super().__init__(members)
        self.figures = (
            *(Figure(LAST_P50, 2, last_ms), Figure(LAST_P99, 2, 2 * last_ms)),
            Figure(FIRST_P50, 2),
        )

    def _sample(self, server: Server, group_id: str) -> tuple[float, float]:
        with connections(server.port, self._members) as sockets:
            group = ClassicGroup(group_id, TOPIC, PARTITIONS, sockets)
            (settled,) = group_members.settle([group])
        group_members.leave(server, [group])
        return settled.from_last_join_s * 1000, settled.from_first_join_s * 1000

    def _found(self, first: list[float], second: list[float]) -> dict[str, float]:
        return {
            **{LAST_P50: first[len(first) // 2], LAST_P99: first[len(first) * 99 // 100]},
            FIRST_P50: second[len(second) // 2],
        }


class Consumer(Sampled):
    group = "A new group of KIP-848, heartbeats without a pause, until every member holds its share"

    def __init__(self, members: int, *, ms: float, heartbeats: float) -> None:
        super().__init__(members)
        self.figures = (Figure(P50, 2, ms), Figure(P99, 2, 2 * ms), Figure(BEATS, 0, heartbeats))

    def _served(self, server: Server) -> bool:
        return consumer_members.served(server)

    def _sample(self, server: Server, group_id: str) -> tuple[float, float]:
        with connections(server.port, self._members) as sockets:
            members = [consumer_members.ConsumerMember(group_id, TOPIC, each) for each in sockets]
            took = consumer_members.converge(members, PARTITIONS)
        consumer_members.leave(server, members)
        return took.seconds * 1000, took.heartbeats

    def _found(self, first: list[float], second: list[float]) -> dict[str, float]:
        return {
            **{P50: first[len(first) // 2], P99: first[len(first) * 99 // 100]},
            BEATS: second[len(second) // 2],
        }


CASES: tuple[Case, ...] = (
    Classic(1, last_ms=15.0),
    Classic(3, last_ms=32.0),
    Classic(20, last_ms=36.0),
    Consumer(1, ms=0.8, heartbeats=1),
    Consumer(3, ms=3.0, heartbeats=3),
    Consumer(20, ms=20.0, heartbeats=3),
)
