"""One blocking connection to a broker: a request, then its answer.

The first request asks for the broker's versions (KIP-35, so Kafka 0.10 or later); every other one
goes out in the newest version that both sides know.
"""

from __future__ import annotations

import socket
from struct import Struct
from typing import TYPE_CHECKING, TypeVar

from broker.clock import monotonic_s
from protocol.errors import ErrorCode, Malformed
from protocol.header import API_VERSIONS_KEY
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.primitives import skip_tags
from protocol.registry import APIS
from protocol.schema import Message

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Answer = TypeVar("Answer", bound=Message)

CLIENT_ID = b"triglot-groups"
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""A length beyond it is no answer to anything that we ask, but another protocol's first bytes."""
RECEIVE_BYTES = 1 << 20

_FRAME = Struct(">ihhih")
"""Length, key, version, correlation id, length of the client id."""
_CORRELATION_ID = Struct(">i")
_CODE = Struct(">h")
# Every broker that knows ApiVersions at all reads this one, or says so in the answer of version 0.
_FIRST_ASKED = 3


class NotDone(Exception):
    """Why a command could not be done, in one sentence for the user."""


class Connection:
    """Raises NotDone from every method: who was asked, and what was wrong with the answer."""

    def __init__(self, host: str, port: int, *, timeout_s: float) -> None:
        """Connect and ask for versions. `timeout_s` bounds that, and each request, in seconds."""
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._timeout_s = timeout_s
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise NotDone(f"cannot connect to {self.address}: {_reason(error)}") from None
        try:
            self._versions = self._ask_versions()
        except BaseException:
            self.close()
            raise

    def call(
        self,
        request: Message,
        answer: type[Answer],
        *,
        oldest: int = 0,
        newest: int | None = None,
    ) -> Answer:
        """Send it and return the answer, in the newest version from `oldest` to `newest` that the
        broker and we know; without `newest` up to the newest we know."""
        version = self._version(type(request).key, oldest, newest)
        frame, position = self._exchange(request, version)
        try:
            decoded, end = answer.decoder(version)(frame, position, len(frame))
        except Malformed as error:
            raise NotDone(f"{self.address} sent a malformed answer: {error}") from None
        if end != len(frame):
            raise NotDone(f"{self.address} sent {len(frame) - end} bytes after its answer")
        return decoded

    def newest(self, key: int) -> int | None:
        """The newest version of an API that the broker and we know; None if there is none."""
        api = APIS[key]
        first, last = self._versions.get(key, (0, -1))
        found = min(api.max_version, last)
        return found if found >= max(api.min_version, first) else None

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _version(self, key: int, oldest: int, newest: int | None) -> int:
        api = APIS[key]
        wanted = (max(api.min_version, oldest), api.max_version if newest is None else newest)
        first, last = self._versions.get(key, (0, -1))
        version = min(wanted[1], last)
        if version < max(wanted[0], first):
            found = f"versions {first} to {last}" if last >= 0 else "no version"
            raise NotDone(
                f"{self.address} speaks {found} of {api.name}, "
                f"wanted one of {wanted[0]} to {wanted[1]}"
            )
        return version

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(
            client_software_name=CLIENT_ID.decode(), client_software_version="1"
        )
        frame, position = self._exchange(request, _FIRST_ASKED, handshake=True)
        version = _FIRST_ASKED
        if frame[position : position + 2] == _CODE.pack(ErrorCode.UNSUPPORTED_VERSION):
            version = 0
            frame, position = self._exchange(request, version, handshake=True)
        try:
            decode = ApiVersionsResponse.decoder(version)
            answer, _ = decode(frame, position, len(frame))
        except Malformed:
            raise self._no_broker() from None
        if answer.error_code:
            raise NotDone(f"{self.address} does not tell its versions: {said(answer.error_code)}")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _exchange(
        self, request: Message, version: int, *, handshake: bool = False
    ) -> tuple[bytes, int]:
        """The frame of the answer, and the position of its body."""
        api = APIS[type(request).key]
        flexible = version >= api.first_flexible
        self._correlation_id += 1
        body = CLIENT_ID + b"\0" * flexible + request.encode(version)
        head = _FRAME.pack(
            _FRAME.size - 4 + len(body), api.key, version, self._correlation_id, len(CLIENT_ID)
        )
        deadline = monotonic_s() + self._timeout_s
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(head + body)
            size = int.from_bytes(self._receive(4, deadline), signed=True)
            if not _CORRELATION_ID.size <= size <= MAX_ANSWER_BYTES:
                raise self._no_broker()
            frame = self._receive(size, deadline)
        except TimeoutError:
            raise NotDone(
                f"no answer from {self.address} to {api.name} within {self._timeout_s:g} s"
            ) from None
        except OSError as error:
            if handshake:
                raise self._no_broker() from None
            raise NotDone(
                f"lost the connection to {self.address} at {api.name}: {_reason(error)}"
            ) from None
        if _CORRELATION_ID.unpack_from(frame)[0] != self._correlation_id:
            raise self._no_broker()
        position = _CORRELATION_ID.size
        if flexible and api.key != API_VERSIONS_KEY:
            try:
                position = skip_tags(frame, position, size)
            except Malformed:
                raise self._no_broker() from None
        return frame, position

    def _receive(self, size: int, deadline: float) -> bytes:
        """So many bytes. Memory grows with what arrives, not with what was announced."""
        data = bytearray()
        while len(data) < size:
            left = deadline - monotonic_s()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            piece = self._socket.recv(min(size - len(data), RECEIVE_BYTES))
            if not piece:
                raise ConnectionError("it was closed by the other side")
            data += piece
        return bytes(data)

    def _no_broker(self) -> NotDone:
        return NotDone(
            f"what answers at {self.address} is not a Kafka broker that can be asked "
            "(one from 0.10 on, without TLS or authentication)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def said(code: int) -> str:
    """An error code for people: its name, its number and what it means."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"error {code}, which is not known here"
    return f"{known.name} ({code}): {known.meaning}"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
