"""Members of a consumer group that come, go, die, dawdle and miss answers, by a seeded die.

Whatever happens: no partition is held by two members that the group believes in, and a group read
from the log is the group in memory. When it is quiet again, every partition is read by one member
and everybody is at the target.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from broker.coordinator.consumer.classic_members import (
    classic_heartbeat,
    classic_join,
    classic_leave,
    classic_sync,
)
from broker.coordinator.effects import ConsumerTimes, GroupRules
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.membership import Subscription
from protocol.logdata.membership import assignment_of as embedded_assignment
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.consumer_world import CALLER, ConsumerWorld, FakeTopics, assignment_of
from tests.support.subscriptions import encode_subscription

if TYPE_CHECKING:
    from broker.coordinator.consumer.assignors import Partitions

HEARTBEAT_MS = 5_000
FENCED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class Client:
    """A member as Java's consumer is one: what it is given it takes after it gave up the rest."""

    def __init__(self, name: str, dice: random.Random, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.dice = dice
        self.epoch = 0
        self.owned: Partitions = {}
        self.assigned: Partitions = {}
        self.says_all = True
        self.says_owned = False
        self.gives_up_at_ms = 0
        self.dawdle_ms = dice.choice([0, 0, 0, 3_000, 12_000, 40_000])
        self.rebalance_timeout_ms = dice.choice([20_000, 60_000])
        self.assignor = dice.choice([None, "uniform", "range"])
        self.subscribe()

    def subscribe(self) -> None:
        self.names = self.dice.sample(["t1", "t2", "t3", "nowhere"], self.dice.randrange(4))
        self.regex = self.dice.choice(["", "", "t.*", "t[12]"])
        self.says_all = True

    def heartbeat(
        self,
        world: ConsumerWorld,
        *,
        request_lost: bool = False,
        answer_lost: bool = False,
        write_lost: bool = False,
    ) -> None:
        self.take_up(world.now_ms)
        if request_lost:
            self.says_all = True
            return
        whole = self.says_all or self.epoch == 0
        try:
            answer = world.heartbeat(
                self.name,
                self.epoch,
                instance_id=self.instance_id,
                names=self.names if whole else None,
                regex=self.regex if whole else None,
                rebalance_timeout_ms=self.rebalance_timeout_ms if whole else -1,
                assignor=self.assignor if whole else None,
                owned=self.owned if whole or self.says_owned else None,
                loses_the_write=write_lost,
            )
        except KafkaError as error:
            if error.code not in FENCED:
                raise
            self.start_again()
            return
        if answer_lost or write_lost:
            self.says_all = True
            return
        self.says_all = self.says_owned = False
        self.epoch = answer.member_epoch
        given = assignment_of(answer)
        if given is not None and given != self.assigned:
            self.assigned = given
            self.gives_up_at_ms = world.now_ms + self.dawdle_ms
            self.take_up(world.now_ms)

    def take_up(self, now_ms: int) -> None:
        """Give up first, which may take a while; then take everything that was given."""
        if self.owned != self.assigned and (
            now_ms >= self.gives_up_at_ms
            or all(self.owned[t] <= self.assigned.get(t, frozenset()) for t in self.owned)
        ):
            self.owned = dict(self.assigned)
            self.says_owned = True

    def start_again(self) -> None:
        self.epoch = 0
        self.owned, self.assigned = {}, {}


class ClassicClient:
    """A member that speaks the classic protocol: an eager one gives everything up before it joins,
    a cooperative one what it was not given again."""

    instance_id = None

    def __init__(self, name: str, dice: random.Random) -> None:
        self.name = name
        self.dice = dice
        self.epoch = 0
        self.owned: Partitions = {}
        self.joins = True
        self.is_eager = dice.random() < 0.5
        self.dawdle_ms = self.gives_up_at_ms = 0
        self.subscribe()

    def subscribe(self) -> None:
        self.names = self.dice.sample(["t1", "t2", "t3", "nowhere"], self.dice.randrange(4))
        self.joins = True

    def heartbeat(
        self,
        world: ConsumerWorld,
        *,
        request_lost: bool = False,
        answer_lost: bool = False,
        write_lost: bool = False,
    ) -> None:
        if request_lost:
            return
        try:
            if self.joins:
                self.join(world, answer_lost=answer_lost, write_lost=write_lost)
                return
            request = HeartbeatRequest(group_id="g", generation_id=self.epoch, member_id=self.name)
            code = classic_heartbeat(world.group, request, world.now_ms)
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.joins = not answer_lost
            elif code:
                raise KafkaError(code=code)
        except KafkaError as error:
            if error.code not in FENCED:
                raise
            self.epoch, self.owned, self.joins = 0, {}, True

    def join(self, world: ConsumerWorld, *, answer_lost: bool, write_lost: bool) -> None:
        if self.is_eager:
            self.owned = {}
        facts = {topic.topic_id: topic.name for topic in world.topics.topics.values()}
        owned = [(facts[topic], sorted(ns)) for topic, ns in self.owned.items() if topic in facts]
        said = encode_subscription(Subscription(self.names, None, owned), 1)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.name,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=said)],
        )
        caller = CALLER._replace(version=5)
        answer, records = classic_join(world.group, request, caller, world.topics, world.now_ms)
        if write_lost:
            return
        world.write(records)
        if answer_lost:
            return
        self.epoch = answer.generation_id
        self.joins = self.sync(world)

    def sync(self, world: ConsumerWorld) -> bool:
        """Whether it has to join again."""
        request = SyncGroupRequest(
            group_id="g", generation_id=self.epoch, member_id=self.name, assignments=[]
        )
        answer = classic_sync(world.group, request, CALLER, world.topics, world.now_ms)
        if answer.error_code:
            if answer.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                raise KafkaError(code=ErrorCode(answer.error_code))
            return True
        given = embedded_assignment(answer.assignment)
        assert given is not None
        before = self.owned
        self.owned = {world.id_of(topic): frozenset(ns) for topic, ns in given.partitions}
        return any(not ns <= self.owned.get(topic, frozenset()) for topic, ns in before.items())


