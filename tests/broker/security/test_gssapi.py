"""The mechanism GSSAPI as a machine: what it wants of a client at each step."""

from __future__ import annotations

import pytest

from broker.security.principal import USER, Principal
from broker.security.sasl.gssapi import TOKENS_MAX, GssapiExchange
from broker.security.sasl.mechanism import BadToken, Challenge, Done
from config.kerberos_rules import DEFAULT

OFFER = b"<\x01\x01\0\0>"


class FakeContext:
    """Stands when it has had so many tokens; wrapped is what stands between < and >."""

    def __init__(self, token_count: int = 1, answer: bytes | None = b"proof") -> None:
        self.left = token_count
        self.answer = answer
        self.initiator = "alice@EXAMPLE.COM"

    def established(self) -> bool:
        return self.left == 0

    def accept(self, token: bytes) -> bytes | None:
        self.left -= 1
        return self.answer

    def wrap(self, data: bytes) -> bytes:
        return b"<" + data + b">"

    def unwrap(self, token: bytes) -> bytes:
        if token[:1] + token[-1:] != b"<>":
            raise BadToken("not wrapped")
        return token[1:-1]


def exchange(context: FakeContext) -> GssapiExchange:
    return GssapiExchange(context, (DEFAULT,), "EXAMPLE.COM")


def test_a_client_that_wants_a_proof_is_offered_no_layer_after_it() -> None:
    one = exchange(FakeContext())
    assert one.step(b"ticket") == Challenge(b"proof")
    assert one.step(b"") == Challenge(OFFER)
    assert one.step(b"<\x01\0\0\0>") == Done(None, Principal(USER, "alice"))


def test_a_client_that_wants_no_proof_is_offered_no_layer_at_once() -> None:
    one = exchange(FakeContext(answer=None))
    assert one.step(b"ticket") == Challenge(OFFER)
    assert one.step(b"<\x01\xff\xff\xffalice>") == Done(None, Principal(USER, "alice"))


def test_a_context_may_take_another_token_and_not_any_number() -> None:
    one = exchange(FakeContext(2))
    assert [one.step(b"a").token, one.step(b"b").token, one.step(b"").token] == [
        *(b"proof", b"proof", OFFER)
    ]
    endless = exchange(FakeContext(1000))
    for _ in range(TOKENS_MAX):
        endless.step(b"a")
    with pytest.raises(BadToken, match=f"after {TOKENS_MAX} tokens"):
        endless.step(b"a")


def test_a_token_to_which_there_is_nothing_to_say_and_no_context_is_refused() -> None:
    with pytest.raises(BadToken, match="no other can follow"):
        exchange(FakeContext(2, answer=None)).step(b"ticket")


def test_a_client_does_not_choose_before_it_is_offered() -> None:
    one = exchange(FakeContext())
    one.step(b"ticket")
    with pytest.raises(BadToken, match="has to wait"):
        one.step(b"<\x01\0\0\0>")
