"""Messages of Protocol Buffers into columns of Arrow, in a task.

Google's package decodes each message, by the descriptors of the schema that wrote it. Then a field
of all of them is taken at once, for each of the columns. A column that the schema has no field for
is null.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from pipeline.values.wire_format import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
"""Messages that have themselves inside, and are JSON: so are their columns, as text."""
MOST_OPEN = 400
"""Schemas that a task has ready, of keys and of values."""
MOST_INDEXES = 100
"""Of messages inside of one another, as a header may claim."""


class Target(NamedTuple):
    """What is decoded by a schema id."""

    descriptors: str
    """All files of the schema, itself the last, as a FileDescriptorSet in base64."""
    message: str
    """The full name of the message that columns are made of."""


@dataclass(frozen=True)
class ProtobufDecoder:
    """Values by their schema ids. Picklable."""

    targets: Mapping[int, Target]
    header: bool
    """Whether values begin with Confluent's header, and the message's place in its schema."""
    type: pa.StructType

    def decode(self, values: pa.BinaryArray, ids: pa.Int32Array) -> pa.StructArray:
        """The columns; null for what is no message of its schema."""
        messages: list[Any] = [None] * len(values)
        by_id: dict[int, list[int]] = {}
        for row, (value, id_) in enumerate(zip(values.to_pylist(), ids.to_pylist(), strict=True)):
            if id_ not in self.targets:
                continue
            message, _ = self._message(value, id_)
            messages[row] = message
            by_id.setdefault(id_, []).append(row)
        if len(by_id) == 1:
            (id_,) = by_id
            return self._columns(messages, id_)
        pieces = [
            self._columns([messages[row] for row in rows], id_) for id_, rows in by_id.items()
        ]
        place = {row: at for at, row in enumerate(row for rows in by_id.values() for row in rows)}
        nothing = pa.nulls(1, self.type)
        indices = pa.array([place.get(row, len(place)) for row in range(len(values))], pa.int64())
        return pa.concat_arrays([*pieces, nothing]).take(indices)

    def reason(self, value: bytes, id_: int) -> str:
        """Why a value does not fit."""
        return self._message(value, id_)[1] or "has a field that no column can have"

    def _message(self, value: bytes, id_: int) -> tuple[Any, str]:
        """A message, or None and what is wrong with it."""
        from google.protobuf.message import DecodeError

        target = self.targets[id_]
        by = f"schema {id_}" if self.header else "the schema"
        if self.header:
            path, begin = _indexes(value, HEADER_SIZE)
            found = None if path is None else named(target.descriptors, path)
            if found != target.message:
                there = "no message" if found is None else f"a {found}"
                return None, f"is {there} by {by}, and columns are made of {target.message}"
            value = value[begin:]
        try:
            message = message_class(*target).FromString(value)
        except DecodeError:
            return None, f"cannot be decoded as PROTOBUF by {by}"
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            return None, f"has no {missing}, which {by} requires"
        return message, ""

    def _columns(self, messages: list[Any], id_: int) -> pa.StructArray:
        descriptor = message_class(*self.targets[id_]).DESCRIPTOR
        try:
            return _struct(messages, descriptor, self.type)
        except (ValueError, OverflowError, pa.ArrowException):
            # Text that is none, or a time that is none: of which of them is found out now.
            each = [self._single(message, descriptor) for message in messages]
            return pa.concat_arrays(each)

    def _single(self, message: Any, descriptor: Any) -> pa.StructArray:
        try:
            return _struct([message], descriptor, self.type)
        except (ValueError, OverflowError, pa.ArrowException):
            return pa.nulls(1, self.type)


@lru_cache(MOST_OPEN)
def files(descriptors: str) -> tuple[Any, ...]:
    """The descriptors of a schema's files, itself the last. Raises TypeError, KeyError or
    ValueError if they do not go together."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    found = FileDescriptorSet.FromString(base64.b64decode(descriptors)).file
    for one in found:
        pool.Add(one)
    return tuple(pool.FindFileByName(one.name) for one in found)


