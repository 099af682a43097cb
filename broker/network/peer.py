"""A connection to another broker of this directory: requests of ours, and its answers.

Both sides are of one release, so nobody is asked for versions: a request goes out in the newest
version that there is. Answers come in the order of the requests, one that waits keeps back those
behind it: who waits long has a connection of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar, cast

from protocol.client import Conversation, WrongAnswer
from protocol.registry import APIS
from protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from protocol.client import Sent

    Connect = Callable[[Callable[[], asyncio.BaseProtocol]], Awaitable[Any]]

Answer = TypeVar("Answer", bound=Message)

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""A batch of the metadata log has 8 MiB at most, a piece of a snapshot 1 MiB."""
LENGTH_BYTES = 4


class PeerLost(ConnectionError):
    """The other process has gone, or says what makes no sense. It comes back."""


class Peer(asyncio.Protocol):
    """Belongs to the loop. Use `connected`."""

    def __init__(self, client_id: bytes) -> None:
        self._conversation = Conversation(client_id, max_answer_bytes=ANSWER_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: deque[tuple[Sent, type[Message], asyncio.Future[Any]]] = deque()
        """Bounded by those who ask: each has one request on its way."""
        self._lost: PeerLost | None = None

    @classmethod
    async def connected(cls, connect: Connect, client_id: bytes) -> Peer:
        """`connect` opens a connection for the protocol that it is given. Raises PeerLost."""
        peer = cls(client_id)
        try:
            await connect(lambda: peer)
        except OSError as error:
            raise PeerLost(f"no connection: {error.strerror or error}") from error
        return peer

    def ask(self, request: Message, kind: type[Answer]) -> asyncio.Future[Answer]:
        """Send a request; the answer, or PeerLost. Raises PeerLost."""
        if self._lost is not None or self._transport is None:
            raise self._lost or PeerLost("not connected")
        version = APIS[type(request).key].max_version
        sent, frame = self._conversation.request(request, version)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((sent, kind, answer))
        self._transport.write(frame)
        return answer

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def close(self) -> None:
        """Who waits for an answer gets PeerLost."""
        self._lose("closed")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport, not its class.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(str(exc or "the connection was closed"))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        try:
            while len(received) >= LENGTH_BYTES:
                end = LENGTH_BYTES + self._conversation.size(received[:LENGTH_BYTES])
                if len(received) < end:
                    return
                frame = bytes(received[LENGTH_BYTES:end])
                del received[:end]
                self._answered(frame)
        except WrongAnswer as error:
            self._lose(f"it {error}")

    def _answered(self, frame: bytes) -> None:
        """Raises WrongAnswer."""
        if not self._waiting:
            raise WrongAnswer("answered what was not asked")
        sent, kind, answer = self._waiting[0]
        found = self._conversation.answer(sent, kind, frame)
        self._waiting.popleft()
        if not answer.cancelled():
            answer.set_result(found)

    def _lose(self, reason: str) -> None:
        if self._lost is None:
            self._lost = PeerLost(reason)
        if self._transport is not None:
            self._transport.close()
        while self._waiting:
            _, _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(PeerLost(reason))
