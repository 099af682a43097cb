"""Tokens and messages of OAUTHBEARER that brokers judge, by a title. They are made anew each time:
tokens are of this hour."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.tokens import jwk, private_key, response, token

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = [
    jwk("RS256", "one"),
    jwk("ES256", "two"),
    jwk("ES384", "three"),
    jwk("EdDSA", "four"),
    jwk("PS256", "pss", "pss", alg="PS256"),
    jwk("RS256", "encrypts", "encrypts", use="enc"),
    jwk("RS256", "short", "short"),
    {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(b"s" * 32).decode()},
]
LONG = 70_000


class Question(NamedTuple):
    """One message of a client to a listener."""

    title: str
    listener: str
    message: Callable[[], bytes]


def now_s() -> int:
    return int(time.time())


def part(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def good(**claims: Any) -> dict[str, Any]:
    """Claims that every listener with keys believes; those that are None are left out."""
    whole = {"sub": "alice", "iat": now_s(), "exp": now_s() + 3600, "aud": "kafka", "iss": "us"}
    whole |= {"user": "carol"} | claims
    return {name: value for name, value in whole.items() if value is not None}


def signed_text(payload: str, algorithm: str = "RS256", name: str = "", **header: Any) -> str:
    """A token with a payload that need not be claims."""
    return jwt.PyJWS().encode(
        payload.encode(), private_key(algorithm, name), algorithm, headers={"kid": "one"} | header
    )


def unsigned(header: object, claims: object) -> str:
    return f"{part(header)}.{part(claims)}."


def by_the_public_key(encoding: Encoding) -> str:
    """HS256, with the public key as if it were a secret."""
    public = private_key("RS256").public_key()
    secret = public.public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    return by_a_secret(secret, "one")


def by_a_secret(secret: bytes, key_id: str) -> str:
    signed = f"{part({'alg': 'HS256', 'kid': key_id})}.{part(good())}"
    mac = hmac.digest(secret, signed.encode(), hashlib.sha256)
    return f"{signed}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def changed(claims: dict[str, Any]) -> str:
    """A signed token whose claims were changed afterwards."""
    header, _, signature = token(now_s=now_s()).split(".")
    return f"{header}.{part(claims)}.{signature}"


# Claims, each told to a listener that expects nothing but what every listener does.
CLAIMS: dict[str, Callable[[], dict[str, Any]]] = {
    "as they should be": good,
    "ends soon": lambda: good(exp=now_s() + 34),
    "exp with a fraction": lambda: good(exp=time.time() + 34),
    "ended, within the skew": lambda: good(exp=now_s() - 15),
    "ended, beyond the skew": lambda: good(exp=now_s() - 45),
    "ended before it began": lambda: good(iat=now_s() - 10, exp=now_s() - 20),
    "no exp": lambda: good(exp=None),
    "exp is a text": lambda: good(exp=str(now_s() + 60)),
    "exp is true": lambda: good(exp=True),
    "exp is negative": lambda: good(exp=-1),
    "exp is zero": lambda: good(exp=0),
    "exp in 30,000 years": lambda: good(exp=now_s() + 10**12),
    "exp beyond ms of 64 bits": lambda: good(exp=10**17),
    "exp beyond 64 bits": lambda: good(exp=10**30),
    "no iat": lambda: good(iat=None),
    "iat is a text": lambda: good(iat="now"),
    "iat is negative": lambda: good(iat=-1),
    "iat is to come, within the skew": lambda: good(iat=now_s() + 15),
    "iat is to come, beyond the skew": lambda: good(iat=now_s() + 300),
    "iat is after exp": lambda: good(iat=now_s() + 7200),
    "nbf has been": lambda: good(nbf=now_s() - 5),
    "nbf is to come, within the skew": lambda: good(nbf=now_s() + 15),
    "nbf is to come, beyond the skew": lambda: good(nbf=now_s() + 60),
    "nbf is after exp": lambda: good(nbf=now_s() + 7200),
    "nbf is a text": lambda: good(nbf="now"),
    "no sub": lambda: good(sub=None),
    "sub is empty": lambda: good(sub=""),
    "sub is of spaces": lambda: good(sub="  "),
    "sub has spaces around it": lambda: good(sub=" alice "),
    "sub is a number": lambda: good(sub=7),
    "sub is a list": lambda: good(sub=["alice"]),
    "sub of letters beyond ASCII": lambda: good(sub="Ωλίβια"),
    "sub with a line end": lambda: good(sub="alice\nbob"),
    "sub of 2,000 letters": lambda: good(sub="a" * 2000),
    "no aud": lambda: good(aud=None),
    "another aud": lambda: good(aud="console"),
    "aud is a list": lambda: good(aud=["console", "lake", "kafka"]),
    "aud is an empty list": lambda: good(aud=[]),
    "aud is a number": lambda: good(aud=7),
    "aud is a list with a number": lambda: good(aud=["kafka", 7]),
    "aud is an object": lambda: good(aud={"kafka": 1}),
    "aud in capitals": lambda: good(aud="KAFKA"),
    "no iss": lambda: good(iss=None),
    "another iss": lambda: good(iss="them"),
    "iss with a slash behind": lambda: good(iss="us/"),
    "iss is a number": lambda: good(iss=7),
    "iss is a list": lambda: good(iss=["us"]),
    "jti": lambda: good(jti="1"),
    "jti is a number": lambda: good(jti=1),
    "scope": lambda: good(scope="read write"),
    "scope is empty": lambda: good(scope=""),
    "scope is of spaces": lambda: good(scope="  "),
    "scope is a list": lambda: good(scope=["read", "write"]),
    "scope names one twice": lambda: good(scope=["read", "read"]),
    "scope has an empty one": lambda: good(scope=["read", ""]),
    "scope is a number": lambda: good(scope=7),
    "scope is a list with a number": lambda: good(scope=["read", 7]),
    "scope is an object": lambda: good(scope={"read": 1}),
    "user": lambda: good(user="dave"),
    "no user": lambda: good(user=None),
    "scp": lambda: good(scp="read"),
    "scp is a number": lambda: good(scp=7),
    "scp is a list with a number": lambda: good(scp=[7]),
    "a claim that is null": lambda: good() | {"nbf": None},
    "sub is null": lambda: good() | {"sub": None},
    "an unknown claim": lambda: good(shoe={"size": [44]}),
}

# Tokens that differ in how they are made.
TOKENS: dict[str, Callable[[], str]] = {
    "RS256": lambda: token(good()),
    "RS256 without a kid": lambda: token(good(), key_id=None),
    "RS512 by a key without alg": lambda: signed_text(json.dumps(good()), alg="RS512"),
    "PS256": lambda: token(good(), algorithm="PS256", key_id="pss", name="pss"),
    "PS256 by a key without alg": lambda: token(good(), algorithm="PS256"),
    "RS256 by a key for PS256": lambda: token(good(), key_id="pss", name="pss"),
    "ES256": lambda: token(good(), algorithm="ES256", key_id="two"),
    "ES256 without a kid": lambda: token(good(), algorithm="ES256", key_id=None),
    "ES384": lambda: token(good(), algorithm="ES384", key_id="three"),
    "EdDSA": lambda: token(good(), algorithm="EdDSA", key_id="four"),
    "ES256 with the kid of ES384": lambda: token(good(), algorithm="ES256", key_id="three"),
    "RS256 by a short key": lambda: token(good(), key_id="short", name="short"),
    "RS256 by a key that encrypts": lambda: token(good(), key_id="encrypts", name="encrypts"),
    "an unknown kid": lambda: token(good(), key_id="nobody"),
    "the kid of another key": lambda: token(good(), key_id="two"),
    "kid is a number": lambda: signed_by_hand({"alg": "RS256", "kid": 1}),
    "kid is empty": lambda: token(good(), key_id=""),
    "by another key": lambda: token(good(), name="forger"),
    "by another key without a kid": lambda: token(good(), name="forger", key_id=None),
    "with its own key": lambda: token(good(), name="forger", jwk=jwk("RS256", "one", "forger")),
    "with its own key elsewhere": lambda: token(good(), name="forger", jku="https://forger.test"),
    "HS256 by the public key as PEM": lambda: by_the_public_key(Encoding.PEM),
    "HS256 by the public key as DER": lambda: by_the_public_key(Encoding.DER),
    "HS256 by a secret of the set": lambda: by_a_secret(b"s" * 32, "shared"),
    "alg none": lambda: unsigned({"alg": "none"}, good()),
    "alg none with a kid": lambda: unsigned({"alg": "none", "kid": "one"}, good()),
    "alg None": lambda: unsigned({"alg": "None"}, good()),
    "alg NONE": lambda: unsigned({"alg": "NONE"}, good()),
    "alg none with a signature": lambda: unsigned({"alg": "none"}, good()) + "AAAA",
    "no alg": lambda: unsigned({"kid": "one"}, good()),
    "alg rs256": lambda: signed_by_hand({"alg": "rs256", "kid": "one"}),
    "alg is a number": lambda: signed_by_hand({"alg": 256, "kid": "one"}),
    "RS256 without a signature": lambda: unsigned({"alg": "RS256", "kid": "one"}, good()),
    "claims changed": lambda: changed(good(sub="admin")),
    "signature cut": lambda: token(good())[:-8],
    "signature of another": lambda: _with_signature_of(token(good(sub="bob"))),
    "two parts": lambda: token(good()).rpartition(".")[0],
    "four parts": lambda: f"{token(good())}.AAAA",
    "five parts": lambda: f"{token(good())}.AAAA.AAAA",
    "empty parts": lambda: "..",
    "no dots": lambda: "abc",
    "padding": lambda: ".".join(_padded(one) for one in token(good()).split(".")),
    "claims are a list": lambda: signed_text("[]"),
    "claims are no JSON": lambda: signed_text("{"),
    "claims are empty": lambda: signed_text(""),
    "a claim twice": lambda: signed_text(json.dumps(good())[:-1] + ', "sub": "bob"}'),
    "header twice": lambda: signed_by_hand('{"alg":"none","alg":"RS256","kid":"one"}'),
    "NaN": lambda: signed_text(json.dumps(good(shoe=float("nan")))),
    "exp is NaN": lambda: signed_text(json.dumps(good(exp=float("nan")))),
    "exp is infinite": lambda: signed_text(json.dumps(good(exp=float("inf")))),
    "deep": lambda: signed_text('{"a":' * 5000 + "1" + "}" * 5000),
    "crit": lambda: token(good(), crit=["exp"]),
    "crit b64": lambda: signed_by_hand({"alg": "RS256", "kid": "one", "crit": ["b64"]}),
    "typ at+jwt": lambda: token(good(), typ="at+jwt"),
    "cty JWT": lambda: token(good(), cty="JWT"),
    "zip": lambda: token(good(), zip="DEF"),
    "x5t that fits no key": lambda: token(good(), x5t="AAAA"),
    "16 KiB": lambda: token(good(shoe="x" * 12_000)),
    "70,000 characters": lambda: token(good(shoe="x" * (LONG * 3 // 4))),
}


def signed_by_hand(header: object) -> str:
    """RS256 by the right key under a header that a library would not write."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    signed = f"{part(header)}.{part(good())}"
    signature = private_key("RS256").sign(signed.encode(), PKCS1v15(), SHA256())
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _with_signature_of(other: str) -> str:
    return f"{token(good()).rpartition('.')[0]}.{other.rpartition('.')[2]}"


