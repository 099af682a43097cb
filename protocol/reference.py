"""Encoding and decoding by walking the declared fields: slow, and easy to believe.

The oracle against which the compiled codecs are tested, the finder of the field whose value
does not fit, and the engine of dump tools. It shares nothing with the compiler but the
declarations.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as struct_error
from typing import TYPE_CHECKING, Any

from protocol import primitives
from protocol.errors import Malformed
from protocol.fields import StructType

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from protocol.fields import Field

    Made = TypeVar("Made")

FIXED_WIDTH = {
    "int8": Layout(">b"),
    "int16": Layout(">h"),
    "int32": Layout(">i"),
    "int64": Layout(">q"),
    "uint16": Layout(">H"),
    "uint32": Layout(">I"),
    "float64": Layout(">d"),
}


def decode(cls: Callable[..., Made], version: int, data: bytes | bytearray) -> Made:
    """The instance of a struct that these bytes are, all of them. Raises `Malformed`."""
    assert isinstance(cls, StructType)
    _check_version(cls, version)
    walk = _Decoding(bytes(data), version, version >= cls.first_flexible)
    message: Made = walk.struct(cls, 0, len(data), cls._name)
    if walk.position != len(data):
        raise Malformed(f"{cls._name}: {len(data) - walk.position} bytes after the last field")
    return message


def encode(message: Any, version: int) -> bytes:
    """The bytes of this version of a struct.

    A `ValueError` names the field that does not fit. A slice of a file is asked for its bytes
    by `read()`.
    """
    cls = message.__class__
    assert isinstance(cls, StructType)
    _check_version(cls, version)
    out = bytearray()
    _Encoding(version, version >= cls.first_flexible).struct(message, out, cls._name)
    return bytes(out)


def _check_version(cls: StructType, version: int) -> None:
    if not cls.valid_versions.holds(version):
        raise ValueError(f"{cls._name} has versions {cls.valid_versions}, not {version}")


class _Decoding:
    """A position in the input, and the rules of one version."""

    def __init__(self, buffer: bytes, version: int, flexible: bool) -> None:
        self.buffer = buffer
        self.version = version
        self.flexible = flexible
        self.position = 0
        self.elements = 0

    def struct(self, cls: StructType, position: int, end: int, path: str) -> Any:
        values = {f.name: f.default_value() for f in cls._fields}
        tagged: dict[int, Field] = {}
        self.position = position
        for field in cls._fields:
            if not field.versions.holds(self.version):
                continue
            if field.tag is not None:
                tagged[field.tag] = field
                continue
            values[field.name] = self.value(field, end, f"{path}.{field.name}")
        if self.flexible:
            values |= self.tag_section(tagged, end, path)
        return cls(**values)

    def tag_section(self, tagged: dict[int, Field], end: int, path: str) -> dict[str, Any]:
        count, self.position = primitives.read_uvarint(self.buffer, self.position, end)
        if count > primitives.MAX_TAGS:
            raise Malformed(f"{path}: {count} tags")
        values: dict[str, Any] = {}
        for _ in range(count):
            tag, self.position = primitives.read_uvarint(self.buffer, self.position, end)
            size, self.position = primitives.read_uvarint(self.buffer, self.position, end)
            after = self.position + size
            if after > end:
                raise primitives.malformed_end(self.position, size, end)
            if tag in tagged:
                field = tagged[tag]
                if field.name in values:
                    raise Malformed(f"{path}: tag {tag} twice")
                values[field.name] = self.value(field, after, f"{path}.{field.name}")
                if self.position != after:
                    raise Malformed(f"{path}.{field.name}: ends at {self.position}, not {after}")
            self.position = after
        return values

    def value(self, field: Field, end: int, path: str) -> Any:
        try:
            value = self.untested_value(field, end, path)
        except Malformed as error:
            raise Malformed(f"{path}: {error}") from error
        if value is None and not field.nullable_in(self.version):
            raise Malformed(f"{path}: null")
        return value

    def untested_value(self, field: Field, end: int, path: str) -> Any:
        kind = field.kind
        if kind in FIXED_WIDTH:
            layout = FIXED_WIDTH[kind]
            return layout.unpack(self.take(layout.size, end))[0]
        if kind == "boolean":
            return self.take(1, end) != b"\0"
        if kind == "uuid":
            return self.take(16, end)
        if kind == "string":
            text, self.position = primitives.read_string(
                self.buffer, self.position, end, compact=self.flexible
            )
            return text
        if kind in ("binary", "records"):
            data, self.position = primitives.read_bytes(
                self.buffer, self.position, end, compact=self.flexible
            )
            return memoryview(data) if kind == "records" and data is not None else data
        if kind == "array":
            return self.array(field, end, path)
        assert field.struct is not None
        if field.nullable_in(self.version) and self.take(1, end)[0] > 127:
            return None
        return self.struct(field.struct, self.position, end, path)

    def array(self, field: Field, end: int, path: str) -> list[Any] | None:
        assert field.item is not None
        count, self.position = primitives.read_length(
            self.buffer, self.position, end, compact=self.flexible
        )
        if count is None:
            return None
        self.elements += count
        if self.elements > primitives.MAX_ELEMENTS or count > end - self.position:
            raise Malformed(f"{count} elements claimed, {end - self.position} bytes left")
        return [self.value(field.item, end, f"{path}[{index}]") for index in range(count)]

    def take(self, size: int, end: int) -> bytes:
        data, self.position = primitives.take(self.buffer, self.position, end, size)
        return data


class _Encoding:
    """The rules of one version."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def struct(self, value: Any, out: bytearray, path: str) -> None:
        tagged: dict[int, Field] = {}
        for field in value._fields:
            if field.versions.holds(self.version):
                if field.tag is None:
                    self.field(field, getattr(value, field.name), out, f"{path}.{field.name}")
                else:
                    tagged[field.tag] = field
        if self.flexible:
            self.tag_section(value, tagged, out, path)

    def tag_section(self, value: Any, tagged: dict[int, Field], out: bytearray, path: str) -> None:
        entries = {}
        for tag, field in tagged.items():
            content = getattr(value, field.name)
            if content != field.default_value():
                entries[tag] = bytearray()
                self.field(field, content, entries[tag], f"{path}.{field.name}")
        primitives.write_uvarint(out, len(entries))
        for tag in sorted(entries):
            primitives.write_uvarint(out, tag)
            primitives.write_uvarint(out, len(entries[tag]))
            out += entries[tag]

    def field(self, field: Field, value: Any, out: bytearray, path: str) -> None:
        if value is None and not field.nullable_in(self.version):
            raise ValueError(f"{path} is None, which version {self.version} does not allow")
        try:
            self.value(field, value, out, path)
        except (struct_error, TypeError, AttributeError, UnicodeError) as error:
            raise ValueError(f"{path} = {value!r} does not fit {field.kind}: {error}") from error
        except ValueError as error:
            if path in str(error):
                raise
            raise ValueError(f"{path} does not fit {field.kind}: {error}") from error

    def value(self, field: Field, value: Any, out: bytearray, path: str) -> None:
        kind = field.kind
        if kind in FIXED_WIDTH:
            out += FIXED_WIDTH[kind].pack(value)
        elif kind == "boolean":
            out.append(1 if value else 0)
        elif kind == "uuid":
            if len(value) != 16:
                raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
            out += value
        elif kind == "string":
            primitives.write_string(out, value, compact=self.flexible)
        elif kind in ("binary", "records"):
            data = value.read() if hasattr(value, "size") else value
            primitives.write_bytes(out, data, compact=self.flexible)
        elif kind == "array":
            count = None if value is None else len(value)
            primitives.write_length(out, count, compact=self.flexible)
            assert field.item is not None
            for index, item in enumerate(value or ()):
                self.field(field.item, item, out, f"{path}[{index}]")
        else:
            if field.nullable_in(self.version):
                out.append(255 if value is None else 1)
            if value is not None:
                self.struct(value, out, path)
