"""PLAIN (RFC 4616): a user and a password in one token, `[authzid] NUL user NUL password`.

The texts told to clients are those of Kafka.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from broker.security.principal import USER, Principal
from broker.security.sasl.mechanism import BadToken, Done, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "PLAIN"
PARTS = 3


class PlainExchange:
    """One token, one verdict."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """`passwords` by user."""
        self._passwords = passwords

    def step(self, token: bytes) -> Done:
        """The verdict on the token. Raises Refused and BadToken."""
        try:
            parts = token.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            raise BadToken("the token is not UTF-8") from None
        if len(parts) != PARTS:
            raise BadToken(f"the token has {len(parts)} parts, not {PARTS}")
        acting_as, user, password = parts
        if not user or not password:
            raise BadToken("the token has no user or no password")
        # Whether there is such a user shows neither in the answer nor in the time that it takes.
        known = self._passwords.get(user)
        same = hmac.compare_digest(_padded(known or ""), _padded(password))
        if known is None or not same:
            raise Refused("Authentication failed: Invalid username or password")
        if acting_as not in ("", user):
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return Done(b"", Principal(USER, user))


def _padded(password: str) -> bytes:
    """A digest: what is compared has one length, whatever the passwords are."""
    import hashlib

    return hashlib.sha256(password.encode()).digest()
