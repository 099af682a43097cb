"""Sets of formats 0 and 1 made field by field, and sets of any format taken apart.

Made to be spoiled: every field can be given a value that no client would send. What is read here is
read by the rules for consumers (records.md 2.2 and 7.4) and not by the code under test, but for the
codecs and the batches of format 2, which have vectors of their own.

    sent = wrapper(messages(b"a", b"b", magic=1), magic=1)
    assert [entry.offset for entry in entries(fetched.records)] == [1]
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.records.batch import Batch
from protocol.records.compression import compress, decompress
from protocol.records.walk import walk
from tests.support.caller import NOW_MS, Caller

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
STAMPED = 8
"""The attribute bit that says LogAppendTime."""


def message(
    value: bytes | None,
    *,
    magic: int,
    key: bytes | None = None,
    offset: int = 0,
    timestamp_ms: int = -1,
    attributes: int = 0,
) -> bytes:
    """One entry with a fitting size and checksum."""
    content = struct.pack(">bb", magic, attributes)
    if magic:
        content += struct.pack(">q", timestamp_ms)
    for field in (key, value):
        content += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, len(content) + 4, zlib.crc32(content)) + content


def messages(
    *values: bytes | None,
    magic: int,
    offsets: Sequence[int] | None = None,
    times_ms: Sequence[int] | None = None,
    keys: Sequence[bytes | None] | None = None,
) -> bytes:
    """Plain messages, with offsets from 0 on and times a millisecond apart if nothing is said."""
    return b"".join(
        message(
            value,
            magic=magic,
            key=keys[at] if keys else None,
            offset=offsets[at] if offsets else at,
            timestamp_ms=times_ms[at] if times_ms else NOW_MS + at,
        )
        for at, value in enumerate(values)
    )


def wrapper(payload: bytes, *, magic: int, codec: int = GZIP, **fields: Any) -> bytes:
    """A wrapper around this set. `fields` as of `message`; without them offset and time are 0, as
    kafka-python writes them."""
    attributes = fields.pop("attributes", 0) | codec
    fields = {"timestamp_ms": 0, **fields}
    compressed = compress(codec, payload, magic=magic)
    return message(compressed, magic=magic, attributes=attributes, **fields)


def resealed(entry: bytes) -> bytes:
    """The same entry of format 0 or 1 with the checksum of its bytes."""
    return entry[:12] + struct.pack(">I", zlib.crc32(entry[16:])) + entry[16:]


class Entry(NamedTuple):
    """One message of format 0 or 1 as it lies in a set."""

    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def stamped(self) -> bool:
        return bool(self.attributes & STAMPED)

    def inner(self) -> list[Entry]:
        """What is in a wrapper, as it stands there."""
        assert self.codec, "not a wrapper"
        assert self.value is not None
        payload = decompress(self.codec, self.value, limit=1 << 28, magic=self.magic)
        return entries(payload)


def entries(data: Any) -> list[Entry]:
    """The messages of a set of formats 0 and 1. Sizes must fit, and so must checksums."""
    found = []
    data = bytes(data)
    position = 0
    while position < len(data):
        offset, size, crc, magic = struct.unpack_from(">qiIb", data, position)
        content = data[position + 16 : position + 12 + size]
        assert len(content) == size - 4, "cut off"
        assert crc == zlib.crc32(content)
        assert magic in (0, 1)
        timestamp_ms = struct.unpack_from(">q", content, 2)[0] if magic else -1
        at = 10 if magic else 2
        fields: list[bytes | None] = []
        for _ in range(2):
            length = struct.unpack_from(">i", content, at)[0]
            fields.append(None if length < 0 else content[at + 4 : at + 4 + length])
            at += 4 + max(length, 0)
        assert at == len(content), "spare bytes"
        found.append(Entry(offset, magic, content[1], timestamp_ms, fields[0], fields[1]))
        position += 12 + size
    return found


class Seen(NamedTuple):
    """A record as an application gets it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def seen(data: Any, *, since: int = 0) -> list[Seen]:
    """The records of a fetched set, in whatever formats it is, from the offset asked for on."""
    view = memoryview(bytes(data or b""))
    found: list[Seen] = []
    for position, size, magic in walk(view):
        part = view[position : position + size]
        if magic == 2:
            found += [Seen(r.offset, r.timestamp_ms, r.key, r.value) for r in Batch(part).records()]
        else:
            found += _opened(entries(part)[0])
    return [record for record in found if record.offset >= since]


def _opened(entry: Entry) -> list[Seen]:
    if not entry.codec:
        return [Seen(entry.offset, entry.timestamp_ms, entry.key, entry.value)]
    inner = entry.inner()
    base = entry.offset - inner[-1].offset if entry.magic else 0
    return [
        Seen(
            base + one.offset,
            entry.timestamp_ms if entry.stamped else one.timestamp_ms,
            one.key,
            one.value,
        )
        for one in inner
    ]


def read_through(caller: Caller, topic: str, *, version: int, at_most: int = 1 << 20) -> bytes:
    """All that this version of Fetch is sent, one after the other, as a consumer reads on.

    An answer may end before the log does: at a segment's end, or where converting begins."""
    data = b""
    offset = 0
    while True:
        fetched = caller.fetch(topic, offset, version=version, max_bytes=at_most)
        assert fetched.error_code == 0
        new = seen(fetched.records)
        if not new:
            assert offset == fetched.high_watermark, f"stalled at {offset}"
            return data
        assert new[-1].offset >= offset, f"nothing new at {offset}"
        data += bytes(fetched.records)
        offset = new[-1].offset + 1


def magics(data: Any) -> list[int]:
    """The format of each top-level entry."""
    return [magic for _, _, magic in walk(memoryview(bytes(data or b"")))]


def log_bytes(data_dir: Path, topic: str, *, partition: int = 0) -> bytes:
    """All segments of a partition as they are on disk, in order."""
    folder = data_dir / f"{topic}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
