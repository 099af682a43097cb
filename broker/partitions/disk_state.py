"""A full disk is a state of the broker, not its end.

While it lasts, records and topics are refused without asking the disk again and again; reads go
on, and so does all that makes room. What clean-up and a stop have to write finds its place where
the reserve file was: it is given up when the state is entered, and made again before it is left.

The file holds nothing. One keeps it: the process that serves a directory, or the supervisor of
those that do. It is made after the start, and a stop removes it.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from broker import logs
from storage.errors import StorageError, is_disk_full
from storage.layout import RESERVE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from storage.filesystem import Filesystem
    from storage.log import Log

    Run = Callable[[Callable[[], None], Callable[[None], None], Callable[[Exception], None]], None]
    """Does a job that touches the disk, and calls the one of these that its end is for."""

LOOK_EVERY_S = 1.0
MARGIN_BYTES = 1024 * 1024
"""Bytes that must be free besides the reserve for records to be taken: a disk that is freed a block
at a time must not come and go."""

DISK_FULL = "the disk is full"
"""The message to clients. It never changes, so that the log says it once a minute."""


class DiskState:
    """Whether there is room for records. Belongs to the loop."""

    __slots__ = ("_files", "_folder", "_loop", "_removals", "_reserve", "full")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        files: Filesystem,
        folder: str,
        reserve: Reserve,
    ) -> None:
        """`folder` is the data directory."""
        self._loop = loop
        self._files = files
        self._folder = folder
        self._removals: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._reserve = reserve
        self.full = reserve.full
        reserve.changed = self._changed

    @property
    def free_bytes(self) -> int:
        """Room for writes, without the reserve; -1 if the system does not say."""
        return free_bytes(self._files, self._folder)

    @property
    def total_bytes(self) -> int:
        """Size of the disk; -1 if the system does not say."""
        try:
            return self._files.total_bytes(self._folder)
        except OSError:
            return -1

    def require_room(self) -> None:
        """Raise OSError (ENOSPC) in the state: for what would make files."""
        if self.full:
            raise OSError(errno.ENOSPC, DISK_FULL, self._folder)

    def noticed(self, error: BaseException) -> bool:
        """Something failed. If for want of room, enter the state; whether that was it."""
        if not is_disk_full(error):
            return False
        self._reserve.noticed(str(error))
        return True

    def remove_later(self, remove: Callable[[], None], delay_ms: int) -> None:
        """Call what removes files after this time, or as soon as the disk is full. (An answer that
        is being sent holds the files it needs.)"""

        def now() -> None:
            del self._removals[remove]
            remove()

        self._removals[remove] = self._loop.call_later(0 if self.full else delay_ms / 1000, now)

    def read_failed(self, log: Log, error: OSError) -> StorageError:
        """A log could not be read: the error to answer with. A broken disk stops the log."""
        refused = log.refuse(f"{log.name}: read failed", error)
        logs.error_once_a_minute("records can't be read", str(refused), log.name)
        return refused

    def _changed(self, full: bool) -> None:
        self.full = full
        if not full:
            return
        removals, self._removals = self._removals, {}
        for remove, timer in removals.items():
            timer.cancel()
            self.remove_later(remove, 0)


class Reserve(Protocol):
    """What a process has of the reserve, whoever keeps it."""

    full: bool
    """Whether the disk is."""
    changed: Callable[[bool], None]
    """Called with `full` when that is another."""

    def noticed(self, reason: str) -> None:
        """Something found no room: the disk is full."""

    def look(self) -> None:
        """See whether a reserve has to be made, or there is room again. A periodic task."""

    def configure(self, size: int) -> None:
        """Keep a reserve of so many bytes from now on; the next look makes it."""

    def release(self) -> None:
        """Give up the reserve. Nothing happens if there is none."""


class ReserveFile:
    """The reserve of who keeps it.

    `size` 0 keeps none: then a full disk is known by the first write that fails.
    """

    __slots__ = (
        "_files",
        "_folder",
        "_has_reserve",
        "_is_trouble_logged",
        "_looking",
        "_path",
        "_run",
        "_size",
        "changed",
        "full",
    )

    def __init__(self, files: Filesystem, folder: str, size: int, run: Run) -> None:
        """`folder` is the data directory. `run` makes the file, off the loop if there is one."""
        self._files = files
        self._folder = folder
        self._path = f"{folder}/{RESERVE}"
        self._size = size
        self._run = run
        self._has_reserve = self._looking = self._is_trouble_logged = False
        self.changed: Callable[[bool], None] = nobody_asks
        self.full = False

    def noticed(self, reason: str) -> None:
        """Something found no room: give up the reserve, and say so, once."""
        if self.full:
            return
        self.full = True
        free = free_bytes(self._files, self._folder)
        self.release()
        self.changed(True)  # before the first line of a process, which takes an import
        logs.error(
            "the disk is full: records and new topics are refused",
            free_bytes=free,
            reserve_bytes=self._size,
            reason=reason,
        )

    def look(self) -> None:
        """See whether a reserve has to be made, or there is room again. A periodic task."""
        if self._looking or not (self.full or self._wants_reserve()):
            return
        self._looking = True
        full, size = self.full, self._size

        def looked(error: Exception | None) -> None:
            self._looked(error, was_full=full, size=size)

        self._run(lambda: self._make(size), looked, looked)

    def configure(self, size: int) -> None:
        """Keep a reserve of so many bytes from now on; the next look makes it."""
        if size != self._size:
            self._size = size
            self._is_trouble_logged = False
            if self._has_reserve:
                self.release()

    def release(self) -> None:
        """Give up the reserve. Nothing happens if there is none."""
        self._has_reserve = False
        try:
            self._files.remove(self._path)
        except OSError as error:
            logs.error("the reserve was not given up", path=self._path, reason=str(error))

    def _wants_reserve(self) -> bool:
        return self._size > 0 and not self._has_reserve

    def _make(self, size: int) -> None:
        """Make the reserve, if there is room for it and the margin. Raises OSError.

        It is made too large and cut, since only so a quota is felt that statvfs does not tell.
        """
        files = self._files
        wanted = size + MARGIN_BYTES
        if files.free_bytes(self._folder) < wanted:
            raise OSError(errno.ENOSPC, f"less than {wanted} bytes are left", self._folder)
        try:
            files.reserve(self._path, wanted)
            if size == 0:
                files.remove(self._path)
            else:
                file = files.open_file(self._path)
                file.truncate(size)
                file.close()
        except OSError:
            with suppress(OSError):
                files.remove(self._path)
            raise

    def _looked(self, error: Exception | None, *, was_full: bool, size: int) -> None:
        self._looking = False
        if (self.full and not was_full) or size != self._size:
            self.release()  # the disk got full meanwhile, or another size is wanted
        elif error is None:
            self._has_reserve = self._size > 0
            if self.full:
                self.full = False
                self.changed(False)
                free = free_bytes(self._files, self._folder)
                logs.info("the disk has room again", free_bytes=free)
        elif is_disk_full(error):
            self.noticed(str(error))
        elif not self._is_trouble_logged:
            self._is_trouble_logged = True
            logs.warning("there is no disk reserve", path=self._path, reason=str(error))


def free_bytes(files: Filesystem, folder: str) -> int:
    """Room for writes, without the reserve; -1 if the system does not say."""
    try:
        return files.free_bytes(folder)
    except OSError:
        return -1


def at_once(
    job: Callable[[], None], done: Callable[[None], None], failed: Callable[[Exception], None]
) -> None:
    """Do a job here and now, for who has no loop to hold up."""
    try:
        job()
    except OSError as error:
        failed(error)
    else:
        done(None)


def nobody_asks(_: bool) -> None:
    """What `changed` is before somebody wants to know."""
