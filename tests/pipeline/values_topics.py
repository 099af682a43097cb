"""Topics with values in Confluent's wire format, and runs of the archive that makes columns."""

from __future__ import annotations

import io
import json
import struct
from typing import TYPE_CHECKING, Any, Protocol

import fastavro
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pipeline.jobs.archive import Archive
from pipeline.values.wanted import Decoding, Values

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess
    from tests.support.schema_registry import SchemaRegistry

ORDER_1 = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "price", "type": "float"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "article", "type": "string"},
                        {"name": "count", "type": ["null", "int"], "default": None},
                    ],
                },
            },
        },
    ],
}
ORDER_2 = json.loads(json.dumps(ORDER_1))
ORDER_2["fields"].append({"name": "customer", "type": ["null", "string"], "default": None})
ORDER_2["fields"][2]["type"]["symbols"].append("SENT")
WIDER = json.loads(json.dumps(ORDER_2))
WIDER["fields"][0]["type"] = "long"
WIDER["fields"][1]["type"] = "double"
RENAMED = json.loads(json.dumps(WIDER))
RENAMED["fields"][5] = {
    "name": "buyer",
    "aliases": ["customer"],
    "type": ["null", "string"],
    "default": None,
}


class Reachable(Protocol):
    """A registry, ours or a released one."""

    @property
    def url(self) -> str: ...


def order(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "price": number / 2,
        "state": ("NEW", "PAID")[number % 2],
        "at": 1_764_000_000_000 + number,
        "lines": [{"article": f"article {n}", "count": n or None} for n in range(number % 4)],
        **more,
    }


def serialize(
    registry: Reachable, topic: str, schema: dict[str, Any], value: dict[str, Any]
) -> bytes:
    """By Confluent's own serializer, which registers the schema."""
    # Without a time-out it would wait for ever.
    client = SchemaRegistryClient({"url": registry.url, "timeout": 30, "max.retries": 3})
    serializer = AvroSerializer(client, json.dumps(schema))
    data = serializer(value, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(data, bytes)
    return data


def produce(broker: BrokerProcess, topic: str, *values: bytes | None) -> None:
    """To partition 0, in this order, each with a key and a header."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    for number, value in enumerate(values):
        producer.produce(
            topic, value, b"key %d" % number, partition=0, headers={"n": b"%d" % number}
        )
    assert producer.flush(30) == 0


def decoded(registry: SchemaRegistry, data: bytes) -> dict[str, Any]:
    """What fastavro makes of a value, by the schema that wrote it."""
    _, id_ = struct.unpack_from(">bI", data)
    schema = fastavro.parse_schema(json.loads(registry.schemas[id_]["schema"]))
    value = fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)
    assert isinstance(value, dict)
    return value


def archive_of(
    broker: BrokerProcess, registry: Reachable, topic: str, folder: Path, **more: Any
) -> Archive:
    """Of Avro values, with dead letters beside the folder."""
    given = {"registry": registry.url, "dead_letters": f"{folder}-dead", "value": Decoding("avro")}
    values = Values(**{**given, **more.pop("values", {})})
    return Archive(str(folder), servers=broker.bootstrap, topics=(topic,), values=values, **more)


def rows(folder: Path) -> list[dict[str, Any]]:
    """Of all files, by offset; fields that a file has not are left out."""
    found: list[dict[str, Any]] = []
    for file in sorted(folder.rglob("*.parquet")):
        found += pq.read_table(file).to_pylist()
    return sorted(found, key=lambda row: int(row.get("_offset", row.get("offset", 0))))
