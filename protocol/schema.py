"""The vocabulary in which messages are declared.

A message is an ordinary class; the field functions carry what the wire needs to know:

    class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

Rules.

- A range is written as Kafka writes it: "3+", "2-4", "1". A field without one is in every
  version. For `nullable`, "" and "0+" mean: wherever the field is.
- The order of the fields is their order on the wire. A field with a `tag` stands in the tag
  section of its struct in all its versions.
- A field without a default must be given to the constructor. One that is missing from some
  version needs a default: it is what a message decoded from that version carries. A field
  that a version lacks is not written in it, whatever its value.
- `default=()` of an array is a fresh list. `default=()` of a struct that is not nullable is
  an instance of which every field has its default; it is shared, and refuses to be changed.
- Nested structs are classes inside the message, or beside it. A `Struct` with `versions=` of
  its own (the value of a log record) is encoded and decoded like a message.

An impossible declaration fails when its module is imported, with a `TypeError` that names the
field. Types on the Python side: int, bool, float, `bytes` of 16 for a uuid, `str` for a string
(UTF-8, bytes that are not survive as lone surrogates), `bytes` for binary, a `memoryview` of
the input for records, lists, struct instances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from protocol.errors import Malformed
from protocol.fields import (
    REQUIRED,
    ZERO_UUID,
    StructType,
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
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, Self, TypeVar

    from protocol.fields import Buffer, Field

    Parameters = ParamSpec("Parameters")
    Made = TypeVar("Made")

__all__ = [
    "ZERO_UUID",
    "Message",
    "Struct",
    "array",
    "binary",
    "boolean",
    "constructor",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "records",
    "string",
    "struct",
    "uint16",
    "uint32",
    "uuid",
]  # fmt: skip


class Struct(metaclass=StructType):
    """A part of a message, or with `versions=` the whole of a log record's key or value."""

    _is_message: ClassVar[bool] = False

    if TYPE_CHECKING:
        _fields: ClassVar[tuple[Field, ...]]
    else:
        # Written when the first instance is made: the text differs from class to class.
        def __init__(self, **values: Any) -> None:
            cls = type(self)
            cls.__init__ = _write_init(cls)
            cls.__init__(self, **values)

    @classmethod
    def decoder(cls, version: int) -> Callable[[Buffer, int, int], tuple[Self, int]]:
        """The function that reads this version from a buffer.

        Takes (buffer, position, end) and returns the instance and the position after it. Raises
        `Malformed` for bytes that are not this message; nothing at or after `end` ends up in
        the result. What follows the last field is left to the caller.
        """
        decode = cls._decoders.get(version)
        if decode is None:
            from protocol.compiler import compile_decoder

            decode = cls._decoders[version] = compile_decoder(cls, version)
        return decode

    @classmethod
    def encoder(cls, version: int) -> Callable[[Self, bytearray, list[tuple[int, Any]]], None]:
        """The function that writes this version.

        Takes (instance, out, slices) and appends to `out`. Records that are a slice of a file
        are not copied: their size is written and (len(out), slice) is appended to `slices`. A
        value that does not fit raises whatever it meets first (`struct.error`, `TypeError`,
        `AttributeError`, `ValueError`), and `out` then ends in a part of the message.
        """
        encode = cls._encoders.get(version)
        if encode is None:
            from protocol.compiler import compile_encoder

            encode = cls._encoders[version] = compile_encoder(cls, version)
        return encode

    @classmethod
    def decode(cls, version: int, data: Buffer | memoryview) -> Self:
        """The instance that these bytes are, all of them; `Malformed` if they are not."""
        buffer = bytes(data) if isinstance(data, memoryview) else data
        message, position = cls.decoder(version)(buffer, 0, len(buffer))
        if position != len(buffer):
            raise Malformed(
                f"{cls._name} v{version}: {len(buffer) - position} bytes after the last field"
            )
        return message

    def encode(self, version: int) -> bytes:
        """The bytes of this version; a ValueError names the field whose value does not fit."""
        out = bytearray()
        slices: list[tuple[int, Any]] = []
        encode = self.encoder(version)
        try:
            encode(self, out, slices)
        except Exception as error:
            from protocol.reference import encode as encode_slowly

            encode_slowly(self, version)  # finds the field and names it
            raise AssertionError(f"only the compiled encoder refused {self!r}") from error
        if slices:
            raise ValueError(f"{type(self)._name} holds a file slice; use encoder()")
        return bytes(out)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other._fields is not self._fields:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (
            f"{f.name}={'...' if f.name in SECRET else _show(getattr(self, f.name, '?'))}"
            for f in self._fields
        )
        return f"{type(self)._name}({', '.join(shown)})"


class Message(Struct):
    """A request or a response: a struct with an API key and versions."""

    _is_message: ClassVar[bool] = True


SECRET = frozenset({"auth_bytes", "salted_password", "stored_key", "server_key", "hmac"})
"""Names of fields that no text of a message shows."""


def _show(value: object) -> str:
    if isinstance(value, memoryview):
        return f"<{value.nbytes} bytes>"
    return f"<{len(value)} bytes>" if isinstance(value, bytes) and len(value) > 40 else repr(value)


def _assignments(cls: StructType, instance: str) -> tuple[str, list[str], dict[str, Any]]:
    """Parameters, the statements that put them into slots, and the objects these see."""
    names: dict[str, Any] = {"_fresh": ()}
    parameters, lines = [], []
    for field in cls._fields:
        name = value = field.name
        if field.default is REQUIRED:
            parameters.append(name)
        elif field.default == () and field.struct is None:
            parameters.append(f"{name}=_fresh")
            value = f"[] if {name} is _fresh else {name}"
        else:
            names[f"_{name}"] = field.default_value()
            parameters.append(f"{name}=_{name}")
        lines.append(f"    {instance}.{name} = {value}")
    return ", ".join(["*", *parameters]) if parameters else "", lines, names


def _function(name: str, cls: StructType, lines: list[str], names: dict[str, Any]) -> Any:
    exec(compile("\n".join(lines), f"<{cls._name}.{name}>", "exec"), names)
    function = names[name]
    function.__qualname__ = f"{cls._name}.{name}"
    return function


def _write_init(cls: StructType) -> Callable[..., None]:
    """The constructor: keyword arguments into slots, a fresh list for each array."""
    parameters, lines, names = _assignments(cls, "_self")
    head = f"def __init__({', '.join(filter(None, ['_self', parameters]))}):"
    init: Callable[..., None] = _function("__init__", cls, [head, *lines, "    pass"], names)
    return init


def constructor(cls: Callable[Parameters, Made]) -> Callable[Parameters, Made]:
    """The constructor of a struct as a function, with the same keyword arguments.

    CPython 3.11 calls a function in 0.2 us less than a class, and a handler of the hot path
    makes three structs for each answer: `make_topic = constructor(ProduceResponse.Topic)`.
    """
    assert isinstance(cls, StructType)
    parameters, lines, names = _assignments(cls, "_made")
    names |= {"_new": object.__new__, "_cls": cls}
    body = ["    _made = _new(_cls)", *lines, "    return _made"]
    make: Callable[Parameters, Made] = _function(
        "make", cls, [f"def make({parameters}):", *body], names
    )
    return make