class Simulation:
    def __init__(self, seed: int, classic_share: float) -> None:
        self.dice = random.Random(seed)
        self.classic_share = classic_share
        rules = GroupRules(consumer_times=ConsumerTimes(heartbeat_interval_ms=HEARTBEAT_MS))
        self.world = ConsumerWorld(FakeTopics(t1=5, t2=3), rules)
        self.clients: list[Client | ClassicClient] = []
        self.away: list[str] = []
        self.happened: Counter[str] = Counter()
        self._names = 0

    def step(self) -> None:
        self.world.pass_ms(self.dice.randrange(2_500))
        actions = [self.beat, self.lose, self.come, self.go, self.die, self.change, self.restart]
        action = self.dice.choices(actions, [100, 12, 8, 3, 2, 6, 3])[0]
        action()
        self.happened[action.__name__] += 1
        self.check()

    def beat(self) -> None:
        if self.clients:
            self.dice.choice(self.clients).heartbeat(self.world)

    def lose(self) -> None:
        if self.clients:
            lost = self.dice.choice(["request_lost", "answer_lost", "write_lost"])
            self.dice.choice(self.clients).heartbeat(self.world, **{lost: True})

    def come(self) -> None:
        if len(self.clients) >= 7:
            return
        self._names += 1
        if self.dice.random() < self.classic_share and self.world.group.group_epoch:
            old = ClassicClient(f"m{self._names}", self.dice)
            old.heartbeat(self.world)
            self.clients.append(old)
            return
        instance_id = None
        if self.away and self.dice.random() < 0.8:
            instance_id = self.away.pop()
        elif self.dice.random() < 0.4:
            instance_id = f"i{self._names}"
        client = Client(f"m{self._names}", self.dice, instance_id)
        client.heartbeat(self.world)
        self.clients.append(client)

    def go(self) -> None:
        if not self.clients:
            return
        client = self.clients.pop(self.dice.randrange(len(self.clients)))
        if client.epoch == 0:
            return
        if isinstance(client, ClassicClient):
            leaving = [LeaveGroupRequest.Member(member_id=client.name)]
            request = LeaveGroupRequest(group_id="g", members=leaving)
            self.world.write(
                classic_leave(
                    self.world.group, request, CALLER._replace(version=5), self.world.topics
                )[1]
            )
            return
        epoch = -1
        if client.instance_id is not None:
            epoch = -2
            self.away.append(client.instance_id)
        try:
            self.world.heartbeat(client.name, epoch, instance_id=client.instance_id)
        except KafkaError as error:
            if error.code not in FENCED:
                raise

    def die(self) -> None:
        if len(self.clients) > 2:
            self.clients.pop(self.dice.randrange(len(self.clients)))

    def change(self) -> None:
        topics = self.world.topics
        what = self.dice.randrange(4)
        if what == 0 and self.clients:
            self.dice.choice(self.clients).subscribe()
        elif what == 1:
            name = self.dice.choice(list(topics.topics))
            topics.grow(name, topics.topics[name].partition_count + self.dice.randrange(1, 3))
        elif what == 2 and "t3" in topics.topics:
            topics.delete("t3")
        elif what == 2:
            topics.create("t3", self.dice.randrange(1, 6))
        else:
            topics.create(f"x{topics.version}", 1)

    def restart(self) -> None:
        before = self.picture()
        if self.dice.random() < 0.5:
            self.world.compact()
        self.world.restart()
        assert self.picture() == before

    def picture(self) -> dict[str, object]:
        group = self.world.group
        return {
            "epochs": (group.group_epoch, group.target_epoch, group.state),
            "members": {m.member_id: (repr(m.facts), m.current) for m in group.members.values()},
            "targets": group.targets,
            "static": group.static_members,
            "metadata": group.metadata,
            "resolved": group.resolved,
            "owners": group.owners,
            "counts": (group.topic_names, group.regexes, group.assignors),
        }

    def check(self) -> None:
        group = self.world.group
        believed: dict[tuple[bytes, int], str] = {}
        for name, member in group.members.items():
            for partitions in (member.current.assigned, member.current.revoking):
                for topic, numbers in partitions.items():
                    for number in numbers:
                        assert believed.setdefault((topic, number), name) == name
        owners = {(t, n): name for t, owned in group.owners.items() for n, name in owned.items()}
        assert owners == believed
        for client in self.clients:
            known = group.members.get(client.name)
            # One that was fenced does not know it yet; its commits are refused.
            if known is None or client.epoch < known.current.previous_epoch:
                continue
            for topic, numbers in client.owned.items():
                for number in numbers:
                    assert believed.get((topic, number)) == client.name, (
                        client.name,
                        topic,
                        number,
                    )

    def quiet_down(self) -> None:
        for client in self.clients:
            client.dawdle_ms = client.gives_up_at_ms = 0
        for _ in range(60):
            for client in self.clients:
                client.heartbeat(self.world)
                self.check()
            self.world.pass_ms(1_000)

    def check_quiet(self) -> None:
        world, group = self.world, self.world.group
        assert group.state == ("Stable" if self.clients else "Empty")
        assert group.group_epoch == group.target_epoch or not self.clients
        assert set(group.members) == {client.name for client in self.clients}
        for client in self.clients:
            assert client.owned == group.targets.get(client.name, {})
            assert client.epoch == group.group_epoch
        wanted = {
            (world.id_of(name), number)
            for name in group.subscribed_topics() & world.topics.topics.keys()
            for number in range(world.topics.topics[name].partition_count)
        }
        read = {(t, n) for client in self.clients for t, ns in client.owned.items() for n in ns}
        assert read == wanted


@pytest.mark.parametrize("classic_share", [0, 0.5])
@pytest.mark.parametrize("seed", range(15))
def test_no_partition_has_two_owners_and_a_quiet_group_is_stable(
    seed: int, classic_share: float
) -> None:
    simulation = Simulation(seed, classic_share)
    for _ in range(5):
        for _ in range(60):
            simulation.step()
        simulation.quiet_down()
        simulation.check_quiet()
    assert min(simulation.happened[name] for name in ("beat", "lose", "come", "restart")) > 0
