"""The fields of a declaration: version ranges, what a field knows, the field functions.

`schema.py` explains how they are used and offers the field functions to declarations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.schema import Struct

OPEN_END = 32767  # versions are int16; "3+" ends here, and so does "never flexible" begin
ZERO_UUID = bytes(16)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()


class VersionRange(NamedTuple):
    """The versions from `first` to `last`, both inclusive."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read "3+", "2-4", "1", or "" for all; anything else is a ValueError."""
        if text == "":
            return EVERY_VERSION
        low, separator, high = text.partition("-")
        if text.endswith("+") and not separator:
            low, high = text[:-1], str(OPEN_END)
        elif not separator:
            high = low
        if not (low.isascii() and low.isdigit() and high.isascii() and high.isdigit()):
            raise ValueError(f"{text!r} is not a version range such as '3+', '2-4' or '1'")
        if int(low) > int(high):
            raise ValueError(f"version range {text!r} ends before it begins")
        return cls(int(low), int(high))

    def holds(self, version: int) -> bool:
        return self.first <= version <= self.last

    def within(self, other: VersionRange) -> bool:
        return other.first <= self.first and self.last <= other.last

    def overlap(self, other: VersionRange) -> VersionRange | None:
        first, last = max(self.first, other.first), min(self.last, other.last)
        return VersionRange(first, last) if first <= last else None

    def __str__(self) -> str:
        if self.last == OPEN_END:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


EVERY_VERSION = VersionRange(0, OPEN_END)

# What a default must be, for the kinds whose range is not that of an integer.
_PYTHON_TYPES: Mapping[str, type] = {
    "boolean": bool, "float64": float, "uuid": bytes, "string": str, "binary": bytes,
    "records": bytes,
}  # fmt: skip

# Smallest and largest value of the integer kinds.
INTEGERS: Mapping[str, tuple[int, int]] = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
}
_NULLABLE_KINDS = frozenset({"string", "binary", "records", "array", "struct"})


