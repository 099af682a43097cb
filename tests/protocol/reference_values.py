"""Trees of values for a schema: the smallest, the largest, and some of chance.

Chance comes from a seeded generator that the caller passes, so a failure can be repeated.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.protocol.reference_schema import Schema, SchemaField, Tree

# The first length whose compact form takes two bytes.
LONG = 127

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UNSIGNED_BITS = {"uint16": 16, "uint32": 32}

LETTERS = "abcxyz0189._-äßé→日本\U0001f600\x00 \n"


class Empty:
    """Zero, false, nothing; null wherever that is allowed."""

    many = 0

    def is_null(self) -> bool:
        return True

    def integer(self, low: int, high: int) -> int:
        return 0

    def boolean(self) -> bool:
        return False

    def real(self) -> float:
        return 0.0

    def text(self) -> str:
        return ""

    def content(self, size: int | None = None) -> bytes:
        return bytes(size or 0)


class Zero(Empty):
    """As `Empty`, but nothing is null and every array has one element."""

    many = 1

    def is_null(self) -> bool:
        return False


class Largest(Zero):
    """The largest numbers, two of everything, lengths that need more than one byte."""

    many = 2

    def integer(self, low: int, high: int) -> int:
        return high

    def boolean(self) -> bool:
        return True

    def real(self) -> float:
        return 1.7976931348623157e308

    def text(self) -> str:
        return "é" * LONG

    def content(self, size: int | None = None) -> bytes:
        return b"\xff" * (LONG if size is None else size)


class Smallest(Zero):
    """The smallest numbers, one of everything, the longest length that needs one byte."""

    def integer(self, low: int, high: int) -> int:
        return low

    def real(self) -> float:
        return -0.5

    def text(self) -> str:
        return "t" * (LONG - 1)

    def content(self, size: int | None = None) -> bytes:
        return b"\x80" * (LONG - 1 if size is None else size)


class Chance:
    """Anything; about one in four of what may be null is."""

    def __init__(self, random: Random) -> None:
        self.random = random

    @property
    def many(self) -> int:
        return self.random.choice((0, 1, 1, 2, 3))

    def is_null(self) -> bool:
        return self.random.random() < 0.25

    def integer(self, low: int, high: int) -> int:
        near = self.random.choice((0, 1, low, high, None, None))
        return self.random.randint(low, high) if near is None else near

    def boolean(self) -> bool:
        return self.random.random() < 0.5

    def real(self) -> float:
        return self.random.uniform(-1e6, 1e6)

    def text(self) -> str:
        count = self.random.choice((0, 1, 3, 8, 8, 40, LONG))
        return "".join(self.random.choices(LETTERS, k=count))

    def content(self, size: int | None = None) -> bytes:
        if size is None:
            size = self.random.choice((0, 1, 7, LONG - 1, LONG, 300))
        return self.random.randbytes(size)


Source = Empty | Chance


def tree_of(schema: Schema, version: int, source: Source) -> Tree:
    """A tree with every field that this version has, filled from the source."""
    return _struct(schema.fields, version, source)


def _struct(fields: list[SchemaField], version: int, source: Source) -> Tree:
    return {f.name: _field(f, version, source) for f in fields if version in f.versions}


def _field(field: SchemaField, version: int, source: Source) -> Any:
    if version in field.nullable and source.is_null():
        return None
    if field.is_array:
        return [_element(field, version, source) for _ in range(source.many)]
    return _element(field, version, source)


def _element(field: SchemaField, version: int, source: Source) -> Any:
    if field.fields is not None:
        return _struct(field.fields, version, source)
    kind = field.type
    if kind in BITS:
        half = 1 << (BITS[kind] - 1)
        return source.integer(-half, half - 1)
    if kind in UNSIGNED_BITS:
        return source.integer(0, (1 << UNSIGNED_BITS[kind]) - 1)
    if kind == "bool":
        return source.boolean()
    if kind == "float64":
        return source.real()
    if kind == "string":
        return source.text()
    return source.content(16 if kind == "uuid" else None)
