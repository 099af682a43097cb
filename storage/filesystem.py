"""The only door to the disk: what storage does to files.

`Filesystem` and `File` are the interface. `storage.disk` has the real thing, one of two:
`storage.portable_files` or, faster, `storage.linux_files`. The tests have a twin in memory that
knows which bytes would outlive a power cut.

Paths are plain strings: pathlib would cost start-up time and buy nothing here.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from storage.errors import NO_DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    Bytes = bytes | bytearray | memoryview

T = TypeVar("T")

IOV_MAX = 1024
"""Buffers that Linux takes in one call."""


class File(Protocol):
    """An open file. Positions and sizes are in bytes."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def reread(self, position: int) -> None:
        """From this position on, have reads find what is on the disk or on its way there.

        After a sync that failed, the kernel's cache may go on showing bytes that never got there
        and never will, and call them clean; that outlives the process. Only a hint to the kernel.
        """

    def write_at(self, buffers: Sequence[Bytes], position: int) -> None:
        """All bytes of all buffers, one after the other, or OSError.

        After an error part of them may be in the file; cutting it back is up to the caller.
        """

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when the content and the size are on the disk."""

    def size(self) -> int: ...

    def changed_ns(self) -> int:
        """Time of the last change of the file or its names, by any process, in ns: another number
        after each change, as far as the file system's clock tells them apart. Raises OSError."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock on a file, held until released."""

    def release(self) -> None:
        """Remove the file and let go."""


class Filesystem(Protocol):
    """Everything storage does to files. Paths are strings; errors are OSError."""

    def open_file(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; an existing file keeps its content."""

    def open_to_read(self, path: str) -> File:
        """Open a file that will not be changed, and may not be allowed to be."""

    def list_dir(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size_of(self, path: str) -> int: ...

    def make_dir(self, path: str) -> None:
        """Make a folder and those above it; nothing happens if it exists. Not synced."""

    def rename(self, old: str, new: str) -> None: ...

    def make_read_only(self, path: str) -> None:
        """Let nobody but the owner read the file, and nobody write to it. Not synced."""

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens if there is none."""

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Return when the names in this folder are on the disk."""

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Put a file in place so that a reader sees the old or the new content, on disk."""

    def lock(self, path: str, *, inherited: bool = False) -> Lock:
        """Lock a file that is made if needed; BlockingIOError if another process holds it. One that
        is `inherited` holds as long as this process or one that it has forked lives; other systems
        than Linux, and some file systems, have none such, which is an OSError."""

    def held(self, path: str) -> AbstractContextManager[object]:
        """Hold a file, which is made if needed, against others that do the same, in any thread or
        process; this waits for them."""

    def modified_ms(self, path: str) -> int: ...

    def now_ns(self) -> int:
        """The clock by which files are stamped, in ns: a change after this call has a `changed_ns`
        above it, unless it is within the same tick (1 to 10 ms)."""

    def set_modified_ms(self, path: str, ms: int) -> None:
        """Say when a file was last written to, for one that takes another's place."""

    def reserve(self, path: str, size: int) -> None:
        """Make a file whose bytes have their room on the disk; a larger one stays as it is.

        After an error a part of it may be there.
        """

    def free_bytes(self, path: str) -> int:
        """Bytes free for writing in this folder; 0 also where there is no room for names."""

    def total_bytes(self, path: str) -> int:
        """Size in bytes of the disk that this folder is on."""


def parent_of(path: str) -> str:
    """The folder of a path; `.` for a bare name."""
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def write_atomic(files: Filesystem, path: str, data: bytes) -> None:
    """Temporary file, sync, rename, sync of the folder: the order that survives a power cut."""
    temporary = f"{path}.tmp"
    file = files.open_file(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at([data], 0)
        file.sync()
    except OSError:
        with suppress(OSError):
            files.remove(temporary)  # what there is of it only takes room
        raise
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(parent_of(path))


class SpareDescriptors:
    """Descriptors held to be given up when the process may not have another one.

    What must be opened then finds a place: a folder to be synced, a checkpoint. The last one is for
    what tells of it (`lent`). Any thread may give up; taking back is for one.
    """

    __slots__ = ("_count", "_held")

    def __init__(self) -> None:
        self._count = 0
        self._held: list[int] = []

    def hold(self, count: int) -> None:
        """Hold so many from now on, as far as they can be had."""
        self._count = count
        while len(self._held) > count and self.give_up(last=True):
            pass
        self.refill()

    def give_up(self, *, last: bool = False) -> bool:
        """Close one; False if there is none left, or only the last one."""
        if len(self._held) < 2 and not last:
            return False
        try:
            descriptor = self._held.pop()
        except IndexError:
            return False
        os.close(descriptor)
        return True

    def refill(self) -> bool:
        """Take back what was given up; whether all are held now."""
        while len(self._held) < self._count:
            try:
                self._held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                return False
        return True

    def is_another_left(self) -> bool:
        """Whether the process may have one more besides."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return False
        return True

    @contextmanager
    def lent(self) -> Iterator[None]:
        """One is free for what happens here and opens files one after the other (an import)."""
        self.give_up(last=True)
        try:
            yield
        finally:
            self.refill()


SPARES = SpareDescriptors()
"""The spare descriptors of this process; a tool holds none."""


def opened(call: Callable[..., T], *arguments: Any) -> T:
    """Make a call that takes a descriptor, if need be the place of a spare one."""
    while True:
        try:
            return call(*arguments)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not SPARES.give_up():
                raise
