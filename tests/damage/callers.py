"""The plain client of the damage tests: it asks for everything, and checks every checksum.

`entries_of` takes what was fetched apart by the rules for consumers: an entry cut at the end is
dropped; a length, a format or a checksum that cannot be is a `Spoiled`, which a client that checks
would report to its application.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.records.crc import crc32c
from tests.support.caller import Target, fetch_request
from tests.support.group_caller import GroupCaller
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.schema import Message

ANSWER_WITHIN_S = 10.0
OVERHEAD = 12
"""Bytes of offset and length, which no length counts."""
LEAST = (14, 14, 49)
"""The least length of an entry, by its format."""


class NoAnswer(Exception):
    """The broker closed the connection, or did not answer within `ANSWER_WITHIN_S`."""


class PlainCaller(GroupCaller):
    """A caller that tells a missing answer from a wrong one; `lost` after the former."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, timeout_s=ANSWER_WITHIN_S)
        self.lost = False

    def call(self, request: Message, version: int | None = None) -> Any:
        try:
            return super().call(request, version)
        except (ConnectionClosed, OSError) as error:
            self.lost = True
            raise NoAnswer(f"{type(request).__name__}: {error}") from error

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        version: int = 12,
        committed: bool = False,
        max_bytes: int = 1 << 20,
    ) -> Fetched:
        """One fetch of one partition."""
        wanted = Target(topic, offset, partition, partition_max_bytes=max_bytes)
        options: dict[str, Any] = {"isolation_level": 1} if committed else {}
        answer = self.call(fetch_request(wanted, **options), version)
        ((entry,),) = [answered.partitions for answered in answer.responses]
        return Fetched(
            entry.error_code,
            bytes(entry.records or b""),
            [(one.producer_id, one.first_offset) for one in entry.aborted_transactions or ()],
        )


class Fetched(NamedTuple):
    """The answer for one partition. `aborted` are (producer id, first offset)."""

    error_code: int
    data: bytes
    aborted: list[tuple[int, int]]


class Spoiled(Exception):
    """Bytes that a client which checks does not take for records."""


class RawEntry(NamedTuple):
    """A batch or top-level message as it came. `epoch` is -1 where the format has none."""

    raw: bytes
    offset: int
    epoch: int
    magic: int

    @property
    def content(self) -> bytes:
        """What the checksum covers, and the checksum."""
        return self.raw[16:] if self.magic < 2 else self.raw[17:]


def entries_of(data: bytes) -> Iterator[RawEntry]:
    """Raises Spoiled at the first entry that is none."""
    position = 0
    while len(data) - position >= OVERHEAD + 5:
        offset, length = struct.unpack_from(">qi", data, position)
        magic = data[position + 16]
        if magic > 2:
            raise Spoiled(f"format {magic} at byte {position}")
        if length < LEAST[magic]:
            raise Spoiled(f"a length of {length} at byte {position}")
        raw = data[position : position + OVERHEAD + length]
        if len(raw) < OVERHEAD + length:
            return
        epoch = -1
        if magic == 2:
            epoch, _, stated = struct.unpack_from(">ibI", raw, OVERHEAD)
            found = crc32c(memoryview(raw)[21:])
        else:
            (stated,) = struct.unpack_from(">I", raw, OVERHEAD)
            found = zlib.crc32(raw[16:])
        if stated != found:
            raise Spoiled(f"a checksum at byte {position}")
        yield RawEntry(raw, offset, epoch, magic)
        position += len(raw)
