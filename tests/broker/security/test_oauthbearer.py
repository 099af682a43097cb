"""OAUTHBEARER without a broker: which tokens are believed, and where their keys come from."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from broker.security.principal import USER, Principal
from broker.security.sasl.bearer_tokens import reader
from broker.security.sasl.jwks import (
    KEYS_MAX,
    SET_MAX_BYTES,
    BadKeySet,
    KeySet,
    Waits,
    parse_key_set,
)
from broker.security.sasl.jwt_validator import (
    TOKEN_MAX_CHARACTERS,
    ExpectedClaims,
    signed_token,
    unsigned_token,
)
from broker.security.sasl.mechanism import BadToken, Challenge, Done, Refused
from broker.security.sasl.oauthbearer import (
    INVALID_TOKEN,
    Bearer,
    InvalidToken,
    OAuthBearerExchange,
)
from tests.support.tokens import NOW_S, jwk, key_set, private_key, response, token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOW_MS = NOW_S * 1000
KEYS = parse_key_set(
    key_set([
        jwk("RS256", "one"), jwk("ES256", "two"), jwk("ES384", "three"), jwk("EdDSA", "four"),
        jwk("RS256", "encrypts", "other", use="enc"), jwk("PS256", "pss", "pss", alg="PS256"),
    ])
)  # fmt: skip
FOR_KAFKA = ExpectedClaims(audience=("kafka",))
STRICT = ExpectedClaims(audience=("kafka", "lake"), issuer="us", scope=("read",))


def find(key_id: str | None, algorithm: str) -> list[Any]:
    return [
        one
        for one in KEYS
        if algorithm in one.algorithms and (key_id is None or one.key_id == key_id)
    ]


def judged(text: str, claims: ExpectedClaims = FOR_KAFKA) -> Bearer:
    return signed_token(text, find, claims, NOW_MS)


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("algorithm", "key_id", "name"),
    [
        ("RS256", "one", ""), ("RS512", "one", ""), ("PS256", "pss", "pss"), ("ES256", "two", ""),
        ("ES384", "three", ""), ("EdDSA", "four", ""), ("RS256", None, ""), ("ES256", None, ""),
    ],
)  # fmt: skip
def test_a_token_that_a_key_of_the_set_has_signed_is_believed(
    algorithm: str, key_id: str | None, name: str
) -> None:
    private = private_key("RS256" if algorithm == "RS512" else algorithm, name)
    import jwt

    claims = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 5, "aud": "kafka"}
    text = jwt.encode(claims, private, algorithm, headers={"kid": key_id} if key_id else None)
    assert judged(text) == Bearer("alice", NOW_MS + 5000)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW_S}, "expired"),
        ({"exp": None}, "no time exp"),
        ({"exp": "tomorrow"}, "no time exp"),
        ({"exp": True}, "no time exp"),
        ({"exp": 10**400}, "beyond"),
        ({"exp": float("nan")}, "no JSON"),
        ({"iat": None}, "no time iat"),
        ({"iat": NOW_S + 31}, r"not valid yet \(iat\)"),
        ({"nbf": NOW_S + 31}, r"not valid yet \(nbf\)"),
        ({"nbf": "now"}, "no time nbf"),
        ({"iss": "them"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "console"}, "another audience"),
        ({"aud": ["console", "shop"]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": {"kafka": 1}}, "neither a text"),
        ({"scope": "write"}, "lacks the scope read"),
        ({"scope": "reader"}, "lacks the scope read"),
        ({"scope": 7}, "neither a text"),
        ({"sub": None}, "no name"),
        ({"sub": "  "}, "no name"),
        ({"sub": ["alice"]}, "sub is no text"),
        ({"jti": 7}, "jti is no text"),
        ({"sub": "alice\nbob"}, "not printable"),
        ({"sub": "a" * 2000}, "no name"),
    ],
)
def test_a_token_with_claims_that_do_not_hold_is_refused(claims: dict[str, Any], why: str) -> None:
    import jwt

    good = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 9, "aud": ["lake"], "iss": "us"}
    whole = good | {"scope": "read write"} | claims
    payload = json.dumps({key: value for key, value in whole.items() if value is not None})
    text = jwt.PyJWS().encode(
        payload.encode(), private_key("RS256"), "RS256", headers={"kid": "one"}
    )
    with pytest.raises(InvalidToken, match=why):
        judged(text, STRICT)


def test_a_token_for_somebody_is_no_good_where_nobody_is_expected() -> None:
    with pytest.raises(InvalidToken, match="for an audience"):
        judged(token(), ExpectedClaims())
    assert judged(token({"aud": None}), ExpectedClaims()).name == "alice"


def test_a_name_that_is_there_twice_says_nothing() -> None:
    import jwt

    claims = json.dumps({"sub": "alice", "iat": NOW_S, "exp": NOW_S + 9, "aud": "kafka"})[:-1]
    for payload in (f'{claims}, "sub": "admin"}}', f'{claims}, "nbf": NaN}}'):
        text = jwt.PyJWS().encode(payload.encode(), private_key("RS256"), "RS256", {"kid": "one"})
        with pytest.raises(InvalidToken, match="no JSON object"):
            judged(text)


def test_scopes_may_be_a_text_or_a_list() -> None:
    for scope in ("write read", ["write", "read"]):
        assert judged(token({"scope": scope}), STRICT).name == "alice"


def test_a_clock_may_be_off_by_so_much() -> None:
    assert judged(token({"exp": NOW_S + 1, "iat": NOW_S + 29}))


def test_an_unsigned_token_is_refused_whatever_none_is_written_like() -> None:
    claims = part({"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60})
    for none in ("none", "None", "NONE", "nOnE", ""):
        with pytest.raises(InvalidToken, match="not signed by a key"):
            judged(f"{part({'alg': none, 'kid': 'one'})}.{claims}.")


def test_a_public_key_is_no_secret_that_signs() -> None:
    """Key confusion: HS256 with the public key, in every form in which it is published."""
    public = private_key("RS256").public_key()
    forms = [
        public.public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
        for encoding in (Encoding.PEM, Encoding.DER)
    ]
    claims = part({"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60})
    signed = f"{part({'alg': 'HS256', 'kid': 'one'})}.{claims}"
    for secret in (*forms, json.dumps(jwk("RS256", "one")).encode()):
        mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        with pytest.raises(InvalidToken, match="not signed by a key"):
            judged(f"{signed}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}")


def test_a_key_in_the_token_itself_is_not_looked_at() -> None:
    with pytest.raises(InvalidToken, match="not signed by a key"):
        judged(token(name="forger", jwk=jwk("RS256", "one", "forger"), jku="https://forger.test/"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": "forger"}, "not signed by a key"),
        ({"key_id": "nobody"}, "not signed by a key"),
        ({"key_id": "encrypts", "name": "other"}, "not signed by a key"),
        ({"key_id": "pss", "name": "pss"}, "not signed by a key"),
        ({"algorithm": "ES256", "key_id": "three"}, "not signed by a key"),
    ],
)
def test_the_key_has_to_be_for_that_token(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidToken, match=why):
        judged(token(**given))


def test_what_a_token_calls_critical_is_not_overlooked() -> None:
    header = part({"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": False})
    with pytest.raises(InvalidToken, match="crit"):
        judged(f"{header}.{part({})}.AAAA")


@pytest.mark.parametrize(
    "text",
    ["", "a", "..", "a.b", "a.b.c.d", f"{part([])}.{part({})}.", f"{part({'alg': 5})}.{part({})}.",
     f"{part({'alg': 'RS256', 'kid': []})}.{part({})}.", "A" * (TOKEN_MAX_CHARACTERS + 1),
     base64.urlsafe_b64encode(b'{"a":' * 9000).decode() + ".e30."],
    ids=range(10),
)  # fmt: skip
def test_what_is_no_token_is_refused_as_one(text: str) -> None:
    with pytest.raises(InvalidToken):
        judged(text)


def test_a_token_changed_anywhere_is_not_believed() -> None:
    text = token()
    header, payload, signature = text.split(".")
    other = part({"sub": "admin", "iat": NOW_S, "exp": NOW_S + 3600})
    for one in (f"{header}.{other}.{signature}", f"{header}.{payload}.", text[:-8]):
        with pytest.raises(InvalidToken, match="not signed by a key"):
            judged(one)


def test_unsecured_tokens_are_those_that_nobody_signed() -> None:
    claims = part({"sub": "dev", "exp": NOW_S + 60})
    text = f"{part({'alg': 'none'})}.{claims}."
    assert unsigned_token(text, ExpectedClaims(), NOW_MS).name == "dev"
    with pytest.raises(InvalidToken, match="signed"):
        unsigned_token(token(), ExpectedClaims(), NOW_MS)
    with pytest.raises(InvalidToken, match="expired"):
        unsigned_token(text, ExpectedClaims(), NOW_MS + 600_000)


def exchange() -> OAuthBearerExchange:
    return OAuthBearerExchange(judged)


def test_a_good_token_ends_the_exchange_with_its_name_and_its_end() -> None:
    done = Done(b"", Principal(USER, "alice"), NOW_MS + 3_600_000)
    assert exchange().step(response(token())) == done
    assert exchange().step(response(token(), "alice")) == done


def test_a_bad_token_is_answered_and_refused_after_it() -> None:
    one = exchange()
    assert one.step(response(token({"exp": 5}))) == Challenge(INVALID_TOKEN.encode())
    with pytest.raises(Refused) as refused:
        one.step(response(token()))  # a second try is none
    assert str(refused.value) == INVALID_TOKEN
    assert refused.value.cause == "the token has expired (exp)"


def test_nobody_acts_as_another_than_the_token_says() -> None:
    with pytest.raises(Refused, match="different from the token's principal name"):
        exchange().step(response(token(), "admin"))


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"y,,\x01auth=Bearer a.b.c\x01\x01", b"n,,auth=Bearer a.b.c",
     b"n,,\x01auth=Basic YTpi\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"\xff\xfe",
     b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer d.e.f\x01\x01"],
)  # fmt: skip
def test_what_is_no_message_of_the_mechanism_is_refused(message: bytes) -> None:
    with pytest.raises(BadToken):
        exchange().step(message)


class Source:
    """Where keys come from, and a clock."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.data: bytes | None = key_set(keys)
        self.now_ms = 0.0
        self.reads = 0

    def read(self) -> bytes:
        self.reads += 1
        if self.data is None:
            raise OSError("it is away")
        return self.data

    def keys(self) -> KeySet:
        return KeySet(self.read, Waits(60_000, 100, 1000), lambda: self.now_ms)


