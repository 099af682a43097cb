"""Values as columns: decoded by Spark, compared with what fastavro makes of the same bytes."""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from pipeline.errors import Refused, Undecodable
from pipeline.jobs.archive import Archive
from pipeline.jobs.replay import replay
from pipeline.session import session
from pipeline.tables.table import Catalog
from pipeline.values.wanted import Decoding, Values
from protocol.records.builder import build_batch
from tests.pipeline import protobuf_topics as messages
from tests.pipeline import values_topics as topics
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.outcome import Outcome
    from tests.support.broker_process import BrokerProcess
    from tests.support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.usefixtures("with_pandas")
names = (f"values-{number}" for number in itertools.count())


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = next(names)
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic(name, 1)
    return name


def test_each_record_is_decoded_by_the_schema_that_wrote_it_and_the_rest_are_dead_letters(
    broker: BrokerProcess, registry: SchemaRegistry, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    good = [
        topics.serialize(registry, topic, topics.ORDER_1, topics.order(n)) for n in range(8)
    ] + [
        topics.serialize(registry, topic, topics.ORDER_2, topics.order(n, customer=f"c {n}"))
        for n in range(8, 16)
    ]
    bad = [
        b"",
        b"no header",
        b"\0" + struct.pack(">i", 999) + good[0][5:],
        good[3][:-1],
        good[3] + b"\0",
        b"\0\0\0\0\1",
        good[0][:5] + b"\xff" * 20,
    ]
    mixed = [
        value for pair in itertools.zip_longest(good, bad) for value in pair if value is not None
    ]
    topics.produce(broker, topic, *mixed, None)
    archive = topics.archive_of(broker, registry, topic, tmp_path / "lake")
    outcome = _run(archive)
    assert outcome.records == len(mixed) + 1
    assert outcome.details["dead letters"] == len(bad)
    rows = topics.rows(tmp_path / "lake")
    for row, offset in zip(rows[:-1], (mixed.index(one) for one in good), strict=True):
        expected = topics.decoded(registry, mixed[offset])
        assert row["_offset"] == offset
        assert row["_key"] == b"key %d" % offset
        assert row["_headers"] == [{"key": "n", "value": b"%d" % offset}]
        assert {name: row[name] for name in expected} == expected
        assert row["customer"] == expected.get("customer")
    assert rows[-1]["_tombstone"]
    assert rows[-1]["id"] is None
    dead = topics.rows(tmp_path / "lake-dead")
    assert [row["value"] for row in dead] == bad
    assert [row["reason"] for row in dead] == [
        "the value does not begin with a zero and a schema id",
        "the value does not begin with a zero and a schema id",
        "the value has schema id 999, which the registry has not got",
        *["the value cannot be decoded as AVRO by schema 1"] * 4,
    ]
    assert registry.requests.count("GET /schemas/ids/999") == 1


@pytest.mark.long
def test_dead_letters_go_back_to_a_topic_as_they_were(
    broker: BrokerProcess, registry: SchemaRegistry, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    topics.produce(broker, topic, b"one", b"two")
    topics.archive_of(broker, registry, topic, tmp_path / "lake").run(spark)
    again = f"{topic}.again"
    with Caller(broker.host, broker.port) as caller:
        caller.create_topic(again, 1)
        outcome = replay(
            f"{tmp_path}/lake-dead",
            broker.bootstrap,
            rename="{topic}.again",
            on_gap="skip",
            spark=spark,
        )
        assert outcome.records == 2
        assert caller.values(again) == [b"one", b"two"]


@pytest.mark.long
def test_without_a_place_for_dead_letters_the_first_one_ends_the_run_and_nothing_is_published(
    broker: BrokerProcess, registry: SchemaRegistry, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    good = topics.serialize(registry, topic, topics.ORDER_1, topics.order(1))
    topics.produce(broker, topic, good, b"bad", b"worse")
    archive = topics.archive_of(
        broker, registry, topic, tmp_path / "lake", values={"dead_letters": None}
    )
    with (
        pytest.raises(Undecodable, match=rf"{topic}-0, offset 1: the value does not begin"),
    ):
        _run(archive)
    assert not list((tmp_path / "lake").glob("*.parquet"))


@pytest.mark.long
def test_json_becomes_columns_by_ddl_and_by_a_json_schema_and_keys_too(
    broker: BrokerProcess, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "clicks.ddl").write_text("id BIGINT NOT NULL, tags ARRAY<STRING>, at TIMESTAMP")
    schema = {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "at": {"type": "string", "format": "date-time"},
        },
    }
    (tmp_path / "clicks.json").write_text(json.dumps(schema))
    (tmp_path / "key.ddl").write_text("user STRING")
    with Caller(broker.host, broker.port) as caller:
        pairs: list[tuple[bytes | None, bytes | None]] = [
            (b'{"user":"a"}', b'{"id":1,"tags":["x","y"],"at":"2026-11-25T10:00:00Z","more":0}'),
            (None, b'{"id":2}'),
            (b'{"user":"b"}', b'{"tags":[]}'),
            (b'{"user":"b"}', b'{"id":"no number"}'),
            (b'{"user":"b"}', b"\xff\xfe"),
            (b"no JSON", b'{"id":3}'),
            (b'{"user":"c"}', None),
        ]
        caller.produce(topic, build_batch([(NOW_MS, *pair, ()) for pair in pairs]))
    for name in ("clicks.ddl", "clicks.json"):
        folder = tmp_path / f"lake-{name}"
        values = Values(
            Decoding("json", str(tmp_path / name)),
            Decoding("json", str(tmp_path / "key.ddl")),
            dead_letters=f"{folder}-dead",
        )
        archive = Archive(str(folder), servers=broker.bootstrap, topics=(topic,), values=values)
        outcome = _run(archive)
        assert (outcome.records, outcome.details["dead letters"]) == (7, 4)
        rows = topics.rows(folder)
        assert [(row["_offset"], row["_key"], row["id"], row["tags"]) for row in rows] == [
            (0, {"user": "a"}, 1, ["x", "y"]),
            (1, None, 2, None),
            (6, {"user": "c"}, None, None),
        ]
        assert rows[0]["at"].isoformat() == "2026-11-25T10:00:00+00:00"
        assert [row["_tombstone"] for row in rows] == [False, False, True]
        assert [row["_headers"] for row in rows] == [None, None, None]
        dead = topics.rows(tmp_path / f"lake-{name}-dead")
        assert [row["offset"] for row in dead] == [2, 3, 4, 5]
        assert all(row["reason"] for row in dead)


@pytest.mark.long
def test_protobuf_becomes_columns_of_two_schemas_in_a_batch_and_the_table_grows(
    broker: BrokerProcess, registry: SchemaRegistry, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    old, new = messages.classes(messages.ORDER_1), messages.classes(messages.ORDER_2)
    first = [
        messages.serialize(registry, topic, old["shop.Order"](id=1, note="a")),
        messages.serialize(registry, topic, old["shop.Order.Refund"](id=1)),
    ]
    values = Values(
        Decoding("protobuf"), registry=registry.url, dead_letters=f"{tmp_path}/lake-dead"
    )
    folder = tmp_path / "lake"
    archive = Archive(str(folder), servers=broker.bootstrap, topics=(topic,), values=values)
    topics.produce(broker, topic, *first, None, b"no header")
    outcome = _run(archive)
    assert (outcome.records, outcome.details["dead letters"]) == (4, 2)
    wider = messages.serialize(registry, topic, new["shop.Order"](id=2, customer="c"))
    topics.produce(broker, topic, wider, first[0])
    with pytest.raises(Refused, match="parquet files cannot follow: column id was int32"):
        _run(archive)
    both = replace(archive, to=f"{tmp_path}/both", values=replace(values, dead_letters=None))
    with pytest.raises(Undecodable, match=r"offset 1: the value is a shop\.Order\.Refund"):
        _run(both)
    both = replace(both, values=replace(values, dead_letters=f"{tmp_path}/both-dead"))
    assert _run(both).details["dead letters"] == 2
    rows = topics.rows(tmp_path / "both")
    assert [(row["id"], row["note"], row["customer"]) for row in rows] == [
        (1, "a", None),
        (None, None, None),
        (2, None, "c"),
        (1, "a", None),
    ]
    dead = topics.rows(tmp_path / "both-dead")
    assert [row["value"] for row in dead] == [first[1], b"no header"]
    assert dead[1]["reason"] == "the value does not begin with a zero and a schema id"


@pytest.mark.long
def test_columns_are_added_by_every_table_and_changed_by_iceberg_alone(
    broker: BrokerProcess, registry: SchemaRegistry, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    catalog = Catalog(
        "shop.orders", "c", {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    )
    archives = {
        kind: topics.archive_of(
            broker,
            registry,
            topic,
            tmp_path / kind,
            table=kind,
            catalog=catalog if kind == "iceberg" else None,
            partition_by="date" if kind == "delta" else None,
        )
        for kind in ("parquet", "delta", "iceberg")
    }
    sent: list[dict[str, Any]] = []
    written: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (topics.ORDER_1, {}),
        (topics.ORDER_2, {"customer": "c 1"}),
        (topics.WIDER, {"customer": "c 2", "id": 2**40}),
        (topics.RENAMED, {"buyer": "c 3"}),
    ]
    for number, (schema, more) in enumerate(written):
        value = {**topics.order(number), **more}
        sent.append({**value, "buyer": value.pop("customer", value.get("buyer"))})
        topics.produce(
            broker,
            topic,
            topics.serialize(registry, topic, schema, {**topics.order(number), **more}),
        )
        for kind, archive in archives.items():
            if number >= 2 and kind != "iceberg":
                with pytest.raises(Refused, match=f"{kind} files cannot follow: column id was"):
                    _run(archive)
            else:
                assert _run(archive).records == 1
    found = {
        "parquet": topics.rows(tmp_path / "parquet"),
        "delta": pa.table(DeltaTable(tmp_path / "delta").scan()).to_pylist(),
        "iceberg": load_catalog("c", **catalog.options).load_table("shop.orders").scan().to_arrow(),
    }
    for kind in ("parquet", "delta"):
        rows = sorted(found[kind], key=lambda row: int(row["_offset"]))
        assert [row.get("customer") for row in rows] == [None, "c 1"]
        assert [row["id"] for row in rows] == [0, 1]
    rows = sorted(found["iceberg"].to_pylist(), key=lambda row: int(row["_offset"]))
    for row, value in zip(rows, sent, strict=True):
        assert {name: row[name] for name in ("id", "price", "buyer")} == {
            name: value[name] for name in ("id", "price", "buyer")
        }


def _run(archive: Archive) -> Outcome:
    archive.check()
    with session() as active:
        return archive.run(active)
