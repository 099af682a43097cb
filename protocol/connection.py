"""One client's conversation, without any I/O: bytes in, requests out; responses in, buffers out.

Kafka promises responses in the order of the requests. Handlers may finish in any order; a response
that is early is kept until those before it have gone. Unanswered requests are kept in
one queue, so the order can't be lost.

What closes a connection is raised, never returned: `Malformed` when the bytes are not Kafka's, and
its subclass `UnservedRequest` for a key or a version that is not served, which no layout of an
answer could tell the client. ApiVersions of a version not known here is the one exception: it comes
out as a request without a message, to be answered in version 0 (KIP-511).
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any

from protocol import single_fetch, single_produce
from protocol.errors import Malformed
from protocol.frame import LENGTH, FrameBuffer
from protocol.header import (
    API_VERSIONS_KEY,
    REQUEST_START,
    UNKNOWN_VERSION_START,
)
from protocol.primitives import skip_tags
from protocol.quirks import is_known_trailer
from protocol.single_fetch import SingleFetch, SingleRecords
from protocol.single_produce import SingleAnswer, SingleProduce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from protocol.registry import Api
    from protocol.releases import Release
    from protocol.schema import Message

    Response = Message | SingleAnswer | SingleRecords | bytes

try:
    from protocol._single import read_request, write_answer
except ImportError:  # not compiled here: slower, and the same
    _read_request = _write_answer = None
else:
    _read_request, _write_answer = read_request, write_answer

PRODUCE_KEY = 0
FETCH_KEY = 1
SASL_AUTHENTICATE_KEY = 36

RESPONSE_START = Struct(">ii")
"""Length of what follows, correlation id."""


class UnservedRequest(Malformed):
    """A key or a version that is not served; the connection is closed without an answer."""

    def __init__(self, key: int, version: int, known: Api | None, when: str) -> None:
        what = f"api key {key} version {version}" if known is None else f"{known.name} v{version}"
        super().__init__(f"{what} is not served {when or 'here'}")
        self.key = key
        self.version = version
        self.api_name = f"api key {key}" if known is None else known.name
        self.client_id: str | None = None
        """Of whoever has asked for it, if that could be read."""


class Served:
    """An API as this side serves it: the versions, and whatever the handler table keeps with it."""

    __slots__ = ("api", "handler", "max_version", "min_version")

    def __init__(self, api: Api, handler: Any, min_version: int, max_version: int) -> None:
        self.api = api
        self.handler = handler
        self.min_version = min_version
        self.max_version = max_version


class Route:
    """Everything that follows from one (key, version): compiled once, looked up per request."""

    __slots__ = (
        "api",
        "decode",
        "encode",
        "flexible",
        "handler",
        "next_timed",
        "read_single",
        "requests",
        "response_start",
        "version",
        "write_single",
    )

    def __init__(self, served: Served, version: int) -> None:
        self.requests = 0
        """Count of requests, kept by the code that handles them."""
        self.next_timed = 0
        """The number of the next request that this code looks at more closely."""
        api = served.api
        self.api = api
        self.version = version
        self.handler = served.handler
        self.decode: Callable[[bytearray, int, int], tuple[Message, int]] = api.request.decoder(
            version
        )
        self.encode: Callable[[Message, bytearray, list[tuple[int, Any]]], None] = (
            api.response.encoder(version)
        )
        self.read_single: Callable[[bytearray, int, int], Any] | None = None
        self.write_single: Callable[[Any, bytearray], bytes]
        if api.key == PRODUCE_KEY and version >= single_produce.FIRST_VERSION:
            self.read_single = single_produce.reader(version)
            self.write_single = single_produce.writer(version)
        elif api.key == FETCH_KEY and version >= single_fetch.FIRST_VERSION:
            self.read_single = single_fetch.reader(version)
            self.write_single = single_fetch.writer(version)
        self.flexible = version >= api.first_flexible
        tagged = self.flexible and api.key != API_VERSIONS_KEY
        self.response_start = bytes(9 if tagged else 8)


class Routes:
    """The routes of one set of served APIs, made at their first use and shared by connections.

    `when` says why others are not served, where that is not for good ("before authentication").
    `protocol.rehearsal` has those of other releases.
    """

    release: Release | None = None
    """The release of Apache Kafka whose ranges these are, None for all that is served here."""

    def __init__(self, served: Mapping[int, Served], *, when: str = "") -> None:
        self.served = served
        self.when = when
        self._routes: dict[int, Route] = {}
        self.get = self._routes.get

    def used(self) -> list[Route]:
        """Every route that was ever asked for, by key and version."""
        return [self._routes[number] for number in sorted(self._routes)]

    def find(self, key: int, version: int) -> Route:
        """The route, compiled if this is its first use. Raises UnservedRequest."""
        served = self.served.get(key)
        if served is None or not served.min_version <= version <= served.max_version:
            raise UnservedRequest(key, version, served.api if served else None, self.when)
        route = self._routes[key << 16 | version] = Route(served, version)
        return route

    def advertised(self) -> list[tuple[int, int, int]]:
        """What ApiVersions says: a key, its lowest and its highest version."""
        return [(key, one.min_version, one.max_version) for key, one in sorted(self.served.items())]

    def of(self, client_id: str | None) -> Routes:
        """Those of a client."""
        return self

    def only(self, keys: Iterable[int], *, when: str) -> Routes:
        """Those of these APIs alone."""
        return Routes({key: self.served[key] for key in keys if key in self.served}, when=when)

    def token(self) -> Route:
        """The route of tokens without a header, whatever else is served."""
        return self.get(SASL_AUTHENTICATE_KEY << 16) or self.find(SASL_AUTHENTICATE_KEY, 0)

    def connection(self, *, max_frame_bytes: int) -> ServerConnection:
        """A new conversation by these routes."""
        return ServerConnection(self, max_frame_bytes=max_frame_bytes)


class Request:
    """One request, whole and decoded. `message` is a SingleProduce or a SingleFetch for a
    request of that shape, and None only for an ApiVersions request of a version that is not known
    here (`version` is then what the client asked for).

    Views in `message` (records) are valid until the connection's next `room`.
    """

    __slots__ = (
        "answered",
        "client_id",
        "correlation_id",
        "message",
        "response",
        "route",
        "throttle_time_ms",
        "worked_s",
    )

    throttle_time_ms: int
    """How long its client has to wait for a quota; unset while there is no quota."""
    worked_s: float
    """What was worked for it after its first result, on the loop and on threads; unset if nothing
    was."""

    def __init__(
        self, route: Route, correlation_id: int, client_id: str | None, message: Any
    ) -> None:
        self.route = route
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.message = message
        self.response: Response | None = None
        self.answered = False

    @property
    def version(self) -> int:
        return self.route.version

    def general_message(self) -> Any:
        """The message as the compiled decoder reads it, from now on in `message`."""
        message = self.message
        if message.__class__ is SingleProduce or message.__class__ is SingleFetch:
            self.message = message.general(self.route.version)
        return self.message


class ServerConnection:
    """The server's side of one connection.

    max_frame_bytes bounds a request (`socket.request.max.bytes`); what has been received and not
    handed out is bounded by the caller, who stops reading (see `buffered` and `unanswered`).
    """

    __slots__ = (
        "_client_id",
        "_client_id_bytes",
        "_frames",
        "_out",
        "_ready",
        "_routes",
        "_unanswered",
        "received",
        "room",
        "trailing_bytes",
    )

    def __init__(self, routes: Routes, *, max_frame_bytes: int) -> None:
        self._routes = routes
        self._frames = FrameBuffer(max_frame_bytes)
        self._unanswered: deque[Request] = deque()
        self._out = bytearray()
        self._ready: list[Any] = []
        self._client_id: str | None = None
        self._client_id_bytes: bytearray | bytes | None = None
        self.trailing_bytes = 0
        """Bytes found after the last field of requests, but for those that a client is known to
        send (`protocol.quirks`); a mismatch of codecs somewhere."""
        self.room = self._frames.room
        self.received = self._frames.received

    def serve(self, routes: Routes, *, max_frame_bytes: int) -> None:
        """Serve these from the next request on, which may have so many bytes."""
        self._routes = routes
        self._frames.max_frame_bytes = max_frame_bytes
        self._frames.min_frame_bytes = 1

    @property
    def buffered(self) -> int:
        """Bytes received and not yet handed out as requests."""
        frames = self._frames
        return frames.end - frames.start

    @property
    def next_byte(self) -> int | None:
        """The first byte of the next frame, None if it has not come."""
        frames = self._frames
        at = frames.start + LENGTH.size
        return frames.data[at] if at < frames.end else None

    @property
    def unanswered(self) -> int:
        """Requests handed out whose responses have not been put out yet."""
        return len(self._unanswered)

    def shrink(self) -> None:
        """Give back memory that a busy time left behind."""
        self._frames.shrink()

    def receive(self, data: bytes) -> list[Request]:
        """Take these bytes and give every request they complete, oldest first.

        For callers without a buffer of their own to fill; views in all but the last request may be
        stale when more than one read fits in `data`.
        """
        requests = []
        view = memoryview(data)
        while view:
            room = self.room()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            view = view[count:]
            self.received(count)
            while (request := self.next_request()) is not None:
                requests.append(request)
        return requests

    @property
    def held_bytes(self) -> int:
        """Memory of the receive buffer."""
        return len(self._frames.data)

    def next_request(self) -> Request | None:
        """The next whole request, or None if more bytes must come first.

        Raises Malformed; the connection is of no use afterwards, except for what it still owes.
        """
        frames = self._frames
        if _read_request is not None:
            found = _read_request(frames.data, frames.start, frames.end, frames.max_frame_bytes)
            if found is not None:
                request = self._single(found)
                if request is not None:
                    return request
        frame = frames.next_frame()
        if frame is None:
            return None
        position, end = frame
        data = frames.data
        if end - position < 10:
            return self._short_request(data, position, end)
        key_and_version, correlation_id, id_size = REQUEST_START.unpack_from(data, position)
        route = self._routes.get(key_and_version)
        if route is None:
            key, version, _ = UNKNOWN_VERSION_START.unpack_from(data, position)
            try:
                route = self._routes.find(key, version)
            except UnservedRequest as error:
                if key != API_VERSIONS_KEY:
                    error.client_id = _client_id(data[position + 10 : end], id_size)
                    raise
                return self._unknown_version(correlation_id)
        position += 10
        if id_size >= 0:
            stop = position + id_size
            if stop > end:
                raise Malformed(f"client id of {id_size} bytes, {end - position} left in the frame")
            raw = data[position:stop]
            if raw != self._client_id_bytes:
                self._client_id_bytes = raw
                self._client_id = raw.decode("utf-8", "replace")
            client_id = self._client_id
            position = stop
        else:
            client_id = None
        if route.flexible:
            if position < end and data[position] == 0:
                position += 1
            else:
                position = skip_tags(data, position, end)
        message: Any = None
        if route.read_single is not None:
            message = route.read_single(data, position, end)
        if message is None:
            message, stop = route.decode(data, position, end)
            if stop != end and not is_known_trailer(
                route.api.key, route.version, bytes(data[stop:end])
            ):
                self.trailing_bytes += end - stop
        request = Request(route, correlation_id, client_id, message)
        self._unanswered.append(request)
        return request

    def next_token(self) -> Request | None:
        """The next frame as a token of SASL without a header, which is what follows SaslHandshake
        of version 0: a request whose message and answer are bytes. Raises Malformed."""
        self._frames.min_frame_bytes = 0
        frame = self._frames.next_frame()
        if frame is None:
            return None
        request = Request(
            self._routes.token(), 0, None, bytes(self._frames.data[frame[0] : frame[1]])
        )
        self._unanswered.append(request)
        return request

    def _single(
        self, found: tuple[int, int, int, bytes, int, bytes, int, int, int, str | None]
    ) -> Request | None:
        """The request of one batch that `read_request` found; None if anything of it is new."""
        end, number, correlation_id, client_id, acks, topic, index, start, stop, of = found
        route = self._routes.get(number)
        if route is None or client_id != self._client_id_bytes:
            return None
        records = self._frames.take(end)[start:stop]
        request = Request(
            route, correlation_id, self._client_id, SingleProduce(acks, topic, index, records, of)
        )
        self._unanswered.append(request)
        return request

    def respond(
        self, request: Request, response: Message | SingleAnswer | SingleRecords | bytes | None
    ) -> None:
        """Answer a request. None means that there is no answer (Produce with acks=0)."""
        request.response = response
        request.answered = True
        unanswered = self._unanswered
        while unanswered and unanswered[0].answered:
            head = unanswered.popleft()
            if head.response is not None:
                self._encode(head, head.response)
                head.response = None

    def outgoing(self) -> list[Any]:
        """Bytes and file slices, as the responses held them, that may be sent now, in order."""
        ready = self._ready
        if self._out:
            ready.append(self._out)
            self._out = bytearray()
        if ready:
            self._ready = []
        return ready

    def _encode(self, request: Request, response: Any) -> None:
        route = request.route
        out = self._out
        if response.__class__ is SingleAnswer and _write_answer is not None:
            _write_answer(
                out,
                route.version,
                request.correlation_id,
                response.topic,
                response.index,
                response.error_code,
                response.base_offset,
                response.log_append_time_ms,
                response.log_start_offset,
            )
            return
        if response.__class__ is bytes:  # a token (see next_token)
            out += len(response).to_bytes(4, "big") + response
            return
        start = len(out)
        out += route.response_start
        if response.__class__ is SingleAnswer:
            route.write_single(response, out)
            RESPONSE_START.pack_into(out, start, len(out) - start - 4, request.correlation_id)
            return
        if response.__class__ is SingleRecords:
            tail = route.write_single(response, out)
            size = len(out) - start - 4 + response.records.size + len(tail)
            RESPONSE_START.pack_into(out, start, size, request.correlation_id)
            self._ready += (out, response.records)
            self._out = bytearray(tail)
            return
        slices: list[tuple[int, Any]] = []
        route.encode(response, out, slices)
        size = len(out) - start - 4
        if not slices:
            RESPONSE_START.pack_into(out, start, size, request.correlation_id)
            return
        for _, file_slice in slices:
            size += file_slice.size
        RESPONSE_START.pack_into(out, start, size, request.correlation_id)
        position = 0
        for at, file_slice in slices:
            if at > position:
                self._ready.append(out[position:at])
            self._ready.append(file_slice)
            position = at
        self._out = out[position:]

    def _short_request(self, data: bytearray, position: int, end: int) -> Request:
        """A frame too short for a header: only ApiVersions of an unknown version may be that."""
        if end - position >= UNKNOWN_VERSION_START.size:
            key, version, correlation_id = UNKNOWN_VERSION_START.unpack_from(data, position)
            served = self._routes.served.get(key)
            if (
                key == API_VERSIONS_KEY
                and served is not None
                and not served.min_version <= version <= served.max_version
            ):
                return self._unknown_version(correlation_id)
        raise Malformed(f"a frame of {end - position} bytes, too short for a request header")

    def _unknown_version(self, correlation_id: int) -> Request:
        key_and_version = API_VERSIONS_KEY << 16
        route = self._routes.get(key_and_version) or self._routes.find(API_VERSIONS_KEY, 0)
        request = Request(route, correlation_id, None, None)
        self._unanswered.append(request)
        return request


def _client_id(data: bytearray, size: int) -> str | None:
    """The client id at the beginning of these bytes, if they hold all of it."""
    return data[:size].decode("utf-8", "replace") if 0 <= size <= len(data) else None