@lru_cache(MOST_OPEN)
def message_class(descriptors: str, message: str) -> Any:
    """The class of a message of a schema. Raises KeyError if it has none of that name."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(files(descriptors)[-1].pool.FindMessageTypeByName(message))


@lru_cache(MOST_OPEN)
def named(descriptors: str, path: tuple[int, ...]) -> str | None:
    """The full name of the message at a place in the schema's file; None without one there."""
    inside = list(files(descriptors)[-1].message_types_by_name.values())
    found = None
    for index in path:
        if not 0 <= index < len(inside):
            return None
        found = inside[index]
        inside = list(found.nested_types)
    return None if found is None else str(found.full_name)


def _indexes(value: bytes, at: int) -> tuple[tuple[int, ...] | None, int]:
    """The place of the message in its schema, as Confluent's header has it, and where the message
    begins; None and any number if it has none. A zero stands for the first message."""
    if value[at : at + 1] == b"\0":
        return (0,), at + 1
    count, at = _varint(value, at)
    if not 0 < count <= MOST_INDEXES:
        return None, at
    path = []
    for _ in range(count):
        index, at = _varint(value, at)
        path.append(index)
    return tuple(path), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and what comes behind it; -1 for none."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(value):
            break
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    return -1, at


def _struct(messages: Sequence[Any], descriptor: Any, type_: pa.StructType) -> pa.StructArray:
    arrays = []
    for column in type_:
        field = descriptor.fields_by_name.get(column.name)
        if field is None:
            arrays.append(pa.nulls(len(messages), column.type))
        else:
            arrays.append(_column(messages, field, column.type))
    mask = pa.array([message is None for message in messages], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=mask)


def _column(messages: Sequence[Any], field: Any, type_: pa.DataType) -> pa.Array:
    name = field.name
    if is_map(field):
        maps = [{} if message is None else getattr(message, name) for message in messages]
        key, item = (field.message_type.fields_by_name[one] for one in ("key", "value"))
        keys = [one for found in maps for one in found]
        # Not `items()`: of a message that is a value it would give a copy.
        items = [found[one] for found in maps for one in found]
        return pa.MapArray.from_arrays(
            _offsets(maps), _array(keys, key, type_.key_type), _array(items, item, type_.item_type)
        ).cast(type_)
    if field.is_repeated:
        lists = [() if message is None else getattr(message, name) for message in messages]
        flat = [one for found in lists for one in found]
        inner = _array(flat, field, type_.value_type)
        return pa.ListArray.from_arrays(_offsets(lists), inner).cast(type_)
    if field.has_presence:
        there = (message is not None and message.HasField(name) for message in messages)
        values = [
            getattr(message, name) if is_there else None
            for message, is_there in zip(messages, there, strict=True)
        ]
    else:
        values = [None if message is None else getattr(message, name) for message in messages]
    return _array(values, field, type_)


def is_map(field: Any) -> bool:
    """Whether a field is a map, which its message says."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _offsets(lists: Sequence[Any]) -> pa.Int32Array:
    ends = [0]
    for one in lists:
        ends.append(ends[-1] + len(one))
    return pa.array(ends, pa.int32())


def _array(values: list[Any], field: Any, type_: pa.DataType) -> pa.Array:
    """Single values of a field; null for None."""
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return _each(values, lambda value: names.get(value, str(value)), type_)
    if field.message_type is None:
        return _plain(values, type_)
    name = field.message_type.full_name
    if name == TIMESTAMP:
        micros = _each(values, lambda one: one.seconds * 10**6 + one.nanos // 1000, pa.int64())
        return micros.cast(pa.timestamp("us")).cast(type_)
    if name in WRAPPERS:
        return _plain([None if value is None else value.value for value in values], type_)
    if name in JSON:
        return _each(values, _json, type_)
    if not field.message_type.fields:
        return _each(values, lambda _: True, type_)
    return _struct(values, field.message_type, type_)


def _json(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(message, indent=None))


def _each(values: list[Any], make: Callable[[Any], Any], type_: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else make(value) for value in values], type_)


def _plain(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type_):
        return pa.array(values, pa.uint64()).cast(type_)
    return pa.array(values, type_)
