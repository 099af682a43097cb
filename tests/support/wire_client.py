"""A Kafka client of the smallest kind: one blocking socket, our own declarations of messages.

    with WireClient("127.0.0.1", 9092) as client:
        answer = client.call(MetadataRequest(topics=None), 12)

For tests of handlers over a real socket, and for what no real client would send.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any

from protocol.registry import APIS

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from protocol.registry import Api
    from protocol.schema import Message

#: No test wants a larger answer; a size beyond it means that the stream is out of step.
MAX_FRAME_BYTES = 256 * 1024 * 1024

API_VERSIONS_KEY = 18


class ConnectionClosed(Exception):
    """The server closed the connection, or reset it, where an answer was expected."""


class WireClient:
    """One connection. Correlation ids count up from 1, and answers must come with theirs."""

    def __init__(
        self, host: str, port: int, *, client_id: str | None = "wire", timeout_s: float = 10.0
    ) -> None:
        self.client_id = client_id
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_correlation_id = 0

    def call(self, request: Message, version: int | None = None) -> Any:
        """Send it and return the answer. Without a version the newest that we declare is used."""
        api, version = _api(request, version)
        return self.receive(api, version, self.send(request, version))

    def send(self, request: Message, version: int | None = None) -> int:
        """Send it and do not wait; its correlation id. For pipelining, and for acks=0."""
        self._last_correlation_id += 1
        self.send_raw(self.frame(request, version, self._last_correlation_id))
        return self._last_correlation_id

    def receive(self, api: Api, version: int, correlation_id: int) -> Any:
        """The next answer, which must be the one to this request, to its last byte."""
        frame = self.recv_frame()
        found = struct.unpack_from(">i", frame)[0]
        assert found == correlation_id, f"answer to {found}, wanted {correlation_id}"
        position = 4
        if version >= api.first_flexible and api.key != API_VERSIONS_KEY:
            assert frame[position] == 0, "tags in the response header"
            position += 1
        return api.response.decode(version, frame[position:])

    def frame(self, request: Message, version: int | None = None, correlation_id: int = 1) -> bytes:
        """The whole frame of a request with its length, to be sent or to be spoiled."""
        api, version = _api(request, version)
        header = struct.pack(">hhi", api.key, version, correlation_id)
        if self.client_id is None:
            header += struct.pack(">h", -1)
        else:
            client_id = self.client_id.encode()
            header += struct.pack(">h", len(client_id)) + client_id
        if version >= api.first_flexible:
            header += b"\x00"
        body = request.encode(version)
        return struct.pack(">i", len(header) + len(body)) + header + body

    def send_raw(self, data: bytes) -> None:
        """Bytes as they are. Raises `ConnectionClosed` when the server does not take them."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed(str(error)) from None

    def recv_frame(self) -> bytes:
        """The next frame without its length. Raises `ConnectionClosed`, or TimeoutError."""
        size = struct.unpack(">i", self._recv_exactly(4))[0]
        assert 4 <= size <= MAX_FRAME_BYTES, f"a frame of {size} bytes"
        return self._recv_exactly(size)

    def closed_by_server(self) -> bool:
        """Whether the server ends the connection, waiting for it; nothing more may come."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        self.socket.close()

    def _recv_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError as error:
                raise ConnectionClosed(str(error)) from None
            if not piece:
                raise ConnectionClosed(f"after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _api(request: Message, version: int | None) -> tuple[Api, int]:
    api = APIS[type(request).key]
    return api, api.max_version if version is None else version