def test_a_file_of_keys_that_every_user_may_write_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set([jwk("RS256", "one")]))
    keys = KeySet(reader(file.as_uri(), lambda: 0.0), Waits(60_000, 100, 1000), lambda: 0.0)
    file.chmod(0o646)
    with pytest.raises(
        BadKeySet, match=f"every user of this machine can write it; chmod o-w {file}"
    ):
        keys.refresh()
    file.chmod(0o644)
    keys = KeySet(reader(file.as_uri(), lambda: 0.0), Waits(60_000, 100, 1000), lambda: 0.0)
    keys.refresh()
    assert len(keys.find("one", "RS256")) == 1


def test_keys_are_read_once_and_again_when_they_are_old() -> None:
    source = Source(jwk("RS256", "one"))
    keys = source.keys()
    for now_ms, reads in ((0.0, 1), (59_999.0, 1), (60_000.0, 2), (60_001.0, 2)):
        source.now_ms = now_ms
        assert len(keys.find("one", "RS256")) == 1
        assert source.reads == reads


def test_a_new_key_of_the_issuer_is_found_and_unknown_ones_make_few_reads() -> None:
    source = Source(jwk("RS256", "one"))
    keys = source.keys()
    assert keys.find("one", "RS256")
    source.data = key_set([jwk("ES256", "two")])
    for _ in range(50):
        assert not keys.find("two", "ES256")
    assert source.reads == 1
    source.now_ms = 1000
    assert keys.find("two", "ES256")
    assert not keys.find("one", "RS256")  # it is revoked
    assert source.reads == 2


