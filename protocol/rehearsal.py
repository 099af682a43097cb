"""Serving clients as another release of Apache Kafka would: the same handlers behind its ranges.

What a release answers and this side does not is not served, and what it does not know is refused as
it refuses it. The tables are made when a listener is opened; requests find their routes in them as
they do without.

A client id may have a release of its own. It stands in the header of each request, so a connection
of such a listener looks there before a request is begun with.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from protocol.connection import Routes, Served, ServerConnection, UnservedRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from protocol.connection import Request, Route
    from protocol.releases import Release

CLIENT_ID_SIZE = Struct(">h")
_SIZE_AT = 12
"""Where it begins in a frame: behind the length, key, version and correlation id."""


class RehearsedRoutes(Routes):
    """The routes of a release: those of `undressed` within its ranges."""

    def __init__(self, undressed: Routes, release: Release, *, when: str = "") -> None:
        served = {
            key: within
            for key, here in undressed.served.items()
            if (within := _within(here, release)) is not None
        }
        super().__init__(served, when=when or f"by Apache Kafka {release.name} (as.version)")
        self.release = self._as = release
        self._undressed = undressed

    def find(self, key: int, version: int) -> Route:
        """The route, which is that of the undressed table: what is counted of it is counted there.
        Raises UnservedRequest."""
        here = self.served.get(key)
        if here is None or not here.min_version <= version <= here.max_version:
            known = self._undressed.served.get(key)
            raise UnservedRequest(key, version, known.api if known else None, self.when)
        undressed = self._undressed
        route = undressed.get(key << 16 | version) or undressed.find(key, version)
        self._routes[key << 16 | version] = route
        return route

    def advertised(self) -> list[tuple[int, int, int]]:
        """The API, its lowest and its highest version, as the release would tell them."""
        told = self._as.advertised
        return [
            (key, min(low, told[key].lowest), high)
            for key, low, high in super().advertised()
            if key in told
        ]

    def only(self, keys: Iterable[int], *, when: str) -> Routes:
        return RehearsedRoutes(self._undressed.only(keys, when=when), self._as, when=when)

    def token(self) -> Route:
        return self._undressed.token()


def _within(here: Served, release: Release) -> Served | None:
    """What is served of an API in a release; None if nothing is."""
    there = release.answered(here.api.key)
    if there is None:
        return None
    lowest, highest = (
        max(here.min_version, there.lowest),
        min(here.max_version, there.highest),
    )
    return Served(here.api, here.handler, lowest, highest) if lowest <= highest else None


class RoutesByClient(Routes):
    """The routes of `others`, and for some client ids those of other releases."""

    def __init__(self, others: Routes, by_client: Mapping[str, Routes]) -> None:
        super().__init__(others.served, when=others.when)
        self.release = others.release
        self._others = others
        self._by_client = by_client

    def of(self, client_id: str | None) -> Routes:
        """Those of a client."""
        return self._by_client.get(client_id or "", self._others)

    def connection(self, *, max_frame_bytes: int) -> ServerConnection:
        return ConnectionByClient(self, max_frame_bytes=max_frame_bytes)

    def only(self, keys: Iterable[int], *, when: str) -> Routes:
        keys = tuple(keys)
        by_client = {one: routes.only(keys, when=when) for one, routes in self._by_client.items()}
        return RoutesByClient(self._others.only(keys, when=when), by_client)

    def token(self) -> Route:
        return self._others.token()


class ConnectionByClient(ServerConnection):
    """A conversation whose routes depend on the client id of each request."""

    __slots__ = ("_all",)

    def __init__(self, routes: RoutesByClient, *, max_frame_bytes: int) -> None:
        super().__init__(routes.of(None), max_frame_bytes=max_frame_bytes)
        self._all: Routes = routes

    def serve(self, routes: Routes, *, max_frame_bytes: int) -> None:
        """Serve these from the next request on, which may have so many bytes."""
        self._all = routes
        super().serve(routes.of(self._client_id), max_frame_bytes=max_frame_bytes)

    def next_request(self) -> Request | None:
        """As of any connection, by the routes of the client that has sent it. Raises Malformed."""
        client_id = self._next_client_id()
        self._routes = self._all.of(client_id)
        request = super().next_request()
        if request is not None and request.message is None:
            request.client_id = client_id  # of a version that is not known
        return request

    def _next_client_id(self) -> str | None:
        """That in the next frame, as far as it has come."""
        frames = self._frames
        at = frames.start + _SIZE_AT
        if frames.end < at + CLIENT_ID_SIZE.size:
            return None
        size: int = CLIENT_ID_SIZE.unpack_from(frames.data, at)[0]
        at += CLIENT_ID_SIZE.size
        if size < 0 or frames.end < at + size:
            return None
        return frames.data[at : at + size].decode("utf-8", "replace")
