"""A broker that says what a test wants it to, over a real socket.

    with ScriptedBroker({3: lambda request: MetadataResponse(...)}) as broker:
        Connection(broker.host, broker.port, timeout_s=5)

For brokers of other ages and moods than those that can be started.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

from protocol.messages.api_versions import ApiVersionsResponse
from protocol.registry import APIS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from protocol.schema import Message

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35


class RawServer:
    """Accepts connections, and leaves each to `serve`, which gets the socket."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()[:2]
        self.bootstrap = f"{self.host}:{self.port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._ended = threading.Event()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._served, args=(connection,), daemon=True).start()

    def _served(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._serve(connection)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing alone does not wake a thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


class ScriptedBroker(RawServer):
    """Speaks `versions`, (first, last) by API key, and answers by `script`: by key, the answer of a
    request. `asked` has (key, version, request) of all but ApiVersions."""

    def __init__(
        self,
        script: Mapping[int, Callable[[Any], Message]],
        versions: Mapping[int, tuple[int, int]],
        *,
        api_versions: int = 3,
    ) -> None:
        super().__init__(self._answer_all)
        self.asked: list[tuple[int, int, Message]] = []
        self._script = script
        self._versions = {**versions, API_VERSIONS: (0, api_versions)}

    def _answer_all(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        with stream:
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head))
                answer = self._answer(frame)
                connection.sendall(len(answer).to_bytes(4) + answer)

    def _answer(self, frame: bytes) -> bytes:
        key: int
        version: int
        key, version, _, size = struct.unpack_from(">hhih", frame)
        correlation_id = bytes(frame[4:8])
        if key == API_VERSIONS:
            return correlation_id + self._versions_answer(version)
        first, last = self._versions[key]
        assert first <= version <= last, f"API {key} version {version}"
        flexible = version >= APIS[key].first_flexible
        request = APIS[key].request.decode(version, frame[10 + size + flexible :])
        self.asked.append((key, version, request))
        head = correlation_id + b"\x00" * flexible
        return head + self._script[key](request).encode(version)

    def _versions_answer(self, version: int) -> bytes:
        known = version <= self._versions[API_VERSIONS][1]
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in self._versions.items()
        ]
        code = 0 if known else UNSUPPORTED_VERSION
        answer = ApiVersionsResponse(error_code=code, api_keys=keys)
        return answer.encode(version if known else 0)
