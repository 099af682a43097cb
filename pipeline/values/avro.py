"""Avro: each record by the schema that wrote it, all into one reader's schema.

The reader's schema is made of the writers' in the order of their ids, and only grows. Every field
in it may be null and is so by default; what no new schema has any more stays, and is null. A field
is found again by its name or an alias. Avro's own rules of resolution do the rest, in a task
(`avro_columns`), or in Spark's `from_avro` where a schema has more in it than that decodes.

Records are found by their place and have names of ours in the reader's schema, for Avro would not
have the same name twice. Enumerations and fixed types are resolved by name, and keep theirs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import NotInstalled, Refused
from pipeline.values.avro_columns import AvroDecoder, type_of
from pipeline.values.wire_format import HEADER_SIZE, MARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column

    from pipeline.values.registry import RegisteredSchema

PACKAGE = "org.apache.spark:spark-avro_2.13"
MOST_FIELDS = 5000
"""Of a schema, nested ones too; records that are used in several places count in each."""
PROMOTED = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
}
"""What a number can be read as, by Avro's specification."""
WIDENED = {("int", "long"), ("float", "double")}
"""What a column can become, where the table can."""


@dataclass(frozen=True)
class Avro:
    """The format of keys or values."""

    kind: str = "AVRO"
    mark: bool = True
    """Whether values need wire_format.MARK."""

    @staticmethod
    def text_of(path: Path, content: bytes) -> str:
        """A schema from a file. Raises UnicodeDecodeError."""
        return content.decode()

    @staticmethod
    def texts_of(registered: RegisteredSchema, what: str) -> tuple[str, ...]:
        """A schema of a registry, behind those that it refers to."""
        return (*registered.references, registered.text)

    def merged(self, reader: str | None, texts: Sequence[str], what: str) -> str:
        """The reader's schema, made to take a writer's: the last of `texts`, which the others are
        referred to by. Raises Refused, with `what` in its line, and NotInstalled."""
        writer, named = _parsed(texts, what)
        known, known_named = (None, {}) if reader is None else _parsed([reader], what)
        merge = _Merge(what, named, known_named)
        return json.dumps(merge.nullable(known, writer, ()))

    def decoder(
        self, writers: Mapping[int, Sequence[str]], reader: str, *, header: bool
    ) -> AvroDecoder | None:
        """What decodes in a task; None where a schema has something that only Spark decodes."""
        type_ = type_of(json.loads(reader))
        known = {id_: _self_contained(texts) for id_, texts in writers.items()}
        records = (_kind(one) == "record" and type_of(one) for one in known.values())
        if not isinstance(type_, pa.StructType) or not all(records):
            return None
        texts = {id_: json.dumps(one) for id_, one in known.items()}
        return AvroDecoder(texts, reader, header, type_)

    def column(
        self,
        payload: Column,
        schema_id: Column,
        writers: Mapping[int, Sequence[str]],
        reader: str,
        *,
        header: bool,
    ) -> Column:
        """A structure of the `value`, null where it cannot be decoded, and the `end` behind it."""
        from pyspark.sql.avro.functions import from_avro
        from pyspark.sql.functions import when

        options = {"mode": "PERMISSIVE", "avroSchema": _marked(json.loads(reader), header=False)}
        column: Column | None = None
        for id_, texts in sorted(writers.items()):
            writer = _marked(_self_contained(texts), header=header)
            decoded = from_avro(payload, writer, options)
            condition = schema_id == id_
            column = when(condition, decoded) if column is None else column.when(condition, decoded)
        assert column is not None
        return column

    @staticmethod
    def type_of(decoded: pa.StructType) -> pa.DataType:
        """The type of a value in what `column` makes."""
        return decoded.field("value").type

    @staticmethod
    def required(reader: str) -> tuple[tuple[str, ...], ...]:
        """None: what Avro requires, its encoding has."""
        return ()

    @staticmethod
    def renamed(reader: str) -> dict[tuple[str, ...], str]:
        """What fields are called now, by paths with the names that they had."""
        found: dict[tuple[str, ...], str] = {}

        def look(schema: Any, path: tuple[str, ...]) -> None:
            for branch in _branches(schema):
                if _kind(branch) in ("array", "map"):
                    inner = "element" if _kind(branch) == "array" else "value"
                    look(branch["items" if inner == "element" else "values"], (*path, inner))
                elif _kind(branch) == "record":
                    for one in branch["fields"]:
                        for name in one.get("aliases", ()):
                            found[(*path, name)] = one["name"]
                        look(one["type"], (*path, one["name"]))

        look(json.loads(reader), ())
        return found

    @staticmethod
    def taken(decoded: pa.StructArray) -> tuple[pa.Array, pa.BooleanArray]:
        """The values in what `column` made, and which of them are whole."""
        value, end = decoded.flatten()
        return value, pc.fill_null(pc.equal(end, pa.scalar(MARK, end.type)), False)


