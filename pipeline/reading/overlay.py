"""A file system on which nothing is ever changed: what is written to it stays in memory.

Opening a log after a crash cuts its torn end, finishes renames and builds indexes again. On an
`Overlay` that happens as at a broker's start, and the directory below stays as it is, even one that
may not be written to. What is kept is small: names, sizes, and the content of files that were
written to, which are indexes and checkpoints and never a log.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from storage.disk import DiskFilesystem
from storage.filesystem import parent_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from storage.filesystem import File, Filesystem, Lock

    Bytes = bytes | bytearray | memoryview

COPY_MAX = 64 << 20
"""Bytes of a file that may be copied because it is written to. Index files have at most 10 MiB."""


class _Content:
    """A file's content: the first `size` bytes of a file below, or `data`."""

    __slots__ = ("below", "data", "size")

    def __init__(self, below: str | None, size: int) -> None:
        self.below = below
        self.size = size
        self.data = bytearray() if below is None else None


class OverlayFile:
    """An open file of an `Overlay`."""

    __slots__ = ("_content", "_file", "path")

    def __init__(self, files: Filesystem, path: str, content: _Content) -> None:
        self.path = path
        self._content = content
        self._file: File | None = None
        if content.below is not None:
            self._file = files.open_to_read(content.below)

    def pread(self, size: int, position: int) -> bytes:
        content = self._content
        size = max(min(size, content.size - position), 0)
        if content.data is not None:
            return bytes(content.data[position : position + size])
        assert self._file is not None
        return self._file.pread(size, position)

    def reread(self, position: int) -> None:
        """Nothing was synced here, so nothing is doubted."""

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        data = self._own_data()
        written = b"".join(buffers)
        if position + len(written) > COPY_MAX:
            raise OSError(errno.EROFS, "too large to be kept in memory", self.path)
        if position > len(data):
            data.extend(bytes(position - len(data)))
        data[position : position + len(written)] = written
        self._content.size = len(data)

    def truncate(self, size: int) -> None:
        content = self._content
        if content.data is None and size <= content.size:
            content.size = size
            return
        data = self._own_data()
        if size > COPY_MAX:
            raise OSError(errno.EROFS, "too large to be kept in memory", self.path)
        del data[size:]
        data.extend(bytes(size - len(data)))
        content.size = size

    def _own_data(self) -> bytearray:
        content = self._content
        if content.data is None:
            if content.size > COPY_MAX:
                raise OSError(errno.EROFS, "too large to be kept in memory", self.path)
            content.data = bytearray(self.pread(content.size, 0))
        return content.data

    def sync(self) -> None:
        """There is nothing to outlive this process."""

    def size(self) -> int:
        return self._content.size

    def changed_ns(self) -> int:
        """The time of the file below: nobody else changes what is kept here."""
        return 0 if self._file is None else self._file.changed_ns()

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "may not have a descriptor", self.path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Overlay:
    """One folder as it would be after what was done to it here. A `storage.filesystem.Filesystem`.

    Paths are those below; none outside of the folder is to be asked for. It is read when it is
    first needed, a folder at a time.
    """

    def __init__(self, below: Filesystem | None = None) -> None:
        self._below: Filesystem = below or DiskFilesystem()
        self._contents: dict[str, _Content | None] = {}
        """By path; None for what was removed. Others are as they are below."""
        self._made: set[str] = set()

    def _content(self, path: str) -> _Content:
        if path in self._contents:
            content = self._contents[path]
        elif self._below.exists(path):
            content = _Content(path, self._below.size_of(path))
        else:
            content = None
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return content

    def open_file(self, path: str, *, create: bool = False) -> OverlayFile:
        try:
            content = self._content(path)
        except FileNotFoundError:
            if not create:
                raise
            content = _Content(None, 0)
        self._contents[path] = content
        return OverlayFile(self._below, path, content)

    def open_to_read(self, path: str) -> OverlayFile:
        return OverlayFile(self._below, path, self._content(path))

    def list_dir(self, path: str) -> list[str]:
        names = set(self._below.list_dir(path)) if self._below.is_dir(path) else set()
        for changed, content in self._contents.items():
            if parent_of(changed) == path:
                name = changed.rpartition("/")[2]
                if content is None:
                    names.discard(name)
                else:
                    names.add(name)
        return sorted(names)

    def exists(self, path: str) -> bool:
        if path in self._contents:
            return self._contents[path] is not None
        return path in self._made or self._below.exists(path)

    def is_dir(self, path: str) -> bool:
        return path in self._made or (path not in self._contents and self._below.is_dir(path))

    def size_of(self, path: str) -> int:
        return self._content(path).size

    def make_dir(self, path: str) -> None:
        self._made.add(path)

    def rename(self, old: str, new: str) -> None:
        self._contents[new] = self._content(old)
        self._contents[old] = None

    def make_read_only(self, path: str) -> None:
        """Everything here is."""

    def remove(self, path: str) -> None:
        self._contents[path] = None

    def remove_tree(self, path: str) -> None:
        for name in self.list_dir(path):
            self.remove(f"{path}/{name}")
        self.remove(path)

    def sync_dir(self, path: str) -> None:
        """There is nothing to outlive this process."""

    def read_bytes(self, path: str) -> bytes:
        file = self.open_to_read(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def write_atomic(self, path: str, data: bytes) -> None:
        content = _Content(None, 0)
        OverlayFile(self._below, path, content).write_at([data], 0)
        self._contents[path] = content

    def lock(self, path: str, *, inherited: bool = False) -> Lock:
        raise OSError(errno.EROFS, "nothing is locked here", path)

    def held(self, path: str) -> AbstractContextManager[object]:
        raise OSError(errno.EROFS, "nothing is held here", path)

    def now_ns(self) -> int:
        return self._below.now_ns()

    def modified_ms(self, path: str) -> int:
        below = self._content(path).below
        return 0 if below is None else self._below.modified_ms(below)

    def set_modified_ms(self, path: str, ms: int) -> None:
        """Nothing that is written here outlives its reader."""

    def reserve(self, path: str, size: int) -> None:
        raise OSError(errno.EROFS, "nothing is reserved here", path)

    def free_bytes(self, path: str) -> int:
        return 0

    def total_bytes(self, path: str) -> int:
        return self._below.total_bytes(path)
