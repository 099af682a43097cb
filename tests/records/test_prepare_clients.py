"""Sets of real clients through topics of every format and codec: nothing is lost or altered."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import Batch
from protocol.records.compression import NAMES
from protocol.records.legacy import Message
from protocol.records.prepare import prepare
from protocol.records.validate import ProduceRules, Validation
from tests.records.appending import NEXT_OFFSET, NOW_MS, placed, read, sent
from tests.records.corpus import raw, sets, shown

ZSTD = 4

# These are what brokers store and serve, and no producer sends.
STORED = ("log-append-time", "compacted-holes", "marker", "emptied", "stored")
SETS = [
    vector
    for vector in sets(0, 1, 2)
    if not any(word in vector["id"] for word in STORED)
    and not any(entry.get("base_offset") for entry in vector["expect"])
]
FOREIGN = [v for v in sets(0, 1, 2) if v not in SETS]


def name(vector: dict[str, Any]) -> str:
    return str(vector["id"])


def version_of(vector: dict[str, Any]) -> int:
    """A Produce version that this set came in."""
    return (0, 2, 7)[vector["magic"]]


def refusal_of(vector: dict[str, Any], magic: int, codec: int | None) -> int | None:
    """The error that the table has for what the topic's format has no place for."""
    if magic == 2 or vector["magic"] < 2:
        return None
    entries = vector["expect"]
    if any(entry["producer_id"] >= 0 or entry["transactional"] for entry in entries):
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    if codec is None and any(entry["codec"] == "zstd" for entry in entries):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if any(record["headers"] for entry in entries for record in entry["records"]):
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    return None


def expected_records(
    vector: dict[str, Any], magic: int, *, log_append_time: bool
) -> list[dict[str, Any]]:
    records = [dict(record) for entry in vector["expect"] for record in entry["records"]]
    for offset, record in enumerate(records, NEXT_OFFSET):
        record["offset"] = offset
        if magic == 0:
            record["timestamp"] = -1
        elif log_append_time:
            record["timestamp"] = NOW_MS
        elif record["timestamp"] is None:
            record["timestamp"] = -1
    return records


def codec_of(stored: bytes, magic: int) -> int:
    view = memoryview(stored)
    return Batch(view).codec if magic == 2 else Message(view).codec


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("vector", SETS, ids=name)
def test_a_clients_set_is_stored_with_all_it_says(vector: dict[str, Any], magic: int) -> None:
    codecs: list[int | None] = [None, 0, 1, 2, 3]
    if magic == 2:
        codecs.append(ZSTD)
    for codec in codecs:
        for log_append_time in (False, True):
            rules = ProduceRules(
                magic=magic,
                codec=codec,
                log_append_time=log_append_time,
                validation=Validation.STRICT,
            )
            data = raw(vector["bytes"])
            if refusal_of(vector, magic, codec):
                with pytest.raises(KafkaError) as refusal:
                    sent(data, rules, version=version_of(vector))
                assert refusal.value.code == refusal_of(vector, magic, codec)
                continue
            prepared = sent(data, rules, version=version_of(vector))
            stored = placed(prepared)
            assert [shown(record) for record in read(stored)] == expected_records(
                vector, magic, log_append_time=log_append_time
            )
            kept = NAMES.index(vector["expect"][-1]["codec"])
            assert codec_of(stored, magic) == (kept if codec is None else codec)


@pytest.mark.parametrize("vector", SETS, ids=name)
def test_a_clients_set_of_the_topics_format_stays_as_it_came_where_it_can(
    vector: dict[str, Any],
) -> None:
    data = raw(vector["bytes"])
    sent_in = bytes(data)
    prepared = prepare(
        memoryview(data),
        ProduceRules(magic=vector["magic"], validation=Validation.STRICT),
        version=version_of(vector),
        now_ms=NOW_MS,
        next_offset=NEXT_OFFSET,
    )
    assert prepared is not None
    wrapped = vector["expect"][-1]["codec"] != "none"
    # Format 0 has absolute offsets inside, so no compressed set of it can stay.
    assert prepared.rebuilt == (vector["magic"] == 0 and wrapped)
    if not prepared.rebuilt:
        stored = placed(prepared)
        assert len(stored) == len(sent_in)
        changed = [
            at for at, pair in enumerate(zip(stored, sent_in, strict=True)) if pair[0] != pair[1]
        ]
        if vector["magic"] == 2:
            assert set(changed) <= set(range(16))
        elif wrapped:
            assert set(changed) <= {*range(8), *range(12, 16), *range(18, 26)}


@pytest.mark.parametrize("vector", FOREIGN, ids=name)
def test_what_only_brokers_write_is_refused_or_told_apart_by_its_offsets(
    vector: dict[str, Any],
) -> None:
    data = raw(vector["bytes"])
    rules = ProduceRules(magic=vector["magic"], validation=Validation.STRICT)
    if "log-append-time" in vector["id"] or vector["magic"] == 2:
        with pytest.raises(KafkaError) as refusal:
            sent(data, rules, version=version_of(vector))
        assert refusal.value.code in (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD)
    else:
        # A mirror that sends what it fetched; the holes are closed.
        stored = placed(sent(data, rules, version=version_of(vector)))
        assert [shown(record) for record in read(stored)] == expected_records(
            vector, vector["magic"], log_append_time=False
        )
