"""Mutated logs of groups are loaded or skipped, and groups beside them do not notice.

`FUZZ_SEED` gives other inputs, `TEST_FUZZ_FACTOR` more of them.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.effects import GroupRules
from broker.coordinator.loading.replaying import ShardLoader
from broker.coordinator.shard_state import ShardState
from protocol.logdata.commits import commit_batch
from protocol.logdata.membership import Subscription
from protocol.logdata.offsets import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_record,
)
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages
from protocol.records.markers import Marker, encode_marker
from tests.coordinator.test_replay import classic, consumer
from tests.support.subscriptions import encode_subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.logdata.offsets import Record
    from protocol.records.builder import RecordFields

SEED = int(os.environ.get("FUZZ_SEED", "20261"))
FACTOR = int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
RECORDS = 1_500 * FACTOR
BATCHES = 1_500 * FACTOR
NOW_MS = 1_700_000_000_000
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF)


def victims() -> list[tuple[bytes, bytes | None]]:
    """Records of all kinds, of groups that nobody looks at afterwards."""
    with_metadata = classic("v")
    assert isinstance(with_metadata[1], GroupMetadataValue)
    with_metadata[1].members[0].subscription = encode_subscription(Subscription(["t"]))
    facts = ConsumerGroupMemberMetadataValue
    protocol = facts.ClassicMemberMetadata.ClassicProtocol(name="range", metadata=b"\x00\x01")
    old = facts(
        instance_id="i",
        rack_id="r",
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="t.*",
        server_assignor="range",
        classic_member_metadata=facts.ClassicMemberMetadata(
            session_timeout_ms=1000, supported_protocols=[protocol]
        ),
    )
    offset = OffsetCommitKey(group="v", topic="t", partition=3)
    records: list[Record] = [
        (offset, OffsetCommitValue(offset=5, metadata="mmm", commit_timestamp=NOW_MS)),
        (
            offset,
            OffsetCommitValue(
                offset=5, metadata="", commit_timestamp=NOW_MS, expire_timestamp=NOW_MS
            ),
        ),
        (offset, None),
        with_metadata,
        *consumer("w"),
        (ConsumerGroupMemberMetadataKey(group_id="w", member_id="old"), old),
        (
            ConsumerGroupRegularExpressionKey(group_id="w", regular_expression="t.*"),
            ConsumerGroupRegularExpressionValue(topics=["t"], version=4, timestamp=NOW_MS),
        ),
    ]
    records += [(key, None) for key, _ in consumer("w")]
    return [encode_record(record) for record in records]


def mutate(chance: random.Random, seed: bytes) -> bytes:
    data = bytearray(seed)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        position = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            data[position:position] = chance.randbytes(chance.randrange(1, 5))
        elif kind == 1:
            del data[position : position + chance.randrange(1, 5)]
        elif kind == 2:
            del data[position:]
        elif position < len(data):
            data[position] = chance.choice((*EDGES, chance.randrange(256)))
    return bytes(data)


class Bystanders:
    """Groups whose records are around those of the victims, and what must be there of them."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        for name in ("one", "two", "three"):
            pairs = [classic(f"classic {name}"), *consumer(f"consumer {name}")]
            fields = [(NOW_MS, *encode_record(pair), ()) for pair in pairs]
            self.batches.append(build_batch(fields))
            entries = [("topic", p, p + 100, 1, "", -1) for p in range(3)]
            self.batches.append(bytes(commit_batch(f"offsets {name}", entries, now_ms=NOW_MS)))
            pending = [("topic", 0, 7, 1, "", -1)]
            self.batches.append(
                bytes(
                    commit_batch(
                        f"pending {name}",
                        pending,
                        now_ms=NOW_MS,
                        producer_id=1_000_003,
                        producer_epoch=0,
                    )
                )
            )
        self.marker = bytes(
            encode_marker(1_000_003, 0, marker=Marker(True, 0), timestamp_ms=NOW_MS)
        )

    def check(self, state: ShardState, about: str) -> None:
        for name in ("one", "two", "three"):
            group = state.groups.get(f"classic {name}")
            assert isinstance(group, ClassicGroup), about
            assert group.generation_id == 3, about
            other = state.groups.get(f"consumer {name}")
            assert isinstance(other, ConsumerGroup), about
            assert (other.state, list(other.members)) == ("Stable", ["m"]), about
            found = state.offsets.fetch(f"offsets {name}", "topic", range(3))
            assert [c and c.offset for c in found] == [100, 101, 102], about
            settled = state.offsets.get(f"pending {name}", "topic", 0)
            assert settled is not None, about
            assert settled.offset == 7, about


