"""The process beside the broker that serves the console: `broker.console` starts it.

Its first line of input is JSON and says where the broker is and what was inherited from it. It ends
when its input does, and when the broker dies, however that happens.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import uvicorn

from broker.background.parent_process import die_with_parent, lines
from tools.console.app import make_app
from tools.console.broker_port import BrokerPort
from tools.console.joined_ports import JoinedPorts
from tools.console.logins import Door
from tools.console.protocol import HttpProtocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

M_ARENA_MAX = -8
"""In malloc.h of glibc."""
NICE = 5
"""The broker's own work goes first where both want the same core."""
CONNECTIONS_MAX = 500
"""Open connections of browsers; more are answered with 503."""
KEEP_ALIVE_S = 5


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the broker's, who then ends us
    die_with_parent()
    _share_memory_between_threads()
    if sys.platform != "win32":  # there it is started so
        os.nice(NICE)
    came = lines()
    facts = json.loads(next(came))
    brokers, token = facts["brokers"], facts["figures_token"]
    addresses = {one["id"]: one["address"] for one in brokers}
    ports = {one["id"]: BrokerPort(one["figures"], token) for one in brokers}
    app = make_app(
        Door(addresses, facts["protocol"], tuple(facts["mechanisms"]), facts["trusted"]),
        broker=JoinedPorts(ports) if len(ports) > 1 else next(iter(ports.values())),
        names=facts["names"],
        may_write=facts["writable"],
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        loop="asyncio",
        http=HttpProtocol,
        ws="none",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        ssl_context_factory=_context_of(facts["tls"]),
    )
    sockets = [socket.socket(fileno=number) for number in facts["sockets"]]
    server = uvicorn.Server(config)
    # Not in the main thread: there it would take the signals.
    serving = threading.Thread(target=lambda: asyncio.run(server.serve(sockets)), daemon=True)
    serving.start()
    serving.join()
    return 1


def _context_of(tls: dict[str, Any] | None) -> Callable[..., SSLContext] | None:
    """What makes the TLS that browsers speak; nothing for plain HTTP."""
    if tls is None:
        return None
    import ssl

    from config.keystores import PrivateKey
    from config.tls_context import choose_ciphers, choose_versions, load_key

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    choose_versions(context, tls["versions"])
    choose_ciphers(context, tuple(tls["suites"]))
    load_key(context, PrivateKey(tls["key"].encode("latin-1"), tls["password"], "console"))
    return lambda *_: context


def _share_memory_between_threads() -> None:
    """One heap for all of them: with one each, what a large page has taken stays with the thread
    that made it."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):  # a C library without that
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


if __name__ == "__main__":
    raise SystemExit(main())
