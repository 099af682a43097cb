"""The client's side of SASL mechanisms: messages in, messages out, without the connection.

exchange = start(security, host)
token = exchange.first()
while token is not None:
    token = exchange.next(answer_of_the_broker_to(token))
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from client.errors import Refused, WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.security import ClientSecurity

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 1_000_000
"""Fewer give the password away (RFC 7677); more would hold a client up for seconds."""
TOKEN_MAX_BYTES = 512 << 10

_SERVER_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=(\d{1,9})(?:,.*)?")


class Exchange(Protocol):
    """One authentication."""

    @property
    def is_last(self) -> bool:
        """Whether the broker answers the latest message with nothing, which older ones do not
        send."""

    def first(self) -> bytes:
        """The first message."""

    def next(self, answer: bytes) -> bytes | None:
        """The message after an answer, None when it is over. Raises Refused if the answer is not
        that of a broker that knows us."""


def start(security: ClientSecurity, host: str) -> Exchange:
    """With the broker on a host, as it is dialled. Raises WrongUse where there is no token, or no
    ticket; Refused and ConnectionLost where an issuer is asked for a token."""
    if security.mechanism == "GSSAPI":
        from client.kerberos import Gssapi

        return Gssapi(security, host)
    if security.mechanism == "PLAIN":
        return Plain(security.user, security.password)
    if security.mechanism == "OAUTHBEARER":
        endpoint = security.token_endpoint
        return OAuthBearer(endpoint.token() if endpoint else _token(security.token_path))
    return Scram(
        security.mechanism,
        security.user,
        security.password,
        by_delegation_token=security.by_delegation_token,
    )


class Plain:
    """PLAIN (RFC 4616)."""

    is_last = False

    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def next(self, answer: bytes) -> bytes | None:
        return None


class OAuthBearer:
    """OAUTHBEARER (RFC 7628). A broker that refuses a token says why, and waits for a byte."""

    is_last = False

    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def next(self, answer: bytes) -> bytes | None:
        return b"\x01" if answer else None


class Scram:
    """SCRAM (RFC 5802) without channel binding. The broker proves that it knows the password."""

    is_last = False

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        random_bytes: Callable[[int], bytes] = os.urandom,
        *,
        by_delegation_token: bool = False,
    ) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = base64.b64encode(random_bytes(24)).decode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        extensions = ",tokenauth=true" if by_delegation_token else ""
        self._bare = f"n={name},r={self._nonce}{extensions}"
        self._expected: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def next(self, answer: bytes) -> bytes | None:
        if self._expected is not None:
            if not hmac.compare_digest(answer.split(b",")[0], self._expected):
                raise Refused("it does not prove that it knows the password: it may be an impostor")
            return None
        return self._final(answer)

    def _final(self, challenge: bytes) -> bytes:
        text = challenge.decode("utf-8", "replace")
        found = _SERVER_FIRST.fullmatch(text)
        if found is None or not found[1].startswith(self._nonce) or found[1] == self._nonce:
            raise Refused("its challenge is malformed, or not for us")
        iterations = int(found[3])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise Refused(
                f"it wants {iterations} iterations of SCRAM, and {ITERATIONS_MIN} to "
                f"{ITERATIONS_MAX} are safe"
            )
        try:
            salt = base64.b64decode(found[2], validate=True)
        except binascii.Error:
            raise Refused("its challenge is malformed, or not for us") from None
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c=biws,r={found[1]}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._expected = b"v=" + base64.b64encode(hmac.digest(server_key, signed, self._hash))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def _token(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            token = file.read(TOKEN_MAX_BYTES + 1).strip()
    except OSError as error:
        raise WrongUse(f"the token file {path} can't be read: {error.strerror or error}") from None
    if not re.fullmatch(rb"[A-Za-z0-9._~+/=-]{1,%d}" % TOKEN_MAX_BYTES, token):
        raise WrongUse(f"the token file {path} has no bearer token, and nothing else, in it")
    return token.decode()
