"""Request and response headers, and which version of each an API uses.

    request v1    api_key int16, api_version int16, correlation_id int32, client_id string
    request v2    v1 + tag section                      flexible versions
    response v0   correlation_id int32
    response v1   v0 + tag section                      flexible versions, but not ApiVersions

`client_id` keeps its two-byte length in v2. ApiVersions answers with the oldest response header in
every version, because a client that asks for versions cannot know yet which headers we speak
(KIP-511). Request v0 (ControlledShutdown v0) is never served.
"""

from __future__ import annotations

from struct import Struct

from protocol.errors import Malformed

API_VERSIONS_KEY = 18

REQUEST_START = Struct(">Iih")
"""Key and version as one number (key << 16 | version), correlation id, length of the client id."""

UNKNOWN_VERSION_START = Struct(">hhi")
"""All that may be read of an ApiVersions request whose version is not known: key, version,
correlation id."""

MAX_TAGS = 10_000


def skip_tags(data: bytes | bytearray, position: int, end: int) -> int:
    """The position after a tag section; what is in it is stepped over. Raises Malformed."""
    count, position = _unsigned_varint(data, position, end)
    if count > MAX_TAGS:
        raise Malformed(f"{count} tags in the request header, at most {MAX_TAGS} are read")
    for _ in range(count):
        _tag, position = _unsigned_varint(data, position, end)
        size, position = _unsigned_varint(data, position, end)
        if size > end - position:
            raise Malformed(f"a tag of {size} bytes in the request header, {end - position} left")
        position += size
    return position


def _unsigned_varint(data: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise Malformed("a varint of more than five bytes in the request header")
    raise Malformed("the request header ends inside a varint")
