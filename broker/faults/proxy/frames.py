"""Frames of a stream, and the headers of requests and answers in them. No I/O but the reading.

A frame is its bytes without the length before it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ErrorCode, Malformed
from protocol.frame import LENGTH, FrameBuffer
from protocol.header import API_VERSIONS_KEY, REQUEST_START
from protocol.primitives import skip_tags
from protocol.registry import APIS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from protocol.registry import Api
    from protocol.schema import Message

FRAME_BYTES_MAX = 268_435_456
"""More than any broker takes in one request unless it is set to, and than clients fetch at once."""
READ_BYTES = 65_536
VERSION_BITS = 16

_CORRELATION_ID = Struct(">i")
_CODE = Struct(">h")


class RequestHead(NamedTuple):
    """The header of a request of an API and a version that are known here."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    """Empty if it has none."""
    body_at: int
    """Where the body begins in the frame."""


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The frames that come, to the end of the stream. What is held grows with the bytes that come,
    not by the length that a peer claims. Raises Malformed for a length that no frame has."""
    buffer = FrameBuffer(FRAME_BYTES_MAX)
    buffer.min_frame_bytes = 0  # a token of SASL may be empty
    while data := memoryview(await reader.read(READ_BYTES)):
        while data:
            room = buffer.room()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            buffer.received(count)
            while (frame := buffer.next_frame()) is not None:
                start, end = frame
                yield bytes(buffer.data[start:end])
        buffer.shrink()


def framed(frame: bytes) -> bytes:
    """The frame with its length before it."""
    return LENGTH.pack(len(frame)) + frame


def head_of(frame: bytes) -> RequestHead | None:
    """The header of a request. None for other bytes: a token of SASL that has no header, an API or
    a version that is not known here."""
    if len(frame) < REQUEST_START.size:
        return None
    key_and_version, correlation_id, id_size = REQUEST_START.unpack_from(frame)
    key, version = key_and_version >> VERSION_BITS, key_and_version & (1 << VERSION_BITS) - 1
    api = APIS.get(key)
    if api is None or not api.min_version <= version <= api.max_version:
        return None
    body_at = REQUEST_START.size + max(0, id_size)
    client_id = frame[REQUEST_START.size : body_at].decode("utf-8", "replace")
    try:
        if version >= api.first_flexible:
            body_at = skip_tags(frame, body_at, len(frame))
    except Malformed:
        return None
    return RequestHead(api, version, correlation_id, client_id, body_at)


def decoded_request(head: RequestHead, frame: bytes) -> Message:
    """The request; what may follow its last field is left out. Raises Malformed."""
    return head.api.request.decoder(head.version)(frame, head.body_at, len(frame))[0]


def request_frame(head: RequestHead, frame: bytes, message: Message) -> bytes:
    """The frame with another body."""
    return frame[: head.body_at] + message.encode(head.version)


def answer_version(head: RequestHead, frame: bytes) -> int:
    """The version of an answer: that of the request, but for ApiVersions, whose refusal of a
    version is of version 0 (KIP-511)."""
    code = frame[_CORRELATION_ID.size : _CORRELATION_ID.size + _CODE.size]
    if head.api.key == API_VERSIONS_KEY and code == _CODE.pack(ErrorCode.UNSUPPORTED_VERSION):
        return 0
    return head.version


def decoded_answer(head: RequestHead, version: int, frame: bytes) -> Message:
    """The answer to this request; records in it are views of the frame. Raises Malformed."""
    position = _CORRELATION_ID.size
    if _has_tags(head.api, version):
        position = skip_tags(frame, position, len(frame))
    return head.api.response.decoder(version)(frame, position, len(frame))[0]


def answer_frame(head: RequestHead, version: int, message: Message) -> bytes:
    """The frame of an answer to this request."""
    start = _CORRELATION_ID.pack(head.correlation_id)
    return start + bytes(_has_tags(head.api, version)) + message.encode(version)


def _has_tags(api: Api, version: int) -> bool:
    """Whether the header of the answer ends in tags."""
    return version >= api.first_flexible and api.key != API_VERSIONS_KEY
