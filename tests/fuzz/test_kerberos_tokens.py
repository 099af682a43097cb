"""Invariant: a spoiled token of GSSAPI authenticates nobody else, and ends with a challenge, the
principal whose ticket was in it, or a BadToken; libkrb5 does not bring the process down.

`TEST_FUZZ_FACTOR=10` spoils 200,000.
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from broker.security.sasl.gssapi import GssapiExchange
from broker.security.sasl.mechanism import BadToken, Challenge, Done
from config.kerberos_rules import DEFAULT
from tests.fuzz.test_tokens import spoiled
from tests.support.kerberos import REALM, SERVICE, GssapiClient, Realm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker.security.sasl.kerberos import Service

COUNT = 20_000 * int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
CHOICE = b"\x01\0\0\0"


@pytest.fixture(scope="module")
def tickets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Path]]:
    folder = tmp_path_factory.mktemp("kerberos")
    with Realm(folder) as realm, pytest.MonkeyPatch.context() as environ:
        from broker.security.sasl.kerberos import Service

        for name, value in realm.environ.items():
            environ.setenv(name, value)
        realm.add("alice", password="alice-secret")
        realm.add(SERVICE)
        service = Service(str(realm.keytab("kafka", SERVICE)), SERVICE)
        yield service, realm.kinit("alice", "alice-secret")


def exchange(service: Service) -> GssapiExchange:
    return GssapiExchange(service.new_context(), (DEFAULT,), REALM)


def without_rotation(token: bytes) -> bytes:
    """The count of rotations is not signed (RFC 4121): turned all around it says the same."""
    return token[:6] + token[8:]


def outcome(one: GssapiExchange, token: bytes) -> Challenge | Done | None:
    try:
        return one.step(token)
    except BadToken:
        return None


def test_a_spoiled_ticket_lets_in_nobody(tickets: tuple[Service, Path]) -> None:
    service, cache = tickets
    random, accepted = Random(1), 0
    for number in range(COUNT // 2):
        if number % 100 == 0:  # a ticket is taken once
            whole = GssapiClient(cache).first()
        token = spoiled(whole, random)
        context = service.new_context()
        answer = outcome(GssapiExchange(context, (DEFAULT,), REALM), token)
        # Not all of a ticket counts: who it is from, and for whom, stands in it twice.
        assert answer is None or isinstance(answer, Challenge)
        if answer is not None:
            assert context.initiator == f"alice@{REALM}"
            accepted += 1
    assert 0 < accepted < COUNT // 20


def test_a_spoiled_choice_lets_in_nobody(tickets: tuple[Service, Path]) -> None:
    service, cache = tickets
    random = Random(2)
    for _ in range(COUNT // 200):
        alice, one = GssapiClient(cache), exchange(service)
        proof = outcome(one, alice.first())
        assert isinstance(proof, Challenge)
        alice.take(proof.token)
        assert isinstance(outcome(one, b""), Challenge)
        whole = alice.wrapped(CHOICE)
        for _ in range(100):
            token = spoiled(whole, random)
            if outcome(one, token) is not None:
                assert without_rotation(token) == without_rotation(whole)
