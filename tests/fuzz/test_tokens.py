"""Invariant: a token that was spoiled on its way, or made up, authenticates nobody else, and ends
with a challenge, a principal whose password was in it, or one of the two declared refusals.

`TEST_FUZZ_FACTOR=20` spoils 300,000.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from broker.security.principal import USER, Principal
from broker.security.sasl.authentication import Authentication, AuthenticationFailed, State
from broker.security.sasl.jwks import parse_key_set
from broker.security.sasl.jwt_validator import ExpectedClaims, signed_token
from broker.security.sasl.mechanism import Challenge, Done, Mechanism
from broker.security.sasl.oauthbearer import Bearer, OAuthBearerExchange
from broker.security.sasl.plain import PlainExchange
from broker.security.sasl.scram import SHA_256, Decoys, ScramExchange, credential_of_password
from tests.support.secured import ScramClient
from tests.support.tokens import NOW_S, jwk, key_set, response, token

COUNT = 10_000 * int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
CREDENTIAL = credential_of_password(SHA_256, "alice-secret", b"0123456789abcdef", 4096)
ALICE = Principal(USER, "alice")
PIECES = (
    b"\0",
    b",",
    b"=",
    b"n,,",
    b"y,,",
    b"a=",
    b"r=",
    b"p=",
    b"c=biws",
    b"=2C",
    b"=3D",
    b"\xff",
)


def spoiled(token: bytes, random: Random) -> bytes:
    """The token after one to four accidents."""
    data = bytearray(token)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1:
                data = data[:at]
            case 2:
                data[at:at] = random.choice(PIECES)
            case 3:
                del data[at : at + random.randrange(1, 8)]
            case 4:
                other = random.randrange(len(data) + 1)
                data[at:at] = data[other : other + random.randrange(1, 40)]
            case _:
                data = bytearray(random.randbytes(random.randrange(64)))
    return bytes(data)


def scram() -> ScramExchange:
    known = {"alice": CREDENTIAL}
    return ScramExchange(SHA_256, known.get, Decoys(b"secret", SHA_256).of, lambda: "ours")


def authentication() -> Authentication:
    passwords = {"alice": "alice-secret", "bob": "bob-secret"}
    return Authentication(
        {
            "PLAIN": Mechanism("PLAIN", lambda: PlainExchange(passwords)),
            "SCRAM-SHA-256": Mechanism("SCRAM-SHA-256", scram),
        }
    )


def outcome(one: Authentication, token: bytes) -> Challenge | Done | None:
    try:
        answer = one.step(token)
    except AuthenticationFailed as failed:
        said = f"{failed} {failed.cause}"
    else:
        one.take(answer, 0)
        return answer
    one.fail()
    assert "secret" not in said
    return None


@pytest.mark.parametrize("seed", range(4))
def test_a_spoiled_token_of_plain_lets_in_nobody_whose_password_it_has_not(seed: int) -> None:
    random = Random(seed)
    for _ in range(COUNT // 8):
        token = spoiled(b"\0alice\0alice-secret", random)
        one = authentication()
        one.begin("PLAIN", raw=False, now_ms=0)
        answer = outcome(one, token)
        if answer is not None:
            assert isinstance(answer, Done)
            assert token in (b"\0alice\0alice-secret", b"alice\0alice\0alice-secret")
        else:
            assert one.state is State.FAILED


@pytest.mark.parametrize("seed", range(4))
def test_a_spoiled_message_of_scram_lets_in_nobody(seed: int) -> None:
    random = Random(seed)
    # One hash of the password for all of them: it is what takes the time of a client.
    client = ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
    whole = authentication()
    whole.begin("SCRAM-SHA-256", raw=False, now_ms=0)
    challenge = outcome(whole, client.first())
    assert isinstance(challenge, Challenge)
    final = client.final(challenge.token)
    for _ in range(COUNT // 8):
        one = authentication()
        one.begin("SCRAM-SHA-256", raw=False, now_ms=0)
        spoil_first = random.random() < 0.5
        first = spoiled(client.first(), random) if spoil_first else client.first()
        last = final if spoil_first else spoiled(final, random)
        answer = outcome(one, first)
        assert not isinstance(answer, Done)
        if answer is not None:
            done = outcome(one, last)
            assert done is None or (first, last) == (client.first(), final)
    assert outcome(whole, final) == Done(outcome_token(client, final), ALICE)


def outcome_token(client: ScramClient, final: bytes) -> bytes:
    """The server's last message, which an exchange that went well has."""
    one = authentication()
    one.begin("SCRAM-SHA-256", raw=False, now_ms=0)
    outcome(one, client.first())
    done = outcome(one, final)
    assert isinstance(done, Done)
    assert done.token is not None
    assert client.is_from_the_server(done.token)
    return done.token


@pytest.mark.parametrize("seed", range(4))
def test_a_spoiled_message_of_oauthbearer_lets_in_nobody(seed: int) -> None:
    """What is not signed may be anything; what is, is what was signed."""
    random = Random(seed)
    keys = parse_key_set(key_set([jwk("ES256", "one")]))
    whole = response(token(algorithm="ES256"))

    def validate(text: str) -> Bearer:
        return signed_token(
            text, lambda *_: keys, ExpectedClaims(audience=("kafka",)), NOW_S * 1000
        )

    for _ in range(COUNT // 8):
        message = spoiled(whole, random)
        one = Authentication(
            {"OAUTHBEARER": Mechanism("OAUTHBEARER", lambda: OAuthBearerExchange(validate))}
        )
        one.begin("OAUTHBEARER", raw=False, now_ms=0)
        answer = outcome(one, message)
        if isinstance(answer, Done):
            assert answer.principal.name == "alice"
            assert whole.split(b"Bearer ")[1].strip(b"\x01").split(b".")[1] in message
        elif answer is not None:
            assert outcome(one, b"\x01") is None
