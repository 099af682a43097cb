"""Authentication by SASL over a connection that is made: SaslHandshake, then tokens.

They travel in SaslAuthenticate (KIP-152, Kafka 1.0), with older brokers as bare frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from client.errors import ConnectionLost, Refused
from client.sasl import start
from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.security import ClientSecurity
    from protocol.schema import Message

T = TypeVar("T", bound="Message")


class Connection(Protocol):
    """A connection, as far as authentication has to know it (`client.connection`)."""

    @property
    def address(self) -> str: ...
    @property
    def host(self) -> str: ...
    def offers(self, message: type[Message]) -> bool: ...
    def call(self, request: Message, response: type[T], *, newest: int | None = None) -> T: ...
    def close(self) -> None: ...


REAUTHENTICATE_AT = 0.85
"""Of the time that a session lasts, as Kafka's clients begin at the earliest."""


def authenticate(
    connection: Connection, security: ClientSecurity, raw: Callable[..., bytes]
) -> float | None:
    """Authenticate, and return after how many seconds it has to be done again; None is never.

    `raw` sends a token as a bare frame, and returns the one that answers it; with `answered=False`
    there is none. Raises Refused, WrongUse, ConnectionLost.
    """
    exchange = start(security, connection.host)
    in_messages = connection.offers(SaslAuthenticateRequest)
    _shake(connection, security, 1 if in_messages else 0)
    token: bytes | None = exchange.first()
    lasts_ms = 0
    while token is not None:
        if in_messages:
            request = SaslAuthenticateRequest(auth_bytes=token)
            answer = connection.call(request, SaslAuthenticateResponse)
            if answer.error_code:
                why = answer.error_message or said(answer.error_code)
                raise _refused(connection, security, why)
            said_back, lasts_ms = bytes(answer.auth_bytes), answer.session_lifetime_ms
        else:
            try:
                said_back = raw(token, answered=not exchange.is_last)
            except ConnectionLost:
                raise _refused(connection, security, "it closed the connection") from None
        try:
            token = exchange.next(said_back)
        except Refused as error:
            connection.close()
            raise Refused(f"{connection.address} is not trusted: {error}") from None
    return lasts_ms * REAUTHENTICATE_AT / 1000 if lasts_ms > 0 else None


def _shake(connection: Connection, security: ClientSecurity, newest: int) -> None:
    request = SaslHandshakeRequest(mechanism=security.mechanism)
    try:
        answer = connection.call(request, SaslHandshakeResponse, newest=newest)
    except ConnectionLost as error:
        # That is what brokers before Kafka 1.0 do on a listener that has no SASL.
        raise ConnectionLost(f"{error} (security.protocol is {security.protocol})") from None
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        connection.close()
        raise Refused(
            f"{connection.address} has no mechanism {security.mechanism}, it has "
            f"{', '.join(answer.mechanisms) or 'none'} (sasl.mechanism)",
            answer.error_code,
        )
    if answer.error_code:
        connection.close()
        raise Refused(
            f"{connection.address} takes no authentication: {said(answer.error_code)} "
            f"(security.protocol is {security.protocol})",
            answer.error_code,
        )


def _refused(connection: Connection, security: ClientSecurity, why: str) -> Refused:
    connection.close()
    who = f"user '{security.user}'" if security.user else "the token"
    key = "sasl.jaas.config" if security.user else security.token_path
    if security.token_endpoint:
        key = security.token_endpoint.url
    if security.mechanism == "GSSAPI" and not security.user:
        who, key = "the ticket", "kinit"
    return Refused(
        f"{connection.address} refuses {who} by {security.mechanism}: {why} ({key})",
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    )
