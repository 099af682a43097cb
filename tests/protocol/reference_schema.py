"""Kafka's own message schemas, obeyed literally: the oracle for `protocol.messages`.

The files under `schemas/` describe every message in JSON with `//` comments. Here they are
walked field by field, version by version, into bytes and back. Nothing of `protocol` is used,
and nothing is clever. A message is a tree of plain values: a dict of Kafka's field names for a
struct (only the fields that the version has), a list for an array, 16 bytes for a uuid.
"""

from __future__ import annotations

import json
import re
import struct
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parent / "schemas"

# Newest last. A message may be described by several; where they meet they agree on the bytes.
RELEASES = ("3.9.0", "4.3.1", "4.4")

# ListConfigResources had another name, and so another file, until 4.1.
FORMER_NAMES = {"ListConfigResources": "ListClientMetricsResources"}

Tree = dict[str, Any]

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


def parse_versions(text: str | None, highest: int = 32767) -> range:
    """ "3+", "2-4", "1" or "none" as a range of versions."""
    if not text or text == "none":
        return range(0)
    first, _, last = text.rstrip("+").partition("-")
    return range(int(first), (highest if text.endswith("+") else int(last or first)) + 1)


class SchemaField:
    def __init__(self, entry: dict[str, Any], shared: dict[str, list[dict[str, Any]]]) -> None:
        self.name: str = entry["name"]
        self.is_array = entry["type"].startswith("[]")
        self.type: str = entry["type"].removeprefix("[]")
        self.versions = parse_versions(entry["versions"])
        self.nullable = parse_versions(entry.get("nullableVersions"))
        self.tag: int | None = entry.get("tag")
        self.tagged = parse_versions(entry.get("taggedVersions"))
        self.written_default = entry.get("default")
        self.fields: list[SchemaField] | None = None
        if self.type not in FIXED and self.type not in ("string", "bytes", "records"):
            inner = entry.get("fields") or shared[self.type]
            self.fields = [SchemaField(field, shared) for field in inner]

    def default(self, version: int) -> Any:
        """What a sender leaves out when the field is tagged, and a receiver then assumes."""
        written = self.written_default
        if written == "null":
            return None
        if self.is_array:
            return []
        if self.fields is not None:
            return {f.name: f.default(version) for f in self.fields if version in f.versions}
        if self.type == "string":
            return written or ""
        if self.type in ("bytes", "records"):
            return b""
        if self.type == "uuid":
            return bytes(16)
        if self.type == "bool":
            return str(written).lower() == "true"
        if self.type == "float64":
            return float(written or 0)
        return int(str(written or 0), 0)


class Schema:
    """A request or a response, as one release of Kafka describes it."""

    def __init__(self, release: str, entry: dict[str, Any]) -> None:
        self.release = release
        self.name: str = entry["name"]
        self.key: int = entry["apiKey"]
        self.versions = parse_versions(entry["validVersions"])
        self.flexible = parse_versions(entry["flexibleVersions"])
        shared = {common["name"]: common["fields"] for common in entry.get("commonStructs", ())}
        self.fields = [SchemaField(field, shared) for field in entry["fields"]]

    def __repr__(self) -> str:
        return f"<{self.name} of {self.release}>"

    def encode(self, version: int, tree: Tree, *, strange_tags: bool = False) -> bytes:
        """The bytes of a tree; `strange_tags` adds a tag nobody knows to every struct."""
        out = bytearray()
        Writer(version, version in self.flexible, out, strange_tags).struct(self.fields, tree)
        return bytes(out)

    def decode(self, version: int, data: bytes) -> Tree:
        reader = Reader(version, version in self.flexible, data)
        tree = reader.struct(self.fields)
        assert reader.position == len(data), f"{len(data) - reader.position} bytes left"
        return tree


