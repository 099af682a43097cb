"""Produced sets with the verdict Apache Kafka 3.9 gave them, and ours where it has to differ."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from protocol.errors import KafkaError
from protocol.records import compression
from protocol.records.errors import InvalidRecord
from protocol.records.prepare import prepare
from protocol.records.validate import Validation
from tests.records.appending import (
    is_in_place,
    placed,
    rules_of,
    shown_entries,
    time_index_entry,
)
from tests.records.corpus import raw, vectors

APPENDS = vectors("append.json")
REFUSED = [vector for vector in APPENDS if vector["expect"]["error_code"]]
EMPTY = [vector for vector in APPENDS if vector["expect"].get("base_offset") == -1]
STORED = [v for v in APPENDS if v not in REFUSED and v not in EMPTY]

# Kafka fails with "unknown server error" (-1) where an exception of its own was not expected.
OURS = {
    "unknown-codec-5": (87, "codec id 5..7 (6.6)"),
    "unknown-codec-7-v2": (87, "codec id 5..7 (6.6)"),
    "payload-not-gzip": (87, "payload does not decompress (6.6)"),
    "gzip-wrong-deltas": (87, "compressed, wrong deltas (6.3)"),
    "headers-into-v1": (43, "record headers into topic magic < 2 (6.6)"),
    "transactional-into-v1": (43, "transactional into topic magic < 2 (6.6)"),
}
# Kafka walks every record always; with the lower levels these are seen when the batch is read.
SEEN_ONLY_UNDER_COMPRESSION = {"gzip-count-too-small", "gzip-wrong-deltas"}
SEEN_ONLY_IN_RECORDS = {
    "count-too-small",
    "gzip-count-too-large",
    "negative-header-key",
    *SEEN_ONLY_UNDER_COMPRESSION,
}
UNSEEN = {
    Validation.HEADER: SEEN_ONLY_IN_RECORDS,
    Validation.RECORDS: SEEN_ONLY_UNDER_COMPRESSION,
    Validation.STRICT: set(),
}
# Kafka lists every record of a batch whose type bit is not the producer's to set. The bit is the
# batch's, so we name no record.
WITHOUT_RECORD_ERRORS = {"lat-bit-on-lat-topic"}


def name(vector: dict[str, Any]) -> str:
    return str(vector["id"])


def prepared(
    vector: dict[str, Any], data: bytearray, validation: Validation = Validation.STRICT
) -> Any:
    return prepare(
        memoryview(data),
        rules_of(vector, validation=validation),
        version=vector["produce_version"],
        now_ms=vector["now_ms"],
        next_offset=vector["start_offset"],
    )


def code_of(vector: dict[str, Any]) -> int:
    code, _ = OURS.get(vector["id"], (vector["expect"]["error_code"], ""))
    return int(code)


@pytest.mark.parametrize("vector", REFUSED, ids=name)
def test_what_kafka_refuses_is_refused_with_its_code(vector: dict[str, Any]) -> None:
    data = raw(vector["input"])
    with pytest.raises(KafkaError) as refusal:
        prepared(vector, data)
    assert refusal.value.code == code_of(vector)
    expected = vector["expect"].get("record_error_indexes", [])
    if vector["id"] in WITHOUT_RECORD_ERRORS:
        expected = []
    if isinstance(refusal.value, InvalidRecord):
        assert [index for index, _ in refusal.value.record_errors] == expected
    else:
        assert not expected
    assert data == raw(vector["input"])


@pytest.mark.parametrize("validation", Validation)
@pytest.mark.parametrize("vector", REFUSED, ids=name)
def test_each_level_sees_all_but_the_faults_that_are_named_for_it(
    vector: dict[str, Any], validation: Validation
) -> None:
    data = raw(vector["input"])
    if vector["id"] in UNSEEN[validation]:
        assert is_in_place(prepared(vector, data, validation), data)
    else:
        with pytest.raises(KafkaError) as refusal:
            prepared(vector, data, validation)
        assert refusal.value.code == code_of(vector)


@pytest.mark.parametrize("vector", STORED, ids=name)
def test_what_kafka_stores_is_stored_as_kafka_does_it(vector: dict[str, Any]) -> None:
    # given
    data, expected = raw(vector["input"]), vector["expect"]
    calls = copy.deepcopy(compression.CALLS)
    # when
    made = prepared(vector, data)
    stored = placed(made, vector["start_offset"], vector["leader_epoch"])
    # then
    assert is_in_place(made, data) == expected["in_place"]
    if expected["in_place"]:
        assert compression.CALLS["compress"] == calls["compress"]
    assert vector["start_offset"] + made.record_count == expected["next_offset"]
    assert time_index_entry(made, vector["start_offset"]) == (
        expected["max_timestamp"],
        expected["shallow_offset_of_max_timestamp"],
    )
    if "stored_bytes" in expected:
        assert stored == raw(expected["stored_bytes"])
    entries = shown_entries(stored)
    if not expected["in_place"]:
        # What compression makes of the same records differs from library to library.
        for entry in (*entries, *expected["stored"]):
            if entry["codec"] != "none":
                entry["size"] = None
    assert entries == expected["stored"]


@pytest.mark.parametrize("vector", STORED, ids=name)
def test_walking_the_records_changes_nothing_but_a_wrong_max_timestamp(
    vector: dict[str, Any],
) -> None:
    found = [
        shown_entries(placed(prepared(vector, raw(vector["input"]), validation)))
        for validation in Validation
    ]
    for entry in (entry for entries in found for entry in entries):
        entry.pop("max_timestamp", None)
    assert found[1:] == found[:-1]


@pytest.mark.parametrize("vector", EMPTY, ids=name)
def test_a_set_without_a_complete_entry_stores_nothing(vector: dict[str, Any]) -> None:
    assert prepared(vector, raw(vector["input"])) is None


def test_the_tables_name_vectors_that_exist() -> None:
    assert {name(vector) for vector in REFUSED} >= {
        *OURS,
        *SEEN_ONLY_IN_RECORDS,
        *WITHOUT_RECORD_ERRORS,
    }
    assert {vector["id"] for vector in REFUSED if vector["expect"]["error_code"] == -1} == {*OURS}
    for vector in REFUSED:
        assert code_of(vector) in {
            vector["expect"]["error_code"],
            *vector["expect"].get("also_accept", ()),
        }
    assert len(EMPTY) == 2
