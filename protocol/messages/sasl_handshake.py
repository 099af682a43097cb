"""SaslHandshake (17): the client chooses how it will prove who it is.

Never flexible, and never to be offered above version 1: old Java clients take the highest
version a broker offers.

0  the tokens that follow travel as bare frames
1  the tokens that follow travel in SaslAuthenticate
"""

from __future__ import annotations

from protocol.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = array(string)


def refused(request: SaslHandshakeRequest, code: int) -> SaslHandshakeResponse:
    """An answer of an error that names no mechanism."""
    return SaslHandshakeResponse(error_code=code, mechanisms=[])
