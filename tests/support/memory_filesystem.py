"""A file system in memory that knows what would outlive a power cut.

It is the twin of `storage.filesystem.DiskFilesystem` with three more abilities:

- `power_cut(rng)` gives the file system as a new start would find it: bytes not yet synced are
  gone wholly or in part, names not yet made durable by a sync of their folder likewise.
- `cut_at = n` raises `PowerCut` at the n-th call that changes anything, and at all later ones.
- `faults` maps the number of such a call to the errno it fails with; `capacity` is a full disk.

The model is at least as unkind as a real disk: any subset of the writes since the last sync may
have reached it, each perhaps only its beginning, and a file may have grown without its bytes.
Changes of a folder become durable in the order in which they were made, as with a journal.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from storage.filesystem import parent_of, write_atomic

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    Bytes = bytes | bytearray | memoryview


class PowerCut(BaseException):
    """The machine is off. Not an Exception: nothing may catch it on the way out."""


class Inode:
    """A file's content, what of it is durable, and what happened since."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.modified_ms = 0
        self.durable = bytes(data)
        self.changes: list[tuple[int, bytes | None]] = []
        """(position, bytes) for a write, (size, None) for a truncation."""

    def survive(self, rng: random.Random) -> Inode:
        data = bytearray(self.durable)
        mood = rng.choice(("nothing", "everything", "some"))
        for position, written in self.changes:
            if mood == "nothing" or (mood == "some" and rng.random() < 0.4):
                continue
            if written is None:
                change_size(data, position)
                continue
            kept = written
            if mood == "some" and rng.random() < 0.4:
                kept = written[: rng.randrange(len(written) + 1)]
                if rng.random() < 0.3:  # the size is on the disk, the bytes are not
                    kept = kept + bytes(len(written) - len(kept))
            overwrite(data, position, kept)
        survivor = Inode(bytes(data))
        survivor.modified_ms = self.modified_ms
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


class Folder:
    """Names, durable names, and the changes between the two."""

    def __init__(self) -> None:
        self.names: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}
        self.changes: list[tuple[str, str, Inode | Folder | None]] = []

    def put(self, name: str, node: Inode | Folder) -> None:
        self.names[name] = node
        self.changes.append(("put", name, node))

    def drop(self, name: str) -> None:
        del self.names[name]
        self.changes.append(("drop", name, None))

    def rename(self, old: str, new: str) -> None:
        self.names[new] = self.names.pop(old)
        self.changes.append(("rename", old, None))
        self.changes.append((new, "", None))

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()

    def survive(self, rng: random.Random) -> Folder:
        names = dict(self.durable)
        count = rng.choice((0, len(self.changes), rng.randrange(len(self.changes) + 1)))
        changes = iter(self.changes[:count])
        for kind, name, node in changes:
            if kind == "put" and node is not None:
                names[name] = node
            elif kind == "drop":
                names.pop(name, None)
            elif kind == "rename":
                target = next(changes, None)
                if target is not None:  # a rename is whole or not at all
                    names[target[0]] = names.pop(name)
        survivor = Folder()
        survivor.names = {name: node.survive(rng) for name, node in sorted(names.items())}
        survivor.durable = dict(survivor.names)
        return survivor


