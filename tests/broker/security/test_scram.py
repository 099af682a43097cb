"""SCRAM against the example of RFC 7677, against a client that computes for itself, and its
attackers."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from broker.security.principal import USER, Principal
from broker.security.sasl.mechanism import BadToken, Challenge, Done, Refused
from broker.security.sasl.scram import (
    ALGORITHMS,
    SHA_256,
    Algorithm,
    Credential,
    Decoys,
    ScramExchange,
    credential_of_password,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
OUR_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
NONCE = CLIENT_NONCE + OUR_NONCE
BARE = f"n=user,r={CLIENT_NONCE}"
SERVER_FIRST = f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
CLIENT_FINAL = f"c=biws,r={NONCE},p={PROOF}"
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(
    algorithm: Algorithm = SHA_256, credential: Credential | None = None, user: str = "user"
) -> ScramExchange:
    known = credential or credential_of_password(algorithm, "pencil", SALT, 4096)
    decoys = Decoys(b"secret", algorithm)
    return ScramExchange(algorithm, {user: known}.get, decoys.of, lambda: OUR_NONCE)


def final(
    algorithm: Algorithm, challenge: Challenge, password: str, bare: str, c: str = "biws"
) -> bytes:
    """The last message of a client, computed as RFC 5802 says and not by the code under test."""
    nonce, salt, iterations = (part[2:] for part in challenge.token.decode().split(",", 2))
    name = algorithm.hash
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(salt), int(iterations))
    client_key = hmac.new(salted, b"Client Key", name).digest()
    stored_key = hashlib.new(name, client_key).digest()
    without = f"c={c},r={nonce}"
    signed = f"{bare},{challenge.token.decode()},{without}".encode()
    signature = hmac.new(stored_key, signed, name).digest()
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}".encode()


def test_the_example_of_the_rfc() -> None:
    one = exchange()

    assert one.step(f"n,,{BARE}".encode()) == Challenge(SERVER_FIRST.encode())
    assert one.step(CLIENT_FINAL.encode()) == Done(SERVER_FINAL.encode(), Principal(USER, "user"))


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=lambda one: one.name)
@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=us=2Cer=3D,"])
def test_whoever_knows_the_password_is_let_in(algorithm: Algorithm, header: str) -> None:
    user, bare = "us,er=", "n=us=2Cer=3D,r=abc"
    one = exchange(algorithm, user=user)

    challenge = one.step(f"{header}{bare}".encode())
    assert isinstance(challenge, Challenge)
    bound = base64.b64encode(header.encode()).decode()
    done = one.step(final(algorithm, challenge, "pencil", bare, bound))

    assert isinstance(done, Done)
    assert done.principal == Principal(USER, user)


def test_who_is_not_there_is_answered_as_one_with_a_wrong_password() -> None:
    known, unknown = exchange(), exchange()
    answers = {}
    for one, user in ((known, "user"), (unknown, "nobody")):
        bare = f"n={user},r=abc"
        challenge = one.step(f"n,,{bare}".encode())
        assert isinstance(challenge, Challenge)
        with pytest.raises(BadToken) as error:
            one.step(final(SHA_256, challenge, "wrong", bare))
        answers[user] = (str(error.value), len(challenge.token), challenge.token[-7:])
    assert answers["user"][0] == answers["nobody"][0] == "the proof of SCRAM is wrong"
    assert answers["user"][2] == answers["nobody"][2] == b",i=4096"


def test_who_is_not_there_has_the_same_salt_every_time() -> None:
    decoys, others = Decoys(b"secret", SHA_256), Decoys(b"another", SHA_256)
    assert decoys.of("nobody") == decoys.of("nobody")
    assert len({decoys.of("nobody").salt, decoys.of("no one").salt, others.of("nobody").salt}) == 3


def test_a_message_of_another_exchange_is_of_no_use() -> None:
    heard = exchange()
    heard.step(f"n,,{BARE}".encode())
    heard.step(CLIENT_FINAL.encode())
    again = ScramExchange(
        SHA_256,
        {"user": credential_of_password(SHA_256, "pencil", SALT, 4096)}.get,
        Decoys(b"", SHA_256).of,
        lambda: "another",
    )

    again.step(f"n,,{BARE}".encode())

    with pytest.raises(BadToken, match="another nonce"):
        again.step(CLIENT_FINAL.encode())
    with pytest.raises(BadToken, match="the proof"):
        again.step(f"c=biws,r={CLIENT_NONCE}another,p={PROOF}".encode())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "malformed"),
        (b"\xff\xfe", "UTF-8"),
        (f"p=tls-unique,,{BARE}".encode(), "bind a channel"),
        (f"n,,m=x,{BARE}".encode(), "malformed"),
        (f"n,,{BARE},m=x".encode(), "mandatory"),
        (b"n,,n=,r=abc", "malformed"),
        (b"n,,n=a=b,r=abc", "malformed"),
        (b"n,,n=user,r=", "malformed"),
        (b"n,,n=user,r=a\x00b", "malformed"),
        (CLIENT_FINAL.encode(), "malformed"),
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(BadToken, match=reason):
        exchange().step(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        f"c=biws,r={NONCE}",
        f"c=biws,r={NONCE},p=",
        f"c=biws,r={NONCE},p=AAAA",
        f"c=biws,r={NONCE},p={PROOF[:-1]}",
        f"c=eSws,r={NONCE},p={PROOF}",
        f"c=biws,r={CLIENT_NONCE},p={PROOF}",
        f"c=biws,r={NONCE},x=y,p={PROOF}",
        f"c=biws,r={NONCE},p={PROOF},x=y",
        f"n,,{BARE}",
    ],
)
def test_a_last_message_that_is_none_is_refused(message: str | bytes) -> None:
    one = exchange()
    one.step(f"n,,{BARE}".encode())
    with pytest.raises(BadToken):
        one.step(message if isinstance(message, bytes) else message.encode())


def test_nobody_acts_in_the_name_of_another() -> None:
    with pytest.raises(Refused, match="authorization id that is different from username"):
        exchange().step(f"n,a=admin,{BARE}".encode())


def test_a_credential_that_is_too_weak_lets_nobody_in() -> None:
    weak = credential_of_password(SHA_256, "pencil", SALT, 1)
    with pytest.raises(BadToken, match="fewer than 4096 iterations"):
        exchange(credential=weak).step(f"n,,{BARE}".encode())
