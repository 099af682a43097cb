"""SaslAuthenticate: a token for the mechanism that SaslHandshake has named.

Refused on a listener that asks for no authentication, as by Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def sasl_authenticate(request: Request, ctx: Context) -> Any:
    if ctx.authenticator is not None:
        return ctx.authenticator.authenticate(request)
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this listener asks for no authentication",
        auth_bytes=b"",
    )
