"""Schemas of values, without Spark: what columns can follow, and the line that says what not."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import Refused, WrongUse
from pipeline.reading.options import SourceOptions
from pipeline.values.avro import Avro
from pipeline.values.columns import Columns, Part
from pipeline.values.evolution import refuse_change
from pipeline.values.json_values import Json
from pipeline.values.wanted import Decoding, Values
from pipeline.values.wire_format import MARK, marked, schema_ids
from tests.pipeline.values_topics import ORDER_1, ORDER_2, RENAMED, WIDER

if TYPE_CHECKING:
    from pathlib import Path


def merged(*schemas: Any) -> Any:
    reader = None
    for number, schema in enumerate(schemas, 1):
        reader = Avro().merged(reader, [json.dumps(schema)], f"schema {number}")
    assert reader is not None
    return json.loads(reader)


def fields_of(reader: Any) -> dict[str, Any]:
    return {field["name"]: field["type"][1] for field in reader[1]["fields"]}


def test_the_merged_schema_has_all_fields_and_the_widest_types() -> None:
    fields = fields_of(merged(ORDER_1, ORDER_2, WIDER, RENAMED))
    assert list(fields) == ["id", "price", "state", "at", "lines", "buyer"]
    assert (fields["id"], fields["price"]) == ("long", "double")
    assert fields["state"]["symbols"] == ["NEW", "PAID", "SENT"]


def test_merging_again_what_was_merged_changes_nothing_in_any_order() -> None:
    reader = merged(ORDER_1, ORDER_2, WIDER, RENAMED)
    assert merged(ORDER_1, ORDER_2, WIDER, RENAMED, ORDER_2, ORDER_1, WIDER) == reader
    assert [field["name"] for field in reader[1]["fields"]][-1] == "buyer"
    assert reader[1]["fields"][-1]["aliases"] == ["customer"]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"name": "id", "type": "string"}, "schema 2 .* id: it was int and is string"),
        ({"name": "id", "type": {"type": "array", "items": "int"}}, "id: it was int and is array"),
        (
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            r"at: it was long \(timestamp-millis\) and is long \(timestamp-micros\)",
        ),
        (
            {"name": "state", "type": {"type": "enum", "name": "Other", "symbols": ["NEW"]}},
            "its type shop.State is called shop.Other now",
        ),
        ({"name": "id", "type": ["int", "string"]}, "the types of its union have changed"),
        ({"name": "more", "type": ["null", "Order"]}, "shop.Order has itself in it"),
        ({"name": "more", "type": "null"}, "it is always null"),
        ({"name": "more", "type": "Unknown"}, "is no Avro schema"),
    ],
)
def test_a_schema_that_the_columns_cannot_follow_is_refused_in_a_line(
    schema: dict[str, Any], told: str
) -> None:
    changed: dict[str, Any] = copy.deepcopy(ORDER_1)
    others = [one for one in changed["fields"] if one["name"] != schema["name"]]
    changed["fields"] = [*others, schema]
    with pytest.raises(Refused, match=told) as failure:
        merged(ORDER_1, changed)
    assert "\n" not in str(failure.value)


def test_a_schema_that_unfolds_without_end_is_refused() -> None:
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "f", "type": "int"}]}
    for level in range(1, 30):
        twice = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": twice}
    with pytest.raises(Refused, match="over 5,000 fields"):
        merged(schema)


def test_a_schema_finds_what_it_refers_to() -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
    whole = {"type": "record", "name": "Whole", "fields": [{"name": "line", "type": "Line"}]}
    reader = json.loads(
        Avro().merged(None, [json.dumps(line), json.dumps(whole)], "schema 1") or ""
    )
    assert fields_of(reader)["line"]["fields"][0]["name"] == "n"


def test_a_json_schema_becomes_columns() -> None:
    schema = {
        "type": "object",
        "required": ["id", "note"],
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
            "more": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "$defs": {"tag": {"type": "object", "properties": {"name": {"enum": ["a", "b"]}}}},
    }
    reader = Json().merged(None, [json.dumps(schema)], "the schema")
    found = {one["name"]: one["type"] for one in json.loads(reader)["fields"]}
    assert (found["id"], found["at"], found["more"]["valueType"]) == ("long", "timestamp", "double")
    assert found["tags"]["elementType"]["fields"][0]["type"] == "string"
    assert Json().required(reader) == (("id",),)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}, "a: several"),
        ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, "a: .* itself"),
        ({"type": "object", "properties": {"a": {"$ref": "other.json"}}}, "not in the document"),
        ({"type": "string"}, "of no object"),
        ({"type": "object", "properties": {"a": {}}}, "type None is no column"),
    ],
)
def test_a_json_schema_that_is_no_columns_is_refused_in_a_line(schema: Any, told: str) -> None:
    with pytest.raises(Refused, match=told):
        Json().merged(None, [json.dumps(schema)], "the schema")


@given(st.lists(st.none() | st.binary(max_size=9)), st.integers(0, 3))
def test_schema_ids_are_those_that_a_loop_finds(values: list[bytes | None], skipped: int) -> None:
    def slow(value: bytes | None) -> int | None:
        if value is None or len(value) < 5 or value[0]:
            return None
        return int.from_bytes(value[1:5], "big", signed=True)

    array = pa.array(values, pa.binary()).slice(min(skipped, len(values)))
    assert schema_ids(array).to_pylist() == [slow(value) for value in array.to_pylist()]
    assert marked(array).to_pylist() == [
        one if one is None else one + MARK for one in array.to_pylist()
    ]


@pytest.mark.parametrize("name", ["_offset", "ID"])
def test_a_field_that_is_called_like_another_column_is_refused(name: str) -> None:
    kind = pa.struct([("id", pa.int32()), (name, pa.int32())])
    with pytest.raises(Refused, match=f"a field {name}, and there is a column of that name"):
        _ = Columns({"value": Part(Avro(), kind)}).schema


def test_plain_files_follow_a_new_column_and_nothing_else() -> None:
    before = pa.schema([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.float32())])))])
    refuse_change("parquet", before, before.append(pa.field("d", pa.string())))
    for after, told in (
        (before.set(0, pa.field("a", pa.int64())), "column a was int32 and is int64"),
        (before.set(0, pa.field("x", pa.int32())), "column a is gone or renamed"),
    ):
        with pytest.raises(Refused, match=told):
            refuse_change("parquet", before, after)


def test_what_is_wanted_is_checked_before_spark_starts(tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(ORDER_1))
    source = SourceOptions(servers="127.0.0.1:1", topics=("orders",))
    Values(value=Decoding("avro", str(schema))).check(source)
    for wanted, told in (
        (Values(), "name the format"),
        (Values(value=Decoding("xml", str(schema))), "no such format: 'xml'"),
        (Values(value=Decoding("avro")), "where is the schema of the value"),
        (Values(value=Decoding("avro", f"{tmp_path}/none")), "the schema cannot be read"),
    ):
        with pytest.raises(WrongUse, match=told):
            wanted.check(source)
