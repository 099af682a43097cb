"""Messages and records byte by byte, for the tests of the loops and of nothing that makes them."""

from __future__ import annotations

import importlib
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import KafkaError
from protocol.records.builder import encode_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    Field = bytes | None
    Headers = Sequence[tuple[bytes, bytes | None]]
    Call = tuple[str, tuple[Any, ...], dict[str, Any]]

try:
    compiled: Any = importlib.import_module("protocol.records._loops")
except ImportError:
    compiled = None


def required() -> Any:
    if compiled is None:
        message = "the loops in C are not built (make compiled)"
        if "TEST_REQUIRE_COMPILED" in os.environ:
            pytest.fail(message)
        pytest.skip(message)
    return compiled


def message(
    magic: int,
    offset: int,
    timestamp: int = -1,
    key: Field = None,
    value: Field = b"v",
    attributes: int = 0,
    spare: bytes = b"",
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    body += spare
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def varint(number: int, pad: int = 0) -> bytes:
    """Longer than it needs to be by `pad` bytes."""
    short = bytearray(encode_varint(number))
    if pad:
        short[-1] |= 0x80
        short += bytes((0x80,)) * (pad - 1) + b"\0"
    return bytes(short)


def record(
    timestamp_delta: int,
    offset_delta: int,
    key: Field,
    value: Field,
    headers: Headers = (),
    pad: int = 0,
) -> bytes:
    body = b"\0" + varint(timestamp_delta, pad) + varint(offset_delta, pad)
    for field in (key, value):
        body += varint(-1 if field is None else len(field), pad) + (field or b"")
    body += varint(len(headers), pad)
    for name, content in headers:
        body += varint(len(name)) + name
        body += varint(-1 if content is None else len(content)) + (content or b"")
    return varint(len(body), pad) + body


def outcome(call: Call, module: Any) -> Any:
    """The result, or the error with all that a client or the log would see of it."""
    name, args, kwargs = call
    args = tuple(
        bytearray(arg) if name == "place_messages" and arg is args[0] else arg for arg in args
    )
    try:
        result = getattr(module, name)(*args, **kwargs)
    except KafkaError as error:
        result = (type(error), error.code, str(error))
    return (result, bytes(args[0])) if name == "place_messages" else result
