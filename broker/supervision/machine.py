"""The supervisor of serving processes, without processes, pipes and clocks.

It is told what they say and when they end, and gives back what is to be done. Process 0 is the
controller: it begins before the others, for they follow its metadata log, and it stops after them.

    STARTING -> READY -> STOPPING -> GONE     a stop in good order
    STARTING -> GONE                          before all were ready once: the start fails
    STARTING -> GONE -> STARTING              the same, where it was for another to begin
    STARTING | READY -> GONE -> STARTING      a death; the others go on, and it is begun anew

A process that is silent is named, then made to say where it is and to end (SIGABRT), then killed.
All times are seconds on a clock that never jumps.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BEAT_EVERY_S = 0.5
"""Interval in which a process says that its loop turns."""
SILENT_S = 3.0
"""After so long without a word a process is named in the log."""
HUNG_S = 10.0
"""After so long it is ended: its partitions are better off with a new one."""
ABORT_WITHIN_S = 1.0
"""Time to say where it hangs; a process that is stopped (SIGSTOP) can't."""
STOP_WITHIN_S = 60.0
"""Time that a process has for a stop in good order: it writes and syncs every log."""
LIVED_S = 10.0
"""A process that dies younger than this is not begun at once again, but after a wait."""
WAIT_S = 0.2
WAIT_MAX_S = 5.0
"""The waits: the first, doubled each time that a process dies before it serves, and the longest."""


