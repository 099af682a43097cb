"""What the files of each log looked like when the broker stopped in good order.

File (`.pystate.json`), our own: `{"version": 1, "partitions": {"<topic>-<partition>": [next offset,
size of the last .log, of its .index, of its .timeindex, name of the producer snapshot]}}`. If any
segment has aborted transactions, a list follows of the base offsets of those that do.

It guards against a stale clean shutdown marker: a log whose files have other sizes is looked
through as after a crash. What if it is lost: all logs are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = 1


class CleanState:
    """What a log's last files looked like when it was closed, to be compared at the next start."""

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

    content = {
        "version": VERSION,
        "partitions": {name: state.as_list() for name, state in states.items()},
    }
    return json.dumps(content).encode()


def decode(data: bytes) -> dict[str, CleanState]:
    """Raises ValueError, KeyError or TypeError for anything but what was encoded."""
    import json

    content = json.loads(data)
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']!r}, known is {VERSION}")
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
