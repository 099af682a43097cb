"""One blocking connection to a broker of any age.

Requests may be sent ahead of the answers to earlier ones; a broker answers in order. A large answer
is received into the buffer that its decoder reads from, and what is handed on is a view of it.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from client.errors import ConnectionLost, NoVersion
from client.polling import has_input
from protocol.client import (
    IMPOSSIBLE_VERSION,
    LENGTH_BYTES,
    VERSIONS_0_8,
    VERSIONS_0_9,
    Conversation,
    OutOfStep,
    Sent,
    WrongAnswer,
    reason,
    written,
)
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext
    from types import TracebackType
    from typing import Self

    from client.security import ClientSecurity

Answer = TypeVar("Answer", bound=Message)

CLIENT_ID = b"triglot"
MAX_ANSWER_BYTES = 257 << 20
"""The largest entry that is fetched, and what stands around it. It is less than what the first
bytes of TLS and HTTP come to when they are read as a length."""
FIRST_ROOM_BYTES = 64 << 10
"""Room for an answer before anything of it has come; later as much as has come before."""
SEND_AT_ONCE_BYTES = 256 << 10
"""Requests that are sent ahead wait for each other until they have so many bytes, or until an
answer is waited for: one system call for many."""
READ_AHEAD_BYTES = 16 << 10
"""Read at once where less is wanted: of small answers several come together."""
TOKEN_MAX_BYTES = 1 << 20
"""Of an answer to a bare token of SASL."""
CONNECT_S = 10.0
"""Bounds making a connection, where the whole may take longer."""
SILENCE_S = 0.5
"""A broker that has not told its versions by then is asked in a way that 0.9 answers too. One that
is only slow answers both questions."""


class Connection:
    """Made connected, with the broker's versions known. Methods raise ConnectionLost.

    `call` may be used by several threads at once; `send` and `receive` by one, on a connection that
    nobody calls.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float,
        client_id: bytes = CLIENT_ID,
        versions: Mapping[int, tuple[int, int]] | None = None,
        may_be_old: bool = True,
        security: ClientSecurity | None = None,
    ) -> None:
        """`timeout_s` bounds the connecting, and each request, in seconds. `versions` are those of
        a broker that is known not to tell them; without `may_be_old` it is known that it does.
        Without `security` it is plaintext, and nobody's.

        Raises ConnectionLost; with `security` also Refused and WrongUse.
        """
        self.address = written(host, port)
        self._where = (host, port)
        self._timeout_s = timeout_s
        self._talk = Conversation(client_id, max_answer_bytes=MAX_ANSWER_BYTES)
        self._in_flight: deque[Sent] = deque()
        self._arrived: dict[int, bytearray] = {}
        self._unsent = bytearray()
        self._read_ahead = bytearray()
        self._socket_timeout_s = 0.0
        self._largest = FIRST_ROOM_BYTES
        self._lock = RLock()
        self._security = security
        self._context: SSLContext | None = None
        self._authenticate_at: float | None = None
        """When the session has to be renewed (KIP-368), by time.monotonic."""
        self._served = False
        """Whether a request has been answered since the versions."""
        if security is not None and security.has_tls:
            from client import tls

            self._context = tls.new_context(security)
        self._socket = self._connected()
        if versions is not None:
            self._talk.versions = versions
            return
        try:
            # SASL in a form that is spoken here came with Kafka 0.10.
            self._negotiate(may_be_old and not self._has_sasl)
            self._in_flight.clear()
            if self._has_sasl:
                self._authenticate()
        except BaseException:
            self.close()
            raise

    @property
    def host(self) -> str:
        """The broker's, as it was dialled."""
        return self._where[0]

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Of each API that the broker speaks, the oldest and newest version."""
        return self._talk.versions

    @property
    def features(self) -> Mapping[str, int]:
        """The levels at which the cluster's features are finalized; empty before Kafka 2.7."""
        return self._talk.features

    @property
    def tells_versions(self) -> bool:
        """Whether the broker itself said so (Kafka 0.10 on)."""
        return self.versions is not VERSIONS_0_8 and self.versions is not VERSIONS_0_9

    @property
    def in_flight(self) -> int:
        """Requests whose answer has not been read from the socket yet."""
        return len(self._in_flight)

    @property
    def usable(self) -> bool:
        """Whether a request can be sent: false once it is closed, by the other side too."""
        if self._socket.fileno() < 0:
            return False
        if self._in_flight:
            return True
        # Nothing is to come, so that what can be read is the end.
        return not has_input(self._socket, 0) or (self._context is not None and self._is_only_tls())

    def _is_only_tls(self) -> bool:
        """Whether what can be read is TLS's own, as a ticket to resume the session is."""
        from client import tls

        self._socket_timeout_s = 0.0
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except tls.NOT_READY:
            return True
        except OSError:
            return False
        return False

    def version(self, kind: type[Message], oldest: int = 0, newest: int | None = None) -> int:
        """The newest version that both sides know, within bounds. Raises NoVersion."""
        found = self._talk.version(kind.key, oldest, newest)
        if found is None:
            raise NoVersion(f"{self.address} {self._talk.lacking(kind.key, oldest, newest)}")
        return found

    def offers(self, kind: type[Message], oldest: int = 0, newest: int | None = None) -> bool:
        """Whether there is such a version."""
        return self._talk.version(kind.key, oldest, newest) is not None

    def call(
        self,
        request: Message,
        kind: type[Answer],
        *,
        oldest: int = 0,
        newest: int | None = None,
        wait_s: float = 0.0,
    ) -> Answer:
        """Send it in the newest version that both sides know, within bounds, and return the answer.

        `wait_s` is how long the broker was asked to wait. Raises NoVersion.
        """
        version = self.version(type(request), oldest, newest)
        with self._lock:
            return self.receive(self.send(request, version), kind, wait_s=wait_s)

    def send(self, request: Message, version: int) -> Sent:
        """Send it, and let `receive` get the answer. A small one may wait for the next."""
        if self._authenticate_at is not None and time.monotonic() >= self._authenticate_at:
            self._authenticate()
        sent, frame = self._talk.request(request, version)
        self._append(sent, frame)
        if len(self._unsent) >= SEND_AT_ONCE_BYTES:
            self._flush()
        return sent

    def receive(self, sent: Sent, kind: type[Answer], *, wait_s: float = 0.0) -> Answer:
        """The answer to a request that was sent. Answers to others that come first are kept."""
        deadline = time.monotonic() + self._timeout_s + wait_s
        try:
            while sent.correlation_id not in self._arrived:
                self.read_one(deadline=deadline)
            return self._talk.answer(sent, kind, self._arrived.pop(sent.correlation_id))
        except WrongAnswer as error:
            raise self._lost(f"{self.address} {error}") from None

    def read_one(self, *, deadline: float | None = None) -> None:
        """Wait for the oldest answer that has not been read, and keep it."""
        if not self._in_flight:
            raise self._lost(f"lost the connection to {self.address}")
        sent = self._in_flight[0]
        frame = self._frame(sent, deadline or time.monotonic() + self._timeout_s)
        if not self._talk.answers(sent, frame):
            raise self._lost(f"{self.address} answered another request than {sent.api.name}")
        self._in_flight.popleft()
        self._arrived[sent.correlation_id] = frame
        self._served = True

    def close(self) -> None:
        """Close the socket. Answers that are on their way are lost; those that came are kept."""
        self._socket.close()
        self._in_flight.clear()
        self._unsent = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Who we are.

    def _authenticate(self) -> None:
        """Prove it, for the first time or again; what is on its way is waited for first."""
        from client.authentication import authenticate

        assert self._security is not None
        self._authenticate_at = None
        while self._in_flight:
            self.read_one()
        began = time.monotonic()
        again_s = authenticate(self, self._security, self._raw)
        self._authenticate_at = None if again_s is None else began + again_s

    def _raw(self, token: bytes, *, answered: bool = True) -> bytes:
        """A token as a frame of its own, and the frame that answers it, if one does."""
        try:
            self._expect_within(self._timeout_s)
            self._socket.sendall(len(token).to_bytes(LENGTH_BYTES) + token)
            if not answered:
                return b""
            deadline = time.monotonic() + self._timeout_s
            size = int.from_bytes(self._bytes(LENGTH_BYTES, deadline), signed=True)
            if not 0 <= size <= TOKEN_MAX_BYTES:
                raise self._no_broker()
            return bytes(self._bytes(size, deadline)) if size else b""
        except OSError as error:
            why = reason(error)
            raise self._lost(f"lost the connection to {self.address} at a token: {why}") from None

    # The broker's versions.

    def _negotiate(self, may_be_old: bool) -> None:
        began = time.monotonic()
        deadline = began + self._timeout_s
        sent, frame = self._talk.ask_versions()
        try:
            self._transmit(sent, frame)
            probe = self._is_silent(min(SILENCE_S, self._timeout_s / 2)) and may_be_old
            if probe:
                asked, frame = self._talk.request(ListGroupsRequest(), 0)
                self._transmit(asked, frame)
            answer = self._frame(sent, deadline)
            if probe and self._talk.answers(asked, answer):
                self._talk.versions = VERSIONS_0_9
                return
        except _Closed:
            if not may_be_old or self._context is not None:
                raise  # brokers have TLS since 0.9, and that one does not close
            if self._is_of_0_8():
                self._talk.versions = VERSIONS_0_8
                return
            raise self._no_broker() from None
        self._learn(sent, answer, deadline, skip=probe)

    def _learn(self, sent: Sent, answer: bytearray, deadline: float, *, skip: bool) -> None:
        try:
            step = self._talk.learn_versions(sent, answer)
            if skip:  # The answer to the question that 0.9 would have answered.
                self._frame(sent, deadline)
            while step is not None:
                sent, frame = step
                self._transmit(sent, frame)
                step = self._talk.learn_versions(sent, self._frame(sent, deadline))
        except OutOfStep:
            raise self._no_broker() from None
        except WrongAnswer as error:
            raise self._lost(f"{self.address} {error}") from None

    def _is_silent(self, seconds: float) -> bool:
        return not has_input(self._socket, seconds)

    def _is_of_0_8(self) -> bool:
        """Ask in a version that nobody has, over a new connection."""
        self.close()
        self._socket = self._connected()
        request = ListOffsetsRequest(replica_id=-1, topics=[])
        sent, frame = self._talk.request(request, 0, claimed=IMPOSSIBLE_VERSION)
        try:
            self._transmit(sent, frame)
            answer = self._frame(sent, time.monotonic() + self._timeout_s)
        except _Closed:
            return False
        return self._talk.answers(sent, answer)

    # The socket.

    def _connected(self) -> socket.socket:
        try:
            made = socket.create_connection(self._where, timeout=min(self._timeout_s, CONNECT_S))
        except (OSError, UnicodeError) as error:
            raise ConnectionLost(f"cannot connect to {self.address}: {reason(error)}") from None
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            from client import tls

            made = tls.secured(made, self._where[0], self.address, self._context)
        self._socket_timeout_s = 0.0
        self._read_ahead.clear()
        return made

    def _transmit(self, sent: Sent, frame: bytearray) -> None:
        self._append(sent, frame)
        self._flush()

    def _append(self, sent: Sent, frame: bytearray) -> None:
        self._in_flight.append(sent)
        if self._unsent:
            self._unsent += frame
        else:
            self._unsent = frame

    def _flush(self) -> None:
        if not self._unsent:
            return
        sent, unsent = self._in_flight[-1], self._unsent
        self._unsent = bytearray()
        try:
            self._expect_within(self._timeout_s)
            self._socket.sendall(unsent)
        except TimeoutError:
            raise self._lost(
                f"{self.address} did not take a request for {sent.api.name} within "
                f"{self._timeout_s:g} s"
            ) from None
        except OSError as error:
            raise self._broken(sent, error) from None

    def _frame(self, sent: Sent, deadline: float) -> bytearray:
        """The next frame, without its length."""
        try:
            try:
                size = self._talk.size(self._bytes(LENGTH_BYTES, deadline))
            except OutOfStep:
                raise self._no_broker() from None
            return self._bytes(size, deadline)
        except TimeoutError:
            raise self._lost(
                f"no answer from {self.address} to {sent.api.name} within {self._timeout_s:g} s"
            ) from None
        except OSError as error:
            raise self._broken(sent, error) from None

    def _bytes(self, size: int, deadline: float) -> bytearray:
        """So many bytes. Memory grows with what arrives, not with what was announced: only as
        much is taken at once as has come before, in this answer or another."""
        if size <= len(self._read_ahead):
            return self._taken(size)
        self._flush()
        data = bytearray(min(size, self._largest))
        have = len(self._read_ahead)
        data[:have] = self._taken(have)
        while have < size:
            if have == len(data):
                data.extend(bytes(min(size - have, have)))
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._expect_within(left)
            if size - have < READ_AHEAD_BYTES:
                self._read_ahead += self._socket.recv(READ_AHEAD_BYTES)
                got = min(size - have, len(self._read_ahead))
                data[have : have + got] = self._taken(got)
            else:
                with memoryview(data) as whole, whole[have:] as room:
                    got = self._socket.recv_into(room)
            if not got:
                raise ConnectionError("it was closed by the other side")
            have += got
        self._largest = max(self._largest, size)
        return data

    def _taken(self, size: int) -> bytearray:
        """So many of the bytes that have been read ahead."""
        taken = self._read_ahead[:size]
        del self._read_ahead[:size]
        return taken

    def _expect_within(self, seconds: float) -> None:
        """Setting a timeout is a system call, so one that is only a little too long is left."""
        if not seconds <= self._socket_timeout_s <= 1.1 * seconds:
            self._socket_timeout_s = seconds
            self._socket.settimeout(seconds)

    def _lost(self, text: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(text)

    def _broken(self, sent: Sent, error: OSError) -> ConnectionLost:
        self.close()
        if self._context is not None:
            from client import tls

            if isinstance(error, tls.Error):
                raise tls.failure(self.address, error) from None
        why = reason(error)
        text = f"lost the connection to {self.address} at {sent.api.name}: {why}"
        if self._context is not None and not self.versions:
            # What TLS 1.3 says of a certificate comes after the handshake, or is lost with it.
            text += " (it may want a certificate of ours: ssl.keystore.location)"
        elif self.versions and not self._served and not self._has_sasl:
            # That is all that a listener with authentication does.
            text += " (it may want authentication: security.protocol, sasl.mechanism)"
        return _Closed(text)

    @property
    def _has_sasl(self) -> bool:
        return self._security is not None and self._security.has_sasl

    def _no_broker(self) -> ConnectionLost:
        how = "PLAINTEXT" if self._security is None else self._security.described
        return self._lost(
            f"what answers at {self.address} is not a Kafka broker that can be asked "
            f"(security.protocol is {how})"
        )


class _Closed(ConnectionLost):
    """It was there, and the other side ended it."""
