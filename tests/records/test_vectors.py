"""Batches of real clients and of Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.records.batch import Batch
from protocol.records.compression import NAMES
from protocol.records.walk import walk
from tests.records.corpus import raw, sets, shown
from tests.records.oracle import MemoryRecords

SETS = sets(2)


def name(vector: dict[str, Any]) -> str:
    return str(vector["id"])


@pytest.mark.parametrize("vector", SETS, ids=name)
def test_a_batch_of_a_real_client_reads_as_its_sender_meant_it(vector: dict[str, Any]) -> None:
    data = raw(vector["bytes"])
    entries = list(walk(data))
    assert len(entries) == len(vector["expect"])
    for (position, size, _), expected in zip(entries, vector["expect"], strict=True):
        batch = Batch(memoryview(data)[position:])
        assert {
            "size": batch.size,
            "codec": NAMES[batch.codec],
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "count": batch.record_count,
            "timestamp_type": ("CreateTime", "LogAppendTime")[batch.timestamp_type],
            "base_timestamp": batch.base_timestamp,
            "max_timestamp": batch.max_timestamp,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "partition_leader_epoch": batch.leader_epoch,
            "crc_valid": batch.is_intact(),
        } == {key: expected[key] for key in expected if key not in ("magic", "records")}
        assert [shown(record) for record in batch.records()] == expected["records"]
        assert batch.size == size


# Without zstd, for which it needs one more library, and without markers, which it reads as objects
# of their own.
COMPARABLE = [
    vector
    for vector in SETS
    if not any(entry["control"] or entry["codec"] == "zstd" for entry in vector["expect"])
]


@pytest.mark.parametrize("vector", COMPARABLE, ids=name)
def test_kafka_python_and_we_read_the_same(vector: dict[str, Any]) -> None:
    data = raw(vector["bytes"])
    ours = [record for position, _, _ in walk(data) for record in records_at(data, position)]
    theirs = [record for batch in MemoryRecords(bytes(data)) for record in batch]
    assert [(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in ours] == [
        (r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in theirs
    ]


def records_at(data: bytearray, position: int) -> list[Any]:
    return list(Batch(memoryview(data)[position:]).records())
