"""How fast connections may come: max.connection.creation.rate (KIP-612).

One limit is for all listeners together, others are each for one. A connection above a limit is not
refused: it waits, unread, until the rate is down again, and those behind it on the same listener
wait for it, as they do for Kafka's acceptor. When `HELD_MAX` wait, the listener rests, and further
clients wait in the kernel's queue.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker import logs
from broker.metadata.client_quotas import Throttled
from broker.metadata.rates import Rate, Windows
from config.kinds import INT_MAX
from config.listener_security import given_for

if TYPE_CHECKING:
    import asyncio

    from broker.network.connection import Connection
    from broker.network.listening import Listening
    from config import BrokerSettings

NAME = "max.connection.creation.rate"
HELD_MAX = 16
"""Connections of a listener that wait before it rests. The event loop may still bring what it has
accepted by then: one more, or, where it is not uvloop's, `ACCEPT_BACKLOG` more."""


class _Arrivals:
    """Those who come to one listener."""

    __slots__ = ("held", "limit", "name", "rate", "throttled")

    def __init__(self, name: str, windows: Windows) -> None:
        self.name = name
        self.rate = Rate(windows)
        self.limit = INT_MAX
        self.held: deque[Connection] = deque()
        """The first waits for its time, the others for it."""
        self.throttled = Throttled()


class CreationRates:
    """Belongs to the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, settings: BrokerSettings, listening: Listening
    ) -> None:
        self._loop = loop
        self._listening = listening
        window_ms = settings.quota_window_size_seconds * 1000
        self._windows = Windows(settings.quota_window_num, window_ms)
        self._rate = Rate(self._windows)
        self._limit = INT_MAX
        self._arrivals: dict[str, _Arrivals] = {}
        self.configure(settings)

    def configure(self, settings: BrokerSettings) -> None:
        """These limits hold from now on. What has been counted stays, and waits that have begun."""
        self._limit = settings.max_connection_creation_rate
        for listener in settings.served_listeners:
            name = listener.name
            if name not in self._arrivals:
                self._arrivals[name] = _Arrivals(name, self._windows)
            given = given_for(settings, name, NAME)
            self._arrivals[name].limit = INT_MAX if given is None else int(given[1].text)

    @property
    def throttled(self) -> dict[str, Throttled]:
        """The waits of those who came, by listener. Those behind one that waits are not counted
        as long as it does."""
        return {one.name: one.throttled for one in self._arrivals.values()}

    def take(self, connection: Connection) -> None:
        """Count a new connection, or have it wait until it may be counted."""
        arrivals = self._arrivals[connection.listener]
        wait_ms = 0 if arrivals.held else self._count(arrivals)
        if not arrivals.held and not wait_ms:
            return
        connection.hold()
        arrivals.held.append(connection)
        if len(arrivals.held) == HELD_MAX:
            self._listening.rest(arrivals.name)
        if wait_ms:
            logs.warn_once_a_minute(
                "connections wait",
                f"more of them come than {NAME}",
                connection.address,
                listener=arrivals.name,
            )
            self._loop.call_later(wait_ms / 1000, self._waited, arrivals)

    def _waited(self, arrivals: _Arrivals) -> None:
        """The first has waited, and is counted already."""
        held = arrivals.held
        held.popleft().let_go()
        while held:
            wait_ms = self._count(arrivals)
            if wait_ms:
                self._loop.call_later(wait_ms / 1000, self._waited, arrivals)
                return
            held.popleft().let_go()
        self._listening.go_on(arrivals.name)

    def _count(self, arrivals: _Arrivals) -> int:
        """Count a connection; how long (ms) it has to wait. No wait is longer than a window."""
        now_ms = self._loop.time() * 1000
        wait_ms, longest_ms = 0, self._windows.size_ms
        for rate, limit in ((self._rate, self._limit), (arrivals.rate, arrivals.limit)):
            if limit != INT_MAX:
                rate.record(1, now_ms)
                wait_ms = max(wait_ms, rate.throttle_ms(limit, now_ms) if limit else longest_ms)
        return arrivals.throttled.add(min(wait_ms, longest_ms))
