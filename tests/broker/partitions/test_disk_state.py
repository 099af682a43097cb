"""The state of a full disk: its beginning, its end, and the reserve file meanwhile."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker.partitions.disk_state import MARGIN_BYTES, DiskState, ReserveFile
from storage.errors import StorageError
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

RESERVE_BYTES = 2 << 20
ENOUGH = RESERVE_BYTES + MARGIN_BYTES
PATH = "/data/.triglot-reserve"


class HandDriven:
    """A loop and a worker of which nothing happens before the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None], Callable[[Any], None]]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def run(
        self, job: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Any], None]
    ) -> None:
        self.jobs.append((job, done, failed))

    def work(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job, done, failed in jobs:
            try:
                result = job()
            except OSError as error:
                failed(error)
            else:
                done(result)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Timer:
        self.timers.append((delay_s, action))
        return Timer(self, action)

    def pass_time(self, until_s: float) -> None:
        due = [action for delay_s, action in self.timers if delay_s <= until_s]
        self.timers = [timer for timer in self.timers if timer[0] > until_s]
        for action in due:
            action()


class Timer:
    def __init__(self, driven: HandDriven, action: Callable[[], None]) -> None:
        self._driven = driven
        self._action = action

    def cancel(self) -> None:
        self._driven.timers = [
            timer for timer in self._driven.timers if timer[1] is not self._action
        ]


class Disk:
    """A disk state over a file system of so much room."""

    def __init__(self, room: int | None = None, reserve_bytes: int = RESERVE_BYTES) -> None:
        self.files = MemoryFilesystem()
        self.files.make_dir("/data")
        self.files.capacity = room
        self.driven = HandDriven()
        self._kept = ReserveFile(self.files, "/data", reserve_bytes, self.driven.run)
        loop = cast("asyncio.AbstractEventLoop", self.driven)
        self.state = DiskState(loop, self.files, "/data", self._kept)

    def begin_look(self) -> None:
        self._kept.look()

    def look(self) -> bool:
        """One look, to its end; whether the disk is full then."""
        self.begin_look()
        self.driven.work()
        return self.state.full

    @property
    def reserve(self) -> int:
        """The size of the reserve file; -1 if there is none."""
        return self.files.size_of(PATH) if self.files.exists(PATH) else -1


def no_room(code: int = errno.ENOSPC) -> OSError:
    return OSError(code, os.strerror(code), "/data/orders-0")


def test_the_reserve_is_made_by_the_first_look_and_takes_real_room() -> None:
    disk = Disk(room=10 << 20)
    assert disk.reserve == -1

    assert not disk.look()

    assert disk.reserve == RESERVE_BYTES
    assert disk.state.free_bytes == (10 << 20) - RESERVE_BYTES
    calls = len(disk.files.calls)
    assert not disk.look()
    assert len(disk.files.calls) == calls, "there is nothing to do"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_an_error_for_want_of_room_gives_up_the_reserve_and_is_said_once(
    code: int, said: list[str]
) -> None:
    disk = Disk(room=10 << 20)
    disk.look()
    told = StorageError("orders-0: refused")
    told.__cause__ = no_room(code)

    assert disk.state.noticed(told)
    assert disk.state.noticed(no_room(code))

    assert (disk.state.full, disk.reserve) == (True, -1)
    assert said == ["the disk is full"]
    with pytest.raises(OSError, match="the disk is full") as raised:
        disk.state.require_room()
    assert raised.value.errno == errno.ENOSPC


def test_other_errors_are_not_taken_for_a_full_disk() -> None:
    disk = Disk()

    assert not disk.state.noticed(no_room(errno.EIO))
    assert not disk.state.noticed(StorageError("no cause"))

    assert not disk.state.full
    disk.state.require_room()


def test_the_state_is_left_when_the_reserve_and_the_margin_have_room(said: list[str]) -> None:
    disk = Disk(room=10 << 20)
    disk.look()
    disk.state.noticed(no_room())

    disk.files.capacity = ENOUGH - 1
    assert disk.look()
    assert disk.reserve == -1
    disk.files.capacity = ENOUGH
    assert not disk.look()

    assert disk.reserve == RESERVE_BYTES
    assert disk.state.free_bytes == MARGIN_BYTES
    assert said == ["the disk is full", "the disk has room again"]


def test_a_quota_that_statvfs_does_not_tell_of_keeps_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    disk.state.noticed(no_room(errno.EDQUOT))

    def refuse(path: str, size: int) -> None:
        disk.files.write_bytes(path, bytes(size // 2))
        raise no_room(errno.EDQUOT)

    with monkeypatch.context() as quota:
        quota.setattr(disk.files, "reserve", refuse)
        assert disk.look()
        assert disk.reserve == -1, "what could be had of it was given back"

    assert not disk.look()


def test_a_disk_that_is_nearly_full_at_the_start_counts_as_full() -> None:
    disk = Disk(room=ENOUGH - 1)

    assert disk.look()

    assert disk.reserve == -1


def test_a_reserve_that_was_being_made_when_the_disk_got_full_is_given_up() -> None:
    disk = Disk(room=10 << 20)
    disk.begin_look()
    ((job, done, _),) = disk.driven.jobs
    made = job()
    disk.state.noticed(no_room())

    done(made)

    assert (disk.state.full, disk.reserve) == (True, -1)


def test_without_a_reserve_the_state_comes_and_goes_all_the_same() -> None:
    disk = Disk(room=MARGIN_BYTES - 1, reserve_bytes=0)
    assert not disk.look(), "no write has failed yet"

    disk.state.noticed(no_room())
    assert disk.look()
    disk.files.capacity = MARGIN_BYTES
    assert not disk.look()

    assert disk.reserve == -1


def test_a_reserve_that_can_never_be_made_is_said_once(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    disk = Disk()

    def refuse(path: str, size: int) -> None:
        raise no_room(errno.EOPNOTSUPP)

    monkeypatch.setattr(disk.files, "reserve", refuse)
    assert [disk.look() for _ in range(3)] == [False] * 3

    assert said == ["there is no disk reserve"]


def test_what_waits_to_be_removed_goes_when_the_disk_gets_full() -> None:
    disk = Disk()
    removed: list[str] = []
    disk.state.remove_later(lambda: removed.append("a"), 50_000)
    disk.state.remove_later(lambda: removed.append("b"), 60_000)
    disk.driven.pass_time(50)
    assert removed == ["a"]

    disk.state.noticed(no_room())
    disk.state.remove_later(lambda: removed.append("c"), 60_000)
    disk.driven.pass_time(0)

    assert removed == ["a", "b", "c"]
    assert disk.driven.timers == []
