"""Members of KIP-848 groups: each lives by one request, which tells the broker what it owns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from bench import group_frames, raw
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from bench.servers import Server

VERSION = 0
"""The broker chooses the member id; Apache Kafka 3.9 has no newer version."""
LEAVE_EPOCH = -1
PATIENCE_S = 60.0


class ConsumerMember:
    """One member, on a connection that others may share, for nothing here waits."""

    def __init__(self, group_id: str, topic: str, connection: socket.socket) -> None:
        self.group_id = group_id
        self.connection = connection
        self.member_id = ""
        self.epoch = 0
        #: (topic id, partition) of everything it was given.
        self.owned: frozenset[tuple[bytes, int]] = frozenset()
        self._topic = topic
        self._told: frozenset[tuple[bytes, int]] | None = None

    def request(self) -> bytes:
        """Its next heartbeat: everything at first, later only what it owns, if that is new."""
        told, self._told = self._told, self.owned
        joins = self.epoch == 0
        of = ConsumerGroupHeartbeatRequest.TopicPartitions
        topics = sorted({topic_id for topic_id, _ in self.owned})
        owned = [
            of(topic_id=topic_id, partitions=sorted(p for t, p in self.owned if t == topic_id))
            for topic_id in topics
        ]
        return self._frame(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                rebalance_timeout_ms=300_000 if joins else -1,
                subscribed_topic_names=[self._topic] if joins else None,
                topic_partitions=None if told == self.owned else owned,
            )
        )

    def answered(self, answer: bytes) -> None:
        """Takes its share from an answer without its length. Raises if it is an error."""
        of = ConsumerGroupHeartbeatResponse
        found = of.decode(VERSION, group_frames.body(answer, of, VERSION))
        if found.error_code:
            raise RuntimeError(f"{self.group_id}: {found.error_code} {found.error_message}")
        if found.member_id:
            self.member_id = found.member_id
        self.epoch = found.member_epoch
        if found.assignment is not None:
            self.owned = frozenset(
                (each.topic_id, partition)
                for each in found.assignment.topic_partitions
                for partition in each.partitions
            )

    def quiet_request(self) -> bytes:
        """A heartbeat that says nothing but that it lives."""
        return self._frame(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
            )
        )

    def leaving_request(self) -> bytes:
        return self._frame(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
            )
        )

    @staticmethod
    def _frame(request: ConsumerGroupHeartbeatRequest) -> bytes:
        return group_frames.frame(request, VERSION)


def served(server: Server) -> bool:
    """Whether a server has the protocol. Apache Kafka 3.9 names its API and then refuses it."""
    if not group_frames.speaks(server, group_frames.CONSUMER_GROUP_HEARTBEAT):
        return False
    stranger = ConsumerGroupHeartbeatRequest(
        group_id="bench-none", member_id="nobody", member_epoch=LEAVE_EPOCH
    )
    answer = raw.ask(server.port, group_frames.frame(stranger, VERSION))
    of = ConsumerGroupHeartbeatResponse
    found = of.decode(VERSION, group_frames.body(answer, of, VERSION))
    return found.error_code != ErrorCode.UNSUPPORTED_VERSION


def leave(server: Server, members: Sequence[ConsumerMember]) -> None:
    """All of them are gone afterwards."""
    raw.blast(
        *(server, [member.leaving_request() for member in members], "-d", "-n", "1", "-t", "60"),
        error_position=error_position(),
    )


def error_position() -> int:
    """Of a heartbeat's answer, after the length."""

    def answer(code: int) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            error_code=code, member_epoch=0, heartbeat_interval_ms=0
        )

    return group_frames.error_position(answer, VERSION)


class Converged(NamedTuple):
    """The time and the heartbeats until every member held its share."""

    #: From the first heartbeat of the last member.
    seconds: float
    #: Heartbeats that the member with the most of them needed, the first included.
    heartbeats: int


def converge(members: Sequence[ConsumerMember], partitions: int) -> Converged:
    """Has all heartbeat, without a pause in between, until the group is where it wants to be."""
    heartbeats = 0
    began_s = 0.0
    while True:
        for member in members:
            data = member.request()
            if not heartbeats:
                began_s = time.perf_counter()
            member.connection.sendall(data)
        for member in members:
            member.answered(raw.answer_on(member.connection))
        heartbeats += 1
        took_s = time.perf_counter() - began_s
        if _is_settled(members, partitions):
            return Converged(took_s, heartbeats)
        if took_s > PATIENCE_S:
            raise RuntimeError(f"{members[0].group_id} did not converge in {took_s:.0f} s")


def _is_settled(members: Sequence[ConsumerMember], partitions: int) -> bool:
    """Whether all are in one epoch, every partition has one owner, and no share is too large."""
    fair = -(-partitions // len(members))
    return (
        len({member.epoch for member in members}) == 1
        and len(frozenset[tuple[bytes, int]]().union(*(m.owned for m in members))) == partitions
        and sum(len(member.owned) for member in members) == partitions
        and all(len(member.owned) <= fair for member in members)
    )
