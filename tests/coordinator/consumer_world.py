"""A consumer group with a log, topics and a clock that the test holds in its hands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.effects import Caller, GroupRules, TopicFacts
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import Record, decode_key, decode_value, encode_record
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

    from broker.coordinator.consumer.assignors import Partitions
    from broker.coordinator.consumer.state import ConsumerGroupState

SESSION_MS = 45_000
REBALANCE_MS = 60_000
CALLER = Caller("app", "/127.0.0.1", 1)


class FakeTopics:
    """Topics by name; their ids say when they were made."""

    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self.topics: dict[str, TopicFacts] = {}
        self._made = 0
        for name, count in partition_counts.items():
            self.create(name, count)

    def create(self, name: str, partition_count: int) -> bytes:
        self._made += 1
        topic_id = self._made.to_bytes(16, "big")
        self.topics[name] = TopicFacts(name, topic_id, partition_count)
        self.version += 1
        return topic_id

    def grow(self, name: str, partition_count: int) -> None:
        self.topics[name] = self.topics[name]._replace(partition_count=partition_count)
        self.version += 1

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.version += 1

    def get(self, name: str) -> TopicFacts | None:
        return self.topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicFacts | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.topics.keys()


class ConsumerWorld:
    """The runtime: writes what the group wants written, replays it, then answers."""

    def __init__(self, topics: FakeTopics, rules: GroupRules | None = None) -> None:
        self.topics = topics
        self.rules = GroupRules() if rules is None else rules
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.written: list[Record] = []
        self.group = self._new_group()
        self._ids = 0

    def _new_group(self) -> ConsumerGroup:
        return ConsumerGroup("g", self.rules, self._new_member_id)

    def _new_member_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        names: list[str] | None = None,
        regex: str | None = None,
        owned: Partitions | None = None,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        assignor: str | None = None,
        caller: Caller = CALLER,
        loses_the_write: bool = False,
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=names,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else owned_partitions(owned),
        )
        response, records = self.group.heartbeat(request, caller, self.topics, self.now_ms)
        if not loses_the_write:
            self.write(records)
        return response

    def join(
        self,
        member_id: str,
        *names: str,
        regex: str | None = None,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = REBALANCE_MS,
        assignor: str | None = None,
        caller: Caller = CALLER,
    ) -> ConsumerGroupHeartbeatResponse:
        return self.heartbeat(
            member_id,
            0,
            names=list(names),
            regex=regex,
            owned={},
            instance_id=instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            assignor=assignor,
            caller=caller,
        )

    def write(self, records: list[Record]) -> None:
        self.written = records
        raw = [encode_record(record) for record in records]
        self.log += raw
        replay(self.group, raw, self.now_ms)

    def pass_ms(self, ms: int) -> None:
        """Time passes, and who is due is looked at, as often as the group asks for it."""
        until = self.now_ms + ms
        while (deadline := self.group.deadline()) is not None and deadline <= until:
            self.now_ms = max(self.now_ms, deadline)
            records = self.group.expire(self.topics, self.now_ms)
            if records:
                self.write(records)
        self.now_ms = until

    def compact(self) -> None:
        """The last record of each key stays, at its place."""
        last = {key: position for position, (key, _) in enumerate(self.log)}
        self.log = [entry for n, entry in enumerate(self.log) if last[entry[0]] == n]

    def restart(self) -> None:
        """Another process reads the log."""
        self.group = self._new_group()
        replay(self.group, self.log, self.now_ms)

    def id_of(self, name: str) -> bytes:
        return self.topics.topics[name].topic_id

    def held(self, member_id: str) -> dict[str, list[int]]:
        """What the group believes that a member has, by topic name."""
        return self._named(self.group.members[member_id].current.assigned)

    def given(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """The assignment of an answer, None if it has none."""
        if response.assignment is None:
            return None
        return {
            self._name(entry.topic_id): list(entry.partitions)
            for entry in response.assignment.topic_partitions
        }

    def _named(self, partitions: Mapping[bytes, Iterable[int]]) -> dict[str, list[int]]:
        return {self._name(topic): sorted(numbers) for topic, numbers in partitions.items()}

    def _name(self, topic_id: bytes) -> str:
        topic = self.topics.by_id(topic_id)
        return "(gone)" if topic is None else topic.name


def owned_partitions(
    partitions: Mapping[bytes, Iterable[int]],
) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic, partitions=sorted(numbers))
        for topic, numbers in partitions.items()
    ]


def assignment_of(response: ConsumerGroupHeartbeatResponse) -> Partitions | None:
    """As a client keeps it."""
    if response.assignment is None:
        return None
    return {
        entry.topic_id: frozenset(entry.partitions)
        for entry in response.assignment.topic_partitions
    }


def replay(
    group: ConsumerGroupState, raw: Iterable[tuple[bytes, bytes | None]], now_ms: int
) -> None:
    for raw_key, raw_value in raw:
        key = decode_key(raw_key)
        group.replay(key, None if raw_value is None else decode_value(key, raw_value), now_ms)


def refusal(error: pytest.ExceptionInfo[KafkaError]) -> tuple[ErrorCode, str]:
    """The code and the text that a client gets."""
    return error.value.code, str(error.value)


def key_versions(records: Iterable[Record]) -> list[int]:
    """What kinds of records these are: 8 for a current assignment, -8 for its tombstone."""
    kinds = []
    for record in records:
        raw_key, raw_value = encode_record(record)
        kind = int.from_bytes(raw_key[:2], "big")
        kinds.append(-kind if raw_value is None else kind)
    return kinds
