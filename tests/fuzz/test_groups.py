"""Random requests of members that may be anybody's: no fault, and a crash takes nothing away."""

from __future__ import annotations

import select
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.registry import APIS
from tests.support.broker_process import BrokerProcess
from tests.support.group_caller import GroupCaller, assignment, commit_request, subscription

if TYPE_CHECKING:
    from pathlib import Path

    from protocol.schema import Message

REQUESTS = 800
CONNECTIONS = 6
PATIENCE_S = 0.03
"""For an answer; a join or a sync may have to wait for others."""
GROUPS, TOPICS = ("g0", "g1", "g2"), ("t0", "t1", "t2")
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "group.min.session.timeout.ms": "200",
    "group.max.size": "6",
    "group.consumer.max.size": "6",
    # Nobody is put out between a look at the groups and the next but those whose time is SHORT_MS,
    # and theirs is over before the first look.
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
}
SHORT_MS, LONG_MS = 1000, 600_000
"""How long a member may be silent; what ends amid the requests, and what outlives a slow run."""


class Crowd:
    """Makes requests; of those that were let in it knows group, member and generation or epoch."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._known: dict[str, tuple[str, int]] = {"nobody": ("g0", 1)}

    def request(self) -> tuple[Message, int]:
        """A request and its version."""
        choose = self._chance.choice
        member_id = choose(["", *self._known])
        group, generation = self._known.get(member_id, (choose(GROUPS), choose([-1, 0, 1, 2])))
        if self._chance.random() < 0.1:
            generation += choose([-1, 1])
        of_member = choose([self._join, self._sync, self._heartbeat, self._commit, self._consumer])
        return choose([of_member] * 9 + [self._other])(group, member_id, generation)

    def note(self, request: Any, answer: Any) -> None:
        if isinstance(request, JoinGroupRequest) and answer.error_code in (0, 79):
            self._known[answer.member_id] = (request.group_id, answer.generation_id)
        if isinstance(request, ConsumerGroupHeartbeatRequest) and answer.error_code == 0:
            self._known[answer.member_id] = (request.group_id, answer.member_epoch)
        while len(self._known) > 10:
            del self._known[self._chance.choice(list(self._known))]

    def _instance(self) -> str | None:
        return self._chance.choice([None, None, None, "i"])

    def _join(self, group: str, member_id: str, _: int) -> tuple[Message, int]:
        choose, version = self._chance.choice, self._chance.randrange(10)
        metadata = choose([subscription(*TOPICS[:2]), subscription("t2"), b"garbage", b""])
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=choose([SHORT_MS, LONG_MS]),
            rebalance_timeout_ms=choose([50, 300]),
            member_id=member_id,
            group_instance_id=self._instance() if version >= 5 else None,
            protocol_type=choose(["consumer"] * 9 + ["connect"]),
            protocols=[
                JoinGroupRequest.Protocol(name=name, metadata=metadata)
                for name in choose([("range",), ("range", "sticky")])
            ],
        )
        return request, version

    def _sync(self, group: str, member_id: str, generation: int) -> tuple[Message, int]:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.Assignment(member_id=known, assignment=assignment("t0", 0))
                for known in self._known
            ],
        )
        return request, self._chance.randrange(6)

    def _heartbeat(self, group: str, member_id: str, generation: int) -> tuple[Message, int]:
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        return request, self._chance.randrange(5)

    def _commit(self, group: str, member_id: str, generation: int) -> tuple[Message, int]:
        chance = self._chance
        offsets = {
            (chance.choice(TOPICS), chance.randrange(4)): chance.randrange(100)
            for _ in range(chance.randrange(4))
        }
        who = chance.choice([(generation, member_id), (-1, "")])
        return commit_request(group, offsets, generation=who[0], member_id=who[1]), 9

    def _consumer(self, group: str, member_id: str, epoch: int) -> tuple[Message, int]:
        choose = self._chance.choice
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=choose([0, 0, epoch, epoch, -1, -2]),
            instance_id=self._instance(),
            rebalance_timeout_ms=choose([-1, LONG_MS]),
            subscribed_topic_names=choose([None, ["t0"], list(TOPICS)]),
            subscribed_topic_regex=choose([None, None, "t[01]", "("]),
            topic_partitions=choose([None, [], []]),
        )
        return request, 1

    def _other(self, group: str, member_id: str, _: int) -> tuple[Message, int]:
        leaving = LeaveGroupRequest.Member(member_id=member_id, group_instance_id=self._instance())
        return self._chance.choice(
            [
                (LeaveGroupRequest(group_id=group, members=[leaving]), 5),
                (LeaveGroupRequest(group_id=group, members=[leaving]), 5),
                (DeleteGroupsRequest(groups_names=[group]), 3),
                (DescribeGroupsRequest(groups=list(GROUPS)), 6),
                (ListGroupsRequest(), 5),
            ]
        )


def storm(broker: BrokerProcess, crowd: Crowd) -> None:
    """Each connection has one request at a time; one that waits for others is left for a while."""
    callers = [GroupCaller(broker.host, broker.port) for _ in range(CONNECTIONS)]
    waiting: list[tuple[Message, int, int] | None] = [None] * CONNECTIONS
    try:
        for number in range(REQUESTS):
            at = number % CONNECTIONS
            caller, asked = callers[at], waiting[at]
            if asked is None:
                request, version = crowd.request()
                asked = (request, version, caller.send(request, version))
            waiting[at] = asked
            if select.select([caller.socket], [], [], PATIENCE_S)[0]:
                waiting[at] = None
                crowd.note(asked[0], caller.receive(APIS[type(asked[0]).key], *asked[1:]))
    finally:
        for caller in callers:
            caller.close()


def consumer_groups(groups: GroupCaller) -> list[Any]:
    """What ConsumerGroupDescribe says of each group; those of the other protocol have an error."""
    request = ConsumerGroupDescribeRequest(
        group_ids=list(GROUPS), include_authorized_operations=False
    )
    described: list[Any] = groups.call(request, 1).groups
    return described


def only_classic_members(broker: BrokerProcess) -> list[Any]:
    """Groups of the newer protocol that have members, but none that speaks it."""
    with GroupCaller(broker.host, broker.port) as groups:
        return [
            group
            for group in consumer_groups(groups)
            if group.members and not any(member.member_type for member in group.members)
        ]


def durable_state(broker: BrokerProcess) -> dict[str, Any]:
    """What a crash must not change: offsets, and groups of the newer protocol. A classic group goes
    back to when it was last stable."""
    with GroupCaller(broker.host, broker.port) as groups:
        while groups.call(ListGroupsRequest(), 5).error_code:
            time.sleep(0.02)  # they are being loaded
        return {
            "offsets": {group: groups.committed(group, None) for group in GROUPS},
            "groups": {
                group.group_id: (
                    group.error_code,
                    group.group_epoch,
                    group.assignment_epoch,
                    sorted(repr(member) for member in group.members),
                )
                for group in consumer_groups(groups)
            },
        }


def lasting_state(broker: BrokerProcess) -> dict[str, Any]:
    """`durable_state` when the time is over of all that had a short one: of classic members in
    consumer groups that went silent, or were to join again. Nothing follows, as nobody speaks."""
    durable_state(broker)  # answered when all that was sent before has been read
    time.sleep(SHORT_MS / 1000 + 0.1)
    durable_state(broker)  # a timer that is due goes off before the next request is answered
    return durable_state(broker)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_requests_of_anybody_make_no_fault_and_are_not_lost_in_a_crash(
    tmp_path: Path, seed: int
) -> None:
    broker = BrokerProcess(tmp_path / "data", settings=SETTINGS)
    broker.start()
    try:
        with GroupCaller(broker.host, broker.port) as groups:
            for topic in TOPICS:
                groups.create_topic(topic, partitions=3)
        storm(broker, Crowd(seed))
        assert not only_classic_members(broker), f"seed {seed}"
        before = lasting_state(broker)
        said = broker.output()
        broker.kill()

        broker.start()

        assert durable_state(broker) == before, f"seed {seed}"
        said += broker.output()
        for fault in ("Traceback", "a handler failed", "a group failed", "was skipped"):
            assert fault not in said, f"seed {seed}: {said[-3000:]}"
        assert any(before["offsets"].values())
    finally:
        broker.kill()
