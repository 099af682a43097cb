"""Envelope (58): a request that a broker passes on to the controller, with whose it is (KIP-590).

Between the processes of one directory; clients are not offered it.
"""

from __future__ import annotations

from protocol.schema import Message, binary, int16


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    request_data: bytes = binary()
    """The request as it came, with its header and without its length."""
    request_principal: bytes | None = binary(nullable="0+")
    client_host_address: bytes = binary()


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = binary(nullable="0+", default=None)
    """The answer, with its header and without its length; null with an error."""
    error_code: int = int16()


def refused(request: EnvelopeRequest, code: int) -> EnvelopeResponse:
    """An answer of an error, which is about the envelope."""
    return EnvelopeResponse(error_code=code)