def load(batches: list[bytes]) -> tuple[ShardState, int]:
    data = bytearray()
    offset = 0
    for batch in batches:
        placed = bytearray(batch)
        placed[:8] = offset.to_bytes(8, "big")
        offset += 20
        data += placed
    state = ShardState(GroupRules(), lambda prefix: f"{prefix}-1")
    loader = ShardLoader(state, "fuzz", now_ms=0, end_offset=offset)
    loader.feed(data)
    return state, loader.report().skipped_count


def used(state: ShardState) -> None:
    """What came of mutated bytes can be asked, and raises nothing."""
    for group in state.groups.values():
        group.deadline()
        group.is_empty() if isinstance(group, ConsumerGroup) else group.describe()
        group.subscribed_topics()
    for name in state.offsets.groups():
        list(state.offsets.entries(name))


def test_mutated_records_are_loaded_or_skipped_and_harm_no_other_group() -> None:
    chance, others, seeds = random.Random(SEED), Bystanders(), victims()
    skipped = 0
    for number in range(RECORDS):
        about = f"seed {SEED}, log {number}"
        batches = list(others.batches)
        for _ in range(chance.randrange(1, 5)):
            fields: list[RecordFields] = []
            for _ in range(chance.randrange(1, 6)):
                key, value = chance.choice(seeds)
                if chance.random() < 0.5:
                    key = mutate(chance, key)
                if value is not None and chance.random() < 0.5:
                    value = mutate(chance, value)
                fields.append((NOW_MS, None if chance.random() < 0.05 else key, value, ()))
            batches.insert(chance.randrange(len(batches) + 1), packed(chance, fields))
        state, count = load([*batches, others.marker])
        others.check(state, about)
        used(state)
        skipped += count > 0
    assert RECORDS * 0.3 < skipped < RECORDS


def packed(chance: random.Random, fields: Sequence[RecordFields]) -> bytes:
    kind = chance.randrange(5)
    if kind == 0:
        codec = chance.choice((1, 2, 3))
        return build_messages(fields, magic=chance.randrange(2), codec=codec)
    if kind == 1:
        return build_batch(
            fields, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
        )
    return build_batch(fields, codec=chance.choice((0, 0, 0, 1, 2, 3, 4)))


def test_a_mutated_batch_is_skipped_or_loaded_and_harms_no_other() -> None:
    chance, others, seeds = random.Random(SEED + 1), Bystanders(), victims()
    for number in range(BATCHES):
        about = f"seed {SEED + 1}, log {number}"
        batches = [*others.batches, others.marker]
        for _ in range(chance.randrange(1, 3)):
            fields = [(NOW_MS, *chance.choice(seeds), ()) for _ in range(chance.randrange(1, 4))]
            batch = bytearray(packed(chance, fields))
            # Neither the offset, which the log gives, nor what makes it another batch's end.
            for _ in range(chance.randrange(1, 4)):
                batch[chance.randrange(8, len(batch))] = chance.choice(
                    (*EDGES, chance.randrange(256))
                )
            if batch[16] == 2 and len(batch) >= 61 and chance.random() < 0.5:
                batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
                batch[17:21] = Batch(memoryview(batch)).checksum().to_bytes(4, "big")
            batches.insert(chance.randrange(len(batches) + 1), bytes(batch))
        state, _ = load(batches)
        others.check(state, about)
        used(state)


def test_any_bytes_at_all_can_be_fed() -> None:
    chance = random.Random(SEED + 2)
    whole = b"".join(Bystanders().batches)
    for _ in range(300 * FACTOR):
        state = ShardState(GroupRules(), lambda prefix: f"{prefix}-1")
        loader = ShardLoader(state, "fuzz", now_ms=0)
        for _ in range(4):
            before = loader.next_offset
            piece = mutate(chance, whole) if chance.random() < 0.7 else chance.randbytes(200)
            loader.feed(piece)
            assert loader.next_offset > before or not piece
        used(state)
