"""What a serving process and its supervisor tell each other: a word a line, over a pair of sockets.

    beat                      the loop turns; at a start, the process does
    led {...}                 the controller leads the metadata log: what the others have to know
    ready {"computing_s": ..} it serves, and how long it was on a processor before
    again                     it has put the directory in order, and ends for another to begin
    refused {"why": ...}      it can't start; the text is for the person who started it
    full {"reason": ...}      something found no room on the disk
    reserve {"bytes": ...}    the controller has another setting for what is to be kept free
    stopped {"clean": ...}    it has stopped, and whether all of it is on the disk

The other way go `stop`, `full` when the disk is, for any of them, and `room` when that is over; and
to the controller `all`, when all of them serve for the first time, `here N` when another begins to
serve, and `gone N` when it has ended. The end of the line is the other's death.
"""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from socket import socket

BEAT, LED, READY, AGAIN = "beat", "led", "ready", "again"
REFUSED, STOPPED = "refused", "stopped"
STOP, ALL, HERE, GONE = "stop", "all", "here", "gone"
FULL, ROOM, RESERVE = "full", "room", "reserve"
WORD_BYTES_MAX = 4096
"""A line is a few hundred bytes."""


class Word(NamedTuple):
    """One line of a process. `facts` belong to it."""

    name: str
    facts: dict[str, Any]


class Line:
    """The end of a serving process."""

    def __init__(self, one: socket) -> None:
        self._socket = one
        one.setblocking(False)

    def say(self, name: str, **facts: Any) -> None:
        """Tell the supervisor. If that is dead, or does not read, nobody hears it."""
        line = f"{name} {json.dumps(facts)}\n" if facts else f"{name}\n"
        with suppress(BlockingIOError, BrokenPipeError):
            self._socket.send(line.encode()[:WORD_BYTES_MAX])

    @contextmanager
    def beating(self, every_s: float) -> Iterator[None]:
        """Say BEAT from between any two steps of what is done meanwhile, however long it does not
        come back to a loop. On the main thread, in a process that has no other use for SIGALRM."""
        signal.signal(signal.SIGALRM, lambda *_: self.say(BEAT))
        signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        stop: Callable[[], None],
        told: Callable[[str, int], None],
    ) -> None:
        """Have `stop` called when the supervisor asks for it, or has died, and `told` with its
        other words: FULL, ROOM, ALL, and HERE or GONE with the number of a process."""
        received = bytearray()

        def heard() -> None:
            data = self._heard()
            received.extend(data)
            *lines, rest = received.split(b"\n")
            received[:] = rest
            for line in lines:
                word, _, number = line.decode().partition(" ")
                if word != STOP:
                    told(word, int(number or -1))
            if not data or STOP.encode() in lines:
                loop.remove_reader(self._socket)
                stop()

        loop.add_reader(self._socket, heard)

    def _heard(self) -> bytes:
        try:
            return self._socket.recv(WORD_BYTES_MAX)
        except ConnectionResetError:  # it died with words unread
            return b""


class Words:
    """What has come of a process, line by line."""

    def __init__(self) -> None:
        self._received = b""

    def feed(self, data: bytes) -> list[Word]:
        """The words that these bytes complete. What is no word is passed over."""
        *lines, self._received = (self._received + data).split(b"\n")
        self._received = self._received[-WORD_BYTES_MAX:]
        return [word for line in lines if (word := _word(line)) is not None]


def _word(line: bytes) -> Word | None:
    name, _, facts = line.decode(errors="replace").partition(" ")
    try:
        found = json.loads(facts) if facts else {}
    except ValueError:
        return None
    return Word(name, found) if isinstance(found, dict) else None
