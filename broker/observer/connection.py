"""One connection to a controller, over asyncio: a request, then its answer.

The first request asks for the versions (KIP-35). A listener that does not offer FetchSnapshot is
none of a controller.
"""

from __future__ import annotations

import asyncio
import os
from struct import Struct
from typing import TYPE_CHECKING, TypeVar

from broker.observer.effects import ObserverStopped
from protocol.errors import ErrorCode, Malformed
from protocol.header import API_VERSIONS_KEY
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.primitives import skip_tags
from protocol.registry import APIS
from protocol.schema import Message

if TYPE_CHECKING:
    from typing import Self

Answer = TypeVar("Answer", bound=Message)

CLIENT_ID = b"triglot-observer"
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Several times what is asked for at once. A greater length is not an answer's."""
STREAM_BYTES = 1024 * 1024
"""Held in a stream before reading from the socket pauses, unless an answer is longer."""

_FRAME = Struct(">ihhih")
"""Length, key, version, correlation id, length of the client id."""
_CORRELATION_ID = Struct(">i")
_CODE = Struct(">h")
_FIRST_ASKED = 3


class ConnectionLost(Exception):
    """The connection could not be made, or broke, or what came is not to be understood. It makes
    sense to try again."""


class ControllerConnection:
    """Made by `open`. Every method raises ConnectionLost; after that there is only `close`."""

    def __init__(
        self,
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeout_s: float,
    ) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}

    @classmethod
    async def open(cls, host: str, port: int, *, timeout_s: float) -> Self:
        """Connect and ask for versions. `timeout_s` bounds that, and each call, in seconds.

        Raises ObserverStopped if the listener is not a controller's.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(host, port, limit=STREAM_BYTES)
        except TimeoutError:
            raise ConnectionLost(f"no connection to {address} within {timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address}: {_reason(error)}") from None
        made = cls(address, reader, writer, timeout_s)
        try:
            await made._ask_versions()
        except BaseException:
            made.close()
            raise
        return made

    def offers(self, request: type[Message], *, oldest: int = 0) -> bool:
        """Whether such a request could be sent, in version `oldest` or a later one."""
        return self._version(request.key, oldest) is not None

    async def call(self, request: Message, answer: type[Answer], *, oldest: int = 0) -> Answer:
        """Send it and return the answer, in the newest version that both sides know."""
        key = type(request).key
        version = self._version(key, oldest)
        if version is None:
            raise ObserverStopped(
                f"{self.address} does not speak version {oldest} of {APIS[key].name} or a later one"
            )
        frame, position = await self._exchange(request, version)
        try:
            decoded, end = answer.decoder(version)(frame, position, len(frame))
        except Malformed as error:
            raise ConnectionLost(f"{self.address} sent a malformed answer: {error}") from None
        if end != len(frame):
            raise ConnectionLost(f"{self.address} sent {len(frame) - end} bytes after its answer")
        return decoded

    def close(self) -> None:
        """Drop the connection, and what is still to be sent."""
        self._writer.transport.abort()

    def _version(self, key: int, oldest: int) -> int | None:
        api = APIS[key]
        first, last = self._versions.get(key, (0, -1))
        version = min(api.max_version, last)
        return version if version >= max(api.min_version, first, oldest) else None

    async def _ask_versions(self) -> None:
        request = ApiVersionsRequest(
            client_software_name=CLIENT_ID.decode(), client_software_version="1"
        )
        version = _FIRST_ASKED
        frame, position = await self._exchange(request, version)
        if frame[position : position + 2] == _CODE.pack(ErrorCode.UNSUPPORTED_VERSION):
            version = 0
            frame, position = await self._exchange(request, version)
        try:
            answer, _ = ApiVersionsResponse.decoder(version)(frame, position, len(frame))
        except Malformed as error:
            raise ConnectionLost(f"what answers at {self.address} is no broker: {error}") from None
        self._versions = {
            api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
        }
        if not self.offers(FetchSnapshotRequest):
            raise ObserverStopped(
                f"{self.address} is not a controller's listener. Give the address of one; triglot "
                "opens one with listeners=PLAINTEXT://:9092,CONTROLLER://:9093 and "
                "controller.listener.names=CONTROLLER"
            )

    async def _exchange(self, request: Message, version: int) -> tuple[bytes, int]:
        """The frame of the answer, and the position of its body."""
        api = APIS[type(request).key]
        flexible = version >= api.first_flexible
        self._correlation_id += 1
        body = CLIENT_ID + b"\0" * flexible + request.encode(version)
        head = _FRAME.pack(
            _FRAME.size - 4 + len(body), api.key, version, self._correlation_id, len(CLIENT_ID)
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                self._writer.write(head + body)
                await self._writer.drain()
                size = int.from_bytes(await self._reader.readexactly(4), signed=True)
                if not _CORRELATION_ID.size <= size <= MAX_ANSWER_BYTES:
                    raise ConnectionLost(f"what answers at {self.address} does not speak Kafka")
                frame = await self._reader.readexactly(size)
        except TimeoutError:
            raise ConnectionLost(
                f"no answer from {self.address} to {api.name} within {self._timeout_s:g} s"
            ) from None
        except EOFError:  # IncompleteReadError
            raise ConnectionLost(f"{self.address} closed the connection at {api.name}") from None
        except OSError as error:
            raise ConnectionLost(
                f"lost the connection to {self.address} at {api.name}: {_reason(error)}"
            ) from None
        if _CORRELATION_ID.unpack_from(frame)[0] != self._correlation_id:
            raise ConnectionLost(f"{self.address} answered another request than {api.name}")
        position = _CORRELATION_ID.size
        if flexible and api.key != API_VERSIONS_KEY:
            try:
                position = skip_tags(frame, position, size)
            except Malformed as error:
                raise ConnectionLost(f"{self.address} sent a malformed answer: {error}") from None
        return frame, position


def _reason(error: OSError) -> str:
    """What the system says of it: asyncio puts the address into its own words."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error) or type(error).__name__).lower()
