"""A disk in memory: the state of the file system, and what a power cut leaves of it.

The model is at least as unkind as a real disk. Any subset of the writes since the last sync may
have reached it, each perhaps only its beginning or some of its sectors, with zeros or noise in
between, and a file may have grown without its bytes. Files know nothing of each other: what one
lost, another may have kept, whatever came first; nor do folders. The names in one folder become
durable in the order of their changes, as with the journal of ext4, XFS or Btrfs, unless a power cut
is asked for the worst that POSIX allows: then only a rename is whole. What a sync that failed
should have put on the disk is never there, whatever later syncs say. A time of modification is
durable with the size.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random

SECTOR_BYTES = 512


class Mood(NamedTuple):
    """The chances that a power cut keeps of a file or folder nothing of what was not synced, or all
    of it; else any part may be kept. `names_in_order` as above."""

    nothing: float
    everything: float
    names_in_order: bool = True

    def of(self, rng: random.Random) -> str:
        chance = rng.random()
        if chance < self.nothing:
            return "nothing"
        return "everything" if chance < self.nothing + self.everything else "some"


MOODS = (Mood(0.33, 0.33), Mood(0.33, 0.33), Mood(0.05, 0.85), Mood(0.85, 0.05), Mood(0.0, 0.0))


_SECONDS = itertools.count(1)


def tick_ns() -> int:
    """The time, which goes on by a second each time somebody looks at it."""
    return next(_SECONDS) * 1_000_000_000


class Inode:
    """A file's content, what of it is durable, and what happened since.

    `data` and `durable` are shared with other inodes until one of them is about to change.
    """

    __slots__ = (
        "changed_ns", "changes", "data", "durable", "durable_ms", "lost", "modified_ms",
        "read_only", "shared",
    )  # fmt: skip

    def __init__(self, data: bytes | bytearray = b"", modified_ms: int = 0) -> None:
        self.data = bytearray(data)
        self.durable = bytearray(data)
        self.modified_ms = self.durable_ms = modified_ms
        self.changes: list[tuple[int, bytes | None]] = []
        """(position, bytes) for a write, (size, None) for a truncation."""
        self.changed_ns = tick_ns()
        self.shared = False
        self.lost = False
        """Whether a sync failed: then `data` is not what is on the disk even without changes."""
        self.read_only = False

    def _own(self) -> None:
        if self.shared:
            self.data, self.durable = bytearray(self.data), bytearray(self.durable)
            self.shared = False

    def write(self, data: bytes, position: int, now_ms: int) -> None:
        self._own()
        overwrite(self.data, position, data)
        self.modified_ms = now_ms
        self.changed_ns = tick_ns()
        self.changes.append((position, data))

    def truncate(self, size: int, now_ms: int) -> None:
        self._own()
        change_size(self.data, size)
        self.modified_ms = now_ms
        self.changed_ns = tick_ns()
        self.changes.append((size, None))

    def sync(self) -> None:
        if not self.changes:
            return
        before = len(self.durable)
        for position, written in self.changes:
            if written is None:
                change_size(self.durable, position)
            else:
                overwrite(self.durable, position, written)
        self.changes.clear()
        if len(self.durable) != before:
            self.durable_ms = self.modified_ms

    def fail_to_sync(self) -> None:
        """The kernel gives up on what is not on the disk, and calls it clean."""
        if self.changes:
            self.changes.clear()
            self.lost = True

    def evict(self, start: int) -> None:
        """What is not on the disk, though called clean, is read from there again, from `start` on.
        The file keeps its size."""
        if not self.lost:
            return
        data = bytearray(self.durable)
        for position, written in self.changes:
            if written is None:
                change_size(data, position)
            else:
                overwrite(data, position, written)
        change_size(data, len(self.data))
        data[:start] = self.data[:start]
        self._own()
        self.data, self.lost = data, start > 0

    def survive(self, rng: random.Random, mood: Mood) -> Inode:
        survivor = Inode.__new__(Inode)
        survivor.changes, survivor.lost, survivor.shared = [], False, False
        survivor.changed_ns = tick_ns()
        survivor.read_only = self.read_only and rng.random() < 0.5
        survivor.modified_ms = survivor.durable_ms = self.durable_ms
        if not self.changes:
            self.shared = survivor.shared = True
            survivor.data = survivor.durable = self.durable
            if self.modified_ms != self.durable_ms and rng.random() < 0.5:
                survivor.modified_ms = survivor.durable_ms = self.modified_ms
            return survivor
        data, kind = bytearray(self.durable), mood.of(rng)
        for position, written in self.changes:
            if kind == "nothing" or (kind == "some" and rng.random() < 0.4):
                continue
            survivor.modified_ms = survivor.durable_ms = self.modified_ms
            if written is None:
                change_size(data, position)
            elif kind == "some" and rng.random() < 0.4:
                tear(data, position, written, rng)
            else:
                overwrite(data, position, written)
        survivor.data, survivor.durable = data, bytearray(data)
        return survivor


def change_size(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def overwrite(data: bytearray, position: int, written: bytes) -> None:
    if not written:
        return
    if position > len(data):
        change_size(data, position)
    data[position : position + len(written)] = written


def tear(data: bytearray, position: int, written: bytes, rng: random.Random) -> None:
    """A part of a write: its beginning, or some of its sectors; perhaps with the file's new size,
    and perhaps with what lay on the disk there before."""
    end = position + len(written)
    if rng.random() < 0.5:
        kept = written[: rng.randrange(len(written) + 1)]
        overwrite(data, position, kept)
    else:
        first = position
        while first < end:
            last = min(first - first % SECTOR_BYTES + SECTOR_BYTES, end)
            if rng.random() < 0.5:
                overwrite(data, first, written[first - position : last - position])
            first = last
    rest = end - len(data)
    # A disk writes whole sectors: none leaves out a single byte amid one.
    left_out = len(bytes(written[len(written) - rest :]).strip(b"\0")) if rest > 0 else 0
    if rest > 0 and (len(data) % SECTOR_BYTES == 0 or left_out > 1) and rng.random() < 0.3:
        data.extend(rng.randbytes(rest) if rng.random() < 0.2 else bytes(rest))


class Folder:
    """Names, durable names, and the changes between the two."""

    __slots__ = ("changes", "durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}
        self.changes: list[tuple[str | None, str | None, Inode | Folder]] = []
        """Old name, new name and what is called so; None where there is none."""

    def put(self, name: str, node: Inode | Folder) -> None:
        self.names[name] = node
        self.changes.append((None, name, node))

    def drop(self, name: str) -> None:
        self.changes.append((name, None, self.names.pop(name)))

    def rename(self, old: str, new: str) -> None:
        node = self.names.pop(old)
        self.names[new] = node
        self.changes.append((old, new, node))

    def sync(self) -> None:
        if self.changes:
            self.durable = dict(self.names)
            self.changes.clear()

    def survive(self, rng: random.Random, mood: Mood) -> Folder:
        names = dict(self.durable)
        kind = mood.of(rng) if self.changes else "nothing"
        changes = self.changes if kind != "nothing" else []
        if kind == "some" and mood.names_in_order:
            changes = changes[: rng.randrange(len(changes) + 1)]
        elif kind == "some":
            changes = [change for change in changes if rng.random() < 0.6]
        for old, new, node in changes:
            if new is not None:
                # Where the changes before it were lost, a file may still have another name.
                for other in [name for name, known in names.items() if known is node]:
                    del names[other]
            if old is not None:
                names.pop(old, None)
            if new is not None:
                names[new] = node
        survivor = Folder()
        survivor.names = {name: node.survive(rng, mood) for name, node in sorted(names.items())}
        survivor.durable = dict(survivor.names)
        return survivor
