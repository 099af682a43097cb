"""The columns of an archive of values: Kafka's, with an underscore before them, and the value's.

_topic, _partition, _offset, _timestamp, _timestamp_type, _headers
_tombstone    whether the value is null, and its columns with it
_key          the bytes; decoded, what its schema says
...           a column for each field of the value; of one that has none, `value`
_value        in their place, where only keys are decoded: the bytes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import Refused
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.values.protobuf import Protobuf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.values.avro import Avro
    from pipeline.values.avro_columns import AvroDecoder
    from pipeline.values.json_values import Json
    from pipeline.values.payload import Payload
    from pipeline.values.protobuf_messages import ProtobufDecoder

    Format = Avro | Json | Protobuf

KAFKA = pa.schema(
    [
        pa.field("_topic", pa.string(), nullable=False),
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_timestamp", RECORDS_AND_HEADERS.field("timestamp").type),
        pa.field("_timestamp_type", pa.int32(), nullable=False),
        pa.field("_headers", RECORDS_AND_HEADERS.field("headers").type),
    ]
)
TOMBSTONE = pa.field("_tombstone", pa.bool_(), nullable=False)
WHOLE = "value"
"""The column of a value that is no structure."""
DECODED = "_decoded"


@dataclass(frozen=True)
class Part:
    """One of key and value that is decoded."""

    format: Format
    type: pa.DataType | None
    """What its columns come from; None as long as no schema has been met."""
    required: tuple[tuple[str, ...], ...] = ()
    """Fields that may not be null in it."""
    decoder: AvroDecoder | ProtobufDecoder | None = None
    """What decodes it in the task, where Spark does not."""


@dataclass(frozen=True)
class Columns:
    """The columns, and how they are made of what has been decoded. Picklable."""

    parts: Mapping[str, Part]
    """By `key` and `value`."""

    @property
    def schema(self) -> pa.Schema:
        """Raises Refused for a value with two fields of one name, or one of Kafka's."""
        key, value = self.parts.get("key"), self.parts.get("value")
        fields = [*KAFKA, TOMBSTONE]
        if key is None:
            fields.append(pa.field("_key", pa.binary()))
        elif key.type is not None:
            fields.append(pa.field("_key", key.type))
        if value is None:
            fields.append(pa.field("_value", pa.binary()))
        elif value.type is None:
            pass
        elif pa.types.is_struct(value.type):
            fields += [field.with_nullable(True) for field in value.type]
        else:
            fields.append(pa.field(WHOLE, value.type))
        seen: set[str] = set()
        for field in fields:
            # Spark takes no account of case.
            if field.name.lower() in seen:
                raise Refused(
                    f"the value has a field {field.name}, and there is a column of that name, "
                    "whatever the case, of Kafka's or of another field"
                )
            seen.add(field.name.lower())
        return pa.schema(fields)

    def of(
        self, rows: pa.RecordBatch, topic: str, partition: int
    ) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        """The columns of rows, and which of these fit."""
        size = rows.num_rows
        arrays = [
            pa.repeat(pa.scalar(topic), size),
            pa.repeat(pa.scalar(partition, pa.int32()), size),
            rows["offset"],
            rows["timestamp"],
            rows["timestampType"],
            rows["headers"],
            pc.is_null(rows["value"]),
        ]
        fits = pa.repeat(pa.scalar(True), size)
        for name in ("key", "value"):
            part = self.parts.get(name)
            if part is None:
                arrays.append(rows[name])
                continue
            nothing = pc.is_null(rows[name])
            if part.type is None:
                fits = pc.and_(fits, nothing)
                continue
            value, whole = _taken(part, rows[name + DECODED])
            fits = pc.and_(fits, pc.or_(whole, nothing))
            flat = name == "value" and pa.types.is_struct(part.type)
            arrays += value.flatten() if flat else [value]
        made = [
            array.cast(field.type) if array.type != field.type else array
            for array, field in zip(arrays, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(made, schema=self.schema), fits

    def reason(self, row: pa.RecordBatch, payloads: Sequence[Payload]) -> str:
        """Why a row does not fit."""
        for payload in payloads:
            part = self.parts[payload.name]
            id_ = row[f"{payload.name}_id"][0].as_py()
            if row[payload.name].null_count:
                continue
            why = _header_reason(payload, id_)
            if why is None and part.type is not None:
                value, whole = _taken(part, row[payload.name + DECODED])
                if whole[0].as_py():
                    continue
                if part.decoder is not None:
                    why = part.decoder.reason(row[payload.name][0].as_py(), id_)
                else:
                    why = _reason(part, value, payload, id_)
            return f"the {payload.name} {why}"
        raise AssertionError("it fits")


def _header_reason(payload: Payload, id_: int | None) -> str | None:
    if id_ is None:
        return "does not begin with a zero and a schema id"
    if id_ in payload.missing:
        return f"has schema id {id_}, which the registry has not got"
    return None


def _reason(part: Part, value: pa.Array, payload: Payload, id_: int | None) -> str:
    by = f"schema {id_}" if payload.header else "the schema"
    for path in part.required:
        if value.null_count == 0 and _nulls(value, path)[0].as_py():
            return f"has no {'.'.join(path)}, which {by} requires"
    return f"cannot be decoded as {part.format.kind} by {by}"


def _taken(part: Part, decoded: pa.StructArray) -> tuple[pa.Array, pa.BooleanArray]:
    if part.decoder is not None:
        return decoded, decoded.is_valid()
    assert not isinstance(part.format, Protobuf)
    value, whole = part.format.taken(decoded)
    for path in part.required:
        whole = pc.and_not(whole, _nulls(value, path))
    return value, whole


def _nulls(value: pa.Array, path: tuple[str, ...]) -> pa.BooleanArray:
    """Where the field is null and what it is in is not."""
    parent = value
    for name in path[:-1]:
        parent = pc.struct_field(parent, name)
    return pc.and_(pc.is_valid(parent), pc.is_null(pc.struct_field(parent, path[-1])))
