"""Declarations that are hard on a codec, and Hypothesis strategies for their instances."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st

from protocol.schema import (
    ZERO_UUID,
    Message,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)

if TYPE_CHECKING:
    from protocol.fields import Field, StructType

# The same examples in every run and on every machine.
QUICK = settings(derandomize=True, database=None, deadline=None, max_examples=100)


class Point(Struct):
    """Fixed width throughout, and used by several messages."""

    x: int = int32(default=-1)
    y: int = int64(default=-1)


class EveryKind(Message, key=900, versions="0-5", flexible="3+"):
    class Row(Struct):
        class Cell(Struct):
            number: int = int16()
            note: str | None = string(nullable="", default=None)
            extra: bytes = binary("4+", tag=7, default=b"")

        name: str = string()
        cells: list[Cell] = array(Cell)
        points: list[Point] | None = array(Point, nullable="2+", default=())
        weight: int = int8("1-3", default=5)

    small: int = int8()
    flag: bool = boolean()
    unsigned_small: int = uint16()
    text: str = string()
    unsigned: int = uint32()
    maybe: str | None = string("1+", nullable="2+", default="")
    identity: bytes = uuid()
    ratio: float = float64("2+", default=0.5)
    blob: bytes | None = binary(nullable="1+", default=None)
    batches: memoryview | None = records(nullable="0+", default=None)
    rows: list[Row] = array(Row)
    numbers: list[int] | None = array(int32, nullable="", default=())
    flags: list[bool] = array(boolean, "1+", default=())
    bytes_of_numbers: list[int] = array(int8)
    identities: list[bytes] = array(uuid)
    words: list[str] = array(string)
    matrix: list[list[int]] = array(array(int16))
    point: Point = struct(Point)
    last: int = int64("2-4", default=-1)


class Tags(Message, key=901, versions="0-2", flexible="1+"):
    class Inner(Struct):
        label: str = string(default="")
        depth: int = int32("1+", tag=0, default=0)
        points: list[Point] = array(Point, "1+", tag=1, default=())

    plain: int = int32()
    # The order of declaration is not that of the tags.
    words: list[str] = array(string, "1+", tag=3, default=())
    text: str | None = string("1+", nullable="1+", tag=0, default=None)
    point: Point = struct(Point, "1+", tag=1, default=())
    number: int = int64("2+", tag=2, default=-1)
    flag: bool = boolean("1+", tag=130, default=False)
    maybe_text: str | None = string("1+", nullable="1+", tag=5, default="x")
    maybe_point: Point | None = struct(Point, "1+", nullable="1+", tag=6, default=None)
    maybe_rows: list[Inner] | None = array(Inner, "1+", nullable="1+", tag=7, default=())
    no_rows: list[Inner] | None = array(Inner, "1+", nullable="1+", tag=8, default=None)
    identity: bytes = uuid("1+", tag=9, default=ZERO_UUID)
    ratio: float = float64("1+", tag=10, default=0.0)
    inner: Inner = struct(Inner)
    inners: list[Inner] = array(Inner)


class Fixed(Message, key=908, versions="0-2", flexible="1+"):
    """Arrays of structs of fixed width, which are read all at once."""

    class Row(Struct):
        identity: bytes = uuid()
        flag: bool = boolean()
        number: int = int32()
        later: int = int8("2+", default=-3)
        note: str = string("1+", tag=0, default="")

    points: list[Point] = array(Point)
    rows: list[Row] | None = array(Row, nullable="")
    name: str = string()


class Optional(Message, key=902, versions="0-3", flexible="2+"):
    class Cursor(Struct):
        class Deeper(Struct):
            word: str = string()
            tail: int = int8()

        topic: str = string()
        partition: int = int32()
        deeper: Deeper | None = struct(Deeper, nullable="", default=None)

    before: int = int16()
    cursor: Cursor | None = struct(Cursor, nullable="1+")
    between: int = int16()
    many: list[Cursor] = array(Cursor)
    other: Cursor | None = struct(Cursor, "3+", nullable="3+", default=None)


class Data(Message, key=903, versions="0-1", flexible="1+"):
    class Topic(Struct):
        class Partition(Struct):
            index: int = int32()
            records: memoryview | None = records(nullable="")

        name: str = string()
        partitions: list[Partition] = array(Partition)

    topics: list[Topic] = array(Topic)
    required: memoryview = records()


class Empty(Message, key=904, versions="0-1", flexible="1+"):
    pass


class LogValue(Struct, versions="0-2", flexible="2+"):
    offset: int = int64()
    note: str = string("1+", default="")


CASES = [
    (cls, version)
    for cls in (EveryKind, Tags, Fixed, Optional, Data, Empty, LogValue)
    for version in range(cls.min_version, cls.max_version + 1)
]

_INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_KINDS: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(-(1 << bits), (1 << bits) - 1) for kind, bits in _INTEGERS.items()},
    "uint16": st.integers(0, 0xFFFF),
    "uint32": st.integers(0, 0xFFFFFFFF),
    "float64": st.floats(),
    "boolean": st.booleans(),
    "uuid": st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16),
    "string": st.text("aé\u20ac\U0001f600\udc80\udcff")
    | st.sampled_from(["x" * 126, "x" * 127, "x" * 20000]),
    "binary": st.binary() | st.just(b"b" * 300),
    "records": (st.binary() | st.just(b"r" * 127)).map(memoryview),
}


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """What a field may carry in a version in which it is on the wire."""
    if field.item is not None:
        strategy = st.lists(values(field.item, version), max_size=6)
    elif field.struct is not None:
        strategy = instances(field.struct, version)
    else:
        strategy = _KINDS[field.kind]
    if field.default not in ((), None) and field.tag is not None:
        strategy |= st.just(field.default)
    return strategy | st.none() if field.nullable_in(version) else strategy


def instances(cls: StructType, version: int) -> st.SearchStrategy[Any]:
    """Instances that survive a version: what it lacks has its default."""
    return st.builds(
        cls,
        **{f.name: values(f, version) for f in cls._fields if f.versions.holds(version)},
    )


def sample(cls: StructType, version: int, size: int) -> Any:
    """One instance, as big as its version allows within reason, the same every time."""
    chooser = random.Random(f"{cls.__name__} {version} {size}")

    def value(field: Any) -> Any:
        if field.item is not None:
            return [value(field.item) for _ in range(size)]
        if field.struct is not None:
            return fill(field.struct)
        return {
            "boolean": True,
            "float64": 1.25,
            "uuid": bytes(range(16)),
            "string": "word" * size,
            "binary": b"data" * size,
            "records": memoryview(b"batch" * size),
        }.get(field.kind, chooser.randrange(100))

    def fill(cls: Any) -> Any:
        return cls(**{f.name: value(f) for f in cls._fields if f.versions.holds(version)})

    return fill(cls)
