"""The batch of a commit is the one that the records would make, to the byte."""

from __future__ import annotations

import random

import pytest

from protocol.logdata.commits import commit_batch
from protocol.logdata.offsets import OffsetCommitKey, OffsetCommitValue, encode_record
from protocol.records.batch import Batch
from protocol.records.builder import build_batch

NOW_MS = 1_700_000_000_000
Entries = list[tuple[str, int, int, int, str | None, int]]


def built(group: str, entries: Entries, *, producer: tuple[int, int] | None = None,
          timestamps: list[int] | None = None) -> bytes:  # fmt: skip
    records = []
    for index, (topic, partition, offset, leader_epoch, metadata, expire_ms) in enumerate(entries):
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata or "",
            commit_timestamp=timestamps[index] if timestamps else NOW_MS,
            expire_timestamp=expire_ms,
        )
        records.append((NOW_MS, *encode_record((key, value)), ()))
    if producer is None:
        return build_batch(records)
    producer_id, producer_epoch = producer
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        transactional=True,
    )


def some_entries(chance: random.Random) -> Entries:
    topics = ["t", "orders", "ä" * chance.randrange(1, 60), "x" * chance.randrange(1, 249)]
    plain = chance.random() < 0.5
    count = chance.choice((1, 2, 63, 64, 65, 66, chance.randrange(1, 300)))
    entries: Entries = []
    for _ in range(count):
        metadata: str | None = ""
        expire_ms = -1
        if not plain and chance.random() < 0.3:
            metadata = chance.choice((None, "m", "日\udc80", "x" * chance.choice((30, 40, 4096))))
        if not plain and chance.random() < 0.1:
            expire_ms = chance.choice((0, NOW_MS + 1))
        entries.append(
            (
                topics[0] if plain else chance.choice(topics),
                chance.choice((0, 1, chance.randrange(1 << 31))),
                chance.choice((0, -1, chance.randrange(1 << 63))),
                chance.choice((-1, 0, 7, (1 << 31) - 1)),
                metadata,
                expire_ms,
            )
        )
    return entries


@pytest.mark.parametrize("seed", range(60))
def test_a_commit_is_written_as_its_records_would_be(seed: int) -> None:
    chance = random.Random(seed)
    group = chance.choice(("g", "ünïcode", "\udcff", "x" * chance.randrange(1, 300)))
    entries = some_entries(chance)
    assert commit_batch(group, entries, now_ms=NOW_MS) == built(group, entries)


def test_a_commit_of_ten_thousand_partitions_is_whole() -> None:
    entries: Entries = [("t", p, p, -1, "", -1) for p in range(10_000)]
    batch = commit_batch("g", entries, now_ms=NOW_MS)
    assert batch == built("g", entries)
    assert len(list(Batch(memoryview(batch)).records())) == 10_000


def test_a_commit_in_a_transaction_names_its_producer() -> None:
    entries: Entries = [("t", 0, 1, -1, "", -1), ("t", 1, 2, -1, "m", -1)]
    batch = commit_batch("g", entries, now_ms=NOW_MS, producer_id=77, producer_epoch=3)
    assert batch == built("g", entries, producer=(77, 3))
    assert Batch(memoryview(batch)).is_transactional


def test_a_commit_of_version_1_may_have_times_of_its_own() -> None:
    entries: Entries = [("t", 0, 1, -1, "", -1), ("t", 1, 2, -1, "", -1)]
    batch = commit_batch("g", entries, now_ms=NOW_MS, commit_timestamps=[5, 6])
    assert batch == built("g", entries, timestamps=[5, 6])


def test_a_commit_of_nothing_or_of_too_long_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        commit_batch("g", [], now_ms=NOW_MS)
    with pytest.raises(ValueError, match="group of 32768 bytes"):
        commit_batch("g" * 32_768, [("t", 0, 0, -1, "", -1)], now_ms=NOW_MS)
    with pytest.raises(ValueError, match="topic of 32768 bytes"):
        commit_batch("g", [("t" * 32_768, 0, 0, -1, "", -1)], now_ms=NOW_MS)
    with pytest.raises(ValueError, match="metadata of 32768 bytes"):
        commit_batch("g", [("t", 0, 0, -1, "m" * 32_768, -1)], now_ms=NOW_MS)
