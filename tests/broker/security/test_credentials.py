"""Credentials as Kafka's storage tool takes them."""

from __future__ import annotations

import base64
import hashlib

import pytest

from broker.security.credentials import parse_new_credential
from broker.security.sasl.scram import SHA_256, SHA_512, credential_of_password

SALT = b"0123456789abcdef"


def test_a_password_becomes_a_credential() -> None:
    parsed = parse_new_credential(
        'SCRAM-SHA-512=[name=alice, password="with, comma and ]",iterations=8192]'
    )

    record = parsed.record(lambda count: bytes(count))
    made = credential_of_password(SHA_512, "with, comma and ]", bytes(24), 8192)
    assert (record.name, record.mechanism, record.iterations) == ("alice", 2, 8192)
    assert (record.salt, record.stored_key, record.server_key) == made[:3]


def test_a_salted_password_is_taken_as_it_is() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", SALT, 4096)
    texts = [base64.b64encode(one).decode() for one in (SALT, salted)]
    parsed = parse_new_credential(
        f'SCRAM-SHA-256=[name=bob,salt="{texts[0]}",saltedpassword="{texts[1]}"]'
    )

    record = parsed.record(lambda count: pytest.fail("no salt is wanted"))
    made = credential_of_password(SHA_256, "secret", SALT, 4096)
    assert (record.salt, record.stored_key, record.server_key) == made[:3]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("alice:tell-nobody", "MECHANISM="),
        ("SCRAM-SHA-1=[name=a,password=tell-nobody]", "SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=tell-nobody]", "no name"),
        ("SCRAM-SHA-256=[name=a]", "in place of the password"),
        ("SCRAM-SHA-256=[name=a,password=tell-nobody,saltedpassword=YQ==]", "in place"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", "the salt"),
        ("SCRAM-SHA-256=[name=a,password=tell-nobody,iterations=1]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=tell-nobody,other=1]", "each of name, password"),
        ("SCRAM-SHA-256=[name=a,password=tell-nobody,more]", "commas stand in quotes"),
        ("SCRAM-SHA-256=[name=a,salt=tell-nobody,saltedpassword=YQ==]", "salt in base64"),
    ],
)
def test_what_is_none_is_refused_without_its_values(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as error:
        parse_new_credential(text)
    assert "tell-nobody" not in str(error.value)