def test_all_who_come_with_a_new_key_while_it_is_read_are_let_in() -> None:
    source = Source(jwk("RS256", "one"))
    keys = source.keys()
    assert keys.find("one", "RS256")
    source.data, source.now_ms = key_set([jwk("ES256", "two")]), 1000
    reads, goes_on, second_asks = threading.Event(), threading.Event(), threading.Event()
    found: list[int] = []

    def read() -> bytes:
        reads.set()
        goes_on.wait(20)
        return source.read()

    def find(asks: threading.Event) -> None:
        asks.set()
        found.append(len(keys.find("two", "ES256")))

    keys._read = read
    first = threading.Thread(target=find, args=(threading.Event(),))
    second = threading.Thread(target=find, args=(second_asks,))
    first.start()
    assert reads.wait(20)
    second.start()
    assert second_asks.wait(20)
    goes_on.set()
    first.join()
    second.join()
    assert found == [1, 1]
    assert source.reads == 2


def test_a_source_that_is_away_leaves_the_keys_and_is_asked_ever_less() -> None:
    source = Source(jwk("RS256", "one"))
    keys = source.keys()
    assert keys.find("one", "RS256")
    source.data, source.now_ms = None, 60_000.0
    for _ in range(2000):
        source.now_ms += 1
        assert keys.find("one", "RS256")
    assert source.reads == 1 + 5  # after 0, 100, 300, 700 and 1,500 ms


