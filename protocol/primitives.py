"""The wire's basic types over a buffer and a position.

A reader takes (buffer, position, end) and returns the value and the position after it; it
raises `Malformed` when the value is not whole before `end` or breaks a rule. A writer appends to
a bytearray and raises `ValueError` for what the wire cannot hold. The two kinds of length:

    classic   string int16, bytes and array int32; -1 is null
    compact   unsigned varint of length + 1; 0 is null (KIP-482, "flexible" versions)

The compiled codecs have the frequent cases of all this in line and call the functions of the
last section for the rare ones.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from protocol.errors import Malformed

if TYPE_CHECKING:
    Buffer = bytes | bytearray | memoryview

MAX_STRING_BYTES: Final = 32_767
MAX_ELEMENTS: Final = 1_000_000  # of all arrays of one message together
MAX_TAGS: Final = 10_000  # entries of one tag section

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class Written:
    """An array of structs whose elements were written beforehand, for one that is long and seldom
    changes. Encoders take it in place of a list; `data` is what their version has."""

    __slots__ = ("count", "data")

    def __init__(self, count: int, data: bytes) -> None:
        self.count = count
        self.data = data

    def __len__(self) -> int:
        return self.count


def malformed_end(position: int, size: int, end: int) -> Malformed:
    """The error for a value that does not end before `end`."""
    return Malformed(f"{size} bytes wanted at position {position}, {max(0, end - position)} left")


def take(buffer: Buffer, position: int, end: int, size: int) -> tuple[bytes, int]:
    """A copy of the next `size` bytes."""
    if size < 0 or position + size > end:
        raise malformed_end(position, size, end)
    return bytes(buffer[position : position + size]), position + size


def read_int16(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    if position + 2 > end:
        raise malformed_end(position, 2, end)
    return _INT16.unpack_from(buffer, position)[0], position + 2


def read_int32(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    if position + 4 > end:
        raise malformed_end(position, 4, end)
    return _INT32.unpack_from(buffer, position)[0], position + 4


# Variable-length integers: seven bits a byte, the low group first.


def _read_groups(buffer: Buffer, position: int, end: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= end:
            raise Malformed(f"a varint is cut off at position {position}")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise Malformed(f"a varint at position {position} is longer than {bits} bits allow")
    if value >> bits:
        raise Malformed(f"a varint before position {position} does not fit {bits} bits")
    return value, position


def read_uvarint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits: at most five bytes."""
    return _read_groups(buffer, position, end, 32)


def read_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zig-zag varint of at most 32 bits."""
    value, position = _read_groups(buffer, position, end, 32)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zig-zag varint of at most 64 bits: at most ten bytes."""
    value, position = _read_groups(buffer, position, end, 64)
    return (value >> 1) ^ -(value & 1), position


def _write_groups(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_uvarint(out: bytearray, value: int) -> None:
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} does not fit an unsigned varint of 32 bits")
    _write_groups(out, value)


# Lengths, strings and bytes. `None` is null; whether null is allowed is the caller's to say.


def read_length(
    buffer: Buffer, position: int, end: int, *, compact: bool, short: bool = False
) -> tuple[int | None, int]:
    """The length of a string (`short`), of bytes or of an array, in bytes or elements."""
    if compact:
        value, position = read_uvarint(buffer, position, end)
        length = value - 1
    elif short:
        length, position = read_int16(buffer, position, end)
    else:
        length, position = read_int32(buffer, position, end)
    if length < -1:
        raise Malformed(f"a length of {length} before position {position}")
    return (None if length == -1 else length), position


def write_length(out: bytearray, length: int | None, *, compact: bool, short: bool = False) -> None:
    if compact:
        write_uvarint(out, 0 if length is None else length + 1)
        return
    value = -1 if length is None else length
    if value > (0x7FFF if short else 0x7FFFFFFF):
        raise ValueError(f"a length of {value} does not fit {'int16' if short else 'int32'}")
    out += (_INT16 if short else _INT32).pack(value)


def read_string(
    buffer: Buffer, position: int, end: int, *, compact: bool
) -> tuple[str | None, int]:
    """UTF-8; bytes that are not become lone surrogates, so that nothing is lost."""
    size, position = read_length(buffer, position, end, compact=compact, short=True)
    if size is None:
        return None, position
    if size > MAX_STRING_BYTES:
        raise Malformed(f"a string of {size} bytes; {MAX_STRING_BYTES} are allowed")
    raw, position = take(buffer, position, end, size)
    return raw.decode("utf-8", "surrogateescape"), position


def write_string(out: bytearray, text: str | None, *, compact: bool) -> None:
    raw = None if text is None else text.encode("utf-8", "surrogateescape")
    if raw is not None and len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(raw)} bytes; {MAX_STRING_BYTES} are allowed")
    write_length(out, None if raw is None else len(raw), compact=compact, short=True)
    out += raw or b""


def read_bytes(
    buffer: Buffer, position: int, end: int, *, compact: bool
) -> tuple[bytes | None, int]:
    """A copy of the bytes."""
    size, position = read_length(buffer, position, end, compact=compact)
    return (None, position) if size is None else take(buffer, position, end, size)


def write_bytes(out: bytearray, data: bytes | None, *, compact: bool) -> None:
    write_length(out, None if data is None else len(data), compact=compact)
    out += data or b""


def skip_tags(buffer: Buffer, position: int, end: int) -> int:
    """The position after a tag section none of whose tags matters here."""
    count, position = read_uvarint(buffer, position, end)
    return skip_entries(buffer, position, end, count)


def skip_entries(buffer: Buffer, position: int, end: int, count: int) -> int:
    """The position after the entries of a tag section whose count has been read."""
    if count > MAX_TAGS:
        raise Malformed(f"a tag section of {count} entries; {MAX_TAGS} are allowed")
    for _ in range(count):
        _tag, position = read_uvarint(buffer, position, end)
        size, position = read_uvarint(buffer, position, end)
        if position + size > end:
            raise malformed_end(position, size, end)
        position += size
    return position


# What compiled codecs leave to a call.


def rest_of_uvarint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """An unsigned varint whose first byte, already seen, lies just before `position`."""
    return _read_groups(buffer, position - 1, end, 32)


def write_string_length(out: bytearray, size: int) -> None:
    """The compact length of a string that is not null and does not fit one byte."""
    if size > MAX_STRING_BYTES:
        raise ValueError(f"a string of {size} bytes; {MAX_STRING_BYTES} are allowed")
    _write_groups(out, size + 1)
