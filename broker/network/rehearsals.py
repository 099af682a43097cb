"""Which routes the clients of a listener get: those of all that is served here, or of the release
of Kafka that the settings name (as.version).

Connections keep the routes that they began with; a change of the settings is for those after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import logs
from broker.pending import Silent
from protocol.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from broker.current_settings import CurrentSettings
    from broker.handlers.context import Context
    from config import BrokerSettings
    from protocol.connection import Request, Routes


class Rehearsals:
    """Belongs to the loop."""

    def __init__(self, undressed: Routes, settings: CurrentSettings) -> None:
        """`undressed` are the routes of all that is served."""
        self._undressed = undressed
        self._settings = settings
        self._made_of: BrokerSettings | None = None
        self._by_listener: dict[str, Routes] = {}

    def routes_of(self, listener: str) -> Routes:
        """What is served on the listener of this name to connections that begin now."""
        settings = self._settings.current
        if settings is not self._made_of:
            self._made_of = settings
            self._by_listener = {}
        routes = self._by_listener.get(listener)
        if routes is None:
            routes = self._by_listener[listener] = self._made(settings, listener)
        return routes

    def _made(self, settings: BrokerSettings, listener: str) -> Routes:
        name, by_client = settings.as_version_on(listener), settings.as_version_client_ids
        if name is None and not by_client:
            return self._undressed
        from protocol.rehearsal import RehearsedRoutes, RoutesByClient  # few brokers rehearse
        from protocol.releases import Release

        routes = self._undressed
        if name is not None:
            routes = RehearsedRoutes(self._undressed, Release(name), unanswered=_unanswered)
        logs.warning(
            "clients are answered as by another release, not by all that is served here",
            listener=listener,
            as_version=name or "",
            client_ids=",".join(f"{one}:{release}" for one, release in by_client),
        )
        if not by_client:
            return routes
        return RoutesByClient(
            routes,
            {
                one: RehearsedRoutes(self._undressed, Release(name), unanswered=_unanswered)
                for one, name in by_client
            },
        )


def _unanswered(_request: Request, _ctx: Context) -> Silent:
    return Silent(ProduceResponse(responses=[]))
