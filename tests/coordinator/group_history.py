"""A shard at work: groups of both protocols, commits and transactions by a seeded die.

All of it goes through the coordinator, over a log in memory. Sockets, the loop and other partitions
are left out.
"""

from __future__ import annotations

import random
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.effects import Caller
from broker.coordinator.loading.replaying import ShardLoader
from broker.coordinator.shard_state import ShardState
from protocol.errors import KafkaError
from protocol.logdata.membership import Subscription
from protocol.logdata.offsets import encode_record
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest
from tests.storage.logs import Settings
from tests.support.offset_store import NamedTopics, OffsetStore
from tests.support.subscriptions import encode_subscription

if TYPE_CHECKING:
    from storage.log import Log
    from tests.support.memory_filesystem import MemoryFilesystem

SEGMENTS = Settings(segment_bytes=20_000)
GROUPS = [*(f"g{number}" for number in range(12)), "gruppe-ü", "g\udcff", "g" * 300]
TOPICS = ["t1", "t2", "t3"]
CALLER = Caller("app", "/127.0.0.1", 9)


class Wait:
    """A parked request, and the process that hears of the answer."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def answer(self, response: Any) -> None:
        if isinstance(getattr(response, "leader", None), str):
            self.process.member_id = response.member_id
            self.process.generation = response.generation_id

    def refuse(self, code: int) -> None:
        pass


class Process:
    """A client of one group, of either protocol."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.member_id = ""
        self.generation = 0
        self.epoch = 0


