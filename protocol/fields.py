"""The parts of a declaration: version ranges, fields, the field functions, the type of structs.

`schema.py` explains how they are used and offers the field functions to declarations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Buffer = bytes | bytearray
    Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
    Encoder = Callable[[Any, bytearray, list[tuple[int, Any]]], None]

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
        struct: StructType | None = None,
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
    item: StructType,
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """A struct in place. A nullable one is preceded by a byte: negative for null, else 1."""
    return Field("struct", versions, default, nullable, tag, struct=item)


def _check_fields(cls: StructType) -> None:
    """Check all that can be seen without the versions of the message around."""
    if any(base._fields for base in cls.__mro__[1:] if isinstance(base, StructType)):
        raise TypeError(f"{cls._name} inherits fields; write them out, their order matters")
    tags: dict[int, str] = {}
    for field in cls._fields:
        if field.tag is not None:
            if field.tag in tags:
                raise TypeError(
                    f"{cls._name}.{field.name} repeats tag {field.tag} of {tags[field.tag]}"
                )
            tags[field.tag] = field.name


def _check_annotations(cls: StructType, annotations: Mapping[str, Any]) -> None:
    """A field without an annotation would escape the type checker, and the other way round."""
    declared = {field.name for field in cls._fields}
    for name in annotations:
        if name not in declared and not str(annotations[name]).startswith("ClassVar"):
            raise TypeError(f"{cls._name}.{name} is annotated but has no field function")
    for name in declared:
        if name not in annotations:
            raise TypeError(f"{cls._name}.{name} has no annotation, so a checker cannot see it")


def _check_versions(cls: StructType, versions: str, flexible: str | None) -> None:
    cls._versions = span = VersionRange.parse(versions)
    if flexible is not None:
        asked = VersionRange.parse(flexible)
        if asked.last != OPEN_END or asked.first > span.last:
            raise TypeError(f"{cls._name} is flexible in {asked}, but has versions {span}")
        cls._first_flexible = max(asked.first, span.first)
    _check_reach(cls, cls._name, span, cls._first_flexible)


def _check_reach(cls: StructType, path: str, reach: VersionRange, first_flexible: int) -> None:
    """Check fields, nested ones too, in the versions in which their struct is on the wire."""
    for field in cls._fields:
        where = f"{path}.{field.name}"
        present = field.versions.overlap(reach)
        if present is None:
            raise TypeError(f"{where} is in {field.versions}, but its struct is in {reach} only")
        if present != reach and field.default is REQUIRED:
            raise TypeError(f"{where} is missing from some of {reach} and needs a default")
        if field.tag is not None and present.first < first_flexible:
            raise TypeError(f"{where} has a tag in version {present.first}, which is not flexible")
        inner = field
        while inner.item is not None:
            inner = inner.item
        if inner.struct is not None:
            _check_reach(inner.struct, where, present, first_flexible)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        int8, int16, int32, int64, uint16, uint32, float64, boolean, uuid, string, binary,
        records, array, struct,
    ),
)  # fmt: skip
class StructType(type):
    """The class of structs: collects the fields, gives slots, checks the declaration.

    `__init__`, decoders and encoders are written when first used, so that importing a message
    costs little.
    """

    _fields: tuple[Field, ...]
    _name: str
    _key: int | None
    _versions: VersionRange | None
    _first_flexible: int
    _decoders: dict[int, Decoder]
    _encoders: dict[int, Encoder]
    _default: Any
    _is_message: bool

    def __new__(
        meta,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: str | None = None,
        flexible: str | None = None,
    ) -> StructType:
        fields = [(name_, value) for name_, value in namespace.items() if isinstance(value, Field)]
        for field_name, field in fields:
            if field.name or field_name.startswith("_"):
                raise TypeError(f"{name}.{field_name} is no name, or its field has one already")
            field.name = field_name
            del namespace[field_name]
        namespace["__slots__"] = tuple(field_name for field_name, _ in fields)
        cls = super().__new__(meta, name, bases, namespace)
        cls._fields = tuple(field for _, field in fields)
        cls._name = cls.__qualname__.rpartition("<locals>.")[2]
        cls._key = key
        cls._versions = None
        cls._first_flexible = OPEN_END
        cls._decoders, cls._encoders = {}, {}
        cls._default = None
        _check_fields(cls)
        if "__annotate_func__" not in namespace:  # Python 3.14 may evaluate them late
            _check_annotations(cls, namespace.get("__annotations__", {}))
        if versions is not None:
            _check_versions(cls, versions, flexible)
        elif flexible is not None or key is not None:
            raise TypeError(f"{cls._name} has a key or flexible versions, but no versions")
        is_base = "_is_message" in namespace
        if cls._is_message and not is_base and (key is None or versions is None):
            raise TypeError(f"{cls._name} is a message and needs key= and versions=")
        return cls

    # Properties of the metaclass, so that a field may bear the same name: FindCoordinator has
    # a field `key`.

    @property
    def key(cls) -> int:
        """The API key of a message."""
        if cls._key is None:
            raise AttributeError(f"{cls._name} has no API key")
        return cls._key

    @property
    def min_version(cls) -> int:
        return cls.valid_versions.first

    @property
    def max_version(cls) -> int:
        return cls.valid_versions.last

    @property
    def first_flexible(cls) -> int:
        """The first version with compact types and tag sections; 32767 if there is none."""
        return cls._first_flexible

    @property
    def valid_versions(cls) -> VersionRange:
        if cls._versions is None:
            raise AttributeError(f"{cls._name} is a part of a message and has no versions")
        return cls._versions

    def shared_default(cls) -> Any:
        """The instance of which every field has its default; it refuses to be changed."""
        if cls._default is None:
            missing = [f.name for f in cls._fields if f.default is REQUIRED or f.kind == "array"]
            if missing:
                raise TypeError(f"{cls._name} has no default to share for {', '.join(missing)}")
            namespace = {
                "__slots__": (),
                "__setattr__": _refuse_change,
                "__delattr__": _refuse_change,
                "__module__": cls.__module__,
                "__qualname__": cls.__qualname__,
            }
            twin: type[Any] = type.__new__(StructType, cls.__name__, (cls,), namespace)
            default = object.__new__(twin)
            for field in cls._fields:
                object.__setattr__(default, field.name, field.default_value())
            cls._default = default
        return cls._default


def _refuse_change(instance: object, name: str, _value: object = None) -> None:
    raise AttributeError(
        f"{type(instance).__qualname__}.{name}: this is the shared default; make a new instance"
    )
