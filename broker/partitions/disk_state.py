"""A full disk is a state of the broker, not its end.

While it lasts, records and topics are refused without asking the disk again and again; reads go
on, and so does all that makes room. What clean-up and a stop have to write finds its place where
the reserve file was: it is given up when the state is entered, and made again before it is left.

The file holds nothing. It is made after the start, and a stop removes it.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

from broker import logs
from storage.errors import StorageError, is_disk_full
from storage.layout import RESERVE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.workers import Worker
    from storage.filesystem import Filesystem
    from storage.log import Log

LOOK_EVERY_S = 1.0
MARGIN_BYTES = 1024 * 1024
"""Bytes that must be free besides the reserve for records to be taken: a disk that is freed a block
at a time must not come and go."""

DISK_FULL = "the disk is full"
"""The message to clients. It never changes, so that the log says it once a minute."""


class DiskState:
    """Whether there is room for records. Belongs to the loop; `worker` makes the reserve.

    `reserve_bytes` 0 keeps none: then the state is known by the first write that fails.
    """

    __slots__ = (
        "_files",
        "_folder",
        "_has_reserve",
        "_is_trouble_logged",
        "_looking",
        "_loop",
        "_path",
        "_removals",
        "_reserve_bytes",
        "_worker",
        "full",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        files: Filesystem,
        folder: str,
        reserve_bytes: int,
        *,
        name: str = RESERVE,
    ) -> None:
        """`folder` is the data directory, `name` that of the reserve in it."""
        self._loop = loop
        self._files = files
        self._folder = folder
        self._path = f"{folder}/{name}"
        self._reserve_bytes = reserve_bytes
        self._worker = worker
        self._has_reserve = self._looking = self._is_trouble_logged = False
        self._removals: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self.full = False

    @property
    def free_bytes(self) -> int:
        """Room for writes, without the reserve; -1 if the system does not say."""
        try:
            return self._files.free_bytes(self._folder)
        except OSError:
            return -1

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
        self._enter(str(error))
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

    def look(self) -> None:
        """See whether a reserve has to be made, or there is room again. A periodic task."""
        if self._looking or not (self.full or self._wants_reserve()):
            return
        self._looking = True
        full, size = self.full, self._reserve_bytes

        def looked(error: Exception | None) -> None:
            self._looked(error, was_full=full, size=size)

        self._worker.run(lambda: self._make_reserve(size), looked, looked)

    def configure(self, reserve_bytes: int) -> None:
        """Keep a reserve of this size from now on; the next look makes it."""
        if reserve_bytes != self._reserve_bytes:
            self._reserve_bytes = reserve_bytes
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
        return self._reserve_bytes > 0 and not self._has_reserve

    def _make_reserve(self, size: int) -> None:
        """Make the reserve, if there is room for it and the margin; on the worker's thread.
        Raises OSError.

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
        if (self.full and not was_full) or size != self._reserve_bytes:
            self.release()  # the state was entered meanwhile, or another size is wanted
        elif error is None:
            self._has_reserve = self._reserve_bytes > 0
            if self.full:
                self.full = False
                logs.info("the disk has room again", free_bytes=self.free_bytes)
        elif not self.noticed(error) and not self._is_trouble_logged:
            self._is_trouble_logged = True
            logs.warning("there is no disk reserve", path=self._path, reason=str(error))

    def _enter(self, reason: str) -> None:
        if self.full:
            return
        self.full = True
        free_bytes = self.free_bytes
        self.release()
        logs.error(
            "the disk is full: records and new topics are refused",
            free_bytes=free_bytes,
            reserve_bytes=self._reserve_bytes,
            reason=reason,
        )
        removals, self._removals = self._removals, {}
        for remove, timer in removals.items():
            timer.cancel()
            self.remove_later(remove, 0)
