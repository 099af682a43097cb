"""A log of `__consumer_offsets` that Kafka 3.9 wrote says to us what Kafka said of it."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.effects import GroupRules
from broker.coordinator.loading.replaying import ShardLoader
from broker.coordinator.shard_state import ShardState
from protocol.logdata.commit_runs import ordinary_commits
from protocol.logdata.commits import commit_batch
from protocol.logdata.membership import assignment_of, subscription_of
from protocol.logdata.offsets import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
    encode_record,
    shard_of,
)
from protocol.records.batch import Batch
from protocol.records.layout import BASE_SEQUENCE_POSITION, INT32, NO_SEQUENCE
from protocol.records.walk import walk

KAFKA: dict[str, Any] = json.loads(
    (Path(__file__).parent / "vectors" / "kafka_groups.json").read_text()
)
LOGS = {int(name.rpartition("-")[2]): b64decode(data) for name, data in KAFKA["logs"].items()}
OPEN = "txn-open"


@pytest.fixture(scope="module")
def shards() -> list[ShardState]:
    loaded = []
    for number in range(len(LOGS)):
        state = ShardState(GroupRules(), lambda prefix: f"{prefix}-1")
        loader = ShardLoader(state, f"__consumer_offsets-{number}", now_ms=0)
        loader.feed(LOGS[number])
        assert loader.report().skipped == []
        loaded.append(state)
    return loaded


def shard(shards: list[ShardState], group: str) -> ShardState:
    return shards[shard_of(group, len(shards))]


def test_each_group_has_the_offsets_that_kafka_gave(shards: list[ShardState]) -> None:
    for group, expected in KAFKA["offsets"].items():
        found = shard(shards, group).offsets.fetch(group, "t", range(3))
        assert [None if each is None else each.offset for each in found] == expected, group


def test_only_the_transaction_that_is_open_is_pending(shards: list[ShardState]) -> None:
    pending = {
        group: [shard(shards, group).offsets.is_pending(group, "t", p) for p in range(3)]
        for group in KAFKA["offsets"]
    }
    assert pending.pop(OPEN) == [True, True, False]
    assert not any(map(any, pending.values()))


def test_each_group_has_the_state_and_members_that_kafka_showed(shards: list[ShardState]) -> None:
    simple = {"simple"}
    for group_id, expected in KAFKA["groups"].items():
        group = shard(shards, group_id).groups.get(group_id)
        if group_id in simple:
            assert group is None, "a group of offsets alone has no record"
        elif expected["kind"] == "classic":
            assert isinstance(group, ClassicGroup), group_id
            assert classic_facts(group) == (expected["state"], expected["members"]), group_id
        else:
            assert isinstance(group, ConsumerGroup), group_id
            assert group.state == expected["state"], group_id
            members = [member["member_id"] for member in expected["members"]]
            assert list(group.members) == members, group_id
    known = set(KAFKA["groups"]) - simple
    assert {group for state in shards for group in state.groups} == known


def classic_facts(group: ClassicGroup) -> tuple[str, list[dict[str, Any]]]:
    facts = group.describe()
    members = []
    for member in facts.members:
        subscription, assignment = (
            subscription_of(member.metadata),
            assignment_of(member.assignment),
        )
        assert subscription is not None
        assert subscription.topics == ["t"]
        assert assignment is not None
        members.append(
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "instance_id": member.instance_id,
                "partitions": assignment.partitions[0][1],
            }
        )
    return facts.state, members


def test_every_record_of_kafka_is_written_back_to_the_byte() -> None:
    kinds = set()
    for log in LOGS.values():
        for position, size, _ in walk(log):
            batch = Batch(memoryview(log)[position : position + size])
            if batch.is_control:
                continue
            for record in batch.records():
                key = decode_key(record.key)
                value = None if record.value is None else decode_value(key, record.value)
                assert encode_record((key, value)) == (record.key, record.value)
                kinds.add((type(key).__name__, value is None))
    assert len(kinds) == 13, sorted(kinds)


def test_all_plain_commits_of_kafka_are_read_the_quick_way() -> None:
    commits = 0
    for log in LOGS.values():
        for position, size, _ in walk(log):
            batch = Batch(memoryview(log)[position : position + size])
            plain = not batch.is_transactional and bool(commits_of(batch))
            assert (ordinary_commits(log, position)[1] >= 0) == plain
            commits += plain
    assert commits > 10


def test_a_commit_of_ours_is_that_of_kafka_to_the_byte() -> None:
    """But for the sequence of a batch without a producer, which Kafka leaves at 0."""
    same = set()
    for log in LOGS.values():
        for position, size, _ in walk(log):
            batch = Batch(memoryview(bytearray(log[position : position + size])))
            pairs = [] if batch.is_control else commits_of(batch)
            if not pairs or pairs[0][1].commit_timestamp != batch.base_timestamp:
                continue  # there Kafka looked at its clock twice
            ours = commit_batch(
                pairs[0][0].group,
                [
                    (k.topic, k.partition, v.offset, v.leader_epoch, v.metadata, -1)
                    for k, v in pairs
                ],
                now_ms=batch.base_timestamp,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
            )
            Batch(memoryview(ours)).place(batch.base_offset, batch.leader_epoch)
            if not batch.is_transactional:
                INT32.pack_into(batch.view, BASE_SEQUENCE_POSITION, NO_SEQUENCE)
                batch.rewrite(batch.attributes, batch.max_timestamp)
            assert ours == batch.view
            same.add((len(pairs), batch.is_transactional))
    assert same == {(1, False), (2, False), (3, False), (2, True)}


def commits_of(batch: Batch) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
    """The offsets in a batch; none if there is anything else in it."""
    pairs = []
    for record in batch.records():
        key = decode_key(record.key)
        if not isinstance(key, OffsetCommitKey) or record.value is None:
            return []
        pairs.append((key, decode_value(key, record.value)))
    return pairs