def refuse_without_package(error: Exception) -> None:
    """Raises NotInstalled if this is what Spark says without spark-avro."""
    if "AVRO" in str(error) or "JavaPackage" in str(error):
        import pyspark

        raise NotInstalled(
            f"Spark has no Avro: run with --conf spark.jars.packages={PACKAGE}:"
            f"{pyspark.__version__}, or the nearest release that Maven has"
        ) from None


def _parsed(texts: Sequence[str], what: str) -> tuple[Any, dict[str, Any]]:
    try:
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema
    except ImportError:
        raise NotInstalled(
            "Avro schemas need the package fastavro: pip install 'triglot[pipeline-values]'"
        ) from None
    named: dict[str, Any] = {}
    parsed: Any = None
    try:
        for text in texts:
            parsed = parse_schema(_loaded(text), named_schemas=named, _write_hint=False)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as failure:
        raise Refused(f"{what} is no Avro schema: {' '.join(str(failure).split())[:300]}") from None
    except RecursionError:
        raise Refused(f"{what} is nested too deeply for a schema") from None
    return parsed, named


def _loaded(text: str) -> Any:
    # A schema that is a name alone may come without its quotes.
    return text.strip() if text.strip().isalpha() else json.loads(text)


def _self_contained(texts: Sequence[str]) -> Any:
    """A writer's schema with the definitions that it refers to inside."""
    if len(texts) == 1:
        return _loaded(texts[0])
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    for text in texts:
        parsed = parse_schema(_loaded(text), named_schemas=named, _write_hint=False)
    return _Inlining(named).of(parsed)


def _marked(schema: Any, *, header: bool) -> str:
    """The schema of a value with wire_format.MARK behind it, and a header before it if it has one,
    which the reader's schema leaves out."""
    first = {"type": "fixed", "name": "triglot_header", "size": HEADER_SIZE}
    end = {"type": "fixed", "name": "triglot_end", "size": len(MARK)}
    fields = [{"name": "header", "type": first}] if header else []
    fields += [{"name": "value", "type": schema}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "triglot_marked", "fields": fields})


@dataclass
class _Inlining:
    """Definitions at the place where their names come first."""

    named: Mapping[str, Any]
    seen: set[str] = field(default_factory=set)

    def of(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self.of(branch) for branch in schema]
        if isinstance(schema, str):
            if schema not in self.named or schema in self.seen:
                return schema
            return self.of(self.named[schema])
        if "name" in schema:
            self.seen.add(schema["name"])
        inlined = dict(schema)
        for key in ("items", "values"):
            if key in schema:
                inlined[key] = self.of(schema[key])
        if "fields" in schema:
            inlined["fields"] = [{**one, "type": self.of(one["type"])} for one in schema["fields"]]
        elif isinstance(schema["type"], (dict, list)):
            inlined["type"] = self.of(schema["type"])
        return inlined