class History:
    """`step` does something. A store that has been loaded goes on where the log ends."""

    def __init__(self, seed: int, files: MemoryFilesystem | None = None) -> None:
        self.chance = random.Random(seed)
        self._ids = 0
        self.store = OffsetStore(
            files,
            settings=SEGMENTS,
            new_member_id=self._new_id,
            topics=NamedTopics(t1=3, t2=1, t3=40),
        )
        self.open: dict[int, str] = {}
        self.processes = [Process(group) for group in GROUPS[:6] for _ in range(3)]
        self._take_up()
        kinds = [self.commit] * 6 + [self.classic] * 8 + [self.consumer] * 8 + [self.leave] * 2
        kinds += [self.commit_many, self.transaction, self.transaction, self.end, self.remove]
        self.kinds = [*kinds, self.delete, self.wait, self.compact, self.restart]

    def _take_up(self) -> None:
        self.groups, self.time = self.store.groups, self.store.loop
        self.groups.runtime.take_up(self.store.shard)

    def _new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def step(self) -> None:
        self.store.time_ms += self.chance.choice([0, 1, 1000])
        with suppress(KafkaError):
            self.chance.choice(self.kinds)()

    # Offsets

    def commit(self) -> None:
        choose = self.chance.choice
        entries = [
            (
                choose(TOPICS),
                self.chance.randrange(4),
                self.chance.randrange(1000),
                choose([-1, 3]),
                choose(["", "", "m", "what it is " * 20]),
                choose([-1, -1, -1, self.store.time_ms + 5000]),
            )
            for _ in range(self.chance.choice([1, 1, 2, 5]))
        ]
        self._commit(choose(GROUPS), entries)

    def commit_many(self) -> None:
        first, count = self.chance.randrange(50), self.chance.choice([20, 40, 1100])
        entries = [("t3", first + n, self.chance.randrange(1000), 3, "", -1) for n in range(count)]
        self._commit(self.chance.choice(GROUPS[-4:]), entries)

    def _commit(self, group: str, entries: list[Any], producer: int | None = None) -> None:
        store = self.store
        by = None if producer is None else (producer, 0)
        store.offsets.commit(store.shard, group, entries, now_ms=store.time_ms, producer=by)

    def transaction(self) -> None:
        producer = self.chance.randrange(4)
        self.open[producer] = group = self.chance.choice(GROUPS)
        self._commit(group, [("t1", self.chance.randrange(4), 77, 3, "", -1)], producer)

    def end(self) -> None:
        if self.open:
            producer, group = self.open.popitem()
            self.store.end(group, (producer, 0), commit=self.chance.random() < 0.6)

    def remove(self) -> None:
        group = self.chance.choice(GROUPS)
        places = [entry[:2] for entry in self.store.state.offsets.entries(group)]
        gone = self.chance.sample(places, min(len(places), self.chance.choice([1, 3, 2000])))
        self.store.offsets.remove(self.store.shard, group, gone)

    def delete(self) -> None:
        self.store.offsets.delete_group(self.chance.choice(GROUPS))

    # Members

    def classic(self) -> None:
        process = self.chance.choice(self.processes)
        group = self.store.state.groups.get(process.group)
        is_member = isinstance(group, ClassicGroup) and process.member_id in group.members
        if is_member and self.chance.random() < 0.7:
            assert isinstance(group, ClassicGroup)
            self.sync(process, group)
            return
        data = encode_subscription(Subscription(self.chance.sample(TOPICS, 2)))
        request = JoinGroupRequest(
            group_id=process.group,
            session_timeout_ms=self.chance.choice([6000, 30_000]),
            rebalance_timeout_ms=60_000,
            member_id=process.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=data)],
        )
        wait: Any = Wait(process)
        self.groups.classic.join(wait, request, CALLER)

    def sync(self, process: Process, group: ClassicGroup) -> None:
        request = SyncGroupRequest(
            group_id=process.group,
            generation_id=process.generation,
            member_id=process.member_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignments=[
                SyncGroupRequest.Assignment(
                    member_id=member.member_id, assignment=self.chance.randbytes(3)
                )
                for member in group.members
            ],
        )
        wait: Any = Wait(process)
        self.groups.classic.sync(wait, request, CALLER)

    def consumer(self) -> None:
        process = self.chance.choice(self.processes)
        group = self.store.state.groups.get(process.group)
        known = isinstance(group, ConsumerGroup) and process.member_id in group.members
        member = group.members[process.member_id] if known else None  # type: ignore[union-attr, index]
        joins = member is None or self.chance.random() < 0.2
        owned = None if member is None else member.current.assigned
        request = ConsumerGroupHeartbeatRequest(
            group_id=process.group,
            member_id=process.member_id if member else self._new_id("member"),
            member_epoch=0 if joins else member.current.epoch,  # type: ignore[union-attr]
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=self.chance.sample(TOPICS, 2) if joins else None,
            subscribed_topic_regex=self.chance.choice(["t.*", "t[12]", None]) if joins else None,
            topic_partitions=[
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=t, partitions=sorted(p))
                for t, p in (owned or {}).items()
                if not joins
            ],
        )
        _, answer = self.groups.consumer.heartbeat(request, CALLER)
        process.member_id = answer.member_id or request.member_id

    def leave(self) -> None:
        process = self.chance.choice(self.processes)
        group = self.store.state.groups.get(process.group)
        if isinstance(group, ConsumerGroup):
            self.groups.consumer.heartbeat(
                ConsumerGroupHeartbeatRequest(
                    group_id=process.group, member_id=process.member_id, member_epoch=-1
                ),
                CALLER,
            )
            return
        members = [LeaveGroupRequest.Member(member_id=process.member_id)]
        self.groups.classic.leave(
            LeaveGroupRequest(group_id=process.group, members=members), CALLER
        )

    # What happens to all of them

    def wait(self) -> None:
        self.time.pass_s(self.chance.choice([1, 10, 100]))

    def compact(self) -> None:
        self.store.compact()

    def restart(self) -> None:
        """The process dies; another one reads what is there."""
        if self.chance.random() < 0.3:
            self.go_on_with(self.store.restarted())

    def go_on_with(self, store: OffsetStore) -> None:
        store.time_ms = self.store.time_ms
        self.store = store
        self._take_up()


def replayed(log: Log) -> ShardState:
    """What the whole log says."""
    state = ShardState(OffsetStore().state.rules, lambda prefix: prefix)
    loader = ShardLoader(state, log.name, now_ms=0, start_offset=log.start_offset)
    while (piece := log.read(loader.next_offset, 1 << 20)) is not None:
        loader.feed(piece.read())
    assert not loader.skipped_count
    return state


def facts(state: ShardState) -> dict[str, Any]:
    """All that a log or a snapshot has given; times of this process are not in it."""
    offsets = state.offsets
    groups: dict[str, Any] = {}
    for group_id, group in state.groups.items():
        if isinstance(group, ConsumerGroup):
            shared = group.share()
            groups[group_id] = (
                shared._replace(members=[]),
                sorted(shared.members, key=itemgetter(0)),
                *({t: dict(sorted(p.items())) for t, p in group.owners.items()},),
                *(group.static_members, group.topic_names, group.regexes, group.assignors),
            )
        elif group.stored is not None:
            groups[group_id] = encode_record((group.record()[0], group.stored))
    return {
        "groups": dict(sorted(groups.items())),
        "offsets": {g: sorted(offsets.entries(g)) for g in sorted(set(offsets.groups()))},
        "count": len(offsets),
        "pending": sorted(offsets.share().pending),
        "topics": {g: offsets.topics(g) for g in GROUPS},
    }
