"""1,000 groups of 3 members that do nothing but live, at the interval that clients have by default.

Classic members heartbeat every 3 s (the Java client's default), members of the newer protocol every
5 s (the broker tells them). All have joined and hold their partitions; then 3,000 connections send
at fixed times, evenly spread. That is the dearest way: each request has to wake the broker. What is
promised: less than 5 % of one core. As a control the same connections then send ApiVersions 0 at
the same times: what a request costs that has next to nothing to do.

Estimate, on paper: 1,000 requests/s that come alone. One with nothing to do costs about 34 us when
the broker is woken for it (single records with one in flight), of which the heartbeat itself is
a few: 3.4 %. At 600/s: 2.2 %.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import consumer_members, frames, group_frames, group_members, machine, raw
from bench.case import Case, Figure
from bench.group_members import HEARTBEAT, ClassicGroup, connections
from protocol.messages.heartbeat import HeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bench.case import Scale
    from bench.servers import Server

TOPIC = "bench-heartbeats"
MEMBERS = 3
GROUPS_AT_ONCE = 100
"""Groups that join at the same time, with a connection for each member."""
CPU, EACH, P50, P99 = "% of one core", "broker CPU us/heartbeat", "p50 ms", "p99 ms"
IDLE = "% of one core, no heartbeats"
CONTROL = "% of one core, ApiVersions instead"
IDLE_SHARE = 1 / 3
API_VERSIONS_ERROR_POSITION = 4


class Heartbeats(Case):
    group = f"Heartbeats of 1,000 groups of {MEMBERS} members, in an open loop"
    interval_s: float

    def run(self, server: Server, scale: Scale, folder: Path) -> Mapping[str, float]:
        if not self._served(server):
            return {}
        names = [f"bench-{time.time_ns() // 1000}-{number}" for number in range(scale.groups)]
        server.create_topic(TOPIC, partitions=MEMBERS)
        try:
            group_frames.wait_for_coordinator(server, names[:1])
            requests, leave = self._joined(server, names)
            idle = _idle_percent(server, scale.latency_s * IDLE_SHARE)
            count = len(requests)
            # Each member once before it counts, and then twice.
            whole_s = self.interval_s if scale.latency_s >= 1 else scale.latency_s
            timing = ("-u", str(whole_s), "-t", str(2 * whole_s))
            paced = ("-c", str(count), "-d", "-r", str(count / whole_s), *timing)
            ran = raw.blast(server, requests, *paced, error_position=self._error_position())
            control = raw.blast(
                *(server, [frames.api_versions_frame()] * count, *paced),
                error_position=API_VERSIONS_ERROR_POSITION,
            )
            leave()
        finally:
            server.delete_topic(TOPIC)
        return {
            **{CPU: ran.cpu_s / ran.seconds * 100, IDLE: idle},
            CONTROL: control.cpu_s / control.seconds * 100,
            **{EACH: ran.cpu_s / ran.answers * 1e6 if ran.answers else 0.0},
            **{P50: ran.p50_us / 1000, P99: ran.p99_us / 1000},
        }

    def _served(self, server: Server) -> bool:
        return group_frames.speaks(server, group_frames.OFFSET_COMMIT)

    def _joined(
        self, server: Server, names: Sequence[str]
    ) -> tuple[list[bytes], Callable[[], None]]:
        """A heartbeat of every member, and what has them leave afterwards."""
        raise NotImplementedError

    def _error_position(self) -> int:
        raise NotImplementedError


class Classic(Heartbeats):
    interval_s = 3.0
    name = "classic, every 3 s"
    figures = (
        *(Figure(CPU, 2, 3.4), Figure(CONTROL, 2), Figure(IDLE, 2, 0.1), Figure(EACH, 1, 34)),
        *(Figure(P50, 2, 0.12), Figure(P99, 2, 0.4)),
    )

    def _joined(
        self, server: Server, names: Sequence[str]
    ) -> tuple[list[bytes], Callable[[], None]]:
        made: list[ClassicGroup] = []
        with connections(server.port, min(GROUPS_AT_ONCE, len(names)) * MEMBERS) as sockets:
            for start in range(0, len(names), GROUPS_AT_ONCE):
                groups = [
                    ClassicGroup(
                        name, TOPIC, MEMBERS, sockets[number * MEMBERS : (number + 1) * MEMBERS]
                    )
                    for number, name in enumerate(names[start : start + GROUPS_AT_ONCE])
                ]
                group_members.settle(groups)
                made += groups
        requests = [member.heartbeat_request() for group in made for member in group.members]
        return requests, lambda: group_members.leave(server, made)

    def _error_position(self) -> int:
        def answer(code: int) -> HeartbeatResponse:
            return HeartbeatResponse(error_code=code)

        return group_frames.error_position(answer, HEARTBEAT)


class Consumer(Heartbeats):
    """KIP-848, at the interval of `group.consumer.heartbeat.interval.ms`."""

    interval_s = 5.0
    name = "consumer protocol (KIP-848), every 5 s"
    figures = (
        *(Figure(CPU, 2, 2.2), Figure(CONTROL, 2), Figure(IDLE, 2, 0.1), Figure(EACH, 1, 37)),
        *(Figure(P50, 2, 0.13), Figure(P99, 2, 0.4)),
    )

    def _served(self, server: Server) -> bool:
        return consumer_members.served(server)

    def _joined(
        self, server: Server, names: Sequence[str]
    ) -> tuple[list[bytes], Callable[[], None]]:
        made: list[consumer_members.ConsumerMember] = []
        with connections(server.port, MEMBERS) as sockets:
            for name in names:
                members = [consumer_members.ConsumerMember(name, TOPIC, each) for each in sockets]
                consumer_members.converge(members, MEMBERS)
                # What is owned is told before the group is at rest.
                for member in members:
                    member.answered(raw.ask_on(member.connection, member.request()))
                made += members
        return [member.quiet_request() for member in made], lambda: consumer_members.leave(
            server, made
        )

    def _error_position(self) -> int:
        return consumer_members.error_position()


def _idle_percent(server: Server, seconds: float) -> float:
    """The server's CPU load by the same members while they are silent."""
    before_s, start_s = machine.cpu_seconds(server.pid), time.perf_counter()
    time.sleep(seconds)
    took_s = time.perf_counter() - start_s
    return (machine.cpu_seconds(server.pid) - before_s) / took_s * 100


CASES: tuple[Case, ...] = (Classic(), Consumer())
