"""Values of Avro into columns of Arrow, in a task: a field of all of them at once.

All values by one schema are gone through side by side, each with a position of its own: what a
field takes is read for all of them by some operations of numpy, and no object is made for any. A
value is whole if its last field ends where it ends. Records, primitive types, enumerations, fixed
types, dates, timestamps, and each of these or null: what else there is (arrays, maps, other unions,
decimals) has no `type_of` here, and is Spark's to decode.

Rules of resolution (Avro specification, "Schema Resolution"): a field is found by its name or by an
alias of the reader's, is null where the writer has none, and numbers are widened.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.entries import read_at
from pipeline.columns.rows import MAX_TIMESTAMP_MS, MICROSECONDS, cut_out
from pipeline.columns.varints import VARINT_BYTES, VARLONG_BYTES, read_varints
from pipeline.values.wire_format import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from numpy.typing import NDArray

    from pipeline.columns.varints import Bytes, Numbers

    Flags: TypeAlias = NDArray[np.bool_]

TIMESTAMP = pa.timestamp("us", "UTC")
TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
    "int date": pa.date32(),
    "long timestamp-millis": TIMESTAMP,
    "long timestamp-micros": TIMESTAMP,
}
"""Of kinds with their logical types; those that Spark's from_avro makes."""
MOST_OPEN = 400
"""Schemas that a task has ready, of keys and of values."""


def type_of(schema: Any) -> pa.DataType | None:
    """The columns of a schema, written in JSON and loaded; None where values are not decoded here.
    A definition that is used again by its name is not looked up."""
    branch, _ = _nullable(schema)
    if branch is None:
        return None
    kind = _kind(branch)
    if kind != "record":
        return TYPES.get(kind)
    types = [(one["name"], type_of(one["type"])) for one in branch["fields"]]
    if not types or any(type_ is None for _, type_ in types):
        return None
    return pa.struct(types)


@dataclass(frozen=True)
class AvroDecoder:
    """Values by their schema ids. Picklable."""

    writers: Mapping[int, str]
    """Schemas in JSON; of records, which have a `type_of`, as has the reader's."""
    reader: str
    header: bool
    """Whether values begin with Confluent's header."""
    type: pa.StructType

    def decode(self, values: pa.BinaryArray, ids: pa.Int32Array) -> pa.StructArray:
        """The columns; null for what is no value of its schema."""
        found = ids.to_numpy(zero_copy_only=False)
        pieces, rows = [pa.nulls(1, self.type)], [np.empty(0, np.int64)]
        for id_ in pc.unique(ids.drop_null()).to_pylist():
            if id_ in self.writers:
                rows.append(np.flatnonzero(found == id_))
                pieces.append(self._columns(values, rows[-1], self.writers[id_]))
        if len(rows) == 2 and len(rows[1]) == len(values):
            return pieces[1]
        indices = np.zeros(len(values), np.int64)
        order = np.concatenate(rows)
        indices[order] = np.arange(1, len(order) + 1)
        return pa.concat_arrays(pieces).take(pa.array(indices))

    def reason(self, value: bytes, id_: int) -> str:
        """Why a value does not fit."""
        return f"cannot be decoded as AVRO by {f'schema {id_}' if self.header else 'the schema'}"

    def _columns(self, values: pa.BinaryArray, rows: Numbers, writer: str) -> pa.StructArray:
        _, offsets, content = values.buffers()
        bounds = np.frombuffer(offsets, np.int32)[values.offset :].astype(np.int64)
        begin = bounds[rows] + (HEADER_SIZE if self.header else 0)
        cursor = _Cursor(content, begin, bounds[rows + 1])
        columns = cursor.read(_loaded(writer), _loaded(self.reader), self.type)
        whole = (cursor.at == cursor.end) & ~cursor.bad
        if whole.all():
            return columns
        return pc.if_else(pa.array(whole), columns, pa.scalar(None, self.type))


