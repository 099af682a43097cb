"""The syncs that an acknowledgement waits for, as steps that any thread may take.

The loop's thread collects the steps of a log (`Log.unsynced`), a worker runs them, and the loop's
thread reports back (`Log.synced`). Each step holds what it needs, a path or the bytes, and no file
open: thousands of logs may wait for the same sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from storage.filesystem import Filesystem

    RunAll = Callable[[Iterable[Callable[[], None]]], None]

UNCONFIRMED_MAX = 16
"""Rounds of syncing that may be under way for one log; more means that reports were lost."""


class SyncStep(Protocol):
    """A file, a folder, or a small file to be put in place."""

    def sync(self) -> None:
        """Return when it is on the disk. Raises OSError."""


class SyncFolder:
    """Makes new names in a folder last."""

    __slots__ = ("_files", "_path")

    def __init__(self, files: Filesystem, path: str) -> None:
        self._files = files
        self._path = path

    def sync(self) -> None:
        self._files.sync_dir(self._path)


class SyncFile:
    """Makes the content of a small file last, if it is still there.

    It is opened only then: thousands of partitions that wait for their first batch must not hold a
    descriptor each.
    """

    __slots__ = ("_files", "_path")

    def __init__(self, files: Filesystem, path: str) -> None:
        self._files = files
        self._path = path

    def sync(self) -> None:
        try:
            file = self._files.open_file(self._path)
        except FileNotFoundError:
            return  # removed with its segment or its topic
        try:
            file.sync()
        finally:
            file.close()


class NotPut(OSError):
    """A control file could not be put in place. Nothing is lost: the step can be taken again."""


class PutFile:
    """Puts a control file in place, whole or not at all. A full disk raises NotPut."""

    __slots__ = ("_data", "_files", "_path")

    def __init__(self, files: Filesystem, path: str, data: bytes) -> None:
        self._files = files
        self._path = path
        self._data = data

    def sync(self) -> None:
        try:
            self._files.write_atomic(self._path, self._data)
        except OSError as error:
            raise NotPut(error.errno, error.strerror, self._path) from error


def one_by_one(jobs: Iterable[Callable[[], None]]) -> None:
    """Runs jobs that do not need each other; the broker has a way to do so side by side."""
    for job in jobs:
        job()


def take_all(steps: Iterable[SyncStep]) -> list[tuple[SyncStep, OSError]]:
    """Take steps that do not need each other, in order; returns those that failed, and why."""
    failed = []
    for step in steps:
        try:
            step.sync()
        except OSError as error:
            failed.append((step, error))
    return failed


class SyncQueue:
    """The steps that a log waits for, in the order in which they arose.

    A step stays until a round that contained it is confirmed, so a round that failed or was
    abandoned loses nothing.
    """

    __slots__ = ("_rounds", "_serial", "_steps")

    def __init__(self) -> None:
        self._steps: list[tuple[int, SyncStep]] = []
        self._rounds: dict[int, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, *steps: SyncStep) -> None:
        for step in steps:
            self._serial += 1
            self._steps.append((self._serial, step))

    def begin(self, up_to: int) -> list[SyncStep]:
        """The steps of a round that covers the log up to an offset."""
        # Of two rounds for the same offset the earlier one knows fewer steps: only those may be
        # taken off when "up to this offset" is confirmed.
        self._rounds.setdefault(up_to, self._serial)
        if len(self._rounds) > UNCONFIRMED_MAX:
            del self._rounds[next(iter(self._rounds))]
        return [step for _, step in self._steps]

    def confirm(self, up_to: int) -> bool:
        """Take off the steps of that round; False if it is not known (any more)."""
        serial = self._rounds.get(up_to)
        if serial is None:
            return False
        for offset in [offset for offset in self._rounds if offset <= up_to]:
            del self._rounds[offset]
        if self._steps:
            self._steps = [entry for entry in self._steps if entry[0] > serial]
        return True
