"""A client that authenticates is answered as by Apache Kafka: every request in every state of a
connection, tokens that are spoiled, and clients that authenticate again.

The scripts stand in `scripts.py`; what Kafka 3.9.1, 4.3.1 and we answered in `answers.txt`, which
`python -m tests.clients.sasl.record_answers` writes. Where ours is another answer, `DIFFERENCES`
says why. Kafka is told the scripts again in the long part.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.sasl import answers
from tests.clients.sasl.conversation import tell_all
from tests.clients.sasl.scripts import SCRIPTS
from tests.clients.sasl.servers import MINUTE, OURS, RELEASES, BrokerWithSasl, KafkaWithSasl
from tests.support.fetched import NotAvailable
from tests.support.secured import USERS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.sasl.answers import Told

RECORDED = answers.read(answers.FILE.read_text(encoding="utf-8"))
KAFKA = RECORDED["4.3.1"]

BEFORE = "after a handshake|amid SCRAM"
AGAIN = "authenticating again"
DIFFERENCES = {
    "no authentication: .* token v[012]": "the text says that no authentication is asked for",
    "SCRAM, first: could bind a channel": (
        "a client that could bind a channel and sees that we can not is right (RFC 5802, 6)"
    ),
    "SCRAM, first: a mandatory extension.*": (
        "who wants an extension that is not known has to be refused (RFC 5802, 5.1)"
    ),
    "SCRAM, first: (nobody|in capitals|letters of others|an escaped .*)|SCRAM .*: nobody .*": (
        "a user that is not there is refused at the proof, so that nobody learns who is"
    ),
    "(at first|after ApiVersions.*): SaslHandshake v1 .*|SCRAM, first: .*|"
    f"({BEFORE}): (Metadata|Produce) .*": (
        "who is not known yet and asks for something else is cut off; Kafka makes an answer of "
        "that API first, with an error where it has room for one"
    ),
    f"(after ApiVersions|{BEFORE}): ApiVersions .*": (
        "ApiVersions is answered as often as it is asked"
    ),
    f"authenticated for a minute: SaslHandshake v[01] (PLAIN|SCRAM-SHA-256)|{AGAIN}: .*|"
    f"{AGAIN} after a handshake v0: (ApiVersions|Metadata|Produce|a frame of 524289) ?.*|"
    "again with a request amid SCRAM": (
        "who authenticates again is served meanwhile, until the session is over; Kafka ends the "
        "connection"
    ),
    f"{AGAIN} after a handshake v0: .*": (
        "the tokens of who authenticates again have headers: clients that can do it shake hands "
        "by v1"
    ),
    ".*: SaslHandshake v1 (PLAINER)?|after the session: .* token v[012]|again by .*": (
        "who authenticates again in a way that is refused is told so; Kafka ends the connection "
        "without a word"
    ),
    "after the session: SaslHandshake v1 PLAIN": "as for who has not authenticated at all",
    "after the session: a frame of 524289 bytes": "when the session is over, frames are small",
    "SCRAM, final: a (short|long) proof|SCRAM, final: a proof of no bytes": (
        "a proof of another length is a wrong proof; Kafka falls over it and ends the connection"
    ),
    "SCRAM, final: an extension": (
        "the proof is of all that comes before it (RFC 5802, 5.1), Kafka leaves extensions out"
    ),
}
"""By a pattern of titles, the first that fits. What is answered otherwise, and why."""

SERVED_MEANWHILE = {
    script.title
    for script in SCRIPTS
    if script.listener == MINUTE and RECORDED[OURS][script.title] != KAFKA[script.title]
}
"""Clients that are known, and authenticate again."""

pytestmark = pytest.mark.timeout(300)


def let_in(told: list[str]) -> bool:
    """Whether the last request was answered by a broker that knows the client."""
    return told[-1] == "1 brokers"


@pytest.fixture(scope="module")
def told_by_us(tmp_path_factory: pytest.TempPathFactory) -> Told:
    with BrokerWithSasl(tmp_path_factory.mktemp("sasl") / "data") as broker:
        told = tell_all(broker, SCRIPTS)
        said = broker.output()
    assert "Traceback" not in said, said[-3000:]
    assert not any(password in said for password in USERS.values())
    return told


@pytest.mark.parametrize("title", [script.title for script in SCRIPTS])
def test_a_client_that_authenticates_is_answered_as_recorded(title: str, told_by_us: Told) -> None:
    assert told_by_us[title] == RECORDED[OURS][title]


def test_every_answer_is_that_of_apache_kafka_or_has_a_reason() -> None:
    assert set(RECORDED) == {OURS, *RELEASES}
    assert RECORDED["3.9.1"] == KAFKA
    assert list(KAFKA) == [script.title for script in SCRIPTS]
    reasons = {}
    for title, told in KAFKA.items():
        if RECORDED[OURS][title] != told:
            fitting = (one for one in DIFFERENCES if re.fullmatch(one, title))
            reasons[title] = next(fitting, None)
    assert [title for title, reason in reasons.items() if reason is None] == []
    assert set(DIFFERENCES) == set(reasons.values())


def test_nobody_is_let_in_whom_apache_kafka_refuses() -> None:
    ours = {title for title, told in RECORDED[OURS].items() if let_in(told)}
    kafkas = {title for title, told in KAFKA.items() if let_in(told)}
    assert kafkas
    assert ours - kafkas <= SERVED_MEANWHILE
    assert kafkas - ours == {
        "SCRAM, final: an extension",
        "authenticating again after a handshake v0: alice's token bare",
    }


@pytest.mark.long
@pytest.mark.java
@pytest.mark.parametrize("release", RELEASES)
def test_apache_kafka_still_answers_as_recorded(release: str, tmp_path: Path) -> None:
    try:
        kafka = KafkaWithSasl(tmp_path / "kafka", release)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with kafka:
        assert tell_all(kafka, SCRIPTS) == RECORDED[release]
