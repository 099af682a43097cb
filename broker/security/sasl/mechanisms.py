"""The mechanisms that a listener offers, made of its settings."""

from __future__ import annotations

import os
from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING

from broker.security.sasl import gssapi, plain, scram
from broker.security.sasl.mechanism import Mechanism, always, never
from broker.security.sasl.plain import PlainExchange
from broker.security.sasl.scram import Credential, Decoys, ScramExchange
from config.jaas import plain_users
from config.listener_security import ListenerSecurity
from config.security_rules import OAUTHBEARER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.security.delegation_tokens import DelegationTokens
    from broker.security.sasl.scram import Algorithm
    from config import BrokerSettings
    from protocol.logdata.metadata import UserScramCredentialRecord

    ScramCredentials = Callable[[], Mapping[tuple[str, int], UserScramCredentialRecord]]
    """The credentials of now, by user and Kafka's number of the mechanism."""


def mechanisms_of(
    settings: BrokerSettings,
    listener: str,
    credentials: ScramCredentials,
    tokens: DelegationTokens | None,
) -> dict[str, Mechanism]:
    """The mechanisms of a listener by name, in the order of its setting, which is sound; `tokens`
    are for those of SCRAM. Raises KeystoreError."""
    found = {}
    for name in ListenerSecurity(settings, listener).sasl_enabled_mechanisms:
        security = ListenerSecurity(settings, listener, name)
        max_session_ms = security.connections_max_reauth_ms
        if name == plain.NAME:
            users = plain_users(security.sasl_jaas_config or "")
            found[name] = Mechanism(name, partial(PlainExchange, users), max_session_ms)
        elif name == gssapi.NAME:
            from broker.security.sasl.kerberos import exchanges

            found[name] = Mechanism(name, exchanges(security), max_session_ms, always)
        elif name == OAUTHBEARER:
            from broker.security.sasl.bearer_tokens import oauthbearer_exchanges

            begin_bearer = oauthbearer_exchanges(security)
            found[name] = Mechanism(name, begin_bearer, max_session_ms, always)
        elif name in scram.ALGORITHMS:
            begin = _scram(scram.ALGORITHMS[name], credentials, tokens)
            slow = never if tokens is None else _makes_a_credential
            found[name] = Mechanism(name, begin, max_session_ms, slow)
    return found


def _scram(
    algorithm: Algorithm, credentials: ScramCredentials, tokens: DelegationTokens | None
) -> Callable[[], ScramExchange]:
    decoys = Decoys(os.urandom(32), algorithm)

    def credential_of(user: str) -> Credential | None:
        record = credentials().get((user, algorithm.number))
        if record is None:
            return None
        return Credential(record.salt, record.stored_key, record.server_key, record.iterations)

    if tokens is None:
        return lambda: ScramExchange(algorithm, credential_of, decoys.of, _nonce)
    token_login = partial(tokens.login, algorithm)
    return lambda: ScramExchange(algorithm, credential_of, decoys.of, _nonce, token_login)


def _makes_a_credential(token: bytes) -> bool:
    return scram.wants_token(token.decode("utf-8", "replace"))


def _nonce() -> str:
    return b64encode(os.urandom(scram.NONCE_BYTES)).decode()
