"""Delegation tokens (KIP-48, KIP-373): an id and a secret by which programs act for their owner.

The secret is the HMAC-SHA512 of the id with delegation.token.secret.key, and is kept nowhere: the
metadata log has the id, the owner, those who may renew the token, and its times. A client logs in
by SCRAM with the id as its name, the secret in base64 as its password, and the extension
`tokenauth=true`.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import TYPE_CHECKING, Protocol

from broker.security.principal import Principal
from broker.security.sasl.scram import (
    MIN_ITERATIONS,
    SALT_BYTES,
    TokenLogin,
    credential_of_password,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.security.sasl.scram import Algorithm, Credential
    from protocol.logdata.metadata import DelegationTokenRecord

CREDENTIALS_MAX = 4096
"""Credentials that are remembered: to make one takes some ms."""


class TokenSession(Protocol):
    """A connection whose client has logged in with a token."""

    def limit_session(self, lifetime_ms: int) -> None:
        """Let it last so long from now on; 0 ends it at once."""


class DelegationTokens:
    """The tokens in the metadata, their secrets, and the connections that they have let in.

    `login` may be called on a thread, all else on the loop.
    """

    def __init__(
        self,
        records: Callable[[], Mapping[str, DelegationTokenRecord]],
        secret_key: str,
        now_ms: Callable[[], int],
    ) -> None:
        """`records` gives the tokens of now by their ids."""
        self._records = records
        self._secret_key = secret_key.encode()
        self._now_ms = now_ms
        self._secrets: dict[str, bytes] = {}
        self._credentials: dict[tuple[str, str], Credential] = {}
        self._sessions: dict[str, set[TokenSession]] = {}

    def secret(self, token_id: str) -> bytes:
        """The secret of a token, 64 bytes."""
        return hmac.digest(self._secret_key, token_id.encode(), "sha512")

    def find(self, secret: bytes) -> DelegationTokenRecord | None:
        """The token with this secret, expired or not."""
        records, known = self._records(), self._secrets
        self._secrets = {one: known.get(one) or self.secret(one) for one in records}
        for token_id, expected in self._secrets.items():
            if hmac.compare_digest(expected, secret):
                return records[token_id]
        return None

    def all(self) -> list[DelegationTokenRecord]:
        """Every token, expired or not."""
        return list(self._records().values())

    def expired(self) -> list[str]:
        """The ids of those that have ended."""
        now_ms = self._now_ms()
        return [one.token_id for one in self.all() if is_expired(one, now_ms)]

    def ends(self, token_id: str) -> int | None:
        """Until when a token is good, in ms since 1970; None where it has ended or was never
        there."""
        record = self._records().get(token_id)
        if record is None or is_expired(record, self._now_ms()):
            return None
        return record.expiration_timestamp

    def login(self, algorithm: Algorithm, token_id: str) -> TokenLogin | None:
        """What the client of a token proves its secret against; None where it has ended or was
        never there."""
        record = self._records().get(token_id)
        if record is None or is_expired(record, self._now_ms()):
            return None
        key = algorithm.name, token_id
        credential = self._credentials.get(key)
        if credential is None:
            secret = self.secret(token_id)
            salt = hmac.digest(secret, algorithm.name.encode(), "sha512")[:SALT_BYTES]
            password = b64encode(secret).decode()
            credential = credential_of_password(algorithm, password, salt, MIN_ITERATIONS)
            if len(self._credentials) >= CREDENTIALS_MAX:
                self._credentials.clear()
            self._credentials[key] = credential
        return TokenLogin(credential, stored_principal(record.owner))

    # The connections that tokens have let in.

    def opened(self, token_id: str, session: TokenSession) -> None:
        """A client has logged in with this token."""
        self._sessions.setdefault(token_id, set()).add(session)

    def closed(self, token_id: str, session: TokenSession) -> None:
        """Its connection has ended."""
        sessions = self._sessions.get(token_id, set())
        sessions.discard(session)
        if not sessions:
            self._sessions.pop(token_id, None)

    def changed(self, token_id: str) -> None:
        """A token has other times than its clients were told, or has gone: none of them stays
        longer than it is good, and those of one that has ended are cut off. Kafka lets them go on
        until they authenticate again."""
        record = self._records().get(token_id)
        expires_ms = 0 if record is None else record.expiration_timestamp
        lifetime_ms = max(0, expires_ms - self._now_ms())
        for session in list(self._sessions.get(token_id, ())):
            session.limit_session(lifetime_ms)


def stored_principal(text: str) -> Principal:
    """A principal as a record has it. Its name may be empty: Kafka takes such renewers, too."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether nobody may log in with it any more, nor renew it."""
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def may_renew(token: DelegationTokenRecord, principal: Principal) -> bool:
    """Whether this is one who may renew, end and see the token: its owner, whoever asked for it,
    or a renewer."""
    return str(principal) in (token.owner, token.requester, *token.renewers)