def test_without_any_key_nobody_is_let_in_and_the_cause_is_said() -> None:
    source = Source()
    source.data = None
    keys = source.keys()
    with pytest.raises(InvalidToken, match="no keys to check a token: it is away"):
        keys.find("one", "RS256")
    with pytest.raises(BadKeySet, match="it is away"):
        keys.refresh()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"<html>", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no list `keys`"),
        (b'{"keys": 5}', "no list `keys`"),
        (b'{"keys": [1, {}, {"kty": "oct", "k": "AAAA", "kid": "x"}]}', "none of 3 keys"),
        (b'{"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}', "none of 1 keys"),
        (key_set([{}] * (KEYS_MAX + 1)), "at most"),
        (key_set([jwk("RS256", "a", "short")]), "none of 1 keys"),
    ],
    ids=range(8),
)
def test_a_set_without_keys_that_verify_is_an_error(data: bytes, why: str) -> None:
    with pytest.raises(BadKeySet, match=why):
        parse_key_set(data)


def test_a_file_of_keys_has_a_bound(tmp_path: Any) -> None:
    path = tmp_path / "keys with space.json"
    path.write_bytes(b" " * (SET_MAX_BYTES + 1))
    with pytest.raises(BadKeySet, match="more than"):
        reader(path.as_uri(), lambda: 0.0)()


def answered_by(answer: Iterator[bytes], monotonic_ms: Callable[[], float]) -> bytes:
    """What is fetched of an endpoint that sends these pieces. Raises BadKeySet."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                client.recv(4096)
                for piece in answer:
                    client.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return reader(f"http://127.0.0.1:{server.getsockname()[1]}/keys", monotonic_ms)()
        finally:
            thread.join()


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n{"])
def test_an_endpoint_that_sends_byte_after_byte_has_no_more_time_than_another(begun: bytes) -> None:
    """In the header, too. The clock goes on by a second with each byte."""
    clock = count()
    now_ms = 0.0

    def slowly() -> Iterator[bytes]:
        nonlocal now_ms
        yield begun
        for _ in clock:
            now_ms += 1000
            yield b"x"

    with pytest.raises(BadKeySet, match="longer than 5 s"):
        answered_by(slowly(), lambda: now_ms)


def test_an_endpoint_that_sends_without_end_is_not_listened_to_for_long() -> None:
    def much() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        for _ in range(SET_MAX_BYTES // 1024 * 4):
            yield b" " * 1024

    with pytest.raises(BadKeySet, match="more than"):
        answered_by(much(), lambda: 0.0)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "RemoteDisconnected"),
        (b"SSH-2.0\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "IncompleteRead"),
        (b"HTTP/1.1 503 No\r\n\r\n", "503"),
        (b"HTTP/1.1 302 There\r\nLocation: file:///etc/passwd\r\n\r\n", "302"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "HTTPException"),
    ],
    ids=range(6),
)
def test_an_answer_that_is_none_is_an_error_of_the_keys(said: bytes, why: str) -> None:
    with pytest.raises(BadKeySet, match=why):
        answered_by(iter([said]), lambda: 0.0)


def test_the_whole_answer_of_an_endpoint_is_taken() -> None:
    keys = key_set([jwk("RS256", str(number)) for number in range(KEYS_MAX)])
    said = b"HTTP/1.1 200 OK\r\n\r\n" + keys
    assert answered_by(iter([said[:9], said[9:]]), lambda: 0.0) == keys