class State(Enum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    GONE = "gone"


MOVES: dict[State, frozenset[State]] = {
    State.STARTING: frozenset({State.READY, State.STOPPING, State.GONE}),
    State.READY: frozenset({State.STOPPING, State.GONE}),
    State.STOPPING: frozenset({State.GONE}),
    State.GONE: frozenset({State.STARTING}),
}


class Spawn(NamedTuple):
    """Begin a process of this number."""

    number: int


class AskToStop(NamedTuple):
    """Have it stop in good order."""

    number: int


class Abort(NamedTuple):
    """Have it say where it is, and end."""

    number: int


class Kill(NamedTuple):
    """End it at once."""

    number: int


class Announce(NamedTuple):
    """All are ready, for the first time."""


class Say(NamedTuple):
    """A line for the log. `level` is a name of `broker.logs`."""

    level: str
    event: str
    facts: Mapping[str, object]


class Finish(NamedTuple):
    """All have gone. `clean`: each said that it had left everything on the disk. `failed`: one of
    them could not start, and has said why."""

    clean: bool
    failed: bool


Effect = Spawn | AskToStop | Abort | Kill | Announce | Say | Finish


class Process:
    """What is known of one of them."""

    __slots__ = (
        "aborted_s", "began_s", "begins_again", "clean", "due_s", "heard_s", "is_named", "killed",
        "state", "stop_asked_s", "wait_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state = State.GONE
        self.began_s = self.heard_s = 0.0
        self.due_s: float | None = None
        """When it is to be begun anew."""
        self.wait_s = 0.0
        """The last wait before that."""
        self.is_named = False
        self.aborted_s: float | None = None
        self.killed = False
        self.stop_asked_s: float | None = None
        self.begins_again = False
        self.clean = False

    def become(self, state: State) -> None:
        assert state in MOVES[self.state], f"{self.state} does not lead to {state}"
        self.state = state


class Supervision:
    """`count` processes, by their numbers from 0 on."""

    def __init__(self, count: int) -> None:
        self.processes = [Process() for _ in range(count)]
        self._announced = False
        self._stopping = False
        self._failed = False
        self._finished = False

    # What happens

    def start(self, now_s: float) -> list[Effect]:
        """Begin with the controller."""
        return [self._spawn(0, now_s)]

    def led(self, now_s: float) -> list[Effect]:
        """The controller leads the metadata log: those that are not there may follow it."""
        self.heard(0, now_s)
        if self._announced or self._stopping:
            return []
        return [
            self._spawn(number, now_s)
            for number, one in enumerate(self.processes)
            if one.state is State.GONE and one.due_s is None
        ]

    def ready(self, number: int, now_s: float, computing_s: float = 0.0) -> list[Effect]:
        """A process serves, after so long a time on a processor."""
        self.heard(number, now_s)
        one = self.processes[number]
        if one.state is not State.STARTING:
            return []  # it was asked to stop meanwhile
        one.become(State.READY)
        if self._announced:
            facts = {
                "process": number,
                "seconds": round(now_s - one.began_s, 3),
                "computing_s": round(computing_s, 3),
            }
            return [Say("info", "a process serves again", facts)]
        if all(each.state is State.READY for each in self.processes):
            self._announced = True
            return [Announce()]
        return []

    def heard(self, number: int, now_s: float) -> None:
        """A process has said something: its loop turns."""
        one = self.processes[number]
        one.heard_s = now_s
        one.is_named = False

    def begins_again(self, number: int) -> None:
        """A process says that it ends for another to begin in its place."""
        self.processes[number].begins_again = True

    def stopped(self, number: int, *, clean: bool) -> None:
        """A process says that it has stopped, and whether all of it is on the disk."""
        self.processes[number].clean = clean

    def ended(self, number: int, how: str, now_s: float) -> list[Effect]:
        """A process is there no more. `how` is its exit or its signal, for people."""
        one = self.processes[number]
        was, hung = one.state, one.aborted_s is not None or one.killed
        one.become(State.GONE)
        if self._stopping:
            effects: list[Effect] = []
            if was is not State.STOPPING:
                one.clean = False
                effects.append(_death(number, how))
            return [*effects, *self._next_to_stop(now_s)]
        if one.begins_again:
            return [self._spawn(number, now_s)]
        if not self._announced:
            self._failed = True
            return self.stop(now_s)
        one.wait_s = self._wait(one, was, now_s)
        one.due_s = now_s + one.wait_s
        how = f"it hung, and was ended ({how})" if hung else how
        return [_death(number, how, wait_s=one.wait_s), *self.look(now_s)]

    def stop(self, now_s: float) -> list[Effect]:
        """Have all of them stop, the controller last."""
        if self._stopping:
            return []
        self._stopping = True
        for one in self.processes:
            one.due_s = None
        return self._next_to_stop(now_s)

    # Time

    def look(self, now_s: float) -> list[Effect]:
        """Do what is due by now."""
        effects: list[Effect] = []
        for number, one in enumerate(self.processes):
            if one.due_s is not None and now_s >= one.due_s:
                effects.append(self._spawn(number, now_s))
            elif one.state is not State.GONE:
                effects += self._looked_at(number, one, now_s)
        return effects

    def deadline_s(self) -> float | None:
        """When `look` is to be called next, if nothing else happens first."""
        return min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterator[float]:
        for one in self.processes:
            if one.due_s is not None:
                yield one.due_s
            if one.state is State.GONE or one.killed:
                continue
            if one.aborted_s is not None:
                yield one.aborted_s + ABORT_WITHIN_S
            elif one.stop_asked_s is not None:
                yield one.stop_asked_s + STOP_WITHIN_S
            else:
                yield one.heard_s + (HUNG_S if one.is_named else SILENT_S)

    def _looked_at(self, number: int, one: Process, now_s: float) -> list[Effect]:
        """What has to be done about a process that is there."""
        if one.killed:
            return []
        if one.aborted_s is not None:
            if now_s < one.aborted_s + ABORT_WITHIN_S:
                return []
            one.killed = True
            return [Kill(number)]
        if one.stop_asked_s is not None:
            if now_s < one.stop_asked_s + STOP_WITHIN_S:
                return []
            one.killed = True
            facts = {"process": number, "seconds": STOP_WITHIN_S}
            return [Say("error", "a process did not stop, and is killed", facts), Kill(number)]
        silent_s = now_s - one.heard_s
        if silent_s >= HUNG_S:
            one.aborted_s = now_s
            facts = {"process": number, "silent_s": round(silent_s, 1)}
            return [Say("error", "a process hangs, and is ended", facts), Abort(number)]
        if silent_s >= SILENT_S and not one.is_named:
            one.is_named = True
            facts = {"process": number, "silent_s": round(silent_s, 1)}
            return [Say("warning", "a process has said nothing for a while", facts)]
        return []

    # Beginning and ending

    def _spawn(self, number: int, now_s: float) -> Spawn:
        one = self.processes[number]
        one.become(State.STARTING)
        one.began_s = one.heard_s = now_s
        one.due_s = one.aborted_s = one.stop_asked_s = None
        one.is_named = one.killed = one.begins_again = one.clean = False
        return Spawn(number)

    def _wait(self, one: Process, was: State, now_s: float) -> float:
        """The time before a process is begun anew: none for one that has lived, little for one that
        has served, and more each time for one that does not get that far."""
        if was is State.READY:
            return 0.0 if now_s - one.began_s >= LIVED_S else WAIT_S
        return min(max(one.wait_s * 2, WAIT_S), WAIT_MAX_S)

    def _next_to_stop(self, now_s: float) -> list[Effect]:
        """Ask the others; when they have gone, the controller; when that has gone, it is over."""
        there = [number for number, one in enumerate(self.processes) if one.state is not State.GONE]
        others = [number for number in there if number]
        effects: list[Effect] = []
        for number in others or there:
            one = self.processes[number]
            if one.state is not State.STOPPING:
                one.become(State.STOPPING)
                one.stop_asked_s = now_s
                effects.append(AskToStop(number))
        if not there and not self._finished:
            self._finished = True
            clean = all(one.clean for one in self.processes) and not self._failed
            effects.append(Finish(clean, self._failed))
        return effects


def _death(number: int, how: str, *, wait_s: float | None = None) -> Say:
    facts: dict[str, object] = {"process": number, "how": how}
    if wait_s is not None:
        facts["begun_anew_after_s"] = wait_s
    return Say("error", "a process died", facts)
