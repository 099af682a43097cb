"""One blocking connection to a broker: a request, then its answer.

The first request asks for the broker's versions (KIP-35, so Kafka 0.10 or later); every other one
goes out in the newest version that both sides know.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, TypeVar

from broker.clock import monotonic_s
from protocol.client import (
    LENGTH_BYTES,
    Conversation,
    OutOfStep,
    Sent,
    WrongAnswer,
    reason,
    written,
)
from protocol.schema import Message

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Answer = TypeVar("Answer", bound=Message)

CLIENT_ID = b"triglot-groups"
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""A length beyond it is no answer to anything that we ask, but another protocol's first bytes."""
RECEIVE_BYTES = 1 << 20


class NotDone(Exception):
    """Why a command could not be done, in one sentence for the user."""


class Connection:
    """Raises NotDone from every method: who was asked, and what was wrong with the answer."""

    def __init__(self, host: str, port: int, *, timeout_s: float) -> None:
        """Connect and ask for versions. `timeout_s` bounds that, and each request, in seconds."""
        self.address = written(host, port)
        self._timeout_s = timeout_s
        self._talk = Conversation(CLIENT_ID, max_answer_bytes=MAX_ANSWER_BYTES)
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, UnicodeError) as error:
            raise NotDone(f"cannot connect to {self.address}: {reason(error)}") from None
        try:
            self._ask_versions()
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
        key = type(request).key
        version = self._talk.version(key, oldest, newest)
        if version is None:
            raise NotDone(f"{self.address} {self._talk.lacking(key, oldest, newest)}")
        sent, frame = self._talk.request(request, version)
        try:
            return self._talk.answer(sent, answer, self._exchange(sent, frame))
        except OutOfStep:
            raise self._no_broker() from None
        except WrongAnswer as error:
            raise NotDone(f"{self.address} {error}") from None

    def newest(self, key: int) -> int | None:
        """The newest version of an API that the broker and we know; None if there is none."""
        return self._talk.version(key)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _ask_versions(self) -> None:
        step: tuple[Sent, bytearray] | None = self._talk.ask_versions()
        try:
            while step is not None:
                sent, frame = step
                step = self._talk.learn_versions(sent, self._exchange(sent, frame, handshake=True))
        except OutOfStep:
            raise self._no_broker() from None
        except WrongAnswer as error:
            raise NotDone(f"{self.address} {error}") from None

    def _exchange(self, sent: Sent, frame: bytearray, *, handshake: bool = False) -> bytes:
        """The frame of the answer, without its length. Raises OutOfStep too."""
        deadline = monotonic_s() + self._timeout_s
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(frame)
            size = self._talk.size(self._receive(LENGTH_BYTES, deadline))
            return self._receive(size, deadline)
        except TimeoutError:
            raise NotDone(
                f"no answer from {self.address} to {sent.api.name} within {self._timeout_s:g} s"
            ) from None
        except OSError as error:
            if handshake:
                raise self._no_broker() from None
            raise NotDone(
                f"lost the connection to {self.address} at {sent.api.name}: {reason(error)}"
            ) from None

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
