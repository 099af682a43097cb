"""JSON: columns by Spark's DDL or by a JSON Schema, decoded by `from_json`.

Of a JSON Schema is read what a column can be: object, array, string (also with the formats date
and date-time), integer, number, boolean, enumerations of strings, null beside another type, and
references inside of the document. What is in a value and not in the schema is left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import Refused
from pipeline.values.wire_format import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column

    from pipeline.values.registry import RegisteredSchema

REJECTED = "_triglot_rejected"
"""The column that Spark puts a text into that is not of the schema."""
LONGEST = 2**31 - 1
SCALARS = {"integer": "long", "number": "double", "boolean": "boolean", "string": "string"}
FORMATS = {"date-time": "timestamp", "date": "date"}
WIDENED = {("integer", "long"), ("float", "double")}


@dataclass(frozen=True)
class Json:
    """The format of keys or values."""

    kind: str = "JSON"
    mark: bool = False

    @staticmethod
    def text_of(path: Path, content: bytes) -> str:
        """A schema from a file. Raises UnicodeDecodeError."""
        return content.decode()

    @staticmethod
    def texts_of(registered: RegisteredSchema, what: str) -> tuple[str, ...]:
        """A schema of a registry, behind those that it refers to."""
        return (*registered.references, registered.text)

    def merged(self, reader: str | None, texts: Sequence[str], what: str) -> str:
        """The structure that takes what was read until now, and the schema that comes last: as
        Spark writes types in JSON. Raises Refused, with `what` in its line."""
        new = _structure(texts[-1], what)
        if reader is None:
            return json.dumps(new)
        return json.dumps(merged_structures(json.loads(reader), new, what))

    def column(
        self,
        payload: Column,
        schema_id: Column,
        writers: Mapping[int, Sequence[str]],
        reader: str,
        *,
        header: bool,
    ) -> Column:
        """A structure of the columns and REJECTED; null where there is no schema id."""
        from pyspark.sql.functions import from_json, substring, try_validate_utf8, when
        from pyspark.sql.types import StringType, StructType

        structure = StructType.fromJson(json.loads(reader))
        wanted = StructType([*structure.fields]).add(REJECTED, StringType())
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": REJECTED}
        content = substring(payload, HEADER_SIZE + 1, LONGEST) if header else payload
        decoded = from_json(try_validate_utf8(content.cast("string")), wanted, options)
        return when(schema_id.isin(list(writers)), decoded)

    @staticmethod
    def type_of(decoded: pa.StructType) -> pa.DataType:
        """The type of a value in what `column` makes."""
        return pa.struct([one for one in decoded if one.name != REJECTED])

    @staticmethod
    def decoder(writers: Mapping[int, Sequence[str]], reader: str, *, header: bool) -> None:
        """None: Spark decodes it."""

    @staticmethod
    def required(reader: str) -> tuple[tuple[str, ...], ...]:
        """The paths of fields, not inside of arrays, that may not be null in a value."""
        found: list[tuple[str, ...]] = []

        def look(fields: list[dict[str, Any]], path: tuple[str, ...]) -> None:
            for one in fields:
                here = (*path, one["name"])
                if not one["nullable"]:
                    found.append(here)
                if isinstance(one["type"], dict) and one["type"]["type"] == "struct":
                    look(one["type"]["fields"], here)

        look(json.loads(reader)["fields"], ())
        return tuple(found)

    @staticmethod
    def renamed(reader: str) -> dict[tuple[str, ...], str]:
        """Nothing: JSON has no other names for a field."""
        return {}

    @staticmethod
    def taken(decoded: pa.StructArray) -> tuple[pa.Array, pa.BooleanArray]:
        """The values in what `column` made, and which of them are whole."""
        children = dict(zip((one.name for one in decoded.type), decoded.flatten(), strict=True))
        rejected = children.pop(REJECTED)
        fields = [one for one in decoded.type if one.name != REJECTED]
        value = pa.StructArray.from_arrays(
            list(children.values()), fields=fields, mask=pc.is_null(decoded)
        )
        return value, pc.and_(pc.is_valid(decoded), pc.is_null(rejected))


def _structure(text: str, what: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return _of_ddl(text, what)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise Refused(f"{what} is no JSON Schema: {failure}") from None
    found = _Reading(document, what).type_of(document, ())
    if not isinstance(found, dict) or found["type"] != "struct":
        raise Refused(f"{what} is of no object with properties, and columns are made of these")
    return found


def _of_ddl(text: str, what: str) -> dict[str, Any]:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        found = StructType.fromDDL(text.strip())
    except PySparkException as failure:
        first = str(failure).strip().splitlines()[0]
        raise Refused(
            f"{what} is neither a JSON Schema nor columns in Spark's DDL: {first}"
        ) from None
    return dict(json.loads(found.json()))


class _Reading:
    """A JSON Schema as one of Spark's types."""

    def __init__(self, document: dict[str, Any], what: str) -> None:
        self._document = document
        self._what = what
        self._open: list[str] = []

    def type_of(self, schema: Any, path: tuple[str, ...]) -> Any:
        if not isinstance(schema, dict):
            self._refuse(path, f"{json.dumps(schema)[:80]} is no type")
        if "$ref" in schema:
            return self._referred(schema["$ref"], path)
        for key in ("oneOf", "anyOf"):
            if key in schema:
                others = [one for one in schema[key] if one != {"type": "null"}]
                if len(others) != 1:
                    self._refuse(path, f"{key} of several types is no column")
                return self.type_of(others[0], path)
        kind = schema.get("type", "string" if "enum" in schema else None)
        if isinstance(kind, list):
            kinds = [one for one in kind if one != "null"]
            if len(kinds) != 1:
                self._refuse(path, f"several types ({', '.join(kind)}) are no column")
            kind = kinds[0]
        if kind == "object":
            return self._object(schema, path)
        if kind == "array":
            element = self.type_of(schema.get("items"), (*path, "element"))
            return {"type": "array", "elementType": element, "containsNull": True}
        if kind not in SCALARS:
            self._refuse(path, f"type {kind!r} is no column")
        if kind == "string":
            return FORMATS.get(schema.get("format", ""), "string")
        return SCALARS[kind]

    def _object(self, schema: dict[str, Any], path: tuple[str, ...]) -> Any:
        if "properties" in schema:
            required = set(schema.get("required", ()))
            fields = [
                {
                    "name": name,
                    "type": self.type_of(one, (*path, name)),
                    "nullable": name not in required or _may_be_null(one),
                    "metadata": {},
                }
                for name, one in schema["properties"].items()
            ]
            return {"type": "struct", "fields": fields}
        values = schema.get("additionalProperties")
        if not isinstance(values, dict):
            self._refuse(path, "an object without properties is no column")
        inner = self.type_of(values, (*path, "value"))
        return {
            "type": "map",
            "keyType": "string",
            "valueType": inner,
            "valueContainsNull": True,
        }

    def _referred(self, reference: str, path: tuple[str, ...]) -> Any:
        if reference in self._open:
            self._refuse(path, f"{reference} has itself in it, and columns cannot be recursive")
        found: Any = self._document
        try:
            root, *names = reference.split("/")
            if root != "#":
                raise KeyError(reference)
            for name in names:
                found = found[name.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            self._refuse(path, f"{reference} is not in the document")
        self._open.append(reference)
        inner = self.type_of(found, path)
        self._open.pop()
        return inner

    def _refuse(self, path: tuple[str, ...], why: str) -> Any:
        raise Refused(f"{self._what}: {'.'.join(path) or 'the whole'}: {why}")


def _may_be_null(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    branches = [*schema.get("oneOf", ()), *schema.get("anyOf", ())] if kind is None else []
    return kind == "null" or "null" in (kind or ()) or {"type": "null"} in branches


def merged_structures(known: Any, new: Any, what: str) -> Any:
    """The structure that takes what is in both, as Spark writes types in JSON. Raises Refused, with
    `what` in its line."""
    return _merged(known, new, what, ())


def _merged(known: Any, new: Any, what: str, path: tuple[str, ...]) -> Any:
    if known == new or (new, known) in WIDENED if isinstance(known, str) else known == new:
        return known
    if isinstance(known, dict) and isinstance(new, dict) and known["type"] == new["type"]:
        if known["type"] == "struct":
            return {"type": "struct", "fields": _merged_fields(known, new, what, path)}
        key = "elementType" if known["type"] == "array" else "valueType"
        return {**known, key: _merged(known[key], new[key], what, (*path, "element"))}
    if isinstance(known, str) and isinstance(new, str) and (known, new) in WIDENED:
        return new
    raise Refused(
        f"{what} does not go with the table: {'.'.join(path) or 'the whole'}: it was "
        f"{_shown(known)} and is {_shown(new)}"
    )


def _merged_fields(
    known: dict[str, Any], new: dict[str, Any], what: str, path: tuple[str, ...]
) -> list[Any]:
    left = {one["name"]: one for one in new["fields"]}
    fields = []
    for one in known["fields"]:
        other = left.pop(one["name"], None)
        if other is None:
            fields.append({**one, "nullable": True})
            continue
        inner = _merged(one["type"], other["type"], what, (*path, one["name"]))
        nullable = one["nullable"] or other["nullable"]
        fields.append({**one, "type": inner, "nullable": nullable})
    return [*fields, *({**one, "nullable": True} for one in left.values())]


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
