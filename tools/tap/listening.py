"""A proxy whose clients are overheard, from its start to a signal."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from broker import clock
from broker._version import VERSION
from broker.event_loop import on_stop_signal
from broker.faults.proxy.brokers import Listening, Upstream
from broker.faults.proxy.server import Proxy
from protocol.client import written
from tools.printing import discard_output, say
from tools.tap.overhearing import Filter, Overhearing
from tools.tap.words import Words

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from ssl import SSLContext
    from typing import TextIO

    from broker.faults.proxy.server import Connect
    from tools.tap.conversation import Entry


async def listen(
    arguments: Arguments, saved: TextIO | None, *, connect: Connect, tls: SSLContext | None
) -> None:
    """Tell what passes, and write it to a file, until a signal, or until nobody reads what is told.
    `connect` leads to brokers; clients speak `tls`. Raises OSError."""
    stop = asyncio.Event()
    is_read = True

    def tell(entry: Entry) -> None:
        nonlocal is_read
        if saved is not None:
            saved.write(entry.as_json(with_frame=True) + "\n")
        if not is_read:
            return
        line = entry.as_json(with_frame=False) if arguments.json else entry.line()
        try:
            say(line, sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()
            is_read = False
            stop.set()

    overhearing = Overhearing(
        tell,
        words=Words(is_full=arguments.full),
        wanted=Filter(tuple(arguments.client), tuple(arguments.api)),
        now_ms=clock.now_ms,
        monotonic_s=clock.monotonic_s,
    )
    behind = Upstream(*arguments.in_front_of)
    proxy = Proxy(behind, now_ms=clock.now_ms, observer=overhearing, connect=connect)
    try:
        port = await proxy.open(
            Listening(*arguments.listen, *arguments.advertise)._replace(tls=tls), None
        )
        on_stop_signal(asyncio.get_running_loop(), stop.set)
        _announce(arguments, port, str(behind))
        await stop.wait()
    finally:
        await proxy.close()


def _announce(arguments: Arguments, port: int, behind: str) -> None:
    host = arguments.listen[0]
    if arguments.json:
        facts = {"version": VERSION, "host": host, "port": port, "in_front_of": behind}
        line = json.dumps({"what": "ready", **facts})
    else:
        line = f"triglot {VERSION} ready: listening on {written(host, port)}, in front of {behind}"
    print(line, flush=True)