def _padded(encoded: str) -> str:
    return encoded + "=" * (-len(encoded) % 4)


def _before(text: str) -> Callable[[], bytes]:
    """The good token in another message: TOKEN stands for it, ^ for the byte 1."""
    return lambda: text.replace("^", "\x01").replace("TOKEN", token(good())).encode("latin-1")


MESSAGES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "the byte 1": lambda: b"\x01",
    "noise": lambda: bytes(range(256)),
    "as the principal": lambda: response(token(good()), "alice"),
    "as another": lambda: response(token(good()), "bob"),
    "as one with a comma": lambda: response(token(good(sub="a,b")), "a=2Cb"),
    "as one with an equals sign": lambda: response(token(good(sub="a=b")), "a=3Db"),
    "as nobody": _before("n,a=,^auth=Bearer TOKEN^^"),
    "bound to a channel": _before("y,,^auth=Bearer TOKEN^^"),
    "wants a channel": _before("p=tls-unique,,^auth=Bearer TOKEN^^"),
    "no header": _before("^auth=Bearer TOKEN^^"),
    "one byte 1 at the end": _before("n,,^auth=Bearer TOKEN^"),
    "three bytes 1 at the end": _before("n,,^auth=Bearer TOKEN^^^"),
    "no auth": _before("n,,^^"),
    "an extension": _before("n,,^auth=Bearer TOKEN^shoe=44^^"),
    "an extension before": _before("n,,^shoe=44^auth=Bearer TOKEN^^"),
    "an empty extension": _before("n,,^auth=Bearer TOKEN^shoe=^^"),
    "an extension with a digit": _before("n,,^auth=Bearer TOKEN^shoe2=44^^"),
    "an extension with an equals sign": _before("n,,^auth=Bearer TOKEN^shoe=4=4^^"),
    "an extension twice": _before("n,,^auth=Bearer TOKEN^shoe=44^shoe=45^^"),
    "an extension beyond ASCII": _before("n,,^auth=Bearer TOKEN^shoe=\xe9^^"),
    "auth twice": _before("n,,^auth=Bearer TOKEN^auth=Bearer TOKEN^^"),
    "auth twice, the last is none": _before("n,,^auth=Bearer TOKEN^auth=Bearer x.y.z^^"),
    "Auth": _before("n,,^Auth=Bearer TOKEN^^"),
    "host and port": _before("n,,^host=kafka^port=9092^auth=Bearer TOKEN^^"),
    "bearer": _before("n,,^auth=bearer TOKEN^^"),
    "BEARER": _before("n,,^auth=BEARER TOKEN^^"),
    "Basic": _before("n,,^auth=Basic TOKEN^^"),
    "no scheme": _before("n,,^auth=TOKEN^^"),
    "two spaces": _before("n,,^auth=Bearer  TOKEN^^"),
    "a tab": _before("n,,^auth=Bearer\tTOKEN^^"),
    "a space behind": _before("n,,^auth=Bearer TOKEN ^^"),
    "no token": _before("n,,^auth=Bearer ^^"),
    "a token in quotes": _before('n,,^auth=Bearer "TOKEN"^^'),
}


