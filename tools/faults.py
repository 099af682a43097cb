"""`triglot faults`: a proxy in front of any broker, which does wrong what a test asks for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tools.arguments import DONE, NOT_DONE, listened, refuse
from tools.proxy_arguments import add_proxy_arguments, fault_of_addresses

if TYPE_CHECKING:
    from ssl import SSLContext

    from broker.faults.injection import Address
    from broker.faults.interface import Interface
    from broker.faults.proxy.server import Proxy

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

WRONG_USE = 2

FAULTS_HELP = """\
Stand in front of a broker, and do wrong what a test asks for: errors, delays, lost answers, closed
and silent connections, throttling. Any cluster of Apache Kafka will do; clients are pointed at this
address instead, and stay on it for all of its brokers.

  triglot faults --in-front-of 127.0.0.1:9092 --listen 127.0.0.1:9192 --testing 127.0.0.1:9099
  curl http://127.0.0.1:9099/faults -d '{"api": "Produce", "close": "after"}'

  triglot faults --in-front-of kafka:9092 --faults faults.json

In a container its ports have to be known, and clients outside may reach them by other numbers:

  triglot faults --in-front-of kafka:9092 --listen 0.0.0.0:9192-9199 --advertise localhost:19192

A file of faults is a JSON list of what the control port takes (docs/faults.md):

  [{"api": "Fetch", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}]

In front of a listener with TLS it wants --command-config; clients may speak plaintext with it all
the same, or TLS with --certificate. Logins by SASL pass through it. SIGTERM and Ctrl-C end it, and
it tells which faults never acted.
"""


def add_commands(commands: Commands) -> None:
    """Add `faults` to the command line's."""
    faults = commands.add_parser(
        "faults",
        help="stand in front of any broker, and let tests break it",
        description=FAULTS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    faults.set_defaults(run=run_faults)
    add_proxy_arguments(faults)
    faults.add_argument(
        "--testing",
        metavar="HOST:PORT",
        type=listened,
        help="open the control port for tests, on loopback; port 0 picks a free one",
    )
    faults.add_argument(
        "--testing-anywhere",
        action="store_true",
        help="let the control port be where other machines reach it",
    )
    faults.add_argument(
        "--faults", metavar="FILE", help="faults to begin with: a JSON list of them"
    )
    faults.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    faults.add_argument(
        "--json", action="store_true", help="log lines and the ready line as JSON, for machines"
    )


def run_faults(arguments: argparse.Namespace) -> int:
    """Stand there until a signal; 1 for a start that fails, 2 for arguments that are wrong."""
    import asyncio

    from broker import clock, logs
    from broker.faults.proxy.brokers import Upstream
    from broker.faults.proxy.server import Proxy
    from client.errors import WrongUse
    from tools.proxy_arguments import connect_of, context_of

    logs.configure(level=arguments.log_level, as_json=arguments.json)
    if arguments.testing is None and arguments.faults is None:
        return refuse("a proxy without --testing and --faults does nothing wrong", code=WRONG_USE)
    if fault := fault_of_addresses(arguments):
        return refuse(fault, code=WRONG_USE)
    try:
        connect, tls = connect_of(arguments), context_of(arguments)
    except WrongUse as error:
        return refuse(str(error), code=WRONG_USE)
    proxy = Proxy(Upstream(*arguments.in_front_of), now_ms=clock.now_ms, connect=connect)
    if arguments.faults is not None:
        why = added(proxy.interface, arguments.faults)
        if why:
            return refuse(f"--faults {arguments.faults}: {why}", code=WRONG_USE)
    try:
        asyncio.run(_stand(proxy, arguments, tls))
    except (OSError, ValueError) as error:
        said = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return refuse(f"can't listen: {said}", code=NOT_DONE)
    return DONE


def added(interface: Interface, path: str) -> str:
    """Have the faults of a file stand; why they do not, empty if they do."""
    from pathlib import Path

    try:
        body = Path(path).read_bytes()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    answer = interface.call("POST", "/faults", body)[1]
    return str(answer.get("error", ""))


async def _stand(proxy: Proxy, arguments: argparse.Namespace, tls: SSLContext | None) -> None:
    import asyncio

    from broker.event_loop import on_stop_signal
    from broker.faults.proxy.brokers import Listening

    stop = asyncio.Event()
    host = arguments.listen[0]
    try:
        listening = Listening(*arguments.listen, *arguments.advertise)._replace(tls=tls)
        port = await proxy.open(listening, _testing(arguments))
        on_stop_signal(asyncio.get_running_loop(), stop.set)
        _announce(proxy, host, port, arguments)
        await stop.wait()
        proxy.interface.tell_unfired()
    finally:
        await proxy.close()


def _testing(arguments: argparse.Namespace) -> Address | None:
    from broker.faults.injection import Address

    if arguments.testing is None:
        return None
    host, port = arguments.testing
    return Address(host, port, arguments.testing_anywhere)


def _announce(proxy: Proxy, host: str, port: int, arguments: argparse.Namespace) -> None:
    """Print the ready line."""
    import json

    from broker._version import VERSION
    from protocol.client import written

    behind = written(*arguments.in_front_of)
    if arguments.json:
        facts: dict[str, Any] = {
            "event": "ready",
            "version": VERSION,
            "host": host,
            "port": port,
            "in_front_of": behind,
        }
        line = json.dumps(facts if proxy.control is None else {**facts, "testing": proxy.control})
    else:
        line = f"triglot {VERSION} ready: listening on {written(host, port)}, in front of {behind}"
        if proxy.control is not None:
            line += f"; TESTING IS ON, by the control port {proxy.control}"
    print(line, flush=True)
