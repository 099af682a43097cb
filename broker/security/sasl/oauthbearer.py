"""OAUTHBEARER (RFC 7628, KIP-255): a token in one message, and nothing more if it is good.

    client  n,,^Aauth=Bearer TOKEN^ANAME=VALUE^A^A      (extensions: none changes anything here)
    server  nothing, or {"status":"invalid_token"}
    client  ^A                                          after a refusal

What is wrong with a token is in our log alone. The texts told to clients are those of Kafka.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from broker.security.principal import USER, Principal
from broker.security.sasl.mechanism import BadToken, Challenge, Done, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

INVALID_TOKEN = '{"status":"invalid_token"}'

_RESPONSE = re.compile(
    r"n,(?:a=(?P<acting_as>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[A-Za-z0-9._~+/-]+=*)", re.ASCII)


class InvalidToken(Exception):
    """A bearer token is not believed. The text is for our log: it has nothing of the token but
    names of claims and algorithms that we know."""


class Bearer(NamedTuple):
    """Whom a token is good for, and until when (ms since 1970)."""

    name: str
    expires_ms: int


class OAuthBearerExchange:
    """One client's."""

    def __init__(self, validate: Callable[[str], Bearer]) -> None:
        """`validate` raises InvalidToken."""
        self._validate = validate
        self._cause = ""

    def step(self, token: bytes) -> Challenge | Done:
        """Take the client's next message. Raises Refused and BadToken."""
        if self._cause:
            raise Refused(INVALID_TOKEN, self._cause)
        acting_as, bearer_token = _parsed(token)
        try:
            bearer = self._validate(bearer_token)
        except InvalidToken as error:
            self._cause = str(error)
            return Challenge(INVALID_TOKEN.encode())
        if acting_as not in ("", bearer.name):
            raise Refused(
                f"Authentication failed: Client requested an authorization id ({acting_as}) that "
                f"is different from the token's principal name ({bearer.name})",
                "the authorization id is another than the name in the token",
            )
        return Done(b"", Principal(USER, bearer.name), bearer.expires_ms)


def _parsed(message: bytes) -> tuple[str, str]:
    """As whom the client wants to act, and its token. Raises BadToken."""
    found = _RESPONSE.fullmatch(message.decode("latin-1"))
    if found is None:
        raise BadToken("the message of OAUTHBEARER is malformed")
    pairs = [pair.partition("=") for pair in found["pairs"].split("\x01") if pair]
    values = [value for name, _, value in pairs if name == "auth"]
    auth = _AUTH.fullmatch(values[0]) if len(values) == 1 else None
    if auth is None or auth["scheme"].lower() != "bearer":
        raise BadToken("the message of OAUTHBEARER has no bearer token, or several")
    acting_as = (found["acting_as"] or "").replace("=2C", ",").replace("=3D", "=")
    return acting_as, auth["token"]
