"""Tokens and messages of OAUTHBEARER are judged as by Apache Kafka 3.9.1 and 4.3.1, or the
difference has a reason."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.bearer.judging import judge_all
from tests.clients.bearer.record_verdicts import FILE
from tests.clients.bearer.servers import RELEASES, BrokerWithTokens, KafkaWithTokens
from tests.clients.bearer.tokens import QUESTIONS
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits long"),
]

RECORDED: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
TITLES = [question.title for question in QUESTIONS]
DIFFERENCES = {
    "*: exp beyond ms of 64 bits": "no clock says such a time",
    "*: iat is to come, *": "it is not valid yet, and Kafka does not look at iat",
    "*: sub with a line end": "a name that would forge lines of the log",
    "*: sub of 2,000 letters": "names of principals have a bound",
    "STRICT: claims: scope is empty": "it gives no right here, and is no reason to refuse one",
    "STRICT: claims: scope is of spaces": "the same",
    "STRICT: claims: scope names one twice": "the same",
    "STRICT: claims: scope has an empty one": "the same",
    "STRICT: claims: scope is a*": "no text, no scope; at a list Kafka ends the connection",
    "NAMED: claims: scp is a*": "the same",
    "STRICT: token: HS256 by a secret of the set": "who can check a token could make one",
    "STRICT: token: crit b64": "nothing of it is known here (RFC 7515, 4.1.11)",
    "STRICT: token: 70,000 characters": "tokens have a bound of 65,536",
    "STRICT: message: as one with *": "=2C and =3D are what RFC 5801 says",
    "STRICT: message: auth twice*": "it cannot say which counts",
    "STRICT: message: Basic": "Kafka ends the connection without a word",
    "UNSECURED: token: nbf is to come": "it is not valid yet",
    "UNSECURED: token: no alg": "Kafka ends the connection without a word",
}
"""What is judged otherwise than by Kafka 4.3.1, and why."""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with BrokerWithTokens(tmp_path_factory.mktemp("bearer")) as broker:
        found = judge_all(broker)
        said = broker.output()
    assert "Traceback" not in said
    return found


@pytest.mark.parametrize("title", TITLES)
def test_a_token_is_judged_as_by_apache_kafka_but_for_what_is_listed(
    title: str, judged: dict[str, str]
) -> None:
    reasons = [reason for name, reason in DIFFERENCES.items() if fnmatchcase(title, name)]
    if not reasons:
        assert judged[title] == RECORDED["4.3.1"][title]


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_is_listed_as_different_is(name: str, judged: dict[str, str]) -> None:
    titles = [title for title in TITLES if fnmatchcase(title, name)]
    assert any(judged[title] != RECORDED["4.3.1"][title] for title in titles)


def test_every_question_was_asked_of_both_releases() -> None:
    assert {release: list(told) for release, told in RECORDED.items()} == dict.fromkeys(
        RELEASES, TITLES
    )


@pytest.mark.long
@pytest.mark.java
@pytest.mark.slow
def test_apache_kafka_still_judges_so(tmp_path: Path) -> None:
    try:
        kafka = KafkaWithTokens(tmp_path, "4.3.1")
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with kafka:
        assert judge_all(kafka) == RECORDED["4.3.1"]