class _Cursor:
    """The positions in values that are gone through together. One that gets beyond its value's end
    stays there, and is `bad`."""

    def __init__(self, content: pa.Buffer | None, at: Numbers, end: Numbers) -> None:
        # Where all values are empty there is nothing to read, and yet something has to be there.
        self._content = content if content is not None and content.size else pa.py_buffer(b"\0")
        self._data: Bytes = np.frombuffer(self._content, np.uint8)
        self.at = at
        self.end = end
        self.bad: Flags = np.zeros(at.size, np.bool_)
        self._stay()

    def read(self, writer: Any, reader: Any, type_: pa.DataType) -> pa.Array:
        """The next field of each value, as `type_` has it; what it is for a bad one means nothing.
        The reader's schema has every field of a writer's (`avro.Avro.merged`)."""
        schema, null = _nullable(writer)
        if null is None:
            return self._read(schema, reader, type_)
        branch = self._varints(VARLONG_BYTES)
        self._spoil((branch != 0) & (branch != 1))
        there = (branch != null) & ~self.bad
        if there.all():
            return self._read(schema, reader, type_)
        rows = np.flatnonzero(there)
        some = _Cursor(self._content, self.at[rows], self.end[rows])
        found = some._read(schema, reader, type_)
        self.at[rows], self.bad[rows] = some.at, some.bad
        indices = np.cumsum(there) - 1
        return found.take(pa.array(indices, mask=~there))

    def _read(self, schema: Any, reader: Any, type_: pa.DataType) -> pa.Array:
        kind = _kind(schema)
        if kind == "record":
            return self._record(schema, reader, type_)
        if kind in ("string", "bytes"):
            found = self._bytes(self._varints(VARLONG_BYTES))
            return self._text(found) if kind == "string" else found
        if kind == "fixed":
            return self._bytes(np.full(self.at.size, schema["size"], np.int64))
        if kind == "enum":
            return self._symbols(schema["symbols"])
        if kind == "boolean":
            bits = self._fixed(np.dtype(np.uint8))
            self._spoil(bits > 1)
            return pa.array(bits == 1)
        if kind in ("float", "double"):
            numbers = self._fixed(np.dtype("<f4" if kind == "float" else "<f8"))
            return pa.array(numbers).cast(type_, safe=False)
        if kind.startswith("int"):
            return self._integers(self._varints(VARINT_BYTES).astype(np.int32), kind, type_)
        return self._integers(self._varints(VARLONG_BYTES), kind, type_)

    def _record(self, schema: Any, reader: Any, type_: pa.DataType) -> pa.Array:
        wanted = _nullable(reader)[0]["fields"]
        found: dict[str, pa.Array] = {}
        for one in schema["fields"]:
            target = next(other for other in wanted if _is_same(one, other))
            inner = type_.field(target["name"]).type
            found[target["name"]] = self.read(one["type"], target["type"], inner)
        count = self.at.size
        columns = [found.get(field.name, pa.nulls(count, field.type)) for field in type_]
        return pa.StructArray.from_arrays(columns, fields=list(type_))

    def _integers(self, numbers: NDArray[Any], kind: str, type_: pa.DataType) -> pa.Array:
        if kind == "long timestamp-millis":
            self._spoil((numbers > MAX_TIMESTAMP_MS) | (numbers < -MAX_TIMESTAMP_MS))
            numbers = numbers * MICROSECONDS
        array = pa.array(numbers)
        if pa.types.is_temporal(type_):
            return array.view(type_)
        return array.cast(type_, safe=False)

    def _symbols(self, symbols: list[str]) -> pa.Array:
        index = self._varints(VARLONG_BYTES)
        self._spoil((index < 0) | (index >= len(symbols)))
        known = np.where(self.bad, 0, index)
        return pa.array(symbols, pa.string()).take(pa.array(known))

    def _text(self, found: pa.Array) -> pa.Array:
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            pass
        strange = np.array([not _is_text(one) for one in found.to_pylist()])
        self._spoil(strange)
        return pc.if_else(pa.array(strange), b"", found).cast(pa.string())

    # Bytes

    def _varints(self, longest: int) -> Numbers:
        numbers, self.at = read_varints(self._data, self.at, longest)
        self._stay()
        return numbers

    def _fixed(self, kind: np.dtype[Any]) -> NDArray[Any]:
        begin = self.at
        self.at = begin + kind.itemsize
        self._stay()
        if self._data.size < kind.itemsize:
            return np.zeros(begin.size, kind)
        return read_at(self._data, np.minimum(begin, self._data.size - kind.itemsize), kind)

    def _bytes(self, sizes: Numbers) -> pa.Array:
        self._spoil((sizes < 0) | (sizes > self.end - self.at))
        sizes = np.where(self.bad, 0, sizes)
        begin = self.at
        self.at = begin + sizes
        return cut_out(self._content, begin.astype(np.int32), sizes.astype(np.int32))

    def _spoil(self, bad: Flags) -> None:
        if bad.any():
            self.bad |= bad

    def _stay(self) -> None:
        over = self.at > self.end
        if over.any():
            self.bad |= over
            self.at = np.where(over, self.end, self.at)


@lru_cache(MOST_OPEN)
def _loaded(text: str) -> Any:
    return json.loads(text)


def _nullable(schema: Any) -> tuple[Any, int | None]:
    """The one type that is not null, and the place of null in the union, which is none for a type
    that cannot be null; nothing for another union."""
    if not isinstance(schema, list):
        return schema, None
    if len(schema) != 2 or "null" not in schema:
        return None, None
    place = schema.index("null")
    return schema[1 - place], place


def _kind(schema: Any) -> str:
    """With the logical type behind it, if it has one; what is only named has none of TYPES."""
    if not isinstance(schema, dict):
        return "" if schema in ("enum", "fixed", "record") else str(schema)
    kind, logical = str(schema["type"]), schema.get("logicalType")
    return kind if logical is None else f"{kind} {logical}"


def _is_same(written: Any, wanted: Any) -> bool:
    return written["name"] == wanted["name"] or written["name"] in wanted.get("aliases", ())


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
