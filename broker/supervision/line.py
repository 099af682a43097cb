"""What a serving process and its supervisor tell each other: two pipes, and a word a line.

    beat                      the loop turns
    led {...}                 the controller leads the metadata log: what the others have to know
    ready                     it serves
    refused {"why": ...}      it can't start; the text is for the person who started it
    stopped {"clean": ...}    it has stopped, and whether all of it is on the disk

The other way go `all`, to the controller, when all of them serve for the first time, and `stop`.
The end of a pipe is the other's death.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

BEAT, LED, READY, REFUSED, STOPPED = "beat", "led", "ready", "refused", "stopped"
ALL, STOP = b"all\n", b"stop\n"
WORD_BYTES_MAX = 4096
"""A line is a few hundred bytes; up to here a pipe takes one whole or not at all (PIPE_BUF)."""


class Word(NamedTuple):
    """One line of a process. `facts` belong to it."""

    name: str
    facts: dict[str, Any]


class Line:
    """The end of a serving process."""

    def __init__(self, words: int, orders: int) -> None:
        """Descriptors: of the pipe that it writes to, and of the one that it reads."""
        self._words = words
        self._orders = orders
        os.set_blocking(words, False)

    def say(self, name: str, **facts: Any) -> None:
        """Tell the supervisor. If that is dead, or does not read, nobody hears it."""
        line = f"{name} {json.dumps(facts)}\n" if facts else f"{name}\n"
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._words, line.encode()[:WORD_BYTES_MAX])

    def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        stop: Callable[[], None],
        all_serve: Callable[[], None],
    ) -> None:
        """Have `stop` called when the supervisor asks for it, or has died, and `all_serve` when it
        says so."""

        def heard() -> None:
            orders = os.read(self._orders, WORD_BYTES_MAX)
            if ALL in orders:
                all_serve()
            if not orders or STOP in orders:
                loop.remove_reader(self._orders)
                stop()

        loop.add_reader(self._orders, heard)


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
