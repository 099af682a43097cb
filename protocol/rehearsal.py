"""Serving clients as another release of Apache Kafka would: the same handlers behind its ranges.

What a release answers and this side does not is not served, and what it does not know is refused as
it refuses it. The tables are made when a listener is opened; requests find their routes in them as
they do without.

A client id may have a release of its own. It stands in the header of each request, so a connection
of such a listener looks there before a request is begun with.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from protocol.connection import Route, Routes, Served, ServerConnection, UnservedRequest
from protocol.errors import Malformed
from protocol.registry import NEVER_FLEXIBLE, Api

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from protocol.connection import Request
    from protocol.releases import Release

CLIENT_ID_SIZE = Struct(">h")
_UNKNOWN = Api(-1, "unknown", "", 0, 0, NEVER_FLEXIBLE)
_SIZE_AT = 12
"""Where it begins in a frame: behind the length, key, version and correlation id."""


class RehearsedRoutes(Routes):
    """The routes of a release: those of `undressed` within its ranges."""

    def __init__(
        self, undressed: Routes, release: Release, *, unanswered: Any = None, when: str = ""
    ) -> None:
        """`unanswered` is the handler of a request that meets silence; without one such a request
        closes the connection."""
        served = {
            key: within
            for key, here in undressed.served.items()
            if (within := _within(here, release)) is not None
        }
        super().__init__(served, when=when or f"by Apache Kafka {release.name} (as.version)")
        self.release = self._as = release
        self._undressed = undressed
        self._unanswered = unanswered if release.leaves_unanswered else None

    def find(self, key: int, version: int) -> Route:
        """The route, which is that of the undressed table: what is counted of it is counted there.
        Raises UnservedRequest."""
        here = self.served.get(key)
        if here is not None and here.min_version <= version <= here.max_version:
            route = self._undressed_route(key, version)
            self._routes[key << 16 | version] = route
            return route
        # Not kept: a client may ask for any number of these.
        if here is not None and self._as.reads_as_newest(key):
            route = self._undressed_route(key, here.max_version)
            return route if self._unanswered is None else _OldRoute(route, self._unanswered)
        known = self._undressed.served.get(key)
        if self._unanswered is not None:
            return _UnansweredRoute(known.api if known else _UNKNOWN, self._unanswered)
        raise UnservedRequest(key, version, known.api if known else None, self.when)

    def _undressed_route(self, key: int, version: int) -> Route:
        undressed = self._undressed
        return undressed.get(key << 16 | version) or undressed.find(key, version)

    def advertised(self) -> list[tuple[int, int, int]]:
        """The API, its lowest and its highest version, as the release would tell them."""
        told = self._as.advertised
        return [
            (key, min(low, told[key].lowest), high)
            for key, low, high in super().advertised()
            if key in told
        ]

    def only(self, keys: Iterable[int], *, when: str) -> Routes:
        undressed = self._undressed.only(keys, when=when)
        return RehearsedRoutes(undressed, self._as, unanswered=self._unanswered, when=when)

    def token(self) -> Route:
        return self._undressed.token()


class _UnansweredRoute(Route):
    """The route of a request that nobody reads, and nobody answers."""

    def __init__(self, api: Api, handler: Any) -> None:
        self.api = api
        self.handler = handler
        self.version = self.requests = self.next_timed = 0
        self.flexible = False
        self.read_single = None
        self.decode = _unread


def _unread(_data: bytearray, _position: int, end: int) -> tuple[Any, int]:
    return None, end


class _OldRoute(Route):
    """A route on which what cannot be read meets silence too."""

    def __init__(self, route: Route, unanswered: Any) -> None:
        for name in Route.__slots__:
            if hasattr(route, name):
                setattr(self, name, getattr(route, name))
        self._route, self._unanswered = route, unanswered
        self.decode = self._decode
        self.handler = self._handle

    def _decode(self, data: bytearray, position: int, end: int) -> tuple[Any, int]:
        try:
            return self._route.decode(data, position, end)
        except Malformed:
            return None, end

    def _handle(self, request: Request, ctx: Any) -> Any:
        handler = self._unanswered if request.message is None else self._route.handler
        return handler(request, ctx)


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
