"""JSON Web Tokens (RFC 7519): who has signed one, for whom, and until when.

Signatures are checked by PyJWT with keys of a JSON Web Key Set (RFC 7517), by asymmetric
algorithms alone: with HS256 anybody who has the public key could sign, and `none` is no signature.
The claims are those that Kafka looks at (KIP-768): `exp` and `iat` are wanted, `nbf` holds if it is
there. What has ended is refused whatever the skew of clocks: its session would be over.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.security.sasl.oauthbearer import Bearer, InvalidToken

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.security.sasl.jwks import VerificationKey

TOKEN_MAX_CHARACTERS = 1 << 16
NAME_MAX_CHARACTERS = 1024
PARTS = 3
TIME_MAX_SECONDS = 1 << 40
"""Later than any clock says, and a number that no arithmetic here is spoilt by."""


class ExpectedClaims(NamedTuple):
    """What a token has to say, by the keys sasl.oauthbearer.*."""

    audience: tuple[str, ...] = ()
    """The token has to be for one of these. Without any, it has to be for nobody in particular."""
    issuer: str | None = None
    scope: tuple[str, ...] = ()
    """The token has to have each of these."""
    skew_ms: int = 30_000
    scope_claim: str = "scope"
    sub_claim: str = "sub"

    def bearer(self, claims: dict[str, Any], now_ms: int) -> Bearer:
        """The bearer of a token that is believed. Raises InvalidToken."""
        expires_ms = _time_ms(claims, "exp")
        if now_ms >= expires_ms:
            raise InvalidToken("the token has expired (exp)")
        for name in ("iat", "nbf") if "nbf" in claims else ("iat",):
            if _time_ms(claims, name) > now_ms + self.skew_ms:
                raise InvalidToken(f"the token is not valid yet ({name}); is a clock wrong?")
        for name in ("iss", "sub", "jti"):
            if not isinstance(claims.get(name, ""), str):
                raise InvalidToken(f"the claim {name} is no text")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidToken("the token is from another issuer (iss)")
        if self.audience and not set(self.audience) & set(_texts(claims, "aud")):
            raise InvalidToken("the token is for another audience (aud)")
        scopes = {word for text in _texts(claims, self.scope_claim) for word in text.split()}
        missing = [one for one in self.scope if one not in scopes]
        if missing:
            raise InvalidToken(f"the token lacks the scope {', '.join(missing)}")
        subject = claims.get(self.sub_claim)
        if not isinstance(subject, str) or not 0 < len(subject.strip()) <= NAME_MAX_CHARACTERS:
            raise InvalidToken(f"the token has no name of a principal ({self.sub_claim})")
        if not subject.isprintable():
            raise InvalidToken(f"the name of the principal is not printable ({self.sub_claim})")
        return Bearer(subject.strip(), expires_ms)


def signed_token(
    token: str,
    keys_of: Callable[[str | None, str], list[VerificationKey]],
    claims: ExpectedClaims,
    now_ms: int,
) -> Bearer:
    """The bearer of a token that a key of ours has signed. `keys_of` finds keys by the token's key
    id and its algorithm. Raises InvalidToken."""
    import jwt

    header, payload = _header_and_payload(token)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
        raise InvalidToken("the token has no algorithm (alg), or a key id (kid) that is no text")
    if str(header.get("cty", "")).upper() == "JWT":
        raise InvalidToken("the token has another within it (cty)")
    if "crit" in header:
        raise InvalidToken("the token wants something of its reader (crit) that is not known")
    verifier = jwt.PyJWS()
    for key in keys_of(key_id, algorithm):
        try:
            verifier.decode(token, key.key, algorithms=[algorithm])
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            continue
        bearer = claims.bearer(payload, now_ms)
        if "aud" in payload and not claims.audience:
            raise InvalidToken("it is for an audience (aud): sasl.oauthbearer.expected.audience")
        return bearer
    raise InvalidToken("the token is not signed by a key of the issuer that fits its kid and alg")


def unsigned_token(token: str, claims: ExpectedClaims, now_ms: int) -> Bearer:
    """The bearer of a token that nobody has signed (RFC 7515, A.5), for development. Raises
    InvalidToken."""
    header, payload = _header_and_payload(token)
    if header.get("alg") != "none" or not token.endswith("."):
        raise InvalidToken("the token is signed, and unsecured ones alone are taken here")
    return claims.bearer({"iat": 0} | payload, now_ms)


def _header_and_payload(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(token) > TOKEN_MAX_CHARACTERS:
        raise InvalidToken(f"the token has more than {TOKEN_MAX_CHARACTERS} characters")
    parts = token.split(".")
    if len(parts) != PARTS:
        raise InvalidToken(f"the token has {len(parts)} parts, a JSON Web Token has {PARTS}")
    header, payload = (_object(part) for part in parts[:2])
    return header, {name: value for name, value in payload.items() if value is not None}


def _object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(
            base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True),
            object_pairs_hook=_named_once,
            parse_constant=_no_number,
        )
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidToken("a part of the token is no JSON object in base64")
    return found


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Of a name that is there twice readers disagree what it says."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_number(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _time_ms(claims: dict[str, Any], name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"the token has no time {name}, or one that is no number")
    if not 0 <= value < TIME_MAX_SECONDS:
        raise InvalidToken(f"the token's time {name} is beyond what a time can be")
    return int(value * 1000)


def _texts(claims: dict[str, Any], name: str) -> list[str]:
    """A claim that is a text or several; none if it is not there."""
    value = claims.get(name, [])
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise InvalidToken(f"the claim {name} is neither a text nor a list of texts")
    return values