class MemoryFile:
    def __init__(self, files: MemoryFilesystem, path: str, inode: Inode) -> None:
        self.path = path
        self.inode = inode
        self.closed = False
        self._files = files

    def pread(self, size: int, position: int) -> bytes:
        assert not self.closed, f"{self.path} is closed"
        self._files.reads.append((self.path, position, size))
        return bytes(self.inode.data[position : position + size])

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        assert not self.closed, f"{self.path} is closed"
        data = b"".join(buffers)
        try:
            self._files.about_to(f"write {self.path}")
        except (OSError, PowerCut):
            self._write(data[: len(data) // 2], position)
            raise
        growth = position + len(data) - len(self.inode.data)
        room = self._files.room()
        if room is not None and growth > room:
            self._write(data[: max(len(data) - (growth - room), 0)], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._write(data, position)

    def _write(self, data: bytes, position: int) -> None:
        overwrite(self.inode.data, position, data)
        self.inode.modified_ms = self._files.mtime_ms
        self.inode.changes.append((position, data))

    def truncate(self, size: int) -> None:
        self._files.about_to(f"truncate {self.path}")
        change_size(self.inode.data, size)
        self.inode.modified_ms = self._files.mtime_ms
        self.inode.changes.append((size, None))

    def sync(self) -> None:
        self._files.about_to(f"sync {self.path}")
        self.inode.durable = bytes(self.inode.data)
        self.inode.changes.clear()

    def size(self) -> int:
        return len(self.inode.data)

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor", self.path)

    def close(self) -> None:
        self.closed = True


class MemoryLock:
    def __init__(self, files: MemoryFilesystem, path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        self._files.remove(self._path)
        self._files.locked.discard(self._path)


class MemoryFilesystem:
    """See the module. Paths are absolute."""

    def __init__(self, root: Folder | None = None) -> None:
        self.root = root or Folder()
        self.locked: set[str] = set()
        self.calls: list[str] = []
        """Everything that changed something, in order."""
        self.reads: list[tuple[str, int, int]] = []
        """Path, position and size of every read."""
        self.cut_at: int | None = None
        self.faults: dict[int, int] = {}
        self.capacity: int | None = None
        self.mtime_ms = 1_700_000_000_000
        """What the clock says: files changed now get this modification time."""

    def power_cut(self, rng: random.Random) -> MemoryFilesystem:
        """What a start after a power cut at this moment finds."""
        return MemoryFilesystem(self.root.survive(rng))

    def about_to(self, what: str) -> None:
        """Count a change, and fail if it is its turn."""
        number = len(self.calls)
        self.calls.append(what)
        if self.cut_at is not None and number >= self.cut_at:
            raise PowerCut(what)
        if number in self.faults:
            code = self.faults[number]
            raise OSError(code, os.strerror(code), what)

    def room(self) -> int | None:
        if self.capacity is None:
            return None
        return self.capacity - sum(len(inode.data) for inode in self._inodes(self.root))

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
            self.about_to(f"create {path}")
            inode = Inode()
            inode.modified_ms = self.mtime_ms
            self._folder(parent_of(path)).put(path.rpartition("/")[2], inode)
        return MemoryFile(self, path, inode)

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
        self.about_to(f"mkdir {path}")
        self._folder(parent_of(path)).put(path.rpartition("/")[2], Folder())

    def rename(self, old: str, new: str) -> None:
        assert parent_of(old) == parent_of(new), "renames stay in their folder"
        self._node(old)
        self.about_to(f"rename {old} {new}")
        self._folder(parent_of(old)).rename(old.rpartition("/")[2], new.rpartition("/")[2])

    def remove(self, path: str) -> None:
        if not self.exists(path):
            return
        self._inode(path)
        self.about_to(f"remove {path}")
        self._folder(parent_of(path)).drop(path.rpartition("/")[2])

    def remove_tree(self, path: str) -> None:
        self._folder(path)
        self.about_to(f"remove tree {path}")
        self._folder(parent_of(path)).drop(path.rpartition("/")[2])

    def sync_dir(self, path: str) -> None:
        self.about_to(f"sync {path}")
        self._folder(path).sync()

    def read_bytes(self, path: str) -> bytes:
        data = bytes(self._inode(path).data)
        self.reads.append((path, 0, len(data)))
        return data

    def write_atomic(self, path: str, data: bytes) -> None:
        write_atomic(self, path, data)

    def lock(self, path: str) -> MemoryLock:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.open_file(path, create=True)
        self.locked.add(path)
        return MemoryLock(self, path)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def write_bytes(self, path: str, data: bytes) -> None:
        """Put a durable file in place, for tests that begin with files."""
        self.make_dir(parent_of(path))
        inode = Inode(data)
        inode.modified_ms = self.mtime_ms
        self._folder(parent_of(path)).names[path.rpartition("/")[2]] = inode
        self.sync_all()

    def sync_all(self) -> None:
        """Make everything durable."""

        def walk(folder: Folder) -> None:
            folder.sync()
            for node in folder.names.values():
                if isinstance(node, Folder):
                    walk(node)
                else:
                    node.durable = bytes(node.data)
                    node.changes.clear()

        walk(self.root)
