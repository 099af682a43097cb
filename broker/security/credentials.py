"""Credentials of SCRAM as `serve --add-scram` is given them, in the syntax of Kafka's storage tool.

    SCRAM-SHA-256=[name=alice,password=alice-secret,iterations=8192]
    SCRAM-SHA-512=[name=bob,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Y3A=",saltedpassword="mT0yyUUxnlJaC9="]

Base64 and values with commas stand in quotes. No error repeats a value but names.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, NamedTuple

from broker.security.sasl.scram import (
    ALGORITHMS,
    MIN_ITERATIONS,
    SALT_BYTES,
    credential_of_password,
    credential_of_salted,
)
from protocol.logdata.metadata import UserScramCredentialRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.security.sasl.scram import Algorithm

MAX_ITERATIONS = 16_384
_WHOLE = re.compile(r"(?P<mechanism>[A-Z0-9-]+)=\[(?P<pairs>.*)\]", re.DOTALL)
_PAIR = re.compile(r'\s*(?P<name>\w+)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*))\s*(?:,|$)')
_NAMES = ("name", "password", "iterations", "salt", "saltedpassword")


class NewCredential(NamedTuple):
    """A user's credential that is to be made, of a password or of one that is salted already. No
    text of it has either."""

    algorithm: Algorithm
    user: str
    iterations: int
    password: str
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"NewCredential({self.algorithm.name}, {self.user})"

    def record(self, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
        """The record of it. Of a password it takes some ms."""
        salt = self.salt or random_bytes(SALT_BYTES)
        if self.salted_password:
            made = credential_of_salted(self.algorithm, self.salted_password, salt, self.iterations)
        else:
            made = credential_of_password(self.algorithm, self.password, salt, self.iterations)
        return UserScramCredentialRecord(
            name=self.user,
            mechanism=self.algorithm.number,
            salt=made.salt,
            stored_key=made.stored_key,
            server_key=made.server_key,
            iterations=made.iterations,
        )


def parse_new_credential(text: str) -> NewCredential:
    """A credential as Kafka's storage tool takes it. Raises ValueError with the wish."""
    wish = "MECHANISM=[name=USER,password=PASSWORD]"
    whole = _WHOLE.fullmatch(text.strip())
    if whole is None:
        raise ValueError(wish)
    algorithm = ALGORITHMS.get(whole["mechanism"])
    if algorithm is None:
        raise ValueError(f"{wish} with one of {', '.join(ALGORITHMS)} as MECHANISM")
    values = _pairs(whole["pairs"], wish)
    if not values.get("name"):
        raise ValueError(f"{wish}; there is no name")
    salt, salted = _base64(values, "salt"), _base64(values, "saltedpassword")
    if bool(values.get("password")) == bool(salted):
        raise ValueError(f"{wish}, or a salt and a saltedpassword in place of the password")
    if salted and not salt:
        raise ValueError("the salt of the saltedpassword")
    given = values.get("iterations", str(MIN_ITERATIONS))
    if not given.isdecimal() or not MIN_ITERATIONS <= int(given) <= MAX_ITERATIONS:
        raise ValueError(f"iterations from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return NewCredential(
        algorithm, values["name"], int(given), values.get("password", ""), salt, salted
    )


def _pairs(text: str, wish: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None or pair["name"] not in _NAMES or pair["name"] in found:
            raise ValueError(f"{wish}, each of {', '.join(_NAMES)} once; commas stand in quotes")
        found[pair["name"]] = pair["plain"] if pair["quoted"] is None else pair["quoted"]
        position = pair.end()
    return found


def _base64(values: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(values.get(name, ""), validate=True)
    except binascii.Error:
        raise ValueError(f"{name} in base64") from None
