"""Members of classic groups as a group sees them: they join, sync and heartbeat, in one thread.

Each is a small state machine on a socket of its own, as a JoinGroup waits for the other members. It
does what the Java consumer does: asks for an id, joins with it, and joins again when it is told
that the group rebalances. Subscriptions and assignments are real ones of the consumer protocol.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from bench import group_frames, raw
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bench.servers import Server

JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5
#: The longest that a broker allows by default: nothing lapses while something else is measured.
SESSION_MS = 1_800_000
PATIENCE_S = 60.0


def subscription(topic: str) -> bytes:
    """Version 1: one topic, no user data, nothing owned."""
    name = topic.encode()
    return struct.pack(">hih", 1, 1, len(name)) + name + struct.pack(">ii", -1, 0)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """Version 1: some partitions of one topic, no user data."""
    name = topic.encode()
    listed = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih", 1, 1, len(name)) + name + listed + struct.pack(">i", -1)


class Member:
    """One member; `connection` is its own while the group settles."""

    def __init__(self, group: ClassicGroup, connection: socket.socket) -> None:
        self.group = group
        self.connection = connection
        self.member_id = ""
        self.generation_id = -1
        self.assigned = False
        self.join_sent_s = self.assigned_s = 0.0
        #: When a heartbeat is next due; 0 while something else is in flight.
        self.due_s = 0.0
        self._received = bytearray()
        self._answered: Callable[[bytes], None] = self._joined

    def join(self) -> None:
        self.assigned = False
        offered = JoinGroupRequest.Protocol(name="range", metadata=subscription(self.group.topic))
        request = JoinGroupRequest(
            group_id=self.group.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=300_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[offered],
        )
        data = group_frames.frame(request, JOIN)
        self.join_sent_s = time.perf_counter()
        self._send(data, self._joined)

    def readable(self) -> None:
        """Takes what has come and does what follows from it."""
        piece = self.connection.recv(1 << 16)
        if not piece:
            raise ConnectionError(f"{self.group.group_id}: the broker closed the connection")
        received = self._received
        received += piece
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            return
        answer = bytes(received[4:])
        received.clear()
        self._answered(answer)

    def heartbeat(self) -> None:
        self._send(self.heartbeat_request(), self._beaten)

    def heartbeat_request(self) -> bytes:
        """A Heartbeat request, as a whole frame."""
        request = HeartbeatRequest(
            group_id=self.group.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
        )
        return group_frames.frame(request, HEARTBEAT)

    def _send(self, data: bytes, answered: Callable[[bytes], None]) -> None:
        self.due_s = 0.0
        self._answered = answered
        self.connection.sendall(data)

    def _joined(self, answer: bytes) -> None:
        body = group_frames.body(answer, JoinGroupResponse, JOIN)
        found = JoinGroupResponse.decode(JOIN, body)
        if found.error_code:
            if found.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = found.member_id
            self._again(found.error_code)
            return
        self.member_id, self.generation_id = found.member_id, found.generation_id
        shares: list[SyncGroupRequest.Assignment] = []
        if found.leader == found.member_id:
            members = [each.member_id for each in found.members]
            self.group.generation_led(found.generation_id, len(members))
            shares = self.group.shares(members)
        request = SyncGroupRequest(
            group_id=self.group.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        self._send(group_frames.frame(request, SYNC), self._synced)

    def _synced(self, answer: bytes) -> None:
        found = SyncGroupResponse.decode(SYNC, group_frames.body(answer, SyncGroupResponse, SYNC))
        if found.error_code:
            self._again(found.error_code)
            return
        if not found.assignment:
            raise RuntimeError(f"{self.group.group_id}: {self.member_id} was given nothing")
        self.assigned_s = time.perf_counter()
        self.assigned = True
        self.due_s = self.assigned_s + self.group.heartbeat_s

    def _beaten(self, answer: bytes) -> None:
        body = group_frames.body(answer, HeartbeatResponse, HEARTBEAT)
        code = HeartbeatResponse.decode(HEARTBEAT, body).error_code
        if code:
            self._again(code)
        else:
            self.due_s = time.perf_counter() + self.group.heartbeat_s

    def _again(self, code: int) -> None:
        """Joins again after an error that tells a member to do so."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.member_id = "" if code == ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
        elif code not in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
            raise RuntimeError(f"{self.group.group_id}: a member met error {ErrorCode(code).name}")
        self.join()