class Writer:
    def __init__(self, version: int, flexible: bool, out: bytearray, strange_tags: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.out = out
        self.strange_tags = strange_tags

    def varint(self, number: int) -> None:
        while number > 127:
            self.out.append(number & 127 | 128)
            number >>= 7
        self.out.append(number)

    def length(self, length: int | None, classic: str) -> None:
        """A length in front of a string, bytes or an array; None says that there is none."""
        if self.flexible:
            self.varint(0 if length is None else length + 1)
        else:
            self.out += struct.pack(classic, -1 if length is None else length)

    def struct(self, fields: list[SchemaField], tree: Tree) -> None:
        present = [field for field in fields if self.version in field.versions]
        assert [field.name for field in present] == list(tree), (list(tree), present)
        for field in present:
            if self.version not in field.tagged:
                self.field(field, tree[field.name])
        if not self.flexible:
            return
        tagged: list[tuple[int, bytes]] = []
        for field in present:
            value = tree[field.name]
            if self.version in field.tagged and value != field.default(self.version):
                assert field.tag is not None
                inside = Writer(self.version, True, bytearray(), self.strange_tags)
                inside.field(field, value)
                tagged.append((field.tag, bytes(inside.out)))
        if self.strange_tags:
            tagged.append((4711, b"nobody knows"))
        self.varint(len(tagged))
        for tag, content in sorted(tagged):
            self.varint(tag)
            self.varint(len(content))
            self.out += content

    def field(self, field: SchemaField, value: Any) -> None:
        if value is None:
            assert self.version in field.nullable, field.name
        if field.is_array:
            self.length(None if value is None else len(value), ">i")
            for element in value or ():
                self.element(field, element)
        elif field.fields is not None and self.version in field.nullable:
            self.out += struct.pack(">b", -1 if value is None else 1)
            if value is not None:
                self.element(field, value)
        else:
            self.element(field, value)

    def element(self, field: SchemaField, value: Any) -> None:
        if field.fields is not None:
            self.struct(field.fields, value)
        elif field.type in FIXED:
            self.out += struct.pack(">" + FIXED[field.type], value)
        elif field.type == "string":
            encoded = None if value is None else value.encode()
            self.length(None if encoded is None else len(encoded), ">h")
            self.out += encoded or b""
        else:
            self.length(None if value is None else len(value), ">i")
            self.out += value or b""


class Reader:
    def __init__(self, version: int, flexible: bool, data: bytes) -> None:
        self.version = version
        self.flexible = flexible
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        taken = self.data[self.position : self.position + size]
        assert len(taken) == size, "too short"
        self.position += size
        return taken

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def length(self, classic: str) -> int | None:
        if self.flexible:
            length = self.varint() - 1
        else:
            (length,) = struct.unpack(classic, self.take(struct.calcsize(classic)))
        return None if length < 0 else length

    def struct(self, fields: list[SchemaField]) -> Tree:
        present = [field for field in fields if self.version in field.versions]
        tree: Tree = {}
        for field in present:
            if self.version in field.tagged:
                tree[field.name] = field.default(self.version)
            else:
                tree[field.name] = self.field(field)
        if self.flexible:
            by_tag = {f.tag: f for f in present if self.version in f.tagged}
            for _ in range(self.varint()):
                tag, size = self.varint(), self.varint()
                end = self.position + size
                if tag in by_tag:
                    tree[by_tag[tag].name] = self.field(by_tag[tag])
                    assert self.position == end, by_tag[tag].name
                self.position = end
        return tree

    def field(self, field: SchemaField) -> Any:
        if field.is_array:
            count = self.length(">i")
            value = None if count is None else [self.element(field) for _ in range(count)]
        elif field.fields is not None and self.version in field.nullable:
            value = None if struct.unpack(">b", self.take(1))[0] < 0 else self.element(field)
        else:
            value = self.element(field)
        assert value is not None or self.version in field.nullable, field.name
        return value

    def element(self, field: SchemaField) -> Any:
        if field.fields is not None:
            return self.struct(field.fields)
        if field.type in FIXED:
            layout = ">" + FIXED[field.type]
            return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        size = self.length(">h" if field.type == "string" else ">i")
        if size is None:
            return None
        taken = self.take(size)
        return taken.decode() if field.type == "string" else taken


def without_comments(text: str) -> str:
    """JSON has none, but the schemas do; a // inside a string is not one."""
    return re.sub(
        r'"(?:\\.|[^"\\])*"|//[^\n]*',
        lambda found: found[0] if found[0].startswith('"') else "",
        text,
    )


@cache
def schemas_of(api: str, kind: str) -> tuple[Schema, ...]:
    """Every description of a message, oldest release first; `kind` is Request or Response."""
    found = []
    for release in RELEASES:
        for name in (FORMER_NAMES.get(api), api):
            path = SCHEMAS / release / f"{name}{kind}.json"
            if path.exists():
                found.append(Schema(release, json.loads(without_comments(path.read_text()))))
    return tuple(found)


def schema_for(api: str, kind: str, version: int) -> Schema:
    """The newest description of this version: its names are the ones we use."""
    return next(s for s in reversed(schemas_of(api, kind)) if version in s.versions)
