"""A connection to a listener that asks for TLS, SASL or both.

    accepted -> TLS handshake -> ApiVersions, SaslHandshake, tokens -> everything else
                                                  ^                        |
                                                  '--- the session ends ---'

What may be asked at each stage is a table of routes, so that a request costs nothing more once its
client is known.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from broker.network.connection import Connection
from broker.network.secure_listener import OVER_TLS
from broker.network.sender import Sender
from broker.pending import Later
from broker.security.sasl.authentication import (
    Authentication,
    AuthenticationFailed,
    Session,
    State,
)
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeResponse, refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.handlers.context import Parts
    from broker.network.backlog import Backlog
    from broker.network.secure_listener import SecureListener
    from broker.network.turn import Turn
    from broker.security.principal import Principal
    from broker.security.sasl.mechanism import Challenge, Done
    from config import BrokerSettings
    from protocol.connection import Request, Routes

TLS_SHUTDOWN_S = 5.0
"""Time for a client to take what is left and to say goodbye, when its connection is closed."""

TLS_HANDSHAKE = 0x16
"""The first byte of every TLS client."""
HELLO_BYTES = 4096
GSSAPI = "GSSAPI"
GSSAPI_TOKEN = 0x60
"""The first byte of every first token of GSSAPI (RFC 2743, 3.1); as that of an API key it would be
beyond all of them."""
SMALL_BYTES = 4096
"""What a client may have sent of a request before it is known, without its memory being counted."""


class SecureConnection(Connection):
    """One client of such a listener."""

    def __init__(
        self,
        parts: Parts,
        secure: SecureListener,
        routes: Routes,
        *,
        backlog: Backlog,
        turn: Turn,
        admit: Callable[[Connection], bool],
        lost: Callable[[Connection], None],
    ) -> None:
        """`routes` is what is served once the client is known."""
        super().__init__(
            parts, secure.name, routes, backlog=backlog, turn=turn, admit=admit, lost=lost
        )
        self._secure = secure
        self.over_tls = secure.tls is not None
        self._authentication: Authentication | None = None
        if secure.mechanisms is not None:
            self._authentication = Authentication(secure.mechanisms, secure.token_ends)
            self._wire.serve(secure.routes_before, max_frame_bytes=secure.max_receive_bytes)
            if GSSAPI in secure.mechanisms:
                self._next_request = self._first_request
        self._gone = self._held = False
        self._bare = self.over_tls
        """Whether what is sent would not be encrypted yet."""
        self._hello: bytearray | None = bytearray(HELLO_BYTES) if self.over_tls else None
        """Room for the first bytes of a TLS client, until they have come."""
        self._handshake: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._session_end: asyncio.TimerHandle | None = None

    def configure(self, settings: BrokerSettings) -> None:
        super().configure(settings)
        self._max_frame_bytes = settings.socket_request_max_bytes

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        context = self.context
        context.security_protocol = self._secure.protocol
        if self._authentication is not None:
            context.authenticator = self
        if not self._held:
            self._arrive()

    def hold(self) -> None:
        self._held = True
        super().hold()

    def let_go(self) -> None:
        """Serve one that was held; its time for TLS and SASL begins now."""
        super().let_go()
        self._arrive()

    def _arrive(self) -> None:
        if self._gone or self._closing or self._transport.is_closing():
            return
        self._deadline = self._loop.call_later(self._secure.timeout_s, self._too_late)
        self._secure.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._gone:
            return
        self._gone = True
        self._known()
        if self._session_end is not None:
            self._session_end.cancel()
        self._note_token(None)
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return super().get_buffer(sizehint) if self._hello is None else memoryview(self._hello)

    def buffer_updated(self, nbytes: int) -> None:
        if self._hello is not None:
            self._greeted(bytes(self._hello[:nbytes]))
            return
        if self._bare:
            # Of a client that does not wait; the stock loop brings it before it says that the
            # handshake is over.
            self._wire.received(nbytes)
            return
        super().buffer_updated(nbytes)
        if self._deadline is not None and self._wire.buffered > SMALL_BYTES:
            self._backlog.note(self)

    def eof_received(self) -> bool:
        keep_open = super().eof_received()
        return keep_open and not self.over_tls

    # TLS.

    def _greeted(self, first: bytes) -> None:
        """The first bytes have come. Who sends none costs no more than a plain connection."""
        self._hello = None
        if first[0] != TLS_HANDSHAKE:
            cause = "it speaks plaintext; this listener speaks TLS"
            self._secure.refused(cause, self.address, OVER_TLS)
            self.abort()
            return
        self._transport.pause_reading()
        self._secure.shake_hands(self, first)

    def shake_hands(self, first: bytes) -> None:
        """Begin the TLS handshake, with the client's first bytes."""
        if not self._gone and not self._transport.is_closing():
            self._handshake = self._loop.create_task(self._secured(first))

    def cut_off(self, cause: str) -> None:
        super().cut_off(cause)
        self._leave_handshake()

    def close(self) -> None:
        if self._handshake is None:
            super().close()
        else:
            self.abort()

    def abort(self) -> None:
        super().abort()
        self._leave_handshake()

    def _leave_handshake(self) -> None:
        """Wait no longer for the TLS handshake: uvloop does not say that its transport is lost."""
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
            self._loop.call_soon(self.connection_lost, None)

    async def _secured(self, first: bytes) -> None:
        """Replace the transport by one that encrypts."""
        from broker.network.tls import NoPrincipal, why_failed

        tls = self._secure.tls
        assert tls is not None
        bare = self._transport
        # It is run when the new protocol has been set, and before that reads from the socket.
        self._loop.call_soon(_hand_over, bare, first)
        try:
            transport = await self._loop.start_tls(
                bare,
                self,
                tls.context,
                server_side=True,
                ssl_handshake_timeout=self._secure.timeout_s,
                ssl_shutdown_timeout=TLS_SHUTDOWN_S,
            )
        except OSError as error:
            self._handshake = None
            if not self._gone and not self._closing:
                self._secure.refused(why_failed(error), self.address, OVER_TLS)
            bare.abort()
            self.connection_lost(error)
            return
        self._handshake = None
        if transport is None or self._gone:
            bare.abort()
            self.connection_lost(None)
            return
        self._transport = transport
        self._sender.close()
        self._sender = Sender(
            self._loop, self._transport, self._parts.readers, self._on_drained, tls=True
        )
        self._bare = False
        if self._authentication is None:
            try:
                self._let_in(tls.principal(transport))
            except NoPrincipal as error:
                self._secure.refused(str(error), self.address, OVER_TLS)
                self.abort()
                return
            self._secure.succeeded(OVER_TLS)
        if self._wire.buffered:
            self._handle()

    # SASL.

    def _first_request(self) -> Request | None:
        """The first frame. Clients of Kafka 0.9 name no mechanism: theirs is a token of GSSAPI."""
        first = self._wire.next_byte
        if first is None:
            return None
        self._next_request = self._wire.next_request
        if first == GSSAPI_TOKEN:
            assert self._authentication is not None
            self._authentication.begin(GSSAPI, raw=True, now_ms=self._clock_ms())
            self._next_request = self._wire.next_token
        return self._next_request()

    def handshake(self, request: Request) -> Any:
        """The answer to SaslHandshake, or what it waits for."""
        authentication, now_ms = self._authentication, self._clock_ms()
        assert authentication is not None
        if not authentication.may_begin(now_ms):
            answer = refused(request.message, ErrorCode.ILLEGAL_SASL_STATE)
            if authentication.state is State.AUTHENTICATED:
                return answer
            return self._failed(_out_of_turn("SASL_HANDSHAKE", "authentication"), answer)
        raw = request.version == 0 and not authentication.is_again
        try:
            authentication.begin(request.message.mechanism, raw=raw, now_ms=now_ms)
        except AuthenticationFailed as failed:
            mechanisms = authentication.enabled
            return self._failed(
                failed, SaslHandshakeResponse(error_code=failed.code, mechanisms=mechanisms)
            )
        if raw:
            self._next_request = self._wire.next_token
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=authentication.enabled)

    def authenticate(self, request: Request) -> Any:
        """The answer to SaslAuthenticate, or to a token without a header, or what it waits for."""
        authentication = self._authentication
        assert authentication is not None
        if authentication.state is State.AUTHENTICATED:
            text = "SaslAuthenticate request received after successful authentication"
            return _refusal(ErrorCode.ILLEGAL_SASL_STATE, text)
        if authentication.state not in (State.TOKENS, State.RAW_TOKENS):
            return self._failed(_out_of_turn("SASL_AUTHENTICATE", "handshake"), None)
        mechanism = authentication.mechanism
        assert mechanism is not None
        raw = authentication.state is State.RAW_TOKENS
        token: bytes = request.message if raw else bytes(request.message.auth_bytes)
        if mechanism.slow(token):
            return Later(lambda later: self._step_on_worker(later, token, raw=raw))
        try:
            return self._taken(authentication.step(token), raw=raw)
        except AuthenticationFailed as failed:
            return self._failed(failed, None if raw else _refusal(failed.code, str(failed)))

    def _step_on_worker(self, later: Later, token: bytes, *, raw: bool) -> None:
        authentication = self._authentication
        assert authentication is not None

        def step() -> Challenge | Done | AuthenticationFailed:
            try:
                return authentication.step(token)
            except AuthenticationFailed as failed:
                return failed

        def done(answer: Challenge | Done | AuthenticationFailed) -> None:
            if self._gone:
                return
            try:
                if isinstance(answer, AuthenticationFailed):
                    raise answer
                later.answer(self._taken(answer, raw=raw))
            except AuthenticationFailed as failed:
                answered = None if raw else _refusal(failed.code, str(failed))
                self._fail_later(later, failed, answered)

        self._secure.logins.run(step, done)

    def _taken(
        self, answer: Challenge | Done, *, raw: bool
    ) -> SaslAuthenticateResponse | bytes | None:
        """What is sent for the mechanism's answer. Raises AuthenticationFailed."""
        authentication = self._authentication
        assert authentication is not None
        again = authentication.is_again
        outcome = authentication.take(answer, self._clock_ms())
        if raw:
            self._next_request = self._wire.next_request
        lifetime_ms = 0
        if isinstance(outcome, Session):
            lifetime_ms = outcome.lifetime_ms or 0
            self._limit(outcome.lifetime_ms)
            self._note_token(outcome.delegation_token)
            assert authentication.mechanism is not None
            self._secure.succeeded(authentication.mechanism.name, again=again)
            self._let_in(outcome.principal)
        elif raw:
            self._next_request = self._wire.next_token
        if raw:
            return outcome.token
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE,
            error_message="",
            auth_bytes=outcome.token or b"",
            session_lifetime_ms=lifetime_ms,
        )

    def _failed(self, failed: AuthenticationFailed, answer: Any) -> Later:
        """The answer, after a while, and then the end of the connection."""
        return Later(lambda later: self._fail_later(later, failed, answer))

    def _fail_later(self, later: Later, failed: AuthenticationFailed, answer: Any) -> None:
        authentication = self._authentication
        assert authentication is not None
        authentication.fail()
        mechanism = authentication.mechanism.name if authentication.mechanism else ""
        again = authentication.is_again
        self._secure.refused(failed.cause, self.address, mechanism, again=again)

        def end() -> None:
            if not self._gone:
                later.answer(answer)
                self.close()

        self._loop.call_later(self._secure.failure_delay_s, end)

    # Stages.

    def _let_in(self, principal: Principal) -> None:
        """The client is known: serve it."""
        self._known()
        self.context.principal = principal
        self._wire.serve(self._routes, max_frame_bytes=self._max_frame_bytes)

    def _known(self) -> None:
        """The client is known, or gone."""
        self._secure.left(self)
        self._backlog.forget(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _limit(self, lifetime_ms: int | None) -> None:
        """Serve nothing but a new authentication after so long."""
        if self._session_end is not None:
            self._session_end.cancel()
            self._session_end = None
        if lifetime_ms is not None:
            self._session_end = self._loop.call_later(lifetime_ms / 1000, self._end_session)

    def limit_session(self, lifetime_ms: int) -> None:
        """The delegation token of the client ends in so long; 0 is now."""
        if not lifetime_ms:
            self.cut_off("its delegation token has ended")
            return
        end = self._session_end
        # It may end sooner than its token: connections.max.reauth.ms.
        if end is None or end.when() > self._loop.time() + lifetime_ms / 1000:
            self._limit(lifetime_ms)

    def _note_token(self, token_id: str | None) -> None:
        """The delegation token by which the client was let in; None for none, or when it goes."""
        context, tokens = self.context, self._secure.delegation_tokens
        before, context.delegation_token = context.delegation_token, token_id
        if tokens is None or before == token_id:
            return
        if before is not None:
            tokens.closed(before, self)
        if token_id is not None:
            tokens.opened(token_id, self)

    def _end_session(self) -> None:
        secure = self._secure
        self._wire.serve(secure.routes_expired, max_frame_bytes=secure.max_receive_bytes)

    def _too_late(self) -> None:
        self._deadline = None
        self.cut_off(
            f"it has not authenticated within {self._secure.timeout_s:g} s "
            "(connections.authentication.timeout.ms)"
        )


def _hand_over(transport: asyncio.Transport, data: bytes) -> None:
    """Give the transport's present protocol bytes that were read for the one before."""
    # uvloop's have the methods of the class, not the class.
    protocol = cast("asyncio.BufferedProtocol", transport.get_protocol())
    memoryview(protocol.get_buffer(len(data)))[: len(data)] = data
    protocol.buffer_updated(len(data))


def _refusal(code: ErrorCode, text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b"")


def _out_of_turn(name: str, stage: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        ErrorCode.ILLEGAL_SASL_STATE,
        f"Unexpected Kafka request of type {name} during SASL {stage}.",
    )
