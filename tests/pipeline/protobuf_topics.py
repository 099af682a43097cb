"""Schemas of Protocol Buffers, their messages, and values as Confluent's serializer writes them."""

from __future__ import annotations

import base64
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles
from grpc_tools import protoc

from pipeline.values.protobuf import Protobuf
from pipeline.values.registry import Registry

if TYPE_CHECKING:
    from pipeline.values.protobuf_messages import ProtobufDecoder
    from tests.pipeline.values_topics import Reachable

ORDER_1 = """syntax = "proto3"; package shop;
message Order { int32 id = 1; string note = 2; message Refund { int32 id = 1; } }
"""
ORDER_2 = """syntax = "proto3"; package shop;
message Order { int64 id = 1; string customer = 3; }
"""
LINE = 'syntax = "proto3"; package shop; message Line { string article = 1; }'
WHOLE = 'syntax = "proto3"; import "shop/line.proto"; message Whole { shop.Line line = 1; }'
EVERYTHING = """syntax = "proto3"; package shop;
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum State { NEW = 0; PAID = 1; }
message Everything {
  int32 i32 = 1; uint32 u32 = 2; int64 i64 = 3; uint64 u64 = 4; sint32 s32 = 5; fixed64 f64 = 6;
  double d = 7; float f = 8; bool b = 9; string text = 10; bytes data = 11; State state = 12;
  repeated int32 numbers = 13; repeated State states = 14; repeated Line lines = 15;
  map<string, double> prices = 16; map<int32, Line> by_number = 17; Line line = 18;
  google.protobuf.Timestamp at = 19; google.protobuf.Int64Value wrapped = 20;
  google.protobuf.Struct json = 21; google.protobuf.Empty nothing = 22; optional int32 maybe = 23;
  oneof paid { string card = 24; int32 cash = 25; }
  google.protobuf.Duration took = 26;
}
message Line { string article = 1; optional int32 count = 2; }
"""


@cache
def descriptors(schema: str) -> bytes:
    """A schema as protoc makes it."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "order.proto").write_text(schema)
        made = Path(place, "made")
        known = Path(protoc.__file__).parent / "_proto"
        arguments = ["protoc", f"-I{place}", f"-I{known}", "--include_imports"]
        assert protoc.main([*arguments, f"--descriptor_set_out={made}", "order.proto"]) == 0
        return made.read_bytes()


def text(schema: str) -> str:
    """As formats keep it."""
    return base64.b64encode(descriptors(schema)).decode()


@cache
def classes(schema: str) -> dict[str, Any]:
    """The classes of a schema's messages, by their full names; nested ones too."""
    files = FileDescriptorSet.FromString(descriptors(schema)).file
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    found = dict(GetMessageClassesForFiles([files[-1].name], pool))
    for one in list(found.values()):
        for nested in one.DESCRIPTOR.nested_types:
            if not nested.GetOptions().map_entry:
                found[nested.full_name] = getattr(one, nested.name)
    return found


def serialize(registry: Reachable, topic: str, message: Any) -> bytes:
    """By Confluent's own serializer, which registers the schema."""
    client = SchemaRegistryClient({"url": registry.url, "timeout": 30, "max.retries": 3})
    serializer = ProtobufSerializer(type(message), client, {"use.deprecated.format": False})
    data = serializer(message, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(data, bytes)
    return data


def decoder(registry: Reachable, ids: list[int], message: str | None = None) -> ProtobufDecoder:
    """As a job makes it of what the registry has by these ids."""
    format_ = Protobuf(message)
    reader: str | None = None
    writers = {}
    for id_ in ids:
        found = Registry(registry.url, {}).schema(id_)
        assert found is not None
        writers[id_] = format_.texts_of(found, f"schema {id_}")
        reader = format_.merged(reader, writers[id_], f"schema {id_}")
    assert reader is not None
    return format_.decoder(writers, reader, header=True)
