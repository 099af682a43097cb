"""A JSON Web Key Set over http(s), within a bound of bytes and one of time.

Timeouts of sockets begin anew with each byte: an endpoint that sends one every few seconds would
hold us for hours. So every read gets what is left of the whole time.
"""

from __future__ import annotations

import io
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, cast
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, build_opener

from broker.security.sasl.jwks import FETCH_TIMEOUT_SECONDS, BadKeySet, bounded

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from urllib.request import Request

PIECE_BYTES = 1 << 16


def fetched(url: str, monotonic_ms: Callable[[], float]) -> bytes:
    """What an endpoint answers within the time. It may not send us elsewhere: who says where the
    keys are says who is let in. Raises BadKeySet."""
    end_ms = monotonic_ms() + FETCH_TIMEOUT_SECONDS * 1000

    def seconds_left() -> float:
        left_ms = end_ms - monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError(f"it took longer than {FETCH_TIMEOUT_SECONDS:g} s")
        return left_ms / 1000

    opener = build_opener(_NoRedirects, _Http(seconds_left), _Https(seconds_left))
    data = bytearray()
    try:
        with opener.open(url, timeout=FETCH_TIMEOUT_SECONDS) as answer:
            while piece := answer.read1(PIECE_BYTES):
                data += piece
                bounded(data)
    except (HTTPException, ValueError) as error:
        raise BadKeySet(f"{url}: {type(error).__name__}") from None
    except OSError as error:
        raise BadKeySet(f"{url}: {error}") from None
    return bytes(data)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_request: object, **_more: object) -> None:
        return None


class _Http(HTTPHandler):
    def __init__(self, seconds_left: Callable[[], float]) -> None:
        super().__init__()
        self._seconds_left = seconds_left

    def http_open(self, request: Request) -> HTTPResponse:
        return self.do_open(_connects(HTTPConnection, self._seconds_left), request)


class _Https(HTTPSHandler):
    def __init__(self, seconds_left: Callable[[], float]) -> None:
        super().__init__()
        self._seconds_left = seconds_left

    def https_open(self, request: Request) -> HTTPResponse:
        return self.do_open(_connects(HTTPSConnection, self._seconds_left), request)


def _connects(kind: type[HTTPConnection], seconds_left: Callable[[], float]) -> Any:
    """What makes connections whose answers are read while there is time."""

    def answer(connected: socket.socket, *given: Any, **more: Any) -> HTTPResponse:
        return HTTPResponse(cast("socket.socket", _Answer(connected, seconds_left)), *given, **more)

    def connection(host: str, **how: Any) -> HTTPConnection:
        made = kind(host, **how)
        made.response_class = cast("type[HTTPResponse]", answer)
        return made

    return connection


class _Answer:
    """A socket, as far as an HTTPResponse needs one."""

    def __init__(self, connected: socket.socket, seconds_left: Callable[[], float]) -> None:
        self._socket = connected
        self._seconds_left = seconds_left

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reads(self._socket, self._seconds_left))


class _Reads(io.RawIOBase):
    """The bytes of a socket while there is time; then TimeoutError."""

    def __init__(self, connected: socket.socket, seconds_left: Callable[[], float]) -> None:
        self._socket = connected
        self._bytes = connected.makefile("rb", buffering=0)  # keeps the socket open
        self._seconds_left = seconds_left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(self._seconds_left())
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()
