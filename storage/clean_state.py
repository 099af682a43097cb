"""The sizes of each log's last files at a clean shutdown.

File (`.pystate.json`), our own: `{"version": 2, "crc": <CRC-32C of the value of "partitions", as it
stands there>, "partitions": {"<topic>-<partition>": [next offset, size of the last .log, of its
.index, of its .timeindex, name of the producer snapshot]}}`. The sizes are -1 where there are no
files, before the first batch. If any segment has aborted transactions, a list follows of the base
offsets of those that do. Version 1 has no checksum.

It guards against a stale clean shutdown marker: a log whose files have other sizes is looked
through as after a crash. What if it is lost: all logs are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = 2
WITHOUT_CHECKSUM = 1


class CleanState:
    """The sizes of a log's last files when it was closed, to be compared at the next start."""

    __slots__ = (
        "aborted", "index_size", "log_size", "next_offset", "snapshot", "time_index_size",
    )  # fmt: skip

    def __init__(
        self,
        next_offset: int,
        log_size: int,
        index_size: int,
        time_index_size: int,
        snapshot: str,
        aborted: Sequence[int] = (),
    ) -> None:
        self.next_offset = next_offset
        self.log_size = log_size
        self.index_size = index_size
        self.time_index_size = time_index_size
        self.snapshot = snapshot
        self.aborted = tuple(aborted)

    @classmethod
    def without_files(cls) -> CleanState:
        """Of a log that was never written to."""
        return cls(0, -1, -1, -1, "")

    def as_list(self) -> list[int | str | list[int]]:
        return [
            self.next_offset,
            self.log_size,
            self.index_size,
            self.time_index_size,
            self.snapshot,
            *([list(self.aborted)] if self.aborted else []),
        ]


def encode(states: Mapping[str, CleanState]) -> bytes:
    import json

    partitions = {name: state.as_list() for name, state in states.items()}
    crc = crc32c(json.dumps(partitions).encode())
    return json.dumps({"version": VERSION, "crc": crc, "partitions": partitions}).encode()


def decode(data: bytes) -> dict[str, CleanState]:
    """Raises ValueError, KeyError or TypeError for anything but what was encoded."""
    import json

    content = json.loads(data)
    version = content["version"]
    if version not in (WITHOUT_CHECKSUM, VERSION):
        raise ValueError(f"version {version!r}, known is {VERSION}")
    if version == VERSION:
        found = crc32c(json.dumps(content["partitions"]).encode())
        if found != content["crc"]:
            raise ValueError(f"the checksum is {content['crc']!r}, the content has {found}")
    states = {}
    for name, fields in content["partitions"].items():
        next_offset, log_size, index_size, time_index_size, snapshot, *more = fields
        states[name] = CleanState(
            int(next_offset),
            int(log_size),
            int(index_size),
            int(time_index_size),
            str(snapshot),
            [int(base) for base in more[0]] if more else (),
        )
    return states
