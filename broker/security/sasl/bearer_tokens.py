"""How the tokens of OAUTHBEARER are judged on a listener, made of its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from broker import logs
from broker.clock import elapsed_ms, now_ms
from broker.security.sasl.jwks import BadKeySet, KeySet, Waits, from_file
from broker.security.sasl.jwt_validator import ExpectedClaims, signed_token, unsigned_token
from broker.security.sasl.oauthbearer import OAuthBearerExchange
from config.keystores import KeystoreError
from config.security_rules import UNSECURED_VALIDATOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.security.sasl.oauthbearer import Bearer
    from config.listener_security import ListenerSecurity


def oauthbearer_exchanges(security: ListenerSecurity) -> Callable[[], OAuthBearerExchange]:
    """What begins the exchanges of a listener, whose settings are sound. Keys in a file have to be
    there at the start; those of an endpoint are fetched when the first token comes, so that the
    start waits for nobody. Raises KeystoreError."""
    claims = ExpectedClaims(
        audience=security.sasl_oauthbearer_expected_audience or (),
        issuer=security.sasl_oauthbearer_expected_issuer,
        scope=security.sasl_oauthbearer_expected_scope or (),
        skew_ms=security.sasl_oauthbearer_clock_skew_seconds * 1000,
        scope_claim=security.sasl_oauthbearer_scope_claim_name,
        sub_claim=security.sasl_oauthbearer_sub_claim_name,
    )
    if security.sasl_server_callback_handler_class == UNSECURED_VALIDATOR:
        logs.warning(
            "unsecured tokens are believed: whoever reaches this listener may be anyone",
            key="sasl.server.callback.handler.class",
        )
        return lambda: OAuthBearerExchange(lambda token: unsigned_token(token, claims, now_ms()))
    _require_package()
    url = security.sasl_oauthbearer_jwks_endpoint_url or ""
    waits = Waits(
        security.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        security.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        security.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
    )
    keys = KeySet(reader(url, elapsed_ms), waits, elapsed_ms)
    if url.startswith("file:"):
        try:
            keys.refresh()
        except BadKeySet as error:
            key = "sasl.oauthbearer.jwks.endpoint.url"
            raise KeystoreError(f"{url} has no keys to check tokens ({key}): {error}") from None

    def validate(token: str) -> Bearer:
        return signed_token(token, keys.find, claims, now_ms())

    return lambda: OAuthBearerExchange(validate)


def reader(url: str, monotonic_ms: Callable[[], float]) -> Callable[[], bytes]:
    """What reads the set of a `file:` or an http(s) URL."""
    if urlsplit(url).scheme == "file":
        return lambda: from_file(Path(unquote(urlsplit(url).path)))
    from broker.security.sasl.jwks_endpoint import fetched

    return lambda: fetched(url, monotonic_ms)


def _require_package() -> None:
    try:
        import cryptography
        import jwt
    except ImportError as error:
        raise KeystoreError(f"OAUTHBEARER needs pip install triglot[security]: {error}") from None
    del cryptography, jwt