class Settled(NamedTuple):
    """Seconds until the last member held its share."""

    from_first_join_s: float
    from_last_join_s: float


class ClassicGroup:
    """Some members that read all partitions of one topic together."""

    def __init__(
        self,
        group_id: str,
        topic: str,
        partitions: int,
        connections: Sequence[socket.socket],
        *,
        heartbeat_s: float = 0.1,
    ) -> None:
        self.group_id = group_id
        self.topic = topic
        self.heartbeat_s = heartbeat_s
        self.members = [Member(self, connection) for connection in connections]
        self._partitions = partitions
        self._led = (-1, 0)

    def generation_led(self, generation_id: int, member_count: int) -> None:
        """The leader's answer: who is in which generation."""
        self._led = (generation_id, member_count)

    def shares(self, member_ids: Sequence[str]) -> list[SyncGroupRequest.Assignment]:
        """Every partition to one of them, in turn."""
        return [
            SyncGroupRequest.Assignment(
                member_id=member_id,
                assignment=assignment(self.topic, range(number, self._partitions, len(member_ids))),
            )
            for number, member_id in enumerate(member_ids)
        ]

    @property
    def settled(self) -> bool:
        """Whether all members hold a share of the same generation, which has no others."""
        generation_id, member_count = self._led
        return member_count == len(self.members) and all(
            member.assigned and member.generation_id == generation_id for member in self.members
        )

    def took(self, began_s: float) -> Settled:
        """Of a group that has settled, and whose members began then."""
        last_s = max(member.assigned_s for member in self.members)
        last_join_s = max(member.join_sent_s for member in self.members)
        return Settled(last_s - began_s, last_s - last_join_s)

    def leave_request(self) -> bytes:
        """All members leave by this one frame."""
        of = LeaveGroupRequest.Member
        gone = [of(member_id=member.member_id) for member in self.members]
        request = LeaveGroupRequest(group_id=self.group_id, members=gone)
        return group_frames.frame(request, LEAVE)


def leave(server: Server, groups: Sequence[ClassicGroup]) -> None:
    """All members of all groups are gone afterwards."""

    def answer(code: int) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=code, members=[])

    raw.blast(
        *(server, [group.leave_request() for group in groups], "-d", "-n", "1", "-t", "60"),
        error_position=group_frames.error_position(answer, LEAVE),
    )


def settle(groups: Sequence[ClassicGroup]) -> list[Settled]:
    """Has all members join at once, and returns when every group has settled."""
    with selectors.DefaultSelector() as selector:
        for group in groups:
            for member in group.members:
                selector.register(member.connection, selectors.EVENT_READ, member)
        began_s = time.perf_counter()
        for group in groups:
            for member in group.members:
                member.join()
        left = dict.fromkeys(groups)
        pause_s = min(group.heartbeat_s for group in groups) / 4
        looked_s = began_s
        while left:
            for key, _ in selector.select(pause_s):
                member = key.data
                member.readable()
                if member.assigned and member.group.settled:
                    left.pop(member.group, None)
            now_s = time.perf_counter()
            if now_s - looked_s >= pause_s:
                looked_s = now_s
                _heartbeats(left, now_s)
                if now_s > began_s + PATIENCE_S:
                    names = ", ".join(group.group_id for group in left)
                    raise RuntimeError(f"after {PATIENCE_S:.0f} s these have not settled: {names}")
    return [group.took(began_s) for group in groups]


def _heartbeats(groups: Iterable[ClassicGroup], now_s: float) -> None:
    for group in groups:
        for member in group.members:
            if member.due_s and member.due_s <= now_s:
                member.heartbeat()


@contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """So many sockets to a broker."""
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            made.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
            made[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield made
    finally:
        for each in made:
            each.close()
