"""The event loop of a broker's process, and the signals that end it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from config.platforms import PORTABLE

if TYPE_CHECKING:
    from collections.abc import Callable


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop, or the standard one where that is not, or is not wanted.

    On Windows it is not the standard one of there: that can't wait for sockets of ours.
    """
    if PORTABLE:
        return asyncio.SelectorEventLoop()
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def takes_many_at_once(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a server of this loop accepts all who wait before it hands over the first: asyncio's
    own loop does, also with a clock before it that can be moved."""
    owner = getattr(loop.create_server, "__self__", None)
    return isinstance(owner, asyncio.BaseEventLoop)


def on_stop_signal(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Have the loop call `stop` at SIGTERM and SIGINT (Ctrl-C), on Windows at Ctrl-Break too.

    There a loop that sleeps hears of it when it next wakes: a broker's does once a second.
    """
    for name in ("SIGTERM", "SIGINT", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        if PORTABLE:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
        else:
            loop.add_signal_handler(number, stop)
