"""Members of groups made of raw requests, at any version of each, and what else is asked of groups.

    with GroupCaller(broker.host, broker.port) as caller, Member.connect(broker, "readers") as one:
        one.enter()
        one.sync({one.member_id: assignment("orders", 0)})
        caller.commit("readers", {("orders", 0): 5}, generation=1, member_id=one.member_id)

A member has a connection of its own, for a join or a sync is answered when the others have come.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import ErrorCode
from protocol.logdata.membership import (
    Assignment,
    Subscription,
    encode_assignment,
)
from protocol.logdata.offsets import decode_key, decode_value, shard_of
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.offset_commit import ANY_OFFSET, OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.records.batch import Batch
from protocol.records.walk import walk
from protocol.registry import APIS
from tests.support.caller import Caller
from tests.support.subscriptions import encode_subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Self

    from protocol.logdata.offsets import Record
    from protocol.schema import Message
    from tests.support.server_process import ServerProcess

OFFSETS_TOPIC = "__consumer_offsets"

COMMIT_BY_ID, FETCH_SEVERAL, FETCH_BY_ID = 10, 8, 10

PATIENCE_S = 10

Place = tuple[str, int]
"""Topic and partition."""


class Versions(NamedTuple):
    """The request versions of a member of a classic group."""

    join: int = 9
    sync: int = 5
    heartbeat: int = 4
    leave: int = 5


OLDEST = Versions(0, 0, 0, 0)
BEFORE_STATIC = Versions(4, 2, 2, 2)


class Found(NamedTuple):
    """A committed offset as OffsetFetch tells it."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


NOTHING = Found(-1)


def subscription(*topics: str) -> bytes:
    return encode_subscription(Subscription(list(topics)), 0)


def assignment(topic: str, *partitions: int) -> bytes:
    return encode_assignment(Assignment([(topic, list(partitions))]), 0)


