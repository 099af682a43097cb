"""Groups of every kind, made by raw requests at any broker: ours or Apache Kafka 3.9.

    with Maker(server, "a") as maker:
        maker.make_classic()
        maker.make_simple()
    maker.groups        # the ids of all

The members do not leave when their connections end: what is left is a log of groups in use. All
sessions are long, so that nobody expires while servers are stopped and started.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.logdata.offsets import shard_of
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import (
    BEFORE_STATIC,
    OLDEST,
    GroupCaller,
    Member,
    assignment,
    rebalance,
    rejoin,
    subscription,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from protocol.schema import Message
    from tests.support.group_caller import Place
    from tests.support.server_process import ServerProcess

TOPIC = "t"
PARTITIONS = 4
#: Partitions of the offsets topic.
SHARDS = 50

SESSION_MS = 600_000
#: For consumer groups the broker says how long sessions are.
LONG_SESSIONS = {
    "group.consumer.max.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}
RETENTION_MS = 86_400_000
#: For any answer; both servers are slow where others use the disk.
PATIENCE_S = 60
WITH_RETENTION = 2
V3_9_HEARTBEAT = 0
#: While Kafka makes the topic of offsets, reads it, or has not ended the last transaction.
FOR_NOW = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def call_until_done(caller: GroupCaller, request: Message, version: int) -> Any:
    """The answer that comes once the coordinator is ready; it has one code, of no error."""
    return until_done(lambda: caller.call(request, version), lambda answer: {answer.error_code})


def until_done(ask: Callable[[], Any], codes_of: Callable[[Any], set[int]]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = ask()
        codes = codes_of(answer) - {0}
        if not codes:
            return answer
        assert codes <= FOR_NOW, answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def find_coordinator(caller: GroupCaller, key: str, key_type: int = 0) -> None:
    """Kafka makes the topic in which the answer lies when it is first asked."""
    call_until_done(caller, FindCoordinatorRequest(key=key, key_type=key_type), 3)


class Maker:
    """Makes groups whose ids begin with `prefix`. Topic `t` must have `PARTITIONS` partitions."""

    def __init__(self, server: ServerProcess, prefix: str) -> None:
        self.server = server
        self.prefix = prefix
        #: By the protocol: consumer groups are those of KIP-848.
        self.classic_groups: list[str] = []
        self.consumer_groups: list[str] = []
        self.deleted_groups: list[str] = []
        #: Of the deleted ones those that never had members.
        self.deleted_simple_groups: list[str] = []
        self.caller = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.caller.close()

    def commit(self, group: str, offsets: Mapping[Place, Any], **more: Any) -> None:
        find_coordinator(self.caller, group)
        until_done(
            lambda: self.caller.commit(group, offsets, **more), lambda codes: set(codes.values())
        )

    def make_classic(self) -> None:
        """Groups with two members, with static and with old ones, and one that all have left."""
        self._alive("range", PARTITIONS)
        self._alive("before-static", 2, versions=BEFORE_STATIC)
        self._alive("oldest", 2, versions=OLDEST)
        self._alive("other-type", 1, protocol_type="connect", protocols={"v1": b"\x00\xffgarbage"})
        group = self._classic("static")
        members = [self._member(group, instance_id=f"instance-{n}") for n in range(2)]
        self._settle(members, 3)
        members[0].commit({(TOPIC, 1): 11}, leader_epoch=0)
        group = self._classic("left")
        member = self._member(group)
        self._settle([member], 2)
        member.commit({(TOPIC, 0): 5})
        member.leave()
        member.close()

    def make_simple(self) -> None:
        """Commits without members: with metadata, leader epochs, and a retention of their own."""
        self.commit(self._classic("simple"), {(TOPIC, 0): (7, "noted"), (TOPIC, 2): 9})
        self.commit(self._classic("texts ☃ \U0001f600"), {(TOPIC, 1): (3, "é ☃ \U0001f600")})
        self.commit(
            self._classic("long"), {(TOPIC, 0): (2**62, "m" * 4096)}, leader_epoch=2**31 - 1
        )
        again = self._classic("again")
        for offset in range(20):
            self.commit(again, {(TOPIC, offset % 3): (offset, f"at {offset}")}, leader_epoch=offset)
        entry = OffsetCommitRequest.Topic.Partition(
            partition_index=3, committed_offset=33, committed_metadata="for a day"
        )
        topic = OffsetCommitRequest.Topic(name=TOPIC, partitions=[entry])
        request = OffsetCommitRequest(
            group_id=self._classic("retained"), retention_time_ms=RETENTION_MS, topics=[topic]
        )
        find_coordinator(self.caller, request.group_id)
        until_done(
            lambda: self.caller.call(request, WITH_RETENTION),
            lambda answer: {answer.topics[0].partitions[0].error_code},
        )

    def make_wide(self, topic: str, partitions: int, times: int) -> None:
        """Commits of all partitions of a topic, and a neighbour in the log that is soon old."""
        wide = self._classic("wide")
        names = (f"{self.prefix}-beside-{number}" for number in itertools.count())
        beside = next(name for name in names if shard_of(name, SHARDS) == shard_of(wide, SHARDS))
        self.classic_groups.append(beside)
        for offset in range(9):
            self.commit(beside, {(TOPIC, offset % 2): (offset, f"at {offset}")})
        self._delete_offsets(beside, 1)
        for number in range(times):
            self.commit(wide, {(topic, p): 10_000 * number + p for p in range(partitions)})

    def make_deletions(self) -> None:
        """A group that lost some offsets, and two that are gone."""
        offsets = {(TOPIC, partition): partition for partition in range(PARTITIONS)}
        group = self._classic("thinned")
        self.commit(group, offsets)
        self._delete_offsets(group, 1, 3)
        gone = [f"{self.prefix}-gone", f"{self.prefix}-gone-members"]
        for group in gone:
            self.commit(group, offsets)
        member = self._member(gone[1])
        self._settle([member], 1)
        member.leave()
        member.close()
        answer = self.caller.call(DeleteGroupsRequest(groups_names=gone), 2)
        assert [one.error_code for one in answer.results] == [0, 0], answer
        self.deleted_simple_groups.append(gone[0])
        self.deleted_groups += gone

    def make_consumer(self) -> None:
        """Groups of KIP-848: stable, with a static member, on their way, left by all, and one that
        was classic and has a member that still is."""
        group = self._consumer("modern")
        first, second = self._heartbeater(group), self._heartbeater(group)
        first.join()
        assert first.own().error_code == 0
        second.join()
        for _ in range(3):
            for member in (first, second):
                member.beat()
                assert member.own().error_code == 0
        self.commit(
            group, {(TOPIC, 0): (20, "modern")}, generation=first.epoch, member_id=first.member_id
        )
        group = self._consumer("modern-static")
        static = self._heartbeater(group, instance_id="instance")
        static.join(server_assignor="range")
        static.own()
        group = self._consumer("modern-moving")
        first, second = self._heartbeater(group), self._heartbeater(group)
        first.join()
        first.own()
        second.join()
        first.beat()  # and it has not given up what it was told to
        group = self._consumer("modern-left")
        member = self._heartbeater(group)
        member.join()
        member.own()
        self.commit(group, {(TOPIC, 2): 22}, generation=member.epoch, member_id=member.member_id)
        assert member.leave().error_code == 0
        group = self._consumer("modern-mixed")
        self.commit(group, {(TOPIC, 3): 33})
        self._settle([self._member(group, instance_id="classic")], PARTITIONS)
        assert self._heartbeater(group).join().error_code == 0

    def make_transactions(self) -> None:
        """Offsets that were committed with a transaction, that were aborted, and that are open."""
        for end in (True, False, None):
            group = self._classic(f"transaction-{end}")
            self.commit(group, {(TOPIC, 0): (1, "plain"), (TOPIC, 3): 3})
            self._transact(group, {0: 17, 1: 18}, commit=end)
        self.commit(group, {(TOPIC, 1): 99})

    def _transact(self, group: str, offsets: Mapping[int, int], *, commit: bool | None) -> None:
        """`commit` None leaves the transaction open."""
        transactional_id = f"of-{group}"
        find_coordinator(self.caller, transactional_id, 1)
        init = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=SESSION_MS
        )
        producer = call_until_done(self.caller, init, 2)
        who = {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        call_until_done(self.caller, AddOffsetsToTxnRequest(group_id=group, **who), 3)
        topic = TxnOffsetCommitRequest.Topic
        entries = [
            topic.Partition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=0,
                committed_metadata="in a transaction",
            )
            for partition, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            group_id=group, topics=[topic(name=TOPIC, partitions=entries)], **who
        )
        until_done(
            lambda: self.caller.call(request, 3),
            lambda answer: {one.error_code for one in answer.topics[0].partitions},
        )
        if commit is not None:
            call_until_done(self.caller, EndTxnRequest(committed=commit, **who), 3)

    @property
    def groups(self) -> list[str]:
        return self.classic_groups + self.consumer_groups + self.deleted_groups

    # Parts

    def _delete_offsets(self, group: str, *partitions: int) -> None:
        entry = OffsetDeleteRequest.Topic.Partition
        entries = [entry(partition_index=partition) for partition in partitions]
        topic = OffsetDeleteRequest.Topic(name=TOPIC, partitions=entries)
        answer = self.caller.call(OffsetDeleteRequest(group_id=group, topics=[topic]), 0)
        assert answer.error_code == 0
        assert {one.error_code for one in answer.topics[0].partitions} == {0}

    def _classic(self, name: str) -> str:
        self.classic_groups.append(f"{self.prefix}-{name}")
        return self.classic_groups[-1]

    def _consumer(self, name: str) -> str:
        self.consumer_groups.append(f"{self.prefix}-{name}")
        find_coordinator(self.caller, self.consumer_groups[-1])
        return self.consumer_groups[-1]

    def _member(self, group: str, **more: Any) -> Member:
        # Commits first wait until the coordinator is there.
        find_coordinator(self.caller, group)
        more = {"protocols": {"range": subscription(TOPIC)}, "session_ms": SESSION_MS, **more}
        return Member(self._connect(), group, rebalance_ms=9000, **more)

    def _connect(self) -> GroupCaller:
        client_id = f"client-{self.prefix}"
        where = self.server.host, self.server.port
        return GroupCaller(*where, client_id=client_id, timeout_s=PATIENCE_S)

    def _heartbeater(self, group: str, **more: Any) -> ConsumerMember:
        return ConsumerMember(self.caller, group, topics=[TOPIC], version=V3_9_HEARTBEAT, **more)

    def _alive(self, name: str, partitions: int, **more: Any) -> None:
        """A group with two members, of which the second has committed."""
        group = self._classic(name)
        members = [self._member(group, **more) for _ in range(2)]
        self._settle(members, partitions)
        version = 1 if more.get("versions") == OLDEST else 6
        who = {"generation": members[1].generation, "member_id": members[1].member_id}
        self.commit(group, {(TOPIC, 0): (10, "by a member")}, version=version, **who)

    def _settle(self, members: list[Member], partitions: int) -> None:
        """Have them all in a stable group; its leader knows their ids when all have joined."""
        leader = rebalance(*members)
        followers = [member for member in members if member is not leader]
        rejoin(leader, *followers)
        shares = {
            member.member_id: assignment(TOPIC, *range(partitions)[number :: len(members)])
            for number, member in enumerate(members)
        }
        leader.send_sync(shares)
        for member in followers:
            member.send_sync()
        for member in members:
            assert member.synced().error_code == 0