class _Merge:
    """Makes a reader's schema of the one that was, and of a writer's."""

    def __init__(self, what: str, named: dict[str, Any], known_named: dict[str, Any]) -> None:
        self._what = what
        self._named = named
        self._known_named = known_named
        self._written: set[str] = set()
        self._open: list[str] = []
        self._records = 0
        self._fields = 0

    def nullable(self, known: Any, new: Any, path: tuple[str, ...]) -> Any:
        """Of a place in both; `known` or `new` is None where only the other has it."""
        known_branches, new_branches = _branches(known), _branches(new)
        branches = new_branches or known_branches
        if not branches:
            self._refuse(path, "it is always null, which no column is")
        if len(branches) > 1 or len(known_branches) > 1:
            return self._union(known, new, known_branches, new_branches, path)
        one = known_branches[0] if known_branches else None
        other = new_branches[0] if new_branches else None
        return ["null", self._single(one, other, path)]

    def _union(
        self, known: Any, new: Any, known_branches: list[Any], new_branches: list[Any], path: Any
    ) -> Any:
        if known_branches and new_branches and len(known_branches) != len(new_branches):
            self._refuse(path, "the types of its union have changed")
        pairs = zip(
            known_branches or [None] * len(new_branches),
            new_branches or [None] * len(known_branches),
            strict=True,
        )
        merged = [self._single(one, other, path) for one, other in pairs]
        return ["null", *merged]

    def _single(self, known: Any, new: Any, path: tuple[str, ...]) -> Any:
        known, new = self._resolved(known, self._known_named), self._resolved(new, self._named)
        is_, was = _kind(new if new is not None else known), _kind(known)
        if known is not None and new is not None and was != is_:
            return self._promoted(known, new, path)
        given = new if new is not None else known
        if is_ in ("record", "error"):
            return self._record(known, new, path)
        if is_ in ("array", "map"):
            key = "items" if is_ == "array" else "values"
            inner = self.nullable(_of(known, key), _of(new, key), (*path, "element"))
            return {"type": is_, key: inner}
        if is_ in ("enum", "fixed"):
            return self._by_name(known, given, path)
        if known is not None and new is not None:
            return self._promoted(known, new, path)
        return given

    def _record(self, known: Any, new: Any, path: tuple[str, ...]) -> Any:
        name = (new if new is not None else known)["name"]
        if name in self._open:
            self._refuse(path, f"{name} has itself in it, and columns cannot be recursive")
        self._open.append(name)
        self._records += 1
        made = f"triglot_record_{self._records}"
        fields = self._merged_fields(_of(known, "fields") or [], _of(new, "fields") or [], path)
        self._open.pop()
        return {"type": "record", "name": made, "fields": fields}

    def _merged_fields(self, known: list[Any], new: list[Any], path: tuple[str, ...]) -> list[Any]:
        left = {one["name"]: one for one in new}
        fields = []
        for one in known:
            other = left.pop(one["name"], None)
            if other is None:
                other = next((left[n] for n in left if _same_by_alias(one, left[n])), None)
                if other is not None:
                    del left[other["name"]]
            fields.append(self._field(one, other, path))
        fields += [self._field(None, other, path) for other in left.values()]
        return fields

    def _field(self, known: Any, new: Any, path: tuple[str, ...]) -> Any:
        self._fields += 1
        if self._fields > MOST_FIELDS:
            raise Refused(f"{self._what} has over {MOST_FIELDS:,} fields, and no table has so many")
        name = (new or known)["name"]
        aliases = {*((known or {}).get("aliases", ())), *((new or {}).get("aliases", ()))}
        if known is not None and new is not None and known["name"] != name:
            if name in known.get("aliases", ()):
                name = known["name"]  # an older schema, which has the name that was
            else:
                aliases.add(known["name"])
        inner = self.nullable(_of(known, "type"), _of(new, "type"), (*path, name))
        made = {"name": name, "type": inner, "default": None}
        aliases.discard(name)
        return {**made, "aliases": sorted(aliases)} if aliases else made

    def _by_name(self, known: Any, given: Any, path: tuple[str, ...]) -> Any:
        name = given["name"]
        if known is not None and known["name"] != name:
            self._refuse(path, f"its type {known['name']} is called {name} now")
        there = [one for one in (self._known_named.get(name), self._named.get(name)) if one]
        if len({one.get("size") for one in there}) > 1:
            self._refuse(path, f"{name} has another size")
        if name in self._written:
            return name
        self._written.add(name)
        if given["type"] == "fixed":
            return given
        symbols = list(dict.fromkeys(symbol for one in there for symbol in one["symbols"]))
        return {"type": "enum", "name": name, "symbols": symbols}

    def _promoted(self, known: Any, new: Any, path: tuple[str, ...]) -> Any:
        was, is_ = _kind(known), _kind(new)
        logical = (_logical(known), _logical(new))
        if logical[0] == logical[1]:
            if was == is_:
                return known
            if logical == ((), ()):
                if was in PROMOTED.get(is_, ()):
                    return known
                if (was, is_) in WIDENED:
                    return new
        if was == is_ == "bytes" and _same_scale(known, new):
            return max(known, new, key=lambda one: int(one["precision"]))
        self._refuse(path, f"it was {_shown(known)} and is {_shown(new)}")

    def _resolved(self, schema: Any, named: Mapping[str, Any]) -> Any:
        while isinstance(schema, str) and schema in named:
            schema = named[schema]
        while isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
            schema = schema["type"]
        return schema

    def _refuse(self, path: tuple[str, ...], why: str) -> Any:
        place = ".".join(path) or "the whole"
        raise Refused(f"{self._what} does not go with the table: {place}: {why}")


def _branches(schema: Any) -> list[Any]:
    if schema is None:
        return []
    branches = schema if isinstance(schema, list) else [schema]
    return [branch for branch in branches if _kind(branch) != "null"]


def _kind(schema: Any) -> str:
    """Empty for none."""
    return str(schema["type"] if isinstance(schema, dict) else schema or "")


def _of(schema: Any, key: str) -> Any:
    return None if schema is None else schema[key]


def _same_by_alias(known: Any, new: Any) -> bool:
    return known["name"] in new.get("aliases", ()) or new["name"] in known.get("aliases", ())


def _logical(schema: Any) -> tuple[Any, ...]:
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return ()
    return (schema["logicalType"], schema.get("precision"), schema.get("scale", 0))


def _same_scale(known: Any, new: Any) -> bool:
    one, other = _logical(known), _logical(new)
    return bool(one and other) and one[0] == other[0] == "decimal" and one[2] == other[2]


def _shown(schema: Any) -> str:
    logical = f" ({_logical(schema)[0]})" if _logical(schema) else ""
    return f"{_kind(schema)}{logical}"
