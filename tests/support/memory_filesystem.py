"""A file system in memory that knows what would outlive a power cut.

It is the twin of `storage.disk.DiskFilesystem` with more abilities:

- `power_cut(rng)` gives the file system as a new start would find it: bytes not yet synced are
  gone wholly or in part, names not yet made durable by a sync of their folder likewise.
- `kill()` makes it what a start finds after only the process died: all that was written is there,
  synced or not.
- `cut_at = n` raises `PowerCut` at the n-th call that changes anything, and at all later ones.
- `at_every_call(run, take)` looks at what a power cut at each such call would find, in one run.
- `faults` maps the number of such a call to the errno it fails with; `capacity` is a full disk.

How unkind a power cut is says `tests.support.memory_disk`.
"""

from __future__ import annotations

import copy
import errno
import os
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from storage.filesystem import parent_of, write_atomic
from tests.support.memory_disk import MOODS, Folder, Inode, tick_ns

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    Bytes = bytes | bytearray | memoryview

Taken = TypeVar("Taken")


class PowerCut(BaseException):
    """The machine is off. Not an Exception: nothing may catch it on the way out."""


class MemoryFile:
    __slots__ = ("_files", "closed", "inode", "path")

    def __init__(self, files: MemoryFilesystem, path: str, inode: Inode) -> None:
        self.path = path
        self.inode = inode
        self.closed = False
        self._files = files

    def pread(self, size: int, position: int) -> bytes:
        assert not self.closed, f"{self.path} is closed"
        if self._files.recording:
            self._files.reads.append((self.path, position, size))
        return bytes(self.inode.data[position : position + size])

    def reread(self, position: int) -> None:
        self.inode.evict(position)

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        assert not self.closed, f"{self.path} is closed"
        files, inode = self._files, self.inode
        data = b"".join(buffers)
        if files.looking is not None:
            # The first half, which the rest of the call then writes again.
            inode.write(data[: len(data) // 2], position, files.mtime_ms)
            files.about_to("write", self.path)
            inode.changes.pop()
        else:
            try:
                files.about_to("write", self.path)
            except (OSError, PowerCut):
                inode.write(data[: len(data) // 2], position, files.mtime_ms)
                raise
        room = files.room()
        growth = position + len(data) - len(inode.data)
        if room is not None and growth > room:
            fitting = data[: max(len(data) - (growth - room), 0)]
            inode.write(fitting, position, files.mtime_ms)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        inode.write(data, position, files.mtime_ms)

    def truncate(self, size: int) -> None:
        self._files.about_to("truncate", self.path)
        self.inode.truncate(size, self._files.mtime_ms)

    def sync(self) -> None:
        try:
            self._files.about_to("sync", self.path)
        except OSError:
            self.inode.fail_to_sync()
            raise
        self.inode.sync()

    def size(self) -> int:
        return len(self.inode.data)

    def changed_ns(self) -> int:
        return self.inode.changed_ns

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor", self.path)

    def close(self) -> None:
        self.closed = True


class MemoryLock:
    def __init__(self, files: MemoryFilesystem, path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        try:
            self._files.remove(self._path)
        finally:
            self._files.locked.discard(self._path)


class MemoryFilesystem:
    """See the module. Paths are absolute.

    With `recording` off, `calls` and `reads` stay empty, and only `count` tells what happened.
    """

    def __init__(self, root: Folder | None = None, *, recording: bool = True) -> None:
        self.root = root or Folder()
        self.recording = recording
        self.locked: set[str] = set()
        self.turns: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self.count = 0
        """How many calls changed something."""
        self.calls: list[str] = []
        """Those calls, in order."""
        self.reads: list[tuple[str, int, int]] = []
        """Path, position and size of every read."""
        self.cut_at: int | None = None
        self.looking: Callable[[], None] | None = None
        self.faults: dict[int, int] = {}
        self.capacity: int | None = None
        self.mtime_ms = 1_700_000_000_000
        """What the clock says: files changed now get this modification time."""

    def power_cut(self, rng: random.Random, *, names_in_order: bool = True) -> MemoryFilesystem:
        """What a start after a power cut at this moment finds."""
        mood = rng.choice(MOODS)._replace(names_in_order=names_in_order)
        root = self.root.survive(rng, mood)
        survivor = MemoryFilesystem(root, recording=self.recording)
        survivor.mtime_ms = self.mtime_ms
        return survivor

    def at_every_call(self, run: Callable[[], object], take: Callable[[], Taken]) -> list[Taken]:
        """Run to the end, and return what `take` gave at each call that changes anything.

        It finds everything as it would be were the power cut at that call, as with `cut_at`, and
        is to take copies: `power_cut` and `copy` give them. No faults, and disks that are not full.
        """
        assert self.cut_at is None
        assert not self.faults
        assert self.capacity is None
        taken: list[Taken] = []
        self.looking = lambda: taken.append(take())
        run()
        self.looking = None
        return taken

    def copy(self) -> MemoryFilesystem:
        """What the next process finds when this one is killed now."""
        other = MemoryFilesystem(copy.deepcopy(self.root), recording=self.recording)
        other.mtime_ms = self.mtime_ms
        return other

    def kill(self) -> None:
        """The process is gone, and with it its locks; the machine goes on."""
        self.cut_at = None
        self.faults = {}
        self.locked.clear()

    def about_to(self, what: str, path: str) -> None:
        """Count a change, and fail if it is its turn."""
        number = self.count
        self.count = number + 1
        if self.recording:
            self.calls.append(f"{what} {path}")
        if self.looking is not None:
            self.looking()
        if self.cut_at is not None and number >= self.cut_at:
            raise PowerCut(f"{what} {path}")
        if number in self.faults:
            code = self.faults[number]
            raise OSError(code, os.strerror(code), f"{what} {path}")

    def room(self) -> int | None:
        if self.capacity is None:
            return None
        return self.capacity - self.used_bytes()

    def used_bytes(self) -> int:
        """The sizes of all files together."""
        return sum(len(inode.data) for inode in self._inodes(self.root))

    def _inodes(self, folder: Folder) -> Iterator[Inode]:
        for node in folder.names.values():
            if isinstance(node, Folder):
                yield from self._inodes(node)
            else:
                yield node

    def _node(self, path: str) -> Inode | Folder:
        node: Inode | Folder = self.root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            if not isinstance(node, Folder) or name not in node.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = node.names[name]
        return node

    def _folder(self, path: str) -> Folder:
        node = self._node(path)
        if not isinstance(node, Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._node(path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def open_file(self, path: str, *, create: bool = False) -> MemoryFile:
        try:
            inode = self._inode(path)
        except FileNotFoundError:
            if not create:
                raise
            folder = self._folder(parent_of(path))
            self.about_to("create", path)
            inode = Inode(modified_ms=self.mtime_ms)
            folder.put(path.rpartition("/")[2], inode)
        if inode.read_only:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return MemoryFile(self, path, inode)

    def open_to_read(self, path: str) -> MemoryFile:
        return MemoryFile(self, path, self._inode(path))

    def list_dir(self, path: str) -> list[str]:
        return list(self._folder(path).names)

    def exists(self, path: str) -> bool:
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return self.exists(path) and isinstance(self._node(path), Folder)

    def size_of(self, path: str) -> int:
        return len(self._inode(path).data)

    def make_dir(self, path: str) -> None:
        if path in ("/", "") or self.is_dir(path):
            return
        self.make_dir(parent_of(path))
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.about_to("mkdir", path)
        self._folder(parent_of(path)).put(path.rpartition("/")[2], Folder())

    def rename(self, old: str, new: str) -> None:
        assert parent_of(old) == parent_of(new), "renames stay in their folder"
        self._node(old)
        self.about_to("rename", f"{old} {new}")
        self._folder(parent_of(old)).rename(old.rpartition("/")[2], new.rpartition("/")[2])

    def make_read_only(self, path: str) -> None:
        inode = self._inode(path)
        self.about_to("chmod", path)
        inode.read_only = True

    def remove(self, path: str) -> None:
        if not self.exists(path):
            return
        self._inode(path)
        self.about_to("remove", path)
        self._folder(parent_of(path)).drop(path.rpartition("/")[2])

    def remove_tree(self, path: str) -> None:
        for name, node in list(self._folder(path).names.items()):
            if isinstance(node, Folder):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.about_to("rmdir", path)
        self._folder(parent_of(path)).drop(path.rpartition("/")[2])

    def sync_dir(self, path: str) -> None:
        folder = self._folder(path)
        self.about_to("sync", path)
        folder.sync()

    def read_bytes(self, path: str) -> bytes:
        data = bytes(self._inode(path).data)
        if self.recording:
            self.reads.append((path, 0, len(data)))
        return data

    def write_atomic(self, path: str, data: bytes) -> None:
        write_atomic(self, path, data)

    def lock(self, path: str, *, inherited: bool = False) -> MemoryLock:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.open_file(path, create=True)
        self.locked.add(path)
        return MemoryLock(self, path)

    def held(self, path: str) -> AbstractContextManager[object]:
        self.open_file(path, create=True)
        return self.turns[path]

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def now_ns(self) -> int:
        return tick_ns()

    def set_modified_ms(self, path: str, ms: int) -> None:
        inode = self._inode(path)
        self.about_to("touch", path)
        inode.modified_ms = ms

    def reserve(self, path: str, size: int) -> None:
        file = self.open_file(path, create=True)
        if size <= 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        growth = size - file.size()
        if growth <= 0:
            return
        self.about_to("reserve", path)
        room = self.room()
        if room is not None and growth > room:
            file.inode.truncate(file.size() + room, self.mtime_ms)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        file.inode.truncate(size, self.mtime_ms)

    def free_bytes(self, path: str) -> int:
        self._folder(path)
        room = self.room()
        return 1 << 40 if room is None else max(room, 0)

    def total_bytes(self, path: str) -> int:
        self._folder(path)
        return 1 << 41 if self.capacity is None else self.capacity

    def write_bytes(self, path: str, data: bytes) -> None:
        """Put a durable file in place, for tests that begin with files."""
        self.write_all({path: data})

    def write_all(self, contents: Mapping[str, bytes]) -> None:
        """The same for many of them, by path."""
        for path, data in contents.items():
            self.make_dir(parent_of(path))
            inode = Inode(data, self.mtime_ms)
            self._folder(parent_of(path)).names[path.rpartition("/")[2]] = inode
        self.sync_all()

    def sync_all(self) -> None:
        """Make everything durable."""

        def walk(folder: Folder) -> None:
            folder.durable = dict(folder.names)
            folder.changes.clear()
            for node in folder.names.values():
                if isinstance(node, Folder):
                    walk(node)
                else:
                    node.durable = bytearray(node.data)
                    node.durable_ms = node.modified_ms
                    node.changes.clear()
                    node.lost = False

        walk(self.root)
