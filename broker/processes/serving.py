"""What a forked process does, from its fork to its exit status."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from broker import logs
from broker.event_loop import new_event_loop
from broker.processes.following import FollowingProcess
from broker.processes.leading import LeadingProcess
from broker.server import SWITCH_INTERVAL_S

if TYPE_CHECKING:
    from broker.processes.shared import Shared
    from broker.supervision.line import Line

OF_THE_SUPERVISOR = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables by which the service manager watches the process that it has started."""


def serve(shared: Shared, number: int, line: Line, led: dict[str, Any]) -> int:
    """What a process does, from its fork to its exit status."""
    logs.say_always(process=number)
    for name in OF_THE_SUPERVISOR:
        os.environ.pop(name, None)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for other, bound in enumerate(shared.bound):
        if other != number:
            shared.internal[other].close()
            for sockets in bound.values():
                for one in sockets:
                    one.close()
            if shared.figures is not None:
                shared.figures.sockets[other].close()
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    kind = FollowingProcess if number else LeadingProcess
    process = kind(shared, number, line, led, loop)
    try:
        return loop.run_until_complete(process.run())
    finally:
        loop.close()
