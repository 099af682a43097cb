"""Asks a broker what it makes of a message of OAUTHBEARER."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.clients.bearer.tokens import OTHER_USER, QUESTIONS, of_another
from tests.support.secured import authenticate, shake
from tests.support.wire_client import ConnectionClosed, WireClient

if TYPE_CHECKING:
    from tests.clients.bearer.servers import Server
    from tests.clients.bearer.tokens import Question

TEN_S = 10_000
CHANGED = re.compile(
    r"Cannot change principals during re-authentication from User\.(.*): User\.", re.S
)
LONG_NAME = 40
CLOSED = "closed"


def judge_all(server: Server) -> dict[str, str]:
    """The verdict on each question, by its title."""
    return {question.title: judge(server, question) for question in QUESTIONS}


def judge(server: Server, question: Question) -> str:
    """`in as NAME for TENS OF SECONDS`, or what is told to one who is not let in."""
    with WireClient(server.host, server.ports[question.listener], timeout_s=20) as client:
        assert shake(client, "OAUTHBEARER").error_code == 0
        try:
            answer = authenticate(client, question.message())
        except ConnectionClosed:
            return CLOSED
        if answer.error_code:
            return f"{answer.error_code} {answer.error_message}"
        if answer.auth_bytes:
            last = authenticate(client, b"\x01")
            return f"{bytes(answer.auth_bytes).decode()} {last.error_code} {last.error_message}"
        lasts_s = round(answer.session_lifetime_ms / TEN_S) * 10
        return f"in as {_name(client, question.listener)!r} for {lasts_s} s"


def _name(client: WireClient, listener: str) -> str:
    """Who the client is: one who wants to be another by the next token is told."""
    try:
        shake(client, "OAUTHBEARER")
        answer = authenticate(client, of_another(listener))
    except ConnectionClosed:
        return CLOSED
    found = CHANGED.match(answer.error_message or "")
    if found is None:
        return f"{answer.error_code} {answer.error_message}"
    assert OTHER_USER not in found[1]
    return found[1] if len(found[1]) < LONG_NAME else f"{found[1][0]} and {len(found[1]) - 1} more"
