"""The scripts: every request in every state of a connection, and tokens that are spoiled.

A script ends with a request of a client that is let in, which tells whether this one is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.clients.sasl.conversation import (
    Script,
    Step,
    api_versions,
    as_user,
    bare,
    handshake,
    metadata,
    raw,
    request,
    scram_final,
    scram_first,
    token,
    wait,
)
from tests.clients.sasl.servers import LASTING, MINUTE, OPEN, SHORT
from tests.clients.sasl.spoiled import PLAIN_TOKENS, SCRAM_FINALS, SCRAM_FIRSTS

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRAM = "SCRAM-SHA-256"
SCRAM_512 = "SCRAM-SHA-512"
ALICE = b"\0alice\0alice-secret"
BOB = b"\0bob\0bob-secret"
WRONG = b"\0alice\0wrong"

LOGIN = (handshake("PLAIN"), token("alice's token", ALICE))

STATES: dict[str, tuple[str, tuple[Step, ...]]] = {
    "no authentication": (OPEN, ()),
    "at first": (LASTING, ()),
    "after ApiVersions": (LASTING, (api_versions(3),)),
    "after ApiVersions of another version": (LASTING, (api_versions(99),)),
    "after a handshake": (LASTING, (handshake("PLAIN"),)),
    "after a handshake v0": (LASTING, (handshake("PLAIN", 0),)),
    "amid SCRAM": (LASTING, (handshake(SCRAM), token("first", scram_first))),
    "amid SCRAM after a handshake v0": (
        LASTING,
        (handshake(SCRAM, 0), bare("first", scram_first)),
    ),
    "authenticated": (LASTING, LOGIN),
    "authenticated for a minute": (MINUTE, LOGIN),
    "authenticating again": (MINUTE, (*LOGIN, handshake("PLAIN"))),
    "authenticating again after a handshake v0": (MINUTE, (*LOGIN, handshake("PLAIN", 0))),
    "authenticated again": (MINUTE, (*LOGIN, *LOGIN)),
    "after the session": (SHORT, (*LOGIN, wait())),
    "refused": (LASTING, (handshake("PLAIN"), token("wrong", WRONG))),
}

REQUESTS = (
    api_versions(0),
    api_versions(3),
    api_versions(99),
    handshake("PLAIN", 0),
    handshake("PLAIN", 1),
    handshake("PLAIN", 2),
    handshake(SCRAM, 1),
    handshake("PLAINER", 1),
    handshake("", 1),
    token("alice's token", ALICE, 0),
    token("alice's token", ALICE, 1),
    token("alice's token", ALICE, 2),
    token("alice's token", ALICE, 3),
    token("bob's token", BOB, 2),
    token("wrong token", WRONG, 0),
    token("wrong token", WRONG, 2),
    token("empty token", b"", 2),
    bare("alice's token", ALICE),
    bare("wrong token", WRONG),
    bare("empty token", b""),
    metadata(),
    request(0, 9, acks=1, timeout_ms=1000, topic_data=[]),
    raw("an unknown API", b"\0\0\0\x0a\x03\xe7\0\0\0\0\0\x07\xff\xff"),
    raw("a frame of 3 bytes", b"\0\0\0\x03\0\x12\0"),
    raw("a frame of a negative size", b"\xff\xff\xff\xff"),
    raw("a frame of 524289 bytes", b"\0\x08\0\x01"),
)


def _in_states() -> Iterator[Script]:
    for state, (listener, before) in STATES.items():
        for asked in REQUESTS:
            yield Script(f"{state}: {asked.name}", listener, (*before, asked, metadata()))


def _orderly() -> Iterator[Script]:
    for mechanism in (SCRAM, SCRAM_512):
        alice = as_user("alice", "alice-secret", mechanism)
        for version in (0, 1, 2):
            steps = (token("first", scram_first, version), token("final", scram_final, version))
            for listener, of in ((LASTING, ""), (MINUTE, " for a minute")):
                title = f"in order: {mechanism} v{version}{of}"
                yield Script(title, listener, (alice, handshake(mechanism), *steps, metadata()))
        bare_steps = (bare("first", scram_first), bare("final", scram_final))
        title = f"in order: {mechanism} bare"
        yield Script(title, LASTING, (alice, handshake(mechanism, 0), *bare_steps, metadata()))


def _of_scram(
    before: tuple[Step, ...] = (), *, mechanism: str = SCRAM, version: int = 2
) -> tuple[Step, ...]:
    return (
        *before,
        handshake(mechanism),
        token("first", scram_first, version),
        token("final", scram_final, version),
    )


def _again() -> Iterator[Script]:
    """Who has authenticated does so again."""
    scram = _of_scram()
    bob = as_user("bob", "bob-secret")
    alice = as_user("alice", "alice-secret")
    for title, steps in {
        "by SCRAM": (*scram, *_of_scram((alice,))),
        "by SCRAM as another": (*scram, *_of_scram((bob,))),
        "by SCRAM with a wrong password": (*scram, *_of_scram((as_user("alice", "wrong"),))),
        "by SCRAM after PLAIN": (*LOGIN, *scram),
        "by PLAIN after SCRAM": (*scram, *LOGIN),
        "by SCRAM with another hash": (
            *scram,
            *_of_scram((as_user("alice", "alice-secret", SCRAM_512),), mechanism=SCRAM_512),
        ),
        "three times within a second": (*LOGIN, *LOGIN, *LOGIN),
        "with ApiVersions before": (*LOGIN, api_versions(3), *LOGIN),
        "with a request amid SCRAM": (
            *scram, alice, handshake(SCRAM), token("first", scram_first), metadata(),
            token("final", scram_final),
        ),
    }.items():  # fmt: skip
        yield Script(f"again {title}", MINUTE, (*steps, metadata()))
    yield Script("again after the session", SHORT, (*LOGIN, wait(), *LOGIN, metadata()))
    yield Script(
        "again after the session with ApiVersions before",
        SHORT,
        (*LOGIN, wait(), api_versions(3), *LOGIN, metadata()),
    )
    yield Script(
        "again as bob after the session",
        SHORT,
        (*LOGIN, wait(), handshake("PLAIN"), token("bob's token", BOB), metadata()),
    )


def _spoiled() -> Iterator[Script]:
    steps: tuple[Step, ...]
    for name, data in PLAIN_TOKENS.items():
        steps = (handshake("PLAIN"), token(name, data), metadata())
        yield Script(f"PLAIN: {name}", LASTING, steps)
    for name, data in SCRAM_FIRSTS.items():
        steps = (handshake(SCRAM), token(name, data), metadata())
        yield Script(f"SCRAM, first: {name}", LASTING, steps)
    for name, made in SCRAM_FINALS.items():
        steps = (handshake(SCRAM), token("first", scram_first), token(name, made), metadata())
        yield Script(f"SCRAM, final: {name}", LASTING, steps)
    for user, password in (("alice", "wrong"), ("nobody", "alice-secret"), ("bob", "bob-secret")):
        for version in (0, 2):
            title = f"SCRAM v{version}: {user} with {password}"
            steps = (*_of_scram((as_user(user, password),), version=version), metadata())
            yield Script(title, LASTING, steps)
        one = as_user(user, password)
        bare_steps = (bare("first", scram_first), bare("final", scram_final))
        title = f"SCRAM bare: {user} with {password}"
        yield Script(title, LASTING, (one, handshake(SCRAM, 0), *bare_steps, metadata()))
    first = token("first", scram_first, 0)
    title = "SCRAM with a version for each token"
    yield Script(
        title, LASTING, (handshake(SCRAM), first, token("final", scram_final, 2), metadata())
    )


SCRIPTS = [*_in_states(), *_orderly(), *_again(), *_spoiled()]
