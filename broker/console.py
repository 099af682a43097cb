"""The console beside the broker: web pages, made by a process of its own.

That process asks the broker as every Kafka client does, and has of it besides: the port of the
pages, which is opened here, so that a wrong address stops the start and no browser is turned away
while the process is started again; and a port of the metrics on loopback, with a token that nobody
else has. It is started again when it has ended, and ends with the broker.

Several processes have one console, which `broker.processes.console` keeps beside all of them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from broker import logs
from broker.background.child_process import ChildProcess, spawn
from broker.metrics.listener import Credentials, MetricsListener
from broker.network.listening import listening_sockets
from broker.network.secured import is_loopback
from config.broker_network import CONSOLE
from config.listeners import Listener
from protocol.client import written

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Sequence

    from broker.metrics.families import Sources
    from config.broker import BrokerSettings
    from storage.filesystem import Filesystem

AGAIN_AFTER_S = 1.0
"""Before a process that has ended is started again; twice as long after each, until one has lasted
`LASTS_S`."""
AGAIN_AFTER_MAX_S = 60.0
LASTS_S = 60.0
PREFERRED = ("SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXT")
"""The listeners that the console speaks with, by their protocol: where people can log in, they are
asked to."""
SPOKEN = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The mechanisms that take a user and a password."""
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


class CannotServe(Exception):
    """Why there is no console, in one line for the person who wanted it."""


class Door(NamedTuple):
    """The listener by which the console comes in, its protocol, and how people log in there."""

    listener: Listener
    protocol: str
    mechanisms: tuple[str, ...]


class Asked(NamedTuple):
    """A broker as the console asks it: its id, its port at the door, and that of its figures."""

    node_id: int
    port: int
    figures: int


class Pages(NamedTuple):
    """The sockets that browsers connect to, and what is told to the process that serves them."""

    sockets: list[socket.socket]
    door: Door
    facts: dict[str, Any]

    @property
    def token(self) -> str:
        """What the ports of figures want to see, which nobody else has."""
        return str(self.facts["figures_token"])

    @property
    def url(self) -> str:
        """Where a browser finds them."""
        host, port = self.sockets[0].getsockname()[:2]
        return f"http{'s' if self.facts['tls'] else ''}://{written(host, port)}/"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The descriptors that the process inherits."""
        return tuple(one.fileno() for one in self.sockets)

    def first_line(self, brokers: Sequence[Asked]) -> bytes:
        """What the process is told first; it asks all these brokers."""
        host = self.door.listener.host
        if host in ("", "0.0.0.0", "::"):
            host = "127.0.0.1"
        told = [
            {"id": one.node_id, "address": written(host, one.port), "figures": one.figures}
            for one in brokers
        ]
        facts = {**self.facts, "brokers": told, "sockets": self.numbers}
        return json.dumps(facts).encode() + b"\n"

    def announce(self) -> None:
        """Say in the log where they are."""
        host, writable = self.facts["names"][0], self.facts["writable"]
        logs.info("the console is served", url=self.url, writable=writable)
        if not is_loopback(host) and not self.door.mechanisms:
            logs.warning(
                "the console is served to other machines: whoever reaches it reads all records",
                url=self.url,
            )

    def close(self) -> None:
        for one in self.sockets:
            one.close()


class Waits:
    """How long to wait before a process that has ended is started again."""

    def __init__(self) -> None:
        self._next_s = AGAIN_AFTER_S

    def after(self, lasted_s: float) -> float:
        """The wait after one that has lasted so long."""
        if lasted_s > LASTS_S:
            self._next_s = AGAIN_AFTER_S
        wait_s, self._next_s = self._next_s, min(2 * self._next_s, AGAIN_AFTER_MAX_S)
        return wait_s


class Console:
    """The process and what it was given. Belongs to the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        module: str,
        pages: Pages,
        broker: Asked,
        metrics: MetricsListener,
    ) -> None:
        """`module` is run; `metrics` has the figures of the broker."""
        self._loop = loop
        self._module = module
        self._pages = pages
        self._line = pages.first_line([broker])
        self._metrics = metrics
        self._child: ChildProcess | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._started_s = 0.0
        self._waits = Waits()
        self.url = pages.url

    def start(self) -> None:
        self._timer = None
        self._started_s = self._loop.time()
        try:
            process = spawn(self._module, inherited=self._pages.numbers)
        except OSError as error:
            self._start_again(f"can't be started: {error.strerror or error}")
            return
        self._child = ChildProcess(
            self._loop, process, on_line=lambda line: None, on_end=self._ended
        )
        self._child.send(self._line)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._child is not None:
            self._child.kill()
        self._metrics.close()
        self._pages.close()

    def _ended(self, status: int) -> None:
        self._child = None
        self._start_again(f"has ended with {status}")

    def _start_again(self, what: str) -> None:
        wait_s = self._waits.after(self._loop.time() - self._started_s)
        logs.warning("the console " + what, again_in_s=wait_s)
        self._timer = self._loop.call_later(wait_s, self.start)


