"""SaslHandshake: the client chooses the mechanism by which it authenticates.

Refused on a listener that asks for no authentication, as by Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, refused

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def sasl_handshake(request: Request, ctx: Context) -> Any:
    if ctx.authenticator is not None:
        return ctx.authenticator.handshake(request)
    message: SaslHandshakeRequest = request.message
    return refused(message, ErrorCode.ILLEGAL_SASL_STATE)
