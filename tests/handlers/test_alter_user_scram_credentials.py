"""AlterUserScramCredentials, version 0. The codes are what Apache Kafka 3.9 answers."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from tests.handlers.scram_calls import (
    SHA_256,
    SHA_512,
    Deletion,
    Upsertion,
    alter,
    credentials,
    no_password,
    password,
)
from tests.support.caller import Caller
from tests.support.running_controller import RunningController

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

DUPLICATE = ErrorCode.DUPLICATE_RESOURCE
MISSING = ErrorCode.RESOURCE_NOT_FOUND
UNACCEPTABLE = ErrorCode.UNACCEPTABLE_CREDENTIAL
UNKNOWN_MECHANISM = ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_credentials_are_set_replaced_and_taken_away(caller: Caller, topic: str) -> None:
    assert alter(caller, password(topic)) == {topic: 0}
    assert alter(caller, password(topic, SHA_512, iterations=16384)) == {topic: 0}
    assert credentials(caller, topic) == {SHA_256: 4096, SHA_512: 16384}

    assert alter(caller, password(topic, iterations=8192)) == {topic: 0}
    assert credentials(caller, topic) == {SHA_256: 8192, SHA_512: 16384}

    assert alter(caller, no_password(topic)) == {topic: 0}
    assert credentials(caller, topic) == {SHA_512: 16384}
    assert alter(caller, no_password(topic)) == {topic: MISSING}


def test_credentials_outlive_a_kill(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        assert alter(caller, password("alice"), password("bob", SHA_512)) == {"alice": 0, "bob": 0}
    own_broker.kill()
    own_broker.start()

    with Caller(own_broker.host, own_broker.port) as caller:
        assert credentials(caller, "alice") == {SHA_256: 4096}
        assert credentials(caller, "bob") == {SHA_512: 4096}


def kept_after(tmp_path: Path, change: Upsertion) -> Any:
    with RunningController(tmp_path / "data") as node, node.connect_as_client() as caller:
        assert alter(caller, change) == {change.name: 0}
        return node.controller.image.scram_credentials[change.name, change.mechanism]


def test_what_is_kept_checks_the_proof_of_the_example_in_rfc_7677(tmp_path: Path) -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    said = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")

    kept = kept_after(tmp_path, password("user", salt=salt, salted_password=salted))

    assert (bytes(kept.salt), kept.iterations) == (salt, 4096)
    signature = hmac.digest(kept.stored_key, said, "sha256")
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == kept.stored_key
    verifier = b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert hmac.digest(kept.server_key, said, "sha256") == verifier


def test_the_other_mechanism_has_the_longer_hash(tmp_path: Path) -> None:
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", b"salt", 4096)

    kept = kept_after(tmp_path, password("user", SHA_512, salted_password=salted))

    client_key = hmac.digest(salted, b"Client Key", "sha512")
    assert kept.stored_key == hashlib.sha512(client_key).digest()
    assert kept.server_key == hmac.digest(salted, b"Server Key", "sha512")


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        *(({"mechanism": mechanism}, UNKNOWN_MECHANISM) for mechanism in (0, 3, -1)),
        *(({"iterations": count}, UNACCEPTABLE) for count in (4095, 16385, 0, -5)),
        *(({"mechanism": SHA_512, "iterations": count}, UNACCEPTABLE) for count in (4095, 16385)),
        ({"mechanism": 9, "iterations": 1}, UNKNOWN_MECHANISM),
        ({"salt": b""}, 0),
        ({"salted_password": b"123"}, 0),
        # Kafka: a fault of its own.
        ({"salted_password": b""}, UNACCEPTABLE),
    ],
)
def test_which_credentials_there_can_be(
    caller: Caller, topic: str, facts: dict[str, Any], code: int
) -> None:
    assert alter(caller, password(topic, **facts)) == {topic: code}
    assert bool(credentials(caller, topic)) == (code == 0)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([password("")], UNACCEPTABLE),
        ([password("", 9)], UNACCEPTABLE),
        ([no_password("")], UNACCEPTABLE),
        ([no_password("", 9)], UNACCEPTABLE),
    ],
)
def test_a_user_has_a_name(caller: Caller, changes: list[Upsertion | Deletion], code: int) -> None:
    assert alter(caller, *changes) == {"": code}


@pytest.mark.parametrize("mechanism", [0, 3])
def test_what_is_taken_away_is_of_a_known_mechanism(
    caller: Caller, topic: str, mechanism: int
) -> None:
    alter(caller, password(topic))

    assert alter(caller, no_password(topic, mechanism)) == {topic: UNKNOWN_MECHANISM}


@pytest.mark.parametrize(
    "changes",
    [
        [password("u"), password("u")],
        [password("u"), password("u", SHA_512)],
        [password("u"), password("u", SHA_512, iterations=1)],
        [password("u"), password("u", 9)],
        [no_password("u"), no_password("u")],
        [no_password("u"), password("u")],
        [no_password("u"), password("u", SHA_512)],
        [password("u"), password("u"), password("u")],
    ],
)
def test_a_user_who_comes_twice_is_refused_and_stays_as_he_was(
    caller: Caller, changes: list[Upsertion | Deletion]
) -> None:
    assert alter(caller, password("u", iterations=5000)) == {"u": 0}

    assert alter(caller, *changes, password("other")) == {"u": DUPLICATE, "other": 0}

    assert credentials(caller, "u") == {SHA_256: 5000}


def test_the_first_fault_of_a_user_is_the_one_that_is_told(caller: Caller) -> None:
    assert alter(caller, password("m", 9), password("m", 9)) == {"m": UNKNOWN_MECHANISM}
    assert alter(caller, password("i", iterations=1), password("i")) == {"i": UNACCEPTABLE}
    assert alter(caller, no_password("n"), no_password("n", SHA_512)) == {"n": MISSING}
    assert alter(caller, no_password("p", SHA_512), password("p")) == {"p": MISSING}
    assert alter(caller) == {}


def test_a_refused_user_takes_no_other_with_him(caller: Caller, topic: str) -> None:
    good = f"{topic}-good"

    answered = alter(caller, password(good), password("bad", iterations=1), no_password("nobody"))

    assert answered == {good: 0, "bad": UNACCEPTABLE, "nobody": MISSING}
    assert credentials(caller, good) == {SHA_256: 4096}


def test_what_fits_no_batch_is_refused_and_changes_nothing(caller: Caller, topic: str) -> None:
    code = ErrorCode.POLICY_VIOLATION

    answered = alter(caller, password(topic, salt=bytes(9 << 20)), password(f"{topic}-2"))

    assert answered == {topic: code, f"{topic}-2": code}
    assert credentials(caller, topic) == {}
