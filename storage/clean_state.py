"""The sizes of each log's last files at a clean shutdown.

File (`.pystate.json`), our own: `{"version": 3, "crc": <CRC-32C of [partitions, topics] as JSON>,
"partitions": {"<topic>-<partition>": [next offset, size of the last .log, of its .index, of its
.timeindex, name of the producer snapshot, base offset of the last segment]}, "topics": {"<topic>":
"<topic id>"}}`. The sizes are -1 where there are no files, before the first batch. If any segment
has aborted transactions, a list follows of the base offsets of those that do. Version 2 has no base
offsets and no topics, and its checksum is that of the partitions; version 1 has none.

It guards against a stale clean shutdown marker: a log whose files have other sizes is looked
through as after a crash. After a crash it tells of logs that nothing was appended to since the
stop: an append makes the last file longer, or begins another one, before it is acknowledged.
What if it is lost: all logs are looked through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.records.crc import crc32c
from storage.layout import INDEX, LOG, TIME_INDEX, file_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from storage.filesystem import Filesystem
    from storage.segment import Segment

VERSION = 3
WITHOUT_TOPICS = 2
WITHOUT_CHECKSUM = 1
NOT_KNOWN = -1


class Difference(NamedTuple):
    """What is not as it was noted, and the name of the file."""

    reason: str
    file: str = ""


class CleanState:
    """The sizes of a log's last files when it was closed, to be compared at the next start.

    `base_offset` is that of its last segment, NOT_KNOWN if there is none, or in old versions.
    """

    __slots__ = (
        "aborted", "base_offset", "index_size", "log_size", "next_offset", "snapshot",
        "time_index_size",
    )  # fmt: skip

    def __init__(
        self,
        next_offset: int,
        log_size: int,
        index_size: int,
        time_index_size: int,
        snapshot: str,
        base_offset: int = NOT_KNOWN,
        aborted: Sequence[int] = (),
    ) -> None:
        self.next_offset = next_offset
        self.log_size = log_size
        self.index_size = index_size
        self.time_index_size = time_index_size
        self.snapshot = snapshot
        self.base_offset = base_offset
        self.aborted = tuple(aborted)

    @classmethod
    def without_files(cls) -> CleanState:
        """Of a log that was never written to."""
        return cls(0, -1, -1, -1, "")

    def difference(
        self, files: Filesystem, active: Segment, present: Collection[str]
    ) -> Difference | None:
        """The first difference of a log's last segment, and of the names `present` in its folder,
        from this state; None if there is none. Reads no file."""
        expected = ((LOG, self.log_size), (INDEX, self.index_size))
        for suffix, size in (*expected, (TIME_INDEX, self.time_index_size)):
            name = file_name(active.base_offset, suffix)
            found = files.size_of(active.path(suffix)) if name in present else -1
            if found != size:
                return Difference(f"the file has {found} bytes and not {size}", name)
        if self.snapshot and self.snapshot not in present:
            return Difference("the producer snapshot is missing", self.snapshot)
        if self.next_offset < active.base_offset:
            return Difference("there are segments from after it")
        return None

    def as_list(self) -> list[int | str | list[int]]:
        return [
            self.next_offset,
            self.log_size,
            self.index_size,
            self.time_index_size,
            self.snapshot,
            self.base_offset,
            *([list(self.aborted)] if self.aborted else []),
        ]


class CleanStop(NamedTuple):
    """The states of logs by folder, and the ids of their topics by name, as UUID text."""

    states: Mapping[str, CleanState]
    topic_ids: Mapping[str, str]

    def encode(self) -> bytes:
        import json

        partitions = {name: state.as_list() for name, state in self.states.items()}
        topics = dict(self.topic_ids)
        crc = crc32c(json.dumps([partitions, topics]).encode())
        content = {"version": VERSION, "crc": crc, "partitions": partitions, "topics": topics}
        return json.dumps(content).encode()

    @classmethod
    def decode(cls, data: bytes) -> CleanStop:
        """Raises ValueError, KeyError or TypeError for anything but what was encoded."""
        import json

        content = json.loads(data)
        version, partitions = content["version"], content["partitions"]
        if version not in (WITHOUT_CHECKSUM, WITHOUT_TOPICS, VERSION):
            raise ValueError(f"version {version!r}, known is {VERSION}")
        topics = content["topics"] if version == VERSION else {}
        if version != WITHOUT_CHECKSUM:
            covered = [partitions, topics] if version == VERSION else partitions
            found = crc32c(json.dumps(covered).encode())
            if found != content["crc"]:
                raise ValueError(f"the checksum is {content['crc']!r}, the content has {found}")
        states = {}
        for name, fields in partitions.items():
            next_offset, log_size, index_size, time_index_size, snapshot, *more = fields
            base_offset = int(more.pop(0)) if version == VERSION else NOT_KNOWN
            states[name] = CleanState(
                int(next_offset),
                int(log_size),
                int(index_size),
                int(time_index_size),
                str(snapshot),
                base_offset,
                [int(base) for base in more[0]] if more else (),
            )
        return cls(states, {str(name): str(topic_id) for name, topic_id in topics.items()})
