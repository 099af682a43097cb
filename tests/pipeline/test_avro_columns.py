"""Avro decoded a field of all values at once, against fastavro, which decodes them one by one."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.values.avro import Avro
from pipeline.values.avro_columns import AvroDecoder, type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

Value = dict[str, Any]


def record(name: str, **types: Any) -> Value:
    fields = [{"name": field, "type": type_} for field, type_ in types.items()]
    return {"type": "record", "name": name, "fields": fields}


STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}
FIRST = record(
    "Order",
    id="int",
    customer="string",
    note=["null", "string"],
    size=["long", "null"],
    weight="float",
    price=["null", "double"],
    state=STATE,
    token={"type": "fixed", "name": "Token", "size": 4},
    content="bytes",
    paid="boolean",
    at={"type": "long", "logicalType": "timestamp-millis"},
    seen=["null", {"type": "long", "logicalType": "timestamp-micros"}],
    day={"type": "int", "logicalType": "date"},
    place=["null", record("Place", city={"type": "string"}, floor=["null", "int"])],
)
SECOND = json.loads(json.dumps(FIRST))
SECOND["fields"][0]["type"] = "long"
SECOND["fields"][1] = {"name": "buyer", "aliases": ["customer"], "type": "string"}
SECOND["fields"][4]["type"] = "double"
SECOND["fields"][6]["type"]["symbols"].append("SENT")
del SECOND["fields"][2]
SECOND["fields"].append({"name": "colour", "type": ["null", "string"], "default": None})

INT, LONG = (st.integers(-(2**bits), 2**bits - 1) for bits in (31, 63))
TEXT = st.text(max_size=300)
MOMENTS = st.integers(-62_135_596_800_000_000, 253_370_764_800_000_000).map(
    lambda micros: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
)
"""Of the years 1 to 9999, which Python has."""
ORDER = {
    "id": INT,
    "customer": TEXT,
    "note": st.none() | TEXT,
    "size": st.none() | LONG,
    "weight": st.floats(width=32, allow_nan=False),
    "price": st.none() | st.floats(allow_nan=False),
    "state": st.sampled_from(["NEW", "PAID"]),
    "token": st.binary(min_size=4, max_size=4),
    "content": st.binary(max_size=300),
    "paid": st.booleans(),
    "at": MOMENTS.map(lambda one: one - timedelta(microseconds=one.microsecond % 1000)),
    "seen": st.none() | MOMENTS,
    "day": MOMENTS.map(datetime.date),
    "place": st.none() | st.fixed_dictionaries({"city": TEXT, "floor": st.none() | INT}),
}
ORDERS = st.fixed_dictionaries(ORDER)
LATER_ORDERS = st.fixed_dictionaries(
    {
        **{name: values for name, values in ORDER.items() if name not in ("customer", "note")},
        "id": LONG,
        "buyer": TEXT,
        "weight": st.floats(allow_nan=False),
        "state": st.sampled_from(["NEW", "PAID", "SENT"]),
        "colour": st.none() | TEXT,
    }
)


def order(number: int) -> Value:
    return {
        "id": number,
        "customer": f"customer {number}",
        "note": None if number % 2 else "left",
        "size": number << 40 if number % 3 else None,
        "weight": number / 4,
        "price": number / 8 if number % 4 else None,
        "state": "PAID",
        "token": b"abcd",
        "content": b"\xff" * number,
        "paid": bool(number % 2),
        "at": datetime(2026, 11, 26, 10, number, tzinfo=UTC),
        "seen": datetime(2026, 11, 26, 10, 0, 0, number, tzinfo=UTC) if number % 2 else None,
        "day": datetime(2026, 11, 1 + number, tzinfo=UTC).date(),
        "place": {"city": "Bern", "floor": number or None} if number % 5 else None,
    }


def encoded(schema: Value, value: Value, id_: int | None = None) -> bytes:
    out = io.BytesIO(b"" if id_ is None else b"\0" + id_.to_bytes(4, "big"))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoder_of(*schemas: Value, header: bool = False) -> AvroDecoder:
    """Of schemas with the ids 1, 2, and so on, or of one that has none."""
    first = 1 if header else 0
    writers = {id_: [json.dumps(one)] for id_, one in enumerate(schemas, first)}
    reader = None
    for texts in writers.values():
        reader = Avro().merged(reader, texts, "the schema")
    assert reader is not None
    made = Avro().decoder(writers, reader, header=header)
    assert made is not None
    return made


def decoded(decoder: AvroDecoder, values: Sequence[bytes | None]) -> list[Any]:
    ids = [
        None if one is None else int.from_bytes(one[1:5], "big") if decoder.header else 0
        for one in values
    ]
    # Arrays in tasks are slices of larger ones.
    array = pa.array([b"before", *values, b"behind"], pa.binary()).slice(1, len(values))
    found = decoder.decode(array, pa.array(ids, pa.int32()))
    found.validate(full=True)
    assert found.type == decoder.type
    return list(found.to_pylist())


@given(st.lists(ORDERS, min_size=1, max_size=8))
def test_values_come_out_as_they_went_in(orders: list[Value]) -> None:
    assert decoded(decoder_of(FIRST), [encoded(FIRST, one) for one in orders]) == orders


@given(st.lists(st.tuples(ORDERS, LATER_ORDERS), min_size=1, max_size=4))
def test_each_value_is_read_by_the_schema_that_wrote_it_into_the_columns_of_all(
    orders: list[tuple[Value, Value]],
) -> None:
    decoder = decoder_of(FIRST, SECOND, header=True)
    values: list[bytes | None] = []
    expected: list[Any] = []
    for first, second in orders:
        values += [encoded(SECOND, second, 2), None, encoded(FIRST, first, 1)]
        customer = first.pop("customer")
        expected += [{**second, "note": None}, None, {**first, "buyer": customer, "colour": None}]
    assert decoded(decoder, values) == expected


@given(ORDERS, st.data())
def test_what_is_cut_or_goes_on_is_no_value_and_its_neighbours_are(
    order: Value, data: st.DataObject
) -> None:
    whole = encoded(FIRST, order)
    cut = data.draw(st.integers(0, len(whole) - 1))
    more = data.draw(st.binary(min_size=1, max_size=40))
    found = decoded(decoder_of(FIRST), [whole, whole[:cut], whole, whole + more, whole])
    assert found == [order, None, order, None, order]


def test_what_is_taken_for_a_value_is_one_by_fastavro_too() -> None:
    rng = random.Random(11)
    whole = encoded(FIRST, order(7))
    values = []
    for _ in range(4000):
        changed = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        values.append(bytes(changed))
    schema = fastavro.parse_schema(_plain(FIRST))
    found = decoded(decoder_of(_plain(FIRST)), values)
    assert 400 < found.count(None) < 3600
    for value, one in zip(values, found, strict=True):
        if one is not None:
            read = io.BytesIO(value)
            expected = fastavro.schemaless_reader(read, schema, None)
            assert read.tell() == len(value)
            assert repr(one) == repr(expected)  # NaN is no NaN


def _plain(schema: Value) -> Value:
    """Without logical types: fastavro has no dates after the year 9999."""
    plain: Value = json.loads(json.dumps(schema))
    for field in plain["fields"]:
        of = field["type"][1] if isinstance(field["type"], list) else field["type"]
        if isinstance(of, dict):
            of.pop("logicalType", None)
    return plain


@pytest.mark.parametrize(
    "claim", [(1 << 40) - 1, (1 << 63) - 1, -1, -(1 << 63)], ids=["tera", "most", "less", "least"]
)
def test_a_text_that_claims_any_length_is_no_value(claim: int) -> None:
    text = record("Text", text="string")
    length = encoded(record("Length", length="long"), {"length": claim})
    values = [encoded(text, {"text": "a"}), length + b"a", b"", encoded(text, {"text": "b"})]
    assert decoded(decoder_of(text), values) == [{"text": "a"}, None, None, {"text": "b"}]


def test_bytes_that_are_no_text_and_times_that_no_column_has_are_no_values() -> None:
    text = record("Text", text="string")
    assert decoded(decoder_of(text), [b"\x02\xff", b"\x02a"]) == [None, {"text": "a"}]
    moment = record("Moment", at={"type": "long", "logicalType": "timestamp-millis"})
    number = record("Moment", at="long")
    values = [encoded(number, {"at": at}) for at in (2**63 - 1, 0, -(2**63))]
    epoch = {"at": datetime(1970, 1, 1, tzinfo=UTC)}
    assert decoded(decoder_of(moment), values) == [None, epoch, None]


@pytest.mark.parametrize(
    "type_",
    [
        {"type": "array", "items": "int"},
        {"type": "map", "values": "int"},
        ["null", "int", "string"],
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        {"type": "int", "logicalType": "time-millis"},
        "Other",
        "enum",
        record("Empty"),
    ],
    ids=str,
)
def test_what_is_not_decoded_here_has_no_type(type_: Any) -> None:
    assert type_of(record("Whole", before="int", it=type_)) is None


@pytest.mark.parametrize("whole", ["int", ["null", record("Order", id="int")], ["int", "string"]])
def test_a_value_that_is_no_record_or_may_be_null_is_left_to_spark(whole: Any) -> None:
    texts = [json.dumps(whole)]
    reader = Avro().merged(None, texts, "the schema")
    assert Avro().decoder({1: texts}, reader, header=True) is None


@pytest.mark.long
@pytest.mark.usefixtures("with_pandas")
def test_spark_makes_the_same_columns_of_the_same_values(spark: SparkSession) -> None:
    from pyspark.sql.functions import lit
    from pyspark.sql.pandas.types import to_arrow_schema

    from pipeline.values.wire_format import MARK

    reader = Avro().merged(None, [json.dumps(FIRST)], "the schema")
    decoder = decoder_of(FIRST)
    orders = [order(number) for number in range(12)]
    values = [encoded(FIRST, one) for one in orders]
    rows = spark.createDataFrame([(bytearray(one + MARK),) for one in values], "payload binary")
    writers = {0: [json.dumps(FIRST)]}
    column = Avro().column(rows["payload"], lit(0), writers, reader, header=False)
    by_spark = rows.select(column.alias("it")).select("it.value")
    assert to_arrow_schema(by_spark.schema, timezone="UTC").field("value").type == decoder.type
    assert by_spark.toArrow()["value"].to_pylist() == decoded(decoder, values) == orders
