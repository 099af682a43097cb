"""A test's broker in the process that is its own: what it tells, and what it is told.

It writes lines to its standard output: {"event": "forked", "pid": N}, then {"event": "ready", ...}
as `triglot serve --json` does, or {"event": "refused", "why": TEXT}. It is told, one JSON object a
line, {"stop": true}, or calls of the interface of its faults, {"method": ..., "target": ...,
"body": TEXT}, each answered by {"event": "answer", "status": N, "answer": ...}. At the end of what
it is told, which comes with the end of the test run however that ended, it ends too.
"""

from __future__ import annotations

import json
import os
import signal
import threading

from broker import logs
from broker.faults.injection import FaultInjection
from broker.server import StartRefused, serve
from config import ConfigError, load
from testing.settings import SETTINGS
from testing.surroundings import surroundings


def serve_until_told(settings: dict[str, str], bytes_max: int | None, told: int) -> int:
    """Run a broker until a signal, or the end of what the descriptor `told` says; its exit code."""
    try:
        tell(event="forked", pid=os.getpid())
        faults = FaultsByLines(told)
        threading.Thread(target=faults.read_calls, daemon=True).start()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        logs.configure()
        around = surroundings(settings["log.dirs"], bytes_max)
        serve(
            load(overrides=settings, overrides_from=SETTINGS), around, as_json=True, testing=faults
        )
    except (ConfigError, StartRefused) as error:
        tell(event="refused", why=str(error))
        return 1
    return 0


class FaultsByLines(FaultInjection):
    """Faults on which nobody has a say but the test run: there is no port."""

    def __init__(self, told: int) -> None:
        super().__init__()
        self._told = told

    def read_calls(self) -> None:
        """Hand the calls to the loop, in a thread of their own; at their end the process ends, also
        one whose loop is busy."""
        with open(self._told, "rb", closefd=False) as calls:
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
