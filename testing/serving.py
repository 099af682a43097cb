"""A test's broker in the process that is its own: what it tells, and what it is told.

It writes lines to its standard output: {"event": "forked", "pid": N}, then {"event": "ready", ...}
as `triglot serve --json` does, or {"event": "refused", "why": TEXT}. It is told, one JSON object a
line, {"stop": true}, or calls of the interface of its faults, {"method": ..., "target": ...,
"body": TEXT}, each answered by {"event": "answer", "status": N, "answer": ...}. At the end of what
it is told, which comes with the end of the test run however that ended, it ends too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from broker import logs
from broker.faults.injection import FaultInjection
from broker.server import StartRefused, serve
from config import ConfigError, load
from testing.errors import BrokerFailed
from testing.settings import SETTINGS
from testing.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from testing.requests import Start


def serve_until_told(start: Start, told: Callable[[], int], *, is_asked_for: bool) -> int:
    """Run a broker until a signal, or the end of what it is told; its exit code. `told` gives the
    descriptor that says it: one that is not asked for yet calls it, and waits there, when its data
    is open."""
    faults = FaultsByLines(told)
    if is_asked_for:
        faults.attach()
    try:
        if start.mark is not None:
            _copy(start.mark, start.data)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        logs.configure()
        around = surroundings(start.data, start.bytes_max)
        settings = load(overrides=start.settings, overrides_from=SETTINGS)
        serve(settings, around, as_json=True, testing=faults)
    except (BrokerFailed, ConfigError, StartRefused) as error:
        faults.attach()
        tell(event="refused", why=str(error))
        return 1
    return 0


def _copy(mark: str, data: str) -> None:
    """In place of what a process that was not asked for may have left there."""
    import shutil  # of no use to those that begin empty

    from testing.folders import copy_data

    shutil.rmtree(data, ignore_errors=True)
    copy_data(Path(mark), Path(data))


class FaultsByLines(FaultInjection):
    """Faults on which nobody has a say but the test run: there is no port."""

    def __init__(self, told: Callable[[], int]) -> None:
        """`told` is called once, and may wait."""
        super().__init__()
        self._told = told
        self._is_attached = False

    def attach(self) -> None:
        """Tell that this process is there, and be told what to do, from now on."""
        if not self._is_attached:
            told = self._told()
            self._is_attached = True
            tell(event="forked", pid=os.getpid())
            threading.Thread(target=self._read_calls, args=(told,), daemon=True).start()

    async def data_is_open(self) -> None:
        if not self._is_attached:
            self.attach()
            await asyncio.sleep(0)  # the loop looks at the clock again

    def _read_calls(self, told: int) -> None:
        """Hand the calls to the loop, in a thread of their own; at their end the process ends, also
        one whose loop is busy."""
        with open(told, "rb", closefd=False) as calls:
            for line in calls:
                assert self.loop is not None, "a call before the broker is ready"
                self.loop.call_soon_threadsafe(self._answer, line)
        os._exit(1)

    def _answer(self, line: bytes) -> None:
        call = json.loads(line)
        if "stop" in call:
            signal.raise_signal(signal.SIGTERM)
            return
        status, answer = self.interface.call(call["method"], call["target"], call["body"].encode())
        tell(event="answer", status=status, answer=answer)


def tell(**told: object) -> None:
    """Write a line to who wanted the broker."""
    print(json.dumps(told), flush=True)