def offset_topics(places: Iterable[Place]) -> dict[str, list[int]]:
    """Partitions by topic, in the order in which they are named."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return topics


class GroupCaller(Caller):
    """A `Caller` that commits and fetches offsets, for any group and as any member."""

    def commit(
        self,
        group: str,
        offsets: Mapping[Place, int | tuple[int, str | None]],
        *,
        version: int = 9,
        expected: Mapping[Place, int] | None = None,
        ids: Mapping[str, bytes] | None = None,
        **more: Any,
    ) -> dict[Place, int]:
        """The code of each partition. A value is the offset, or that and the metadata; `expected`
        makes the commit a conditional one. `ids` names topics that Metadata would not."""
        ids = dict(ids or {})
        asked = commit_request(group, offsets, expected=expected, **more)
        if version >= COMMIT_BY_ID:
            for topic in asked.topics:
                if topic.name not in ids:
                    ids[topic.name] = self.topic_id(topic.name)
                topic.topic_id = ids[topic.name]
        names = {topic_id: name for name, topic_id in ids.items()}
        answer: OffsetCommitResponse = self.call(asked, version)
        return {
            (topic.name or names[topic.topic_id], entry.partition_index): entry.error_code
            for topic in answer.topics
            for entry in topic.partitions
        }

    def committed(
        self, group: str, places: Iterable[Place] | None, *, version: int = 9, **more: Any
    ) -> dict[Place, Found]:
        """What the group has for these, or all that it has. The request must succeed."""
        answer = self.fetch_offsets(group, places, version=version, **more)
        if version >= FETCH_SEVERAL:
            (answer,) = answer.groups
        assert answer.error_code == 0
        return self.offsets_in(answer.topics)

    def fetch_offsets(
        self, group: str, places: Iterable[Place] | None, *, version: int = 9, **more: Any
    ) -> Any:
        """The whole answer of OffsetFetch for one group."""
        request = OffsetFetchRequest
        wanted = None if places is None else offset_topics(places)
        stable = more.pop("require_stable", False)
        if version < FETCH_SEVERAL:
            old = None
            if wanted is not None:
                old = [request.Topic(name=n, partition_indexes=p) for n, p in wanted.items()]
            return self.call(
                request(group_id=group, topics=old, require_stable=stable, **more), version
            )
        new = None
        if wanted is not None:
            topic, by_id = request.Group.Topic, version >= FETCH_BY_ID
            new = [
                topic(
                    name=name,
                    topic_id=self.topic_id(name) if by_id else bytes(16),
                    partition_indexes=indexes,
                )
                for name, indexes in wanted.items()
            ]
        asked = request.Group(group_id=group, topics=new, **more)
        return self.call(request(groups=[asked], require_stable=stable), version)

    def offsets_in(self, topics: Sequence[Any]) -> dict[Place, Found]:
        """By topic and partition; ids are shown as hex where there is no name."""
        return {
            (topic.name or topic.topic_id.hex(), entry.partition_index): Found(
                entry.committed_offset,
                entry.committed_leader_epoch,
                entry.metadata,
                entry.error_code,
            )
            for topic in topics
            for entry in topic.partitions
        }

    def group(self, group: str, version: int = 5) -> DescribeGroupsResponse.Group:
        """What DescribeGroups says of it."""
        (found,) = self.call(DescribeGroupsRequest(groups=[group]), version).groups
        described: DescribeGroupsResponse.Group = found
        return described

    def group_log(self, group: str) -> list[list[Record]]:
        """What the offsets topic holds of this group: its records, batch by batch."""
        count = len(self.describe(OFFSETS_TOPIC).partitions)
        fetched = self.fetch(OFFSETS_TOPIC, partition=shard_of(group, count), max_bytes=1 << 26)
        assert fetched.error_code == 0
        whole = memoryview(bytes(fetched.records or b""))
        batches = []
        for position, size, _ in walk(whole):
            records: list[Record] = []
            for record in Batch(whole[position : position + size]).records():
                key: Any = decode_key(bytes(record.key or b""))
                if getattr(key, "group", None) == group or getattr(key, "group_id", "") == group:
                    value = record.value
                    decoded = None if value is None else decode_value(key, bytes(value))
                    records.append((key, decoded))
            if records:
                batches.append(records)
        return batches

    def heartbeat_code(
        self, group: str, generation: int, member_id: str, *, version: int = 4, **more: Any
    ) -> int:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, **more
        )
        code: int = self.call(request, version).error_code
        return code


def commit_request(
    group: str,
    offsets: Mapping[Place, int | tuple[int, str | None]],
    *,
    expected: Mapping[Place, int] | None = None,
    generation: int = -1,
    member_id: str = "",
    leader_epoch: int = -1,
    commit_timestamp: int = -1,
    **more: Any,
) -> OffsetCommitRequest:
    """A commit by names."""
    topic = OffsetCommitRequest.Topic
    topics: dict[str, OffsetCommitRequest.Topic] = {}
    for (name, partition), value in offsets.items():
        offset, metadata = (value, "") if isinstance(value, int) else value
        entry = topic.Partition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            commit_timestamp=commit_timestamp,
            committed_metadata=metadata,
            expected_offset=(expected or {}).get((name, partition), ANY_OFFSET),
        )
        topics.setdefault(name, topic(name=name, partitions=[])).partitions.append(entry)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=list(topics.values()),
        **more,
    )


class Asked(NamedTuple):
    """A request that has been sent and is not answered yet."""

    key: int
    version: int
    correlation_id: int


class Member:
    """One member of a classic group. `member_id` and `generation` are those of its last join."""

    def __init__(
        self,
        caller: GroupCaller,
        group: str,
        *,
        versions: Versions = Versions(),  # noqa: B008 (a tuple that nobody changes)
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 30_000,
        rebalance_ms: int = 30_000,
    ) -> None:
        self.caller = caller
        self.group = group
        self.versions = versions
        self.instance_id = instance_id
        self.protocols = {"range": subscription()} if protocols is None else dict(protocols)
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.protocol_name: str | None = None
        self._asked: Asked | None = None

    @classmethod
    def connect(cls, broker: ServerProcess, group: str, **more: Any) -> Self:
        """A member with a connection of its own, which `close` ends."""
        client_id = more.pop("client_id", "member")
        return cls(GroupCaller(broker.host, broker.port, client_id=client_id), group, **more)

    def close(self) -> None:
        self.caller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Joining

    def send_join(self) -> None:
        self._send(self.join_request(), self.versions.join)

    def join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id if self.versions.join >= 5 else None,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequest.Protocol(name=name, metadata=metadata)
                for name, metadata in self.protocols.items()
            ],
        )

    def joined(self) -> JoinGroupResponse:
        """The answer of the join that was sent; its id and generation are the member's own."""
        answer: JoinGroupResponse = self._receive()
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            self.generation = answer.generation_id
            self.protocol_name = answer.protocol_name
        return answer

    def join(self) -> JoinGroupResponse:
        """One request and its answer, which must come by itself."""
        self.send_join()
        return self.joined()

    def knock(self) -> None:
        """Send a join that is not sent back for an id, getting one first where that is asked."""
        needs_id = self.versions.join >= 4 and self.instance_id is None
        if needs_id and not self.member_id:
            assert self.join().error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.send_join()

    def enter(self) -> JoinGroupResponse:
        """Join, in two steps where needed, and be let in without waiting for others."""
        self.knock()
        answer = self.joined()
        assert answer.error_code == 0, answer
        return answer

    # Being in it

    def send_sync(self, assignments: Mapping[str, bytes] | None = None, **more: Any) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            **{
                "generation_id": self.generation,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id if self.versions.sync >= 3 else None,
                "protocol_type": self.protocol_type,
                "protocol_name": self.protocol_name,
                "assignments": [
                    SyncGroupRequest.Assignment(member_id=member_id, assignment=data)
                    for member_id, data in (assignments or {}).items()
                ],
                **more,
            },
        )
        self._send(request, self.versions.sync)

    def synced(self) -> SyncGroupResponse:
        answer: SyncGroupResponse = self._receive()
        return answer

    def sync(
        self, assignments: Mapping[str, bytes] | None = None, **more: Any
    ) -> SyncGroupResponse:
        self.send_sync(assignments, **more)
        return self.synced()

    def heartbeat(self, **more: Any) -> int:
        """The code of the answer."""
        facts = {
            "generation": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id if self.versions.heartbeat >= 3 else None,
            **more,
        }
        return self.caller.heartbeat_code(self.group, version=self.versions.heartbeat, **facts)

    def send_heartbeat(self) -> None:
        """Send one whose answer `heartbeat_code` takes."""
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        self._send(request, self.versions.heartbeat)

    def heartbeat_code(self) -> int:
        answer: HeartbeatResponse = self._receive()
        return answer.error_code

    def hear_of_rebalance(self) -> None:
        """Wait until a rebalance is prepared. Requests on two connections have no order: what this
        member sends next comes after the join of somebody else that started it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
            assert time.monotonic() < deadline_s, "there is no rebalance"
            time.sleep(0.005)

    def leave(self, **more: Any) -> LeaveGroupResponse:
        version = self.versions.leave
        who = {"member_id": self.member_id, "group_instance_id": self.instance_id, **more}
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=who["member_id"] or "")
        else:
            leaving = LeaveGroupRequest.Member(**who)
            request = LeaveGroupRequest(group_id=self.group, members=[leaving])
        answer: LeaveGroupResponse = self.caller.call(request, version)
        return answer

    def commit(self, offsets: Mapping[Place, int], **more: Any) -> dict[Place, int]:
        facts = {
            "generation": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            **more,
        }
        if facts.get("version", 9) < 7:
            facts["group_instance_id"] = None
        return self.caller.commit(self.group, offsets, **facts)

    def _send(self, request: Message, version: int) -> None:
        assert self._asked is None, "the last request has not been answered"
        self._asked = Asked(type(request).key, version, self.caller.send(request, version))

    def _receive(self) -> Any:
        asked, self._asked = self._asked, None
        assert asked is not None, "nothing has been asked"
        return self.caller.receive(APIS[asked.key], asked.version, asked.correlation_id)


def rebalance(*members: Member, assignments: Mapping[str, bytes] | None = None) -> Member:
    """Have members of a group, old and new, join and sync until it is stable; its leader.

    The first is in it already, or the group is empty; so each that comes later is parked until
    those before it have come again.
    """
    leader = members[0]
    entered: list[Member] = []
    for member in members:
        member.knock()
        for other in entered:
            other.hear_of_rebalance()
            other.send_join()
        entered.append(member)
        answers = [(one, one.joined()) for one in entered]
        assert [answer.error_code for _, answer in answers] == [0] * len(answers), answers
        leader = next(one for one, answer in answers if answer.leader == one.member_id)
    leader.send_sync(assignments)
    for member in members:
        if member is not leader:
            member.send_sync()
    for member in members:
        assert member.synced().error_code == 0
    return leader


def rejoin(leader: Member, *followers: Member) -> None:
    """Have a stable group rebalance, as its leader may at any time; nobody has synced then."""
    leader.send_join()
    for one in followers:
        one.hear_of_rebalance()
        one.send_join()
    for one in (leader, *followers):
        answer = one.joined()
        assert (answer.error_code, answer.leader) == (0, leader.member_id)
