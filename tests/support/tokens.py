"""Tokens and the keys that sign them, as an issuer has them."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

if TYPE_CHECKING:
    from collections.abc import Iterable

NOW_S = 1_760_000_000
FAMILIES: dict[str, Any] = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "ES": ECAlgorithm}


def private_key(algorithm: str, name: str = "") -> Any:
    """A key for an algorithm; another one for each name."""
    return _made(algorithm, name)


@cache
def _made(algorithm: str, name: str) -> Any:
    match algorithm[:2]:
        case "ES":
            curves: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1()}
            return ec.generate_private_key(curves[algorithm])
        case "Ed":
            return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 1024 if name == "short" else 2048)


def jwk(algorithm: str, key_id: str | None, name: str = "", **more: Any) -> dict[str, Any]:
    """The public key as a JSON Web Key."""
    family = FAMILIES.get(algorithm[:2], OKPAlgorithm)
    found: dict[str, Any] = json.loads(family.to_jwk(private_key(algorithm, name).public_key()))
    found.pop("key_ops", None)
    found |= {"kid": key_id} if key_id is not None else {}
    return found | more


def key_set(keys: Iterable[dict[str, Any]]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def token(
    claims: dict[str, Any] | None = None,
    *,
    algorithm: str = "RS256",
    key_id: str | None = "one",
    name: str = "",
    now_s: int = NOW_S,
    **headers: Any,
) -> str:
    """A signed token of alice, good for an hour. A claim that is None is left out."""
    whole = {"sub": "alice", "iat": now_s, "exp": now_s + 3600, "aud": "kafka", "iss": "us"}
    whole |= claims or {}
    return jwt.encode(
        {key: value for key, value in whole.items() if value is not None},
        private_key(algorithm, name),
        algorithm,
        headers=headers | ({"kid": key_id} if key_id is not None else {}),
    )


def response(bearer_token: str, acting_as: str = "") -> bytes:
    """The client's message of OAUTHBEARER."""
    acting = f"a={acting_as}" if acting_as else ""
    return f"n,{acting},\x01auth=Bearer {bearer_token}\x01\x01".encode()