def open_pages(settings: BrokerSettings, files: Filesystem) -> Pages:
    """Open the port that browsers connect to. `files` have the certificates of the broker's
    listeners. Raises CannotServe, CannotListen."""
    assert settings.console_port is not None
    if os.name == "nt":
        raise CannotServe("there is no console on Windows: its process is given an open port")
    door = _door(settings)
    _require_safe(settings, door)
    facts = {
        "protocol": door.protocol,
        "mechanisms": door.mechanisms,
        "tls": _tls(settings, files),
        "trusted": _certificates(settings, door, files),
        "figures_token": secrets.token_hex(16),
        "names": [settings.console_host],
        "writable": settings.console_writable,
    }
    listener = Listener(CONSOLE.upper(), settings.console_host, settings.console_port)
    return Pages(listening_sockets(listener), door, facts)


async def open_console(
    settings: BrokerSettings,
    sources: Sources,
    module: str,
    *,
    ports: dict[str, int],
    files: Filesystem,
) -> Console:
    """Open its port and start it beside the broker. `ports` are those of the broker's listeners.
    Raises CannotServe, CannotListen, OSError."""
    pages = open_pages(settings, files)
    metrics = MetricsListener(sources, Credentials(None, pages.token))
    await metrics.open("127.0.0.1", 0)
    asked = Asked(settings.node_id, ports[pages.door.listener.name], metrics.port)
    console = Console(sources.loop, module, pages, asked, metrics)
    console.start()
    pages.announce()
    return console


def _require_safe(settings: BrokerSettings, door: Door) -> None:
    """Raises CannotServe where passwords could be read on the way and nobody has said that this is
    as it should be."""
    if settings.console_security_protocol or not door.mechanisms:
        return
    if not is_loopback(settings.console_host):
        raise CannotServe(
            f"people log in at the console, and {settings.console_host} is no loopback address: "
            "console.security.protocol=SSL encrypts it (with ssl.keystore.location), and PLAINTEXT "
            "says that a proxy in front of it does"
        )


def _tls(settings: BrokerSettings, files: Filesystem) -> dict[str, Any] | None:
    """What the process makes its TLS of. Raises CannotServe for keys that can't be used."""
    if settings.console_security_protocol != "SSL":
        return None
    import ssl

    from config.keystores import KeystoreError, read_private_key
    from config.listener_security import ListenerSecurity
    from config.tls_context import choose_ciphers, load_key

    security = ListenerSecurity(settings, CONSOLE)
    try:
        key = read_private_key(files, security)
        tried = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        choose_ciphers(tried, security.ssl_cipher_suites)
        load_key(tried, key)
    except KeystoreError as error:
        raise CannotServe(f"console.security.protocol is SSL: {error}") from None
    return {
        "key": key.pem.decode("latin-1"),
        "password": key.password,
        "versions": security.ssl_enabled_protocols,
        "suites": security.ssl_cipher_suites,
    }


def _door(settings: BrokerSettings) -> Door:
    """Raises CannotServe if there is no listener that people could use by a user and a password, or
    without."""
    protocols = {one: settings.security_protocol(one.name) for one in settings.client_listeners}
    for wanted in PREFERRED:
        for listener, protocol in protocols.items():
            if protocol == wanted:
                mechanisms = _mechanisms(settings, listener) if "SASL" in wanted else ()
                if mechanisms or "SASL" not in wanted:
                    return Door(listener, wanted, mechanisms)
    there = ", ".join(f"{one.name} is {protocol}" for one, protocol in protocols.items())
    raise CannotServe(
        f"console.port needs a listener that is PLAINTEXT, or takes PLAIN or SCRAM: {there}"
    )


def _mechanisms(settings: BrokerSettings, listener: Listener) -> tuple[str, ...]:
    from config.listener_security import ListenerSecurity

    enabled = ListenerSecurity(settings, listener.name).sasl_enabled_mechanisms
    return tuple(one for one in SPOKEN if one in enabled)


def _certificates(settings: BrokerSettings, door: Door, files: Filesystem) -> str:
    """Those that the broker shows at the door, as PEM, for a client that trusts it and no other."""
    if door.protocol != "SASL_SSL":
        return ""
    from config.keystores import KeystoreError, read_private_key
    from config.listener_security import ListenerSecurity

    try:
        key = read_private_key(files, ListenerSecurity(settings, door.listener.name))
    except KeystoreError as error:
        raise CannotServe(str(error)) from None
    return b"".join(CERTIFICATE.findall(key.pem)).decode("ascii")
