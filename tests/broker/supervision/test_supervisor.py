"""The supervisor with real processes: what it does when they die, hang, or it is asked to stop."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.linux

PROGRAM = """
import asyncio, json, os, sys
from broker.partitions.disk_state import ReserveFile, at_once
from broker.supervision.supervisor import Supervisor
from tests.support.memory_filesystem import MemoryFilesystem

FAILS, FULL = {fails}, {full}

def tell(**facts):
    os.write(1, (json.dumps(facts) + "\\n").encode())

async def life(number, line):
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def told(word, other):
        tell(told=(word, other), number=number)
        if word == "all" and FULL:
            line.say("full", reason="nothing is left")

    line.listen(loop, stop=asked.set, told=told)
    if number == 0:
        line.say("led", since=7)
    line.say("ready")
    while not asked.is_set():
        line.say("beat")
        try:
            await asyncio.wait_for(asked.wait(), 0.2)
        except TimeoutError:
            pass
    tell(stopped=number)
    line.say("stopped", clean=True)

def serve(number, line, led):
    tell(begun=number, pid=os.getpid(), led=led)
    if number == FAILS:
        line.say("refused", why="no room")
        return 1
    asyncio.run(life(number, line))
    return 0

files = MemoryFilesystem()
files.make_dir("/data")
files.capacity = {room}
reserve = ReserveFile(files, "/data", 1000, at_once)
supervisor = Supervisor(3, serve, lambda: tell(announced=True), reserve)
finish = supervisor.run()
tell(reserve=files.exists("/data/.triglot-reserve"))
tell(finish=list(finish), refusal=supervisor.refusal)
"""


class Supervised:
    """The supervisor's process, and what it and its processes tell."""

    def __init__(self, *, fails: int = -1, full: bool = False, room: int | None = None) -> None:
        """`fails` is the process that can't start; the controller says that the disk is `full`
        when all serve; `room` is how much there is in truth."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(fails=fails, full=full, room=room)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.told: list[dict[str, Any]] = []
        self.pids: dict[int, int] = {}

    def until(self, **wanted: Any) -> dict[str, Any]:
        """The next line that has these facts. Raises EOFError if there is none."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            one = json.loads(line)
            self.told.append(one)
            if "begun" in one:
                self.pids[one["begun"]] = one["pid"]
            if wanted.items() <= one.items():
                return dict(one)
        raise EOFError(wanted, self.told, self.process.communicate()[1])

    def until_all_are_told(self, word: str) -> None:
        """All processes have heard this of the supervisor."""
        waiting = {0, 1, 2}
        while waiting:
            waiting.discard(self.until(told=[word, -1])["number"])

    def said(self) -> str:
        """What it has logged, when it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


@contextmanager
def running(one: Supervised) -> Iterator[Supervised]:
    yield one
    if one.process.poll() is None:
        one.process.terminate()
    one.process.communicate(timeout=60)


@pytest.fixture
def supervised() -> Iterator[Supervised]:
    with running(Supervised()) as one:
        yield one


def wait_for_the_end_of(pid: int) -> None:
    """Of a process that is no child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 60)[0], f"{pid} goes on"
    finally:
        os.close(descriptor)


def test_processes_begin_after_the_controller_and_know_what_it_has_told(
    supervised: Supervised,
) -> None:
    supervised.until(announced=True)

    begun = {one["begun"]: one["led"] for one in supervised.told if "begun" in one}
    assert begun == {0: {}, 1: {"since": 7}, 2: {"since": 7}}
    supervised.until(told=["all", -1], number=0)


def test_a_stop_ends_the_others_and_then_the_controller(supervised: Supervised) -> None:
    supervised.until(announced=True)
    supervised.process.terminate()

    finish = supervised.until(refusal=None)

    assert finish["finish"] == [True, False]
    stopped = [one["stopped"] for one in supervised.told if "stopped" in one]
    assert sorted(stopped) == [0, 1, 2]
    assert stopped[-1] == 0
    assert supervised.process.wait(60) == 0


def test_a_process_that_is_killed_is_begun_anew(supervised: Supervised) -> None:
    supervised.until(announced=True)
    for number in (1, 0):
        before = supervised.pids[number]
        os.kill(before, signal.SIGKILL)
        supervised.until(begun=number)
        assert supervised.pids[number] != before


BUSY = """
import socket
from broker.supervision.line import Line, Words

heard, said, words = *socket.socketpair(), Words()
heard.setblocking(False)
beats = 0
with Line(said).beating(0.01):
    while beats < 3:  # as one that recovers a log, and comes back to no loop
        try:
            beats += len(words.feed(heard.recv(1024)))
        except BlockingIOError:
            pass
print(beats)
"""


def test_a_process_that_is_long_about_something_at_its_start_is_heard_of() -> None:
    run = subprocess.run(
        [sys.executable, "-c", BUSY], capture_output=True, text=True, check=True, timeout=60
    )

    assert int(run.stdout) >= 3


def test_processes_stop_when_their_supervisor_dies(supervised: Supervised) -> None:
    supervised.until(announced=True)
    supervised.process.kill()

    for pid in supervised.pids.values():
        wait_for_the_end_of(pid)
    with pytest.raises(EOFError):
        supervised.until(never=True)
    assert sorted(one["stopped"] for one in supervised.told if "stopped" in one) == [0, 1, 2]


def test_ctrl_c_of_a_terminal_is_for_the_supervisor(supervised: Supervised) -> None:
    supervised.until(announced=True)
    for pid in (*supervised.pids.values(), supervised.process.pid):
        os.kill(pid, signal.SIGINT)

    assert supervised.until(refusal=None)["finish"] == [True, False]


@pytest.mark.parametrize("number", [0, 2])
def test_a_start_that_is_refused_ends_them_all_and_says_why(number: int) -> None:
    supervised = Supervised(fails=number)

    assert supervised.until(refusal="no room")["finish"] == [False, True]
    assert supervised.process.wait(60) == 0
    supervised.process.communicate()


def test_all_are_told_that_the_disk_is_full_and_that_it_has_room_again() -> None:
    with running(Supervised(full=True)) as supervised:
        supervised.until_all_are_told("full")
        supervised.until_all_are_told("room")
        supervised.process.terminate()
        assert supervised.until(reserve=False), "it is given up for the stop"
        said = supervised.said()
    assert said.count("the disk is full: records and new topics are refused") == 1
    assert said.count("the disk has room again") == 1


def test_a_process_that_begins_while_the_disk_is_full_is_told() -> None:
    with running(Supervised(room=0)) as supervised:
        supervised.until_all_are_told("full")
        for number in (1, 0):
            os.kill(supervised.pids[number], signal.SIGKILL)
            supervised.until(begun=number)
            supervised.until(told=["full", -1], number=number)
