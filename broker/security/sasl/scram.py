"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding.

    client  n,,n=USER,r=NONCE                  (what follows "n,," is the bare first message)
    server  r=NONCE+OURS,s=SALT,i=ITERATIONS
    client  c=biws,r=NONCE+OURS,p=PROOF
    server  v=SIGNATURE

With the extension `tokenauth=true` the user is the id of a delegation token, and whoever knows its
secret acts for its owner (KIP-48).

A user that is not there gets a salt too, always the same, and fails where a wrong password does:
Kafka refuses such a user at the first message, which tells who exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, NamedTuple

from broker.security.principal import USER, Principal
from broker.security.sasl.mechanism import BadToken, Challenge, Done, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_ITERATIONS = 4096
NONCE_BYTES = 24
SALT_BYTES = 24

_FIRST = re.compile(
    r"(?P<header>[ny],(?:a=(?P<acting_as>(?:[^=,]|=2C|=3D)+))?,)"
    r"(?P<bare>n=(?P<user>(?:[^=,]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,(?P<extensions>[A-Za-z]+=[^,]+(?:,[A-Za-z]+=[^,]+)*))?)",
)
_FINAL = re.compile(
    r"(?P<without_proof>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[A-Za-z]+=[^,]+)*),p=(?P<proof>[A-Za-z0-9+/=]+)",
)


class Credential(NamedTuple):
    """What is kept of a password. No text of it has the keys."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential({self.iterations} iterations)"


class TokenLogin(NamedTuple):
    """What a delegation token is good for: as whom one may log in by it."""

    credential: Credential
    owner: Principal


class Algorithm(NamedTuple):
    """A mechanism's name, Kafka's number of it, and its hash."""

    name: str
    number: int
    hash: str

    @property
    def digest_bytes(self) -> int:
        return hashlib.new(self.hash).digest_size


SHA_256 = Algorithm("SCRAM-SHA-256", 1, "sha256")
SHA_512 = Algorithm("SCRAM-SHA-512", 2, "sha512")
ALGORITHMS = {one.name: one for one in (SHA_256, SHA_512)}


class ScramExchange:
    """Two tokens of the client, and our answers to them."""

    def __init__(
        self,
        algorithm: Algorithm,
        credential_of: Callable[[str], Credential | None],
        decoy_of: Callable[[str], Credential],
        new_nonce: Callable[[], str],
        token_login: Callable[[str], TokenLogin | None] = lambda _: None,
    ) -> None:
        """`decoy_of` gives for a user that is not there what its credential might be, `token_login`
        what the id of a delegation token is good for."""
        self._algorithm = algorithm
        self._credential_of = credential_of
        self._decoy_of = decoy_of
        self._new_nonce = new_nonce
        self._token_login = token_login
        self._token: TokenLogin | None = None
        self._user = self._bare = self._server_first = self._header = self._nonce = ""
        self._credential: Credential | None = None
        self._known = False

    def step(self, token: bytes) -> Challenge | Done:
        """Take the client's next message. Raises Refused and BadToken."""
        try:
            message = token.decode("utf-8")
        except UnicodeDecodeError:
            raise BadToken("a message of SCRAM is not UTF-8") from None
        if self._credential is None:
            return self._first(message)
        return self._final(message, self._credential)

    def _first(self, message: str) -> Challenge:
        found = _FIRST.fullmatch(message)
        if found is None:
            raise BadToken("the first message of SCRAM is malformed, or wants to bind a channel")
        extensions = found["extensions"] or ""
        if extensions.startswith("m="):
            raise BadToken("an extension of SCRAM is mandatory and not known")
        user = _plain(found["user"])
        if found["acting_as"] and _plain(found["acting_as"]) != user:
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        if wants_token(extensions):
            self._token = self._token_login(user)
            credential = self._token and self._token.credential
        else:
            credential = self._credential_of(user)
        if credential is not None and credential.iterations < MIN_ITERATIONS:
            raise BadToken(f"the credential of the user has fewer than {MIN_ITERATIONS} iterations")
        self._known = credential is not None
        self._credential = credential = credential or self._decoy_of(user)
        self._user, self._bare, self._header = user, found["bare"], found["header"]
        self._nonce = found["nonce"] + self._new_nonce()
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return Challenge(self._server_first.encode())

    def _final(self, message: str, credential: Credential) -> Done:
        found = _FINAL.fullmatch(message)
        if found is None:
            raise BadToken("the last message of SCRAM is malformed")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise BadToken("the last message of SCRAM has another nonce")
        if _decoded(found["header"]) != self._header.encode():
            raise BadToken("the last message of SCRAM has another header than the first")
        signed = ",".join((self._bare, self._server_first, found["without_proof"])).encode()
        proof, name = _decoded(found["proof"]), self._algorithm.hash
        signature = hmac.digest(credential.stored_key, signed, name)
        if len(proof) != len(signature):
            raise BadToken("the proof of SCRAM has another length than its hash")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        stored_key = hashlib.new(name, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key) or not self._known:
            raise BadToken("the proof of SCRAM is wrong")
        ours = base64.b64encode(hmac.digest(credential.server_key, signed, name)).decode()
        proven = f"v={ours}".encode()
        if self._token is not None:
            return Done(proven, self._token.owner, delegation_token=self._user)
        return Done(proven, Principal(USER, self._user))


class Decoys:
    """Credentials of users that are not there: the same for the same user as long as we run."""

    def __init__(self, secret: bytes, algorithm: Algorithm) -> None:
        self._secret = secret
        self._algorithm = algorithm

    def of(self, user: str) -> Credential:
        made = hmac.digest(self._secret, user.encode(), "sha512")
        key = bytes(self._algorithm.digest_bytes)
        return Credential(made[:SALT_BYTES], key, key, MIN_ITERATIONS)


def credential_of_password(
    algorithm: Algorithm, password: str, salt: bytes, iterations: int
) -> Credential:
    """What is kept of a password. It takes some ms: a call for every 4096 iterations."""
    return credential_of_salted(
        algorithm,
        hashlib.pbkdf2_hmac(algorithm.hash, password.encode(), salt, iterations),
        salt,
        iterations,
    )


def credential_of_salted(
    algorithm: Algorithm, salted_password: bytes, salt: bytes, iterations: int
) -> Credential:
    """What is kept of a password that is salted already (RFC 5802, 3)."""
    client_key = hmac.digest(salted_password, b"Client Key", algorithm.hash)
    return Credential(
        salt,
        hashlib.new(algorithm.hash, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", algorithm.hash),
        iterations,
    )


def wants_token(extensions: str) -> bool:
    """Whether a client's first message, or the extensions in it, ask for a login by a token."""
    return "tokenauth=true" in extensions.lower().split(",")


def _plain(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except binascii.Error:
        found = b""
    if base64.b64encode(found).decode() != text:  # bits that stand for nothing are no base64 either
        raise BadToken("a message of SCRAM has something that is not base64")
    return found
