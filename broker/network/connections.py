"""The open connections: who is let in, and what all of them are told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker import logs
from config.kinds import INT_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.current_settings import CurrentSettings
    from broker.metadata.client_quotas import ClientQuotas, Throttled
    from broker.network.admission import Admission
    from broker.network.connection import Connection
    from broker.network.connection_counts import ConnectionCounts
    from broker.network.listening import Listening
    from config import BrokerSettings


IDLE_CHECK_EVERY_S = 10.0
LIMITS = ("max.connections", "max.connection.creation.rate")


class Connections:
    """Belongs to the loop; `close_idle` is a periodic task."""

    __slots__ = (
        "_admission",
        "_all_gone",
        "_counts",
        "_idle_checked_s",
        "_listening",
        "_loop",
        "_open",
        "_quotas",
        "_settings",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: CurrentSettings,
        counts: ConnectionCounts,
        quotas: ClientQuotas,
        listening: Listening,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._counts = counts
        self._quotas = quotas
        self._listening = listening
        self._idle_checked_s = loop.time()
        self._open: dict[Connection, None] = {}
        self._all_gone: asyncio.Event | None = None
        self._admission = self._admission_by(settings.current)
        settings.subscribe(self._configure)

    def __iter__(self) -> Iterator[Connection]:
        """The connections open now; they may be closed meanwhile."""
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, connection: object) -> bool:
        return connection in self._open

    @property
    def throttled(self) -> dict[str, Throttled]:
        """The waits of connections for max.connection.creation.rate, by listener."""
        return {} if self._admission is None else self._admission.throttled

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; False when a limit says to close it. Others say to have it
        wait."""
        self._open[connection] = None
        reason = self._counts.over_limit(connection.address, self._settings.current)
        if reason is None:
            throttle_ms = self._quotas.connected(connection.address) if self._quotas.active else 0
            if throttle_ms:
                reason = "more from one address than its connection_creation_rate"
                logs.warn_once_a_minute("connection closed", reason, connection.address)
                connection.turn_away(throttle_ms)
            elif self._admission is not None:
                self._admission.take(connection)
            return True
        logs.warn_once_a_minute("connection closed", reason, connection.address)
        return False

    def lost(self, connection: Connection) -> None:
        """A connection is lost or closed."""
        self._open.pop(connection, None)
        self._counts.gone(connection.address)
        if self._admission is not None:
            self._admission.gone(connection)
        if self._all_gone is not None and not self._open:
            self._all_gone.set()

    def close_idle(self) -> None:
        """Close those over which nothing has gone for connections.max.idle.ms, or a request comes
        too slowly; have those at rest give back memory."""
        limit_s = self._settings.current.connections_max_idle_ms / 1000
        now_s = self._loop.time()
        since_s, self._idle_checked_s = now_s - self._idle_checked_s, now_s
        if since_s > 2 * IDLE_CHECK_EVERY_S:
            return  # the process was stopped: what came in meanwhile has not been read yet
        for connection in self:
            connection.look(now_s, limit_s)
            if now_s - connection.last_active_s > IDLE_CHECK_EVERY_S:
                connection.shrink()

    def excuse(self, seconds: float) -> None:
        """Let a time that passes for the loop, and for no client, make none of them idle."""
        for connection in self:
            connection.last_active_s += seconds
            connection.whole_s += seconds

    async def close(self, within_s: float) -> None:
        """Answer and close all; those that take longer than this are cut off."""
        for connection in self:
            connection.close()
        if not self._open:
            return
        self._all_gone = asyncio.Event()
        try:
            await asyncio.wait_for(self._all_gone.wait(), within_s)
        except TimeoutError:
            logs.warning("connections cut off", count=len(self._open))
            for connection in self:
                connection.abort()
            await asyncio.sleep(0)

    def _admission_by(self, settings: BrokerSettings) -> Admission | None:
        """What has connections wait, if these settings limit how many there may be or come."""
        for_all = (settings.max_connections, settings.max_connection_creation_rate)
        for_one = any(name.endswith(LIMITS) for name, _ in settings.security_given)
        if for_all == (INT_MAX, INT_MAX) and not for_one:
            return None
        from broker.network.admission import Admission  # few brokers limit that

        return Admission(self._loop, settings, self._listening, self._open)

    def _configure(self, before: BrokerSettings, settings: BrokerSettings) -> None:
        if self._admission is None:
            self._admission = self._admission_by(settings)
        else:
            self._admission.configure(settings)
        for connection in self:
            connection.configure(settings)
        if settings.served_listeners != before.served_listeners:
            names = {listener.name for listener in settings.served_listeners}
            for connection in self:
                if connection.listener not in names:
                    self._loop.call_soon(connection.close)