def unsecured(**claims: Any) -> Callable[[], str]:
    """Numbers are seconds from when the token is made, which a long test run does much later."""

    def made() -> str:
        now = now_s()
        told = {key: now + one if isinstance(one, int) else one for key, one in claims.items()}
        return unsigned({"alg": "none"}, good(**told))

    return made


UNSECURED: dict[str, Callable[[], str]] = {
    "as they should be": unsecured(),
    "sub and exp alone": lambda: unsigned({"alg": "none"}, {"sub": "a", "exp": now_s() + 60}),
    "exp with a fraction": lambda: unsigned({"alg": "none"}, {"sub": "a", "exp": now_s() + 9.5}),
    "ended within 20 seconds": unsecured(exp=-20),
    "ended": unsecured(exp=-60, iat=-90),
    "no exp": unsecured(exp=None),
    "no sub": unsecured(sub=None),
    "sub is empty": unsecured(sub=""),
    "iat is to come": unsecured(iat=300),
    "nbf is to come": unsecured(nbf=300),
    "another audience": unsecured(aud="console"),
    "signed": lambda: token(good()),
    "alg none, with a signature": lambda: unsigned({"alg": "none"}, good()) + "AAAA",
    "alg None": lambda: unsigned({"alg": "None"}, good()),
    "alg RS256, no signature": lambda: unsigned({"alg": "RS256"}, good()),
    "no alg": lambda: unsigned({}, good()),
    "with typ": lambda: unsigned({"alg": "none", "typ": "JWT"}, good()),
    "two parts": lambda: unsigned({"alg": "none"}, good())[:-1],
}


