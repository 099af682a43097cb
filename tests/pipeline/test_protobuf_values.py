"""Protobuf as columns, without Spark: bytes of Confluent's serializer, and of Google's package."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pipeline.errors import Refused, WrongUse
from pipeline.values.protobuf import Protobuf, arrow_type
from pipeline.values.wire_format import schema_ids
from tests.pipeline import protobuf_topics as topics
from tests.pipeline.protobuf_topics import decoder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.values.protobuf_messages import ProtobufDecoder
    from tests.support.schema_registry import SchemaRegistry

pytest.importorskip("pyspark", reason="types of columns are Spark's")

COLUMNS = {
    "i32": -1,
    "u32": 2**32 - 1,
    "i64": -(2**63),
    "u64": Decimal(2**64 - 1),
    "s32": -5,
    "f64": Decimal(2**63),
    "d": 0.5,
    "f": 0.25,
    "b": True,
    "text": "ä",
    "data": b"\xff",
    "state": "PAID",
    "numbers": [1, 2],
    "states": ["NEW", "7"],
    "lines": [{"article": "a", "count": None}],
    "prices": [("x", 1.5)],
    "by_number": [(7, {"article": "m", "count": None})],
    "line": {"article": "", "count": 3},
    "at": datetime.datetime(1970, 1, 1, 0, 0, 1, 2, tzinfo=datetime.UTC),
    "wrapped": 0,
    "json": '{"k": 1.0}',
    "nothing": True,
    "maybe": 0,
    "card": None,
    "cash": None,
    "took": {"seconds": 2, "nanos": 0},
}
"""Of a message with everything in it."""


def _decoded(made: ProtobufDecoder, values: Sequence[bytes | None]) -> list[Any]:
    array = pa.array(values, pa.binary())
    return list(made.decode(array, schema_ids(array)).to_pylist())


def _text(path: Path) -> str:
    return Protobuf().text_of(path, path.read_bytes())


def test_every_kind_of_field_becomes_a_column(registry: SchemaRegistry) -> None:
    made = topics.classes(topics.EVERYTHING)["shop.Everything"]
    value = made(
        i32=-1,
        u32=2**32 - 1,
        i64=-(2**63),
        u64=2**64 - 1,
        s32=-5,
        f64=2**63,
        d=0.5,
        f=0.25,
        b=True,
        text="ä",
        data=b"\xff",
        state=1,
        numbers=[1, 2],
        states=[0, 7],
        lines=[{"article": "a"}],
        prices={"x": 1.5},
        by_number={7: {"article": "m"}},
        line={"count": 3},
        at={"seconds": 1, "nanos": 2000},
        wrapped={"value": 0},
        json={"k": 1},
        nothing={},
        maybe=0,
        took={"seconds": 2},
    )
    data = topics.serialize(registry, "everything", value)
    nothing = topics.serialize(registry, "everything", made())
    id_ = int.from_bytes(data[1:5], "big")
    found, empty = _decoded(decoder(registry, [id_]), [data, nothing])
    assert found == COLUMNS
    assert empty["i32"] == 0
    assert (empty["numbers"], empty["prices"]) == ([], [])
    absent = ("line", "at", "wrapped", "json", "nothing", "maybe", "card", "cash", "took")
    assert [empty[name] for name in absent] == [None] * len(absent)


def test_messages_of_two_schemas_are_read_each_by_its_own(registry: SchemaRegistry) -> None:
    old, new = topics.classes(topics.ORDER_1), topics.classes(topics.ORDER_2)
    values = [
        topics.serialize(registry, "two", old["shop.Order"](id=1, note="a")),
        topics.serialize(registry, "two", new["shop.Order"](id=2**40, customer="c")),
        None,
        b"no header",
        topics.serialize(registry, "two", old["shop.Order"](id=3, note="b")),
    ]
    ids = [int.from_bytes((values[n] or b"")[1:5], "big") for n in (0, 1)]
    decoded = _decoded(decoder(registry, ids), values)
    assert decoded == [
        {"id": 1, "note": "a", "customer": None},
        {"id": 2**40, "note": None, "customer": "c"},
        None,
        None,
        {"id": 3, "note": "b", "customer": None},
    ]


def test_what_is_no_such_message_is_null_and_has_a_reason(registry: SchemaRegistry) -> None:
    made = topics.classes(topics.ORDER_1)
    good = topics.serialize(registry, "bad", made["shop.Order"](id=1, note="text"))
    refund = topics.serialize(registry, "bad", made["shop.Order.Refund"](id=1))
    id_ = int.from_bytes(good[1:5], "big")
    made_of = decoder(registry, [id_])
    bad = {
        good[:-1]: f"cannot be decoded as PROTOBUF by schema {id_}",
        good[:-1] + b"\xff": f"cannot be decoded as PROTOBUF by schema {id_}",
        good[:5]: f"is no message by schema {id_}",
        good[:5] + b"\x02\x0c" + good[6:]: f"is no message by schema {id_}",
        good[:5] + b"\xff" * 9: f"is no message by schema {id_}",
        refund: f"is a shop.Order.Refund by schema {id_}, and columns are made of shop.Order",
    }
    assert _decoded(made_of, [good, *bad]) == [
        {"id": 1, "note": "text"},
        *[None] * len(bad),
    ]
    for value, reason in bad.items():
        assert made_of.reason(value, id_).startswith(reason)
    assert _decoded(decoder(registry, [id_], "shop.Order.Refund"), [refund]) == [{"id": 1}]


def test_a_time_that_no_column_can_have_spoils_its_record_alone(registry: SchemaRegistry) -> None:
    made = topics.classes(topics.EVERYTHING)["shop.Everything"]
    values = [
        topics.serialize(registry, "times", made(i32=n, at={"seconds": seconds}))
        for n, seconds in enumerate((1, 2**62, 3))
    ]
    made_of = decoder(registry, [int.from_bytes(values[0][1:5], "big")])
    assert [one and one["i32"] for one in _decoded(made_of, values)] == [0, None, 2]


def test_what_a_message_must_have_is_asked_for(tmp_path: Path) -> None:
    schema = tmp_path / "old.proto"
    schema.write_text('syntax = "proto2"; message Old { required int32 id = 1; }')
    format_ = Protobuf()
    text = _text(schema)
    reader = format_.merged(None, [text], "the schema")
    made = format_.decoder({0: (text,)}, reader, header=False)
    zeros = pa.array([0, 0], pa.int32())
    assert made.decode(pa.array([b"\x08\x07", b""]), zeros).to_pylist() == [{"id": 7}, None]
    assert made.reason(b"", 0) == "has no id, which the schema requires"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("message Node { Node next = 1; }", "next: Node has itself in it"),
        ("message Nothing {}", "Nothing has no fields"),
        ("enum E { A = 0; }", "has no message; those of its file: none"),
        ("message M { nothing n = 1; }", "is no schema of Protocol Buffers: .*not defined"),
        ('import "none.proto"; message M {}', "is no schema of Protocol Buffers: none.proto"),
    ],
)
def test_a_proto_that_is_no_columns_is_refused_in_a_line(
    tmp_path: Path, content: str, told: str
) -> None:
    schema = tmp_path / "bad.proto"
    schema.write_text(f'syntax = "proto3"; {content}')
    with pytest.raises(Refused, match=told) as failure:
        Protobuf().merged(None, [_text(schema)], "the schema")
    assert "\n" not in str(failure.value)


def test_a_file_is_descriptors_or_a_proto_and_has_the_message(tmp_path: Path) -> None:
    wrong = tmp_path / "schema.desc"
    wrong.write_bytes(b"\xffnothing")
    with pytest.raises(WrongUse, match="is neither descriptors"):
        _text(wrong)
    wrong.write_bytes(topics.descriptors(topics.ORDER_1))
    reader = Protobuf("shop.Order.Refund").merged(None, [_text(wrong)], "the schema")
    assert arrow_type(reader) == pa.struct([("id", pa.int32())])
    with pytest.raises(Refused, match=r"no message shop\.Nothing; those of its file: shop\.Order"):
        Protobuf("shop.Nothing").merged(None, [_text(wrong)], "it")


def test_a_change_that_columns_cannot_follow_is_refused_in_a_line() -> None:
    format_ = Protobuf()
    reader = format_.merged(None, [topics.text(topics.ORDER_1)], "schema 1")
    changed = topics.text(topics.ORDER_1.replace("string note", "bool note"))
    with pytest.raises(Refused, match=r"schema 2 .*: note: it was string and is boolean"):
        format_.merged(reader, [changed], "schema 2")


def test_a_schema_of_a_registry_may_be_a_proto_that_imports_others(
    registry: SchemaRegistry,
) -> None:
    registry.register("line", topics.LINE, schemaType="PROTOBUF")
    refers = [{"name": "shop/line.proto", "subject": "line", "version": 1}]
    id_ = registry.register("whole", topics.WHOLE, schemaType="PROTOBUF", references=refers)
    value = b"\0" + id_.to_bytes(4, "big") + b"\0" + b"\x0a\x03\x0a\x01a"
    assert _decoded(decoder(registry, [id_]), [value]) == [{"line": {"article": "a"}}]