class Field:
    """One field as declared. `item` describes the elements of an array."""

    __slots__ = ("default", "item", "kind", "name", "nullable", "struct", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str = "0+",
        default: Any = REQUIRED,
        nullable: str | None = None,
        tag: int | None = None,
        *,
        item: Field | None = None,
        struct: type[Struct] | None = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = VersionRange.parse(versions)
        self.default = default
        self.nullable = self._null_range(nullable)
        self.tag = tag
        self.item = item
        self.struct = struct
        self._check()

    def _null_range(self, text: str | None) -> VersionRange | None:
        if text is None:
            return None
        if self.kind not in _NULLABLE_KINDS:
            raise TypeError(f"{self.kind} has no null on the wire")
        asked = VersionRange.parse(text)
        if asked == EVERY_VERSION:
            return self.versions
        if not asked.within(self.versions):
            raise TypeError(f"nullable in {asked}, but the field is in {self.versions} only")
        return asked

    def _check(self) -> None:
        if self.tag is not None:
            if not 0 <= self.tag <= INTEGERS["int32"][1]:
                raise TypeError(f"tag {self.tag} is not a number from 0 to 2147483647")
            if self.default is REQUIRED:
                raise TypeError("a tagged field needs a default")
            if self.holds("records"):
                raise TypeError("records cannot stand in a tag section")
        if self.default is not REQUIRED:
            self._check_default()

    def _check_default(self) -> None:
        default = self.default
        if default is None:
            if self.nullable is None:
                raise TypeError("the default is None, but the field is not nullable")
        elif self.kind in INTEGERS:
            low, high = INTEGERS[self.kind]
            if type(default) is not int or not low <= default <= high:
                raise TypeError(f"default {default!r} is not an {self.kind}")
        elif self.kind in ("array", "struct"):
            if default != () or type(default) is not tuple:
                raise TypeError(f"the default of {self.kind} is () or None, not {default!r}")
            if self.struct is not None:
                self.struct.shared_default()
        elif type(default) is not _PYTHON_TYPES[self.kind]:
            raise TypeError(f"default {default!r} is not a {self.kind}")
        elif self.kind == "uuid" and default != ZERO_UUID:
            raise TypeError("the default of a uuid is ZERO_UUID")

    def holds(self, kind: str) -> bool:
        """Whether this field is of the kind, or has one inside."""
        if self.kind == kind:
            return True
        if self.item is not None:
            return self.item.holds(kind)
        return self.struct is not None and any(f.holds(kind) for f in self.struct._fields)

    def nullable_in(self, version: int) -> bool:
        return self.nullable is not None and self.nullable.holds(version)

    def default_value(self) -> Any:
        """The default as an instance carries it; arrays get a list of their own each time."""
        if self.default != ():
            return self.default
        return [] if self.struct is None else self.struct.shared_default()

    def __repr__(self) -> str:
        inner = self.item or (self.struct.__qualname__ if self.struct else "")
        words = (self.kind, self.name, f"of {inner}" if inner else "", str(self.versions))
        return f"<{' '.join(filter(None, words))}>"


# The field functions return Any so that the annotation beside them holds for the checker.


def int8(versions: str = "0+", *, default: Any = REQUIRED, tag: int | None = None) -> Any:
    return Field("int8", versions, default, None, tag)


def int16(versions: str = "0+", *, default: Any = REQUIRED, tag: int | None = None) -> Any:
    return Field("int16", versions, default, None, tag)


def int32(versions: str = "0+", *, default: Any = REQUIRED, tag: int | None = None) -> Any:
    return Field("int32", versions, default, None, tag)


def int64(versions: str = "0+", *, default: Any = REQUIRED, tag: int | None = None) -> Any:
    return Field("int64", versions, default, None, tag)


def uint16(versions: str = "0+", *, default: Any = REQUIRED, tag: int | None = None) -> Any:
    return Field("uint16", versions, default, None, tag)


def uint32(versions: str = "0+", *, default: Any = REQUIRED, tag: int | None = None) -> Any:
    return Field("uint32", versions, default, None, tag)


def float64(versions: str = "0+", *, default: Any = REQUIRED, tag: int | None = None) -> Any:
    return Field("float64", versions, default, None, tag)


def boolean(versions: str = "0+", *, default: Any = REQUIRED, tag: int | None = None) -> Any:
    """One byte; any but zero is read as true."""
    return Field("boolean", versions, default, None, tag)


def uuid(versions: str = "0+", *, default: Any = REQUIRED, tag: int | None = None) -> Any:
    """16 raw bytes; `ZERO_UUID` means none."""
    return Field("uuid", versions, default, None, tag)


def string(
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """At most 32767 bytes of UTF-8."""
    return Field("string", versions, default, nullable, tag)


def binary(
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """Bytes, copied out of the input."""
    return Field("binary", versions, default, nullable, tag)


def records(versions: str = "0+", *, default: Any = REQUIRED, nullable: str | None = None) -> Any:
    """Batches or message sets: a view of the input; when encoding also a slice of a file."""
    return Field("records", versions, default, nullable)


def array(
    item: Any,
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """A list of a Struct, of a primitive (`array(int32)`), or of a field (`array(string())`)."""
    if hasattr(item, "_fields"):
        element = Field("struct", struct=item)
    else:
        element = item() if callable(item) else item
        if not isinstance(element, Field):
            raise TypeError(f"an array cannot hold {item!r}")
        if element.tag is not None or element.versions != EVERY_VERSION:
            raise TypeError("the element of an array has neither a tag nor versions")
    return Field("array", versions, default, nullable, tag, item=element)


def struct(
    item: type[Struct],
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """A struct in place. A nullable one is preceded by a byte: negative for null, else 1."""
    return Field("struct", versions, default, nullable, tag, struct=item)
