"""A full disk under several processes: what each does, and the one that keeps the reserve."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, cast

import pytest

from broker.partitions.disk_state import MARGIN_BYTES, DiskState, ReserveFile, at_once
from broker.processes.shared_reserve import SharedReserve
from broker.supervision.line import WORD_BYTES_MAX
from storage.layout import RESERVE
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    import asyncio

    from broker.supervision.line import Line

RESERVE_BYTES = 2 << 20
ENOUGH = RESERVE_BYTES + MARGIN_BYTES
NO_ROOM = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/orders-0")


class Words:
    """A line of which a test says when its words come."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, object]]] = []
        self.is_full = False

    def say(self, name: str, **facts: object) -> None:
        if not self.is_full:
            self.said.append((name, facts))


class Process:
    """One of them, as far as it has to do with the disk."""

    def __init__(self, files: MemoryFilesystem, number: int) -> None:
        self.line = Words()
        self.to_hear: list[bool] = []
        """What the supervisor has said and this has not heard yet: whether the disk is full."""
        self.reserve = SharedReserve(cast("Line", self.line), decides_size=number == 0)
        loop = cast("asyncio.AbstractEventLoop", None)
        self.disk = DiskState(loop, files, "/data", self.reserve)

    def hear(self) -> None:
        for full in self.to_hear:
            self.reserve.told(full=full)
        self.to_hear.clear()


class Directory:
    """Three processes over a disk of so much room, and what their supervisor does about it."""

    def __init__(self, room: int = 10 << 20) -> None:
        self.files = MemoryFilesystem()
        self.files.make_dir("/data")
        self.files.capacity = room
        self.kept = ReserveFile(self.files, "/data", RESERVE_BYTES, at_once)
        self.kept.changed = self._tell
        self.processes = [Process(self.files, number) for number in range(3)]

    def _tell(self, full: bool) -> None:
        for one in self.processes:
            one.to_hear.append(full)

    def supervise(self) -> None:
        """The supervisor hears what was said, and they hear it."""
        for one in self.processes:
            for name, facts in one.line.said:
                if name == "full":
                    self.kept.noticed(str(facts["reason"]))
                else:
                    self.kept.configure(cast("int", facts["bytes"]))
            one.line.said.clear()
        for one in self.processes:
            one.hear()

    def look(self) -> None:
        self.kept.look()
        self.supervise()

    @property
    def full(self) -> list[bool]:
        return [one.disk.full for one in self.processes]

    @property
    def reserve(self) -> int:
        """The size of the reserve file; -1 if there is none."""
        path = f"/data/{RESERVE}"
        return self.files.size_of(path) if self.files.exists(path) else -1


def test_what_one_notices_holds_in_all_and_is_said_once(said: list[str]) -> None:
    directory = Directory()
    directory.look()
    assert directory.reserve == RESERVE_BYTES

    assert directory.processes[1].disk.noticed(NO_ROOM)
    assert directory.full == [False, True, False], "at once where it was noticed"
    assert directory.processes[2].disk.noticed(NO_ROOM)
    directory.supervise()

    assert (directory.full, directory.reserve) == ([True] * 3, -1)
    assert said == ["the disk is full"]
    for one in directory.processes:
        with pytest.raises(OSError, match="the disk is full"):
            one.disk.require_room()


def test_all_begin_again_when_the_reserve_and_the_margin_have_room(said: list[str]) -> None:
    directory = Directory()
    directory.processes[1].disk.noticed(NO_ROOM)
    directory.supervise()

    directory.files.capacity = ENOUGH - 1
    directory.look()
    assert directory.full == [True] * 3
    directory.files.capacity = ENOUGH
    directory.look()

    assert (directory.full, directory.reserve) == ([False] * 3, RESERVE_BYTES)
    assert said == ["the disk is full", "the disk has room again"]


def test_a_process_goes_on_when_the_supervisor_says_so_and_not_by_itself() -> None:
    directory = Directory()
    noticing = directory.processes[1]
    noticing.disk.noticed(NO_ROOM)

    noticing.reserve.look()
    assert noticing.disk.full


def test_a_word_that_comes_too_late_leaves_all_of_them_alike() -> None:
    directory = Directory()
    noticing = directory.processes[1]
    noticing.disk.noticed(NO_ROOM)
    directory.supervise()
    directory.kept.look()  # there is room, and nobody has heard of it
    noticing.reserve.told(full=False)
    noticing.to_hear.clear()
    noticing.disk.noticed(NO_ROOM)

    directory.supervise()

    assert (directory.full, directory.reserve) == ([True] * 3, -1)
    directory.look()
    assert directory.full == [False] * 3


def test_a_process_that_begins_is_as_the_others_are() -> None:
    """It is told before there are parts that want to know."""
    files = MemoryFilesystem()
    reserve = SharedReserve(cast("Line", Words()), decides_size=False)
    reserve.told(full=True)

    assert DiskState(cast("asyncio.AbstractEventLoop", None), files, "/data", reserve).full


def test_a_word_that_the_line_does_not_take_is_said_again() -> None:
    directory = Directory()
    noticing = directory.processes[2]
    noticing.line.is_full = True
    noticing.disk.noticed(NO_ROOM)
    directory.supervise()
    assert directory.full == [False, False, True]

    noticing.line.is_full = False
    noticing.reserve.look()
    directory.supervise()
    noticing.reserve.look()

    assert directory.full == [True] * 3
    assert noticing.line.said == [], "it was answered"


def test_the_controller_decides_how_large_the_reserve_is() -> None:
    directory = Directory()
    directory.look()

    directory.processes[1].reserve.configure(1 << 20)
    directory.supervise()
    directory.look()
    assert directory.reserve == RESERVE_BYTES
    directory.processes[0].reserve.configure(1 << 20)
    directory.supervise()
    directory.look()

    assert directory.reserve == 1 << 20


def test_a_long_reason_fits_a_word() -> None:
    files = MemoryFilesystem()
    process = Process(files, 0)
    process.disk.noticed(OSError(errno.ENOSPC, "no room", "/" + "ä" * 4000))

    ((name, facts),) = process.line.said
    assert len(f"{name} {json.dumps(facts)}\n") <= WORD_BYTES_MAX
