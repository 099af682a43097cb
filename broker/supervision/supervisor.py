"""The supervisor at work: it forks the processes, hears them, and does what the machine says.

It has no event loop and no thread, so that a fork is a whole copy: a process begins with all that
has been imported, and with what the supervisor holds (settings, the lock, the sockets that listen).
It runs on Linux alone, which tells of the end of a process by a descriptor.
"""

from __future__ import annotations

import faulthandler
import os
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from broker import clock, logs
from broker.notify import tell_alive, watchdog_period_s
from broker.partitions.disk_state import LOOK_EVERY_S
from broker.supervision.line import (
    AGAIN,
    ALL,
    FULL,
    GONE,
    HERE,
    LED,
    READY,
    REFUSED,
    RESERVE,
    ROOM,
    STOP,
    STOPPED,
    Line,
    Word,
    Words,
)
from broker.supervision.machine import (
    Abort,
    Announce,
    AskToStop,
    Finish,
    Kill,
    Say,
    Spawn,
    Supervision,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.partitions.disk_state import ReserveFile
    from broker.supervision.machine import Effect

FAULT = 70
"""Exit status of a process that met a fault of ours (EX_SOFTWARE)."""
READ_BYTES = 65_536
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Child:
    """A process that was forked: the line to it, and the descriptor by which its end is known."""

    __slots__ = ("ended", "line", "pid", "received")

    def __init__(self, pid: int, line: socket.socket) -> None:
        self.pid = pid
        self.line = line
        self.ended = os.pidfd_open(pid)
        self.received = Words()

    def close(self) -> None:
        self.line.close()
        os.close(self.ended)


class Beside(Protocol):
    """A program that is kept running beside the processes."""

    @property
    def due_s(self) -> float | None:
        """When `look` is to be called."""

    def begin(self, selector: selectors.BaseSelector) -> None:
        """The processes serve. What is registered has a call as its data."""

    def look(self, now_s: float) -> None:
        """Do what is due by now."""

    def end(self) -> None:
        """The processes stop. May be called again."""

    def forget(self) -> None:
        """Close what a forked process has of it."""


class _Periodic:
    """Something to do again and again, while `due_s` says when."""

    __slots__ = ("action", "due_s", "every_s")

    def __init__(self, every_s: float, action: Callable[[], None], due_s: float | None) -> None:
        self.every_s = every_s
        self.action = action
        self.due_s = due_s

    def look(self, now_s: float) -> None:
        """Do it, if it is time."""
        if self.due_s is not None and now_s >= self.due_s:
            self.due_s = now_s + self.every_s
            self.action()


class Supervisor:
    """Runs `count` processes until it is asked to stop."""

    def __init__(
        self,
        count: int,
        serve: Callable[[int, Line, dict[str, Any]], int],
        announce: Callable[[], None],
        reserve: ReserveFile,
        *,
        beside: Beside | None = None,
        monotonic_s: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        """`serve` is what a forked process does: its number, its line, and what the controller has
        told of the metadata log; it returns an exit status. `announce` is called when all serve.
        The `reserve` is kept for all of them while they do: who notices that the disk is full may
        die, or hang. So is what runs `beside` them."""
        self._serve = serve
        self._announce = announce
        self._beside = beside
        self._now_s = monotonic_s
        self._machine = Supervision(count)
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._serving: set[int] = set()
        self._untold: list[str] = []
        """What the controller was to be told while it was away: of each process that died."""
        self._wakes = socket.socketpair()
        """By which a signal wakes the loop."""
        self._reserve = reserve
        reserve.changed = self._tell_of_room
        self._room = _Periodic(LOOK_EVERY_S, reserve.look, None)
        self._periodic = [self._room]
        watchdog_s = watchdog_period_s()
        if watchdog_s is not None:
            self._periodic.append(_Periodic(watchdog_s, tell_alive, 0.0))
        self._finish: Finish | None = None
        self.led: dict[str, Any] = {}
        """What the controller has told last of the metadata log."""
        self.broker_epoch = -1
        """That of the registration, as the controller has told at its stop."""
        self.refusal: str | None = None
        """Why a process could not start."""
        self._why: dict[int, str] = {}
        """The same of each that has said so and not ended."""

    def run(self) -> Finish:
        """Supervise until all have gone, after SIGTERM or SIGINT, or a start that fails."""
        waking, woken = self._wakes
        for end in self._wakes:
            end.setblocking(False)
        before = {one: signal.signal(one, lambda *_: None) for one in SIGNALS}
        wakes_before = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        self._selector.register(waking, selectors.EVENT_READ, partial(self._signalled, waking))
        try:
            self._do(self._machine.start(self._now_s()))
            while self._finish is None:
                self._turn()
            return self._finish
        finally:
            signal.set_wakeup_fd(wakes_before)
            for one, handler in before.items():
                signal.signal(one, handler)
            self._selector.close()
            waking.close()
            woken.close()

    def _turn(self) -> None:
        timed: list[_Periodic | Beside] = [*self._periodic]
        if self._beside is not None:
            timed.append(self._beside)
        dues_s = [self._machine.deadline_s(), *(one.due_s for one in timed)]
        due_s = [one for one in dues_s if one is not None]
        timeout_s = max(min(due_s) - self._now_s(), 0.0) if due_s else None
        for key, _ in self._selector.select(timeout_s):
            key.data()
        now_s = self._now_s()
        self._do(self._machine.look(now_s))
        for one in timed:
            one.look(now_s)

    def _signalled(self, waking: socket.socket) -> None:
        numbers = waking.recv(READ_BYTES)
        if any(one in SIGNALS for one in numbers):
            self._do(self._machine.stop(self._now_s()))

    # What is heard

    def _heard(self, number: int, child: _Child) -> None:
        try:
            data = child.line.recv(READ_BYTES)
        except ConnectionResetError:  # it died with orders unread
            data = b""
        if not data:
            self._selector.unregister(child.line)
        for word in child.received.feed(data):
            self._take(number, word)

    def _take(self, number: int, word: Word) -> None:
        machine, now_s = self._machine, self._now_s()
        machine.heard(number, now_s)
        if word.name == LED:
            self.led = word.facts
            self._do(machine.led(now_s))
        elif word.name == READY:
            self._serving.add(number)
            for one in self._serving if number == 0 else (number,):
                self._tell(0, f"{HERE} {one}")
            self._do(machine.ready(number, now_s, float(word.facts.get("computing_s", 0))))
        elif word.name == AGAIN:
            machine.begins_again(number)
        elif word.name == REFUSED:
            self._why[number] = why = str(word.facts.get("why", ""))
            self.refusal = self.refusal or why
        elif word.name == FULL:
            self._reserve.noticed(str(word.facts.get("reason", "")))
        elif word.name == RESERVE:
            self._reserve.configure(int(word.facts["bytes"]))
        elif word.name == STOPPED:
            machine.stopped(number, clean=word.facts.get("clean") is True)
            self.broker_epoch = max(self.broker_epoch, int(word.facts.get("broker_epoch", -1)))

    def _ended(self, number: int, child: _Child) -> None:
        del self._children[number]
        _, status = os.waitpid(child.pid, 0)
        while child.line in self._selector.get_map():  # what it said last
            self._heard(number, child)
        self._selector.unregister(child.ended)
        child.close()
        self._serving.discard(number)
        if number:
            self._tell_of_death(f"{GONE} {number}")
        how, why = _how(status), self._why.pop(number, "")
        how = f"{how}: {why}" if why else how
        self._do(self._machine.ended(number, how, self._now_s()))

    # What is done

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Spawn(number):
                    self._spawn(number)
                case AskToStop(number):
                    if self._beside is not None:
                        self._beside.end()
                    self._room.due_s = None
                    self._reserve.release()  # a stop has things to write
                    self._tell(number, STOP)
                case Abort(number):
                    os.kill(self._children[number].pid, signal.SIGABRT)
                case Kill(number):
                    os.kill(self._children[number].pid, signal.SIGKILL)
                case Announce():
                    self._announce()
                    self._tell(0, ALL)
                    if self._beside is not None:
                        self._beside.begin(self._selector)
                    self._room.due_s = 0.0  # not before: a recovery may need the room
                case Say(level, event, facts):
                    getattr(logs, level)(event, **facts)
                case Finish():
                    self._finish = effect

    def _tell(self, number: int, order: str) -> None:
        child = self._children.get(number)
        if child is not None:
            with suppress(BrokenPipeError, ConnectionResetError):
                child.line.send(f"{order}\n".encode())

    def _tell_of_room(self, full: bool) -> None:
        for number in self._children:
            self._tell(number, FULL if full else ROOM)

    def _tell_of_death(self, order: str) -> None:
        if 0 in self._children:
            self._tell(0, order)
        elif order not in self._untold:
            self._untold.append(order)

    def _spawn(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._be(number, Line(theirs), unwanted=ours)
        theirs.close()
        self._children[number] = child = _Child(pid, ours)
        read = selectors.EVENT_READ
        self._selector.register(ours, read, partial(self._heard, number, child))
        self._selector.register(child.ended, read, partial(self._ended, number, child))
        if self._reserve.full:
            self._tell(number, FULL)
        if number == 0:
            untold, self._untold = self._untold, []
            for order in untold:
                self._tell(0, order)

    def _be(self, number: int, line: Line, *, unwanted: socket.socket) -> None:
        """What a forked process does, from its beginning to its end."""
        status = FAULT
        try:
            signal.set_wakeup_fd(-1)
            for one in SIGNALS:  # a terminal sends them to all; the supervisor says when
                signal.signal(one, signal.SIG_IGN)
            faulthandler.enable()  # which says where it is, when it is aborted
            self._selector.close()
            unwanted.close()  # or the death of the supervisor would not be heard of
            for child in self._children.values():
                child.close()
            if self._beside is not None:
                self._beside.forget()
            for end in self._wakes:
                end.close()
            status = self._serve(number, line, self.led)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)


def _how(status: int) -> str:
    """The end of a process, for people."""
    code = os.waitstatus_to_exitcode(status)
    return f"exit {code}" if code >= 0 else signal.Signals(-code).name