def _questions() -> list[Question]:
    found = []

    def ask(listener: str, what: str, title: str, message: Callable[[], bytes]) -> None:
        found.append(Question(f"{listener}: {what}: {title}", listener, message))

    def of_claims(make: Callable[[], dict[str, Any]]) -> Callable[[], bytes]:
        return lambda: response(signed_text(json.dumps(make())))

    def of_token(make: Callable[[], str]) -> Callable[[], bytes]:
        return lambda: response(make())

    for listener in ("ANY", "STRICT", "NAMED"):
        for title, claims in CLAIMS.items():
            if listener != "ANY" or "aud" in title or title == "as they should be":
                ask(listener, "claims", title, of_claims(claims))
    for title, text in TOKENS.items():
        ask("STRICT", "token", title, of_token(text))
    for title, message in MESSAGES.items():
        ask("STRICT", "message", title, message)
    for title, text in UNSECURED.items():
        ask("UNSECURED", "token", title, of_token(text))
    return found


QUESTIONS = _questions()
OTHER_USER = "nobody-else"


def of_another(listener: str) -> bytes:
    """A message that a listener takes, of a user that no question is about."""
    claims = good(sub=OTHER_USER, user=OTHER_USER)
    if listener == "ANY":
        claims["aud"] = None
    made = unsigned({"alg": "none"}, claims) if listener == "UNSECURED" else token(claims)
    return response(made)
