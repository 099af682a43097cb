"""What a broker gets from outside itself, besides its loop: files, clocks, ids and handlers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from broker import clock
from storage.disk import DiskFilesystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.network.dispatch import Handler
    from broker.partitions.disk_state import Reserve
    from storage.filesystem import Filesystem


def random_uuid() -> bytes:
    """A version 4 uuid as 16 bytes, whose text form does not begin with '-' (a dash would look
    like an option to Kafka's tools)."""
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:
            return bytes(raw)


def member_id(new_uuid: Callable[[], bytes], prefix: str) -> str:
    """A new id of a member of a group: the prefix and a uuid in its text form."""
    digits = new_uuid().hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join((prefix, *parts))


class Surroundings(NamedTuple):
    """The defaults are those of a real broker. Tests give other things."""

    files: Filesystem = DiskFilesystem()
    now_ms: Callable[[], int] = clock.now_ms
    """Wall-clock time in ms since 1970."""
    monotonic_s: Callable[[], float] = clock.monotonic_s
    elapsed_ms: Callable[[], int] = clock.elapsed_ms
    """A clock that never jumps, in ms."""
    new_uuid: Callable[[], bytes] = random_uuid
    """A new id of a topic, a directory, a member: 16 bytes."""
    faulted: Callable[[dict[int, Handler]], dict[int, Handler]] | None = None
    """Makes a table of handlers of another one."""
    reserve: Reserve | None = None
    """That of the directory, where another process keeps it."""


SURROUNDINGS = Surroundings()
"""The disk, the clocks, the ids and the handlers as they are."""
