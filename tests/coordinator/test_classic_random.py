"""Clients that do anything in any order: what must hold of a classic group all the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.coordinator.classic.group import ClassicGroup, State
from broker.coordinator.effects import Append, Caller, GroupRules
from protocol.errors import ErrorCode
from protocol.logdata.offsets import GroupMetadataValue
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest

STEPS = 1500
PROTOCOLS = [("range", b"1"), ("sticky", b"2"), ("range", b"3"), ("mine", b"4")]


class Waiter:
    """One request, and what the process that sent it learns from the answer."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.answers = 0


class Process:
    def __init__(self, name: str, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1


class ClassicWorld:
    """One group, a few processes and a clock."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rules = GroupRules(
            initial_rebalance_delay_ms=self.random.choice([0, 0, 3000]),
            gathering_limit_ms=self.random.choice([0, 100]),
            max_size=self.random.choice([2, 5, 2**31 - 1]),
        )
        self.ids = 0
        self.now_ms = 0
        self.group = ClassicGroup("g", self.rules, self.new_member_id)
        instances = [None, None, None, "one", "one", "two"]
        self.processes = [Process(f"p{i}", instance) for i, instance in enumerate(instances)]
        self.waiters: list[Waiter] = []
        self.steps = [*[self.join] * 5, *[self.sync] * 4, *[self.heartbeat] * 3]
        self.steps += [self.commit, self.leave, self.wait, self.wait, self.restart]

    def new_member_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}-{self.ids}"

    def step(self) -> None:
        self.random.choice(self.steps)(self.random.choice(self.processes))

    def waiter(self, process: Process) -> Waiter:
        waiter = Waiter(process)
        self.waiters.append(waiter)
        return waiter

    # What processes do

    def join(self, process: Process) -> None:
        choose = self.random.choice
        count = choose([0, 1, 1, 2, 3])
        protocols = self.random.sample(PROTOCOLS, count) or PROTOCOLS[:1]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=choose([6000, 6000, 30_000, 5]),
            rebalance_timeout_ms=choose([-1, 0, 4000, 60_000, 600_000]),
            member_id=choose([process.member_id, process.member_id, "", "x-0"]),
            group_instance_id=process.instance,
            protocol_type=choose(["consumer"] * 9 + ["connect"]),
            protocols=[JoinGroupRequest.Protocol(name=n, metadata=data) for n, data in protocols],
        )
        caller = Caller(process.name, "/127.0.0.1", choose([0, 3, 4, 5, 9]))
        self.carry_out(self.group.join(self.waiter(process), request, caller, self.now_ms))

    def sync(self, process: Process) -> None:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.random.choice([process.generation] * 4 + [0]),
            member_id=process.member_id,
            group_instance_id=process.instance,
            assignments=[
                SyncGroupRequest.Assignment(member_id=other.member_id, assignment=b"some")
                for other in self.processes
            ],
        )
        caller = Caller(process.name, "/127.0.0.1", 3)
        self.carry_out(self.group.sync(self.waiter(process), request, caller, self.now_ms))

    def heartbeat(self, process: Process) -> None:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=process.generation,
            member_id=process.member_id,
            group_instance_id=process.instance,
        )
        code = self.group.heartbeat(request, self.now_ms)
        if code is ErrorCode.NONE:
            assert self.group.state in (State.STABLE, State.COMPLETING_REBALANCE)

    def commit(self, process: Process) -> None:
        code = self.group.check_commit(
            process.member_id, process.generation, process.instance, self.now_ms
        )
        if code is ErrorCode.NONE and process.generation >= 0:
            assert process.generation == self.group.generation_id

    def leave(self, process: Process) -> None:
        member = LeaveGroupRequest.Member(
            member_id=self.random.choice([process.member_id, ""]),
            group_instance_id=process.instance,
        )
        request = LeaveGroupRequest(group_id="g", members=[member, member])
        caller = Caller(process.name, "/127.0.0.1", 3)
        response, effects = self.group.leave(request, caller, self.now_ms)
        self.carry_out(effects)
        assert response.members[1].error_code, "nobody leaves twice"

    # What happens to them

    def wait(self, process: Process) -> None:
        until_ms = self.now_ms + self.random.choice([0, 1, 900, 2500, 7000, 70_000])
        looks = 0
        while (deadline_ms := self.group.deadline()) is not None and deadline_ms <= until_ms:
            looks = looks + 1 if deadline_ms <= self.now_ms else 0
            assert looks < 5, "a deadline that stays in the past would keep the broker busy"
            self.now_ms = max(self.now_ms, deadline_ms)
            self.carry_out(self.group.expire(self.now_ms))
        self.now_ms = until_ms

    def restart(self, process: Process) -> None:
        """From what it would write now; not often, and only where that is all there is."""
        if self.group.state is not State.STABLE or self.random.random() < 0.7:
            return
        before = self.group.describe()
        _, value = self.group.record()
        assert isinstance(value, GroupMetadataValue)
        value = GroupMetadataValue.decode(3, value.encode(3))
        new = ClassicGroup.from_record("g", value, self.rules, self.new_member_id, self.now_ms)
        if new.state is State.STABLE:
            assert new.describe() == before
        self.group = new

    def carry_out(self, effects: list[Any]) -> None:
        failed = False
        for effect in effects:
            if isinstance(effect, Append):
                failed = failed or self.random.random() < 0.1
                continue
            effect.waiter.answers += 1
            assert effect.waiter.answers == 1
            effect.response.encode(9 if hasattr(effect.response, "leader") else 5)
            process, response = effect.waiter.process, effect.response
            if failed or not hasattr(response, "leader"):
                continue
            if response.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
                process.member_id, process.generation = response.member_id, response.generation_id
        if failed:
            again = self.group.append_failed(self.now_ms)
            assert not any(isinstance(effect, Append) for effect in again)
            self.carry_out(again)

    # What must hold

    def check(self) -> None:
        group = self.group
        members = list(group.members)
        joining = [m for m in members if m.join_waiter is not None]
        syncing = [m for m in members if m.sync_waiter is not None]
        assert group.members.awaiting == len(joining)
        assert not joining or group.state is State.PREPARING_REBALANCE
        assert not syncing or group.state is State.COMPLETING_REBALANCE
        assert all(waiter.answers == 0 for m in joining for waiter in [m.join_waiter])
        if group.state is State.EMPTY:
            assert not members
        elif group.state is not State.PREPARING_REBALANCE:
            assert members
            assert group.generation_id > 0
            assert all(group.protocol_name in dict(m.protocols) for m in members)
        assert (group.leader in group.members) if members else group.leader is None
        instances = [m.instance_id for m in members if m.instance_id is not None]
        assert len(instances) == len(set(instances))
        deadline_ms = group.deadline()
        for member in members:
            if member not in joining and member not in syncing:
                assert deadline_ms is not None
                assert deadline_ms <= member.deadline_ms <= self.now_ms + 30_000
        if group.state is State.PREPARING_REBALANCE:
            assert deadline_ms is not None
        parked = {id(m.join_waiter) for m in joining} | {id(m.sync_waiter) for m in syncing}
        for waiter in self.waiters:
            assert waiter.answers == 1 or id(waiter) in parked, "a request is lost"
        self.waiters = [waiter for waiter in self.waiters if not waiter.answers]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_clients_do_every_request_is_answered_once_and_the_group_stays_whole(
    seed: int,
) -> None:
    world = ClassicWorld(seed)
    for number in range(STEPS):
        world.step()
        try:
            world.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}: {error}") from error
    world.carry_out(world.group.stop())
    assert all(waiter.answers == 1 for waiter in world.waiters)
