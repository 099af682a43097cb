"""Batches of real clients, and produced batches with the verdict Apache Kafka gave them."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.records.batch import Batch
from protocol.records.compression import NAMES
from protocol.records.errors import InvalidRecord
from protocol.records.validate import UNLIMITED_MS, ProduceRules, check_produced
from protocol.records.walk import walk
from tests.records.corpus import raw, shown, vectors
from tests.records.oracle import MemoryRecords

SETS = vectors("sets_v2.json")
APPENDS = vectors("append_v2.json")

# Kafka walks every record always; with the default level we see these when the batch is read.
SEEN_ONLY_IN_RECORDS = {
    "count-too-small",
    "gzip-count-too-large",
    "gzip-count-too-small",
    "gzip-wrong-deltas",
    "negative-header-key",
}
# Kafka lists every record of a batch whose type bit is not the producer's to set. The bit is the
# batch's, so we name no record.
WITHOUT_RECORD_ERRORS = {"lat-bit-on-lat-topic"}


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


def rules_of(vector: dict[str, Any], *, strict: bool) -> ProduceRules:
    topic = vector["topic"]
    before, after = topic["before_max_ms"], topic["after_max_ms"]
    return ProduceRules(
        max_message_bytes=topic["max_message_bytes"],
        compacted=topic["compacted"],
        log_append_time=topic["timestamp_type"] == "LogAppendTime",
        before_max_ms=UNLIMITED_MS if before is None else before,
        after_max_ms=UNLIMITED_MS if after is None else after,
        strict=strict,
        zstd_allowed=vector["produce_version"] >= 7,
    )


def codes(vector: dict[str, Any]) -> set[int]:
    expected = vector["expect"]
    return {expected["error_code"], *expected.get("also_accept", ())}


@pytest.mark.parametrize("vector", [v for v in APPENDS if v["expect"]["error_code"]], ids=name)
def test_what_kafka_refuses_is_refused_with_its_code(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord) as refusal:
        check_produced(
            memoryview(raw(vector["input"])), rules_of(vector, strict=True), vector["now_ms"]
        )
    assert refusal.value.code in codes(vector)
    assert refusal.value.code != -1
    expected = vector["expect"].get("record_error_indexes", [])
    if vector["id"] in WITHOUT_RECORD_ERRORS:
        expected = []
    assert [index for index, _ in refusal.value.record_errors] == expected


@pytest.mark.parametrize("vector", [v for v in APPENDS if v["expect"]["error_code"]], ids=name)
def test_the_header_tells_all_but_the_named_faults(vector: dict[str, Any]) -> None:
    view, rules = memoryview(raw(vector["input"])), rules_of(vector, strict=False)
    if vector["id"] in SEEN_ONLY_IN_RECORDS:
        check_produced(view, rules, vector["now_ms"])
    else:
        with pytest.raises(InvalidRecord) as refusal:
            check_produced(view, rules, vector["now_ms"])
        assert refusal.value.code in codes(vector)


@pytest.mark.parametrize("vector", [v for v in APPENDS if not v["expect"]["error_code"]], ids=name)
def test_what_kafka_stores_is_stored_in_its_bytes(vector: dict[str, Any]) -> None:
    # given
    data, expected = raw(vector["input"]), vector["expect"]
    rules = rules_of(vector, strict=True)
    # when it is checked, stamped where the topic asks for it, and placed
    header = check_produced(memoryview(data), rules, vector["now_ms"])
    batch = Batch(memoryview(data))
    if rules.log_append_time:
        header = batch.stamp_log_append_time(vector["now_ms"])
    assert header == batch.header()
    batch.place(vector["start_offset"], vector["leader_epoch"])
    # then
    (stored,) = expected["stored"]
    assert [shown(record) for record in batch.records()] == stored["records"]
    assert batch.max_timestamp == expected["max_timestamp"]
    assert batch.last_offset + 1 == expected["next_offset"]
    assert batch.is_intact()
    if "stored_bytes" in expected:
        assert data[: batch.size] == raw(expected["stored_bytes"])


def test_the_named_faults_are_in_the_vectors() -> None:
    assert {name(vector) for vector in APPENDS} >= SEEN_ONLY_IN_RECORDS | WITHOUT_RECORD_ERRORS
