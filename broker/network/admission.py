"""Whom the listeners let in, and when: max.connections (KIP-402) and max.connection.creation.rate
(KIP-612).

One limit of each kind is for all listeners together, others are each for one. A connection beyond
a limit is not refused: it waits, unread, until there is a place and the rate is down, and those
behind it on the same listener wait for it, as they do for Kafka's acceptor. When `HELD_MAX` wait,
the listener rests, and further clients wait in the kernel's queue.

The inter-broker listener is protected from the limits for all listeners, if it is not the only one:
whoever comes to it is let in, and a connection of another listener, that over which nothing has
gone for longest, is closed in its place. No broker comes here; an administrator finds a way in.
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
    from collections.abc import Iterable

    from broker.network.connection import Connection
    from broker.network.listening import Listening
    from config import BrokerSettings

MAX_CONNECTIONS = "max.connections"
CREATION_RATE = "max.connection.creation.rate"
HELD_MAX = 16
"""Connections of a listener that wait before it rests. What has been accepted by then still comes:
one more, or, where the loop is not uvloop's, `accepting.BEGINNING_MAX` more."""


class _Door:
    """Those who come to one listener, and those who are in."""

    __slots__ = (
        *("admitted", "counted", "held", "max_rate", "max_size"),
        *("name", "rate", "throttled", "wait"),
    )

    def __init__(self, name: str, windows: Windows) -> None:
        self.name = name
        self.rate = Rate(windows)
        self.max_rate = self.max_size = INT_MAX
        self.admitted: set[Connection] = set()
        self.held: deque[Connection] = deque()
        """The first waits for its time or a place, the others for it."""
        self.counted = False
        """Whether the rates have counted the first."""
        self.wait: asyncio.TimerHandle | None = None
        """Ends when the first has waited for the rates."""
        self.throttled = Throttled()


class Admission:
    """Belongs to the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: BrokerSettings,
        listening: Listening,
        admitted: Iterable[Connection],
    ) -> None:
        """`admitted` are those who came before there was a limit."""
        self._loop = loop
        self._listening = listening
        window_ms = settings.quota_window_size_seconds * 1000
        self._windows = Windows(settings.quota_window_num, window_ms)
        self._rate = Rate(self._windows)
        self._max_rate = self._max_size = INT_MAX
        self._protected: str | None = None
        self._doors: dict[str, _Door] = {}
        self._cut_off: set[Connection] = set()
        """Those who had to make room and are not gone yet."""
        for connection in admitted:
            self._door(connection.listener).admitted.add(connection)
        self.configure(settings)

    def configure(self, settings: BrokerSettings) -> None:
        """These limits hold from now on. What the rates have counted stays, and waits for them that
        have begun."""
        self._max_rate = settings.max_connection_creation_rate
        self._max_size = settings.max_connections
        listeners = settings.served_listeners
        name = settings.inter_broker_listener_name or settings.security_inter_broker_protocol
        self._protected = name.upper() if len(listeners) > 1 else None
        for listener in listeners:
            door = self._door(listener.name)
            door.max_rate = _limit(settings, listener.name, CREATION_RATE)
            door.max_size = _limit(settings, listener.name, MAX_CONNECTIONS)
        self._make_room()
        self._let_in()

    @property
    def throttled(self) -> dict[str, Throttled]:
        """The waits for a rate of those who came, by listener. Those behind one that waits are not
        counted as long as it does."""
        return {door.name: door.throttled for door in self._doors.values()}

    def take(self, connection: Connection) -> None:
        """Let a new connection in, or have it wait until it may be."""
        door = self._door(connection.listener)
        if not door.held and self._may_enter(door, connection):
            self._enter(door, connection)
            return
        connection.hold()
        door.held.append(connection)
        if len(door.held) == HELD_MAX:
            self._listening.rest(door.name)

    def gone(self, connection: Connection) -> None:
        """A connection is closed; whether it was let in, waits, or never came here."""
        door = self._door(connection.listener)
        if connection in door.admitted:
            door.admitted.remove(connection)
            self._cut_off.discard(connection)
            self._let_in()
        elif connection in door.held:
            if connection is door.held[0]:
                self._forget_first(door)
            door.held.remove(connection)
            self._let_in()

    def _door(self, name: str) -> _Door:
        if name not in self._doors:
            self._doors[name] = _Door(name, self._windows)
        return self._doors[name]

    def _let_in(self) -> None:
        """Let in those who wait, on each listener in their order, as far as they may."""
        for door in self._doors.values():
            while door.held and self._may_enter(door, door.held[0]):
                connection = door.held.popleft()
                self._enter(door, connection)
                connection.let_go()
            if not door.held:
                self._listening.go_on(door.name)

    def _may_enter(self, door: _Door, first: Connection) -> bool:
        """Whether the first who comes to a listener need not wait, or no more."""
        if not door.counted:
            door.counted = True
            wait_ms = self._count(door)
            if wait_ms:
                _warn(door, first, f"more of them come than {CREATION_RATE}")
                door.wait = self._loop.call_later(wait_ms / 1000, self._waited, door)
        if door.wait is not None:
            return False
        full = len(door.admitted) >= door.max_size
        if full or (door.name != self._protected and self._size >= self._max_size):
            _warn(door, first, f"as many are open as {MAX_CONNECTIONS} allows")
            return False
        return True

    def _enter(self, door: _Door, connection: Connection) -> None:
        door.counted = False
        door.admitted.add(connection)
        self._make_room()

    @property
    def _size(self) -> int:
        return sum(len(door.admitted) for door in self._doors.values()) - len(self._cut_off)

    def _make_room(self) -> None:
        """Close those over which nothing has gone for longest, while too many are open. Those on
        the protected listener stay."""
        excess = self._size - self._max_size
        if excess <= 0:
            return
        others = [
            connection
            for door in self._doors.values()
            if door.name != self._protected
            for connection in door.admitted - self._cut_off
        ]
        others.sort(key=lambda one: one.last_active_s)
        for connection in others[:excess]:
            self._cut_off.add(connection)
            connection.cut_off(
                f"more are open than {MAX_CONNECTIONS}={self._max_size}, and it was idle longest"
            )

    @staticmethod
    def _forget_first(door: _Door) -> None:
        """The first goes away: the next one is counted, and waits for its own time."""
        door.counted = False
        if door.wait is not None:
            door.wait.cancel()
            door.wait = None

    def _waited(self, door: _Door) -> None:
        """The first has waited for the rates."""
        door.wait = None
        self._let_in()

    def _count(self, door: _Door) -> int:
        """Count a connection; how long (ms) it has to wait. No wait is longer than a window."""
        now_ms = self._loop.time() * 1000
        wait_ms, longest_ms = 0, self._windows.size_ms
        max_rate = INT_MAX if door.name == self._protected else self._max_rate
        for rate, limit in ((self._rate, max_rate), (door.rate, door.max_rate)):
            if limit != INT_MAX:
                rate.record(1, now_ms)
                wait_ms = max(wait_ms, rate.throttle_ms(limit, now_ms) if limit else longest_ms)
        return door.throttled.add(min(wait_ms, longest_ms))


def _limit(settings: BrokerSettings, listener: str, name: str) -> int:
    """What was given for one listener, or else for each as for all."""
    given = given_for(settings, listener, name)
    return INT_MAX if given is None else int(given[1].text)


def _warn(door: _Door, connection: Connection, cause: str) -> None:
    logs.warn_once_a_minute("connections wait", cause, connection.address, listener=door.name)
