"""Who may do what is answered as by Apache Kafka: every served API, asked by a user without any
right, by users with one right each, by users who have all but one, and by prefixed rules.

The questions stand in `questions.py`; what Kafka 3.9.1 and 4.3.1 answered in `answers.txt`, which
`python -m tests.clients.access.record_answers` writes. Codes, hidden names and partial answers
count. Ours must be the answer of one of the two; Kafka is asked again in the long part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.handlers.access import CHECKS, ON_CONTROLLERS
from broker.network.controller_handlers import CONTROLLER_HANDLERS
from broker.network.dispatch import HANDLERS
from protocol.acls import OPERATION_NAMES, RESOURCE_TYPE_NAMES, Operation, ResourceType
from protocol.registry import APIS
from tests.clients.access import answers
from tests.clients.access.asking import tell_all
from tests.clients.access.questions import NOT_ASKED, QUESTIONS
from tests.clients.access.servers import RELEASES, BrokerWithUsers, KafkaWithUsers
from tests.clients.access.users import USERS
from tests.clients.available import end_of_test
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.access.asking import Told

RECORDED = answers.read(answers.FILE.read_text(encoding="utf-8"), USERS)

OTHER_CODES = "a refusal of the whole request is told once; Kafka repeats it, or what was asked for"
DIFFERENCES = {
    "Metadata v9 to be created": "a topic is created before the answer, and is in it",
    "AlterPartitionReassignments v0": OTHER_CODES,
    "ListPartitionReassignments v0": OTHER_CODES,
    "DescribeUserScramCredentials v0": OTHER_CODES,
    "UpdateFeatures v1": "a refusal is told for each feature as well",
}
"""What is answered otherwise, and why. What is refused is the same."""

TOKENS = "tests/clients/test_delegation_tokens.py asks"
OTHERWISE_SHOWN = {
    (38, Operation.CREATE_TOKENS, ResourceType.USER): TOKENS,
    (41, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN): TOKENS,
    (41, Operation.DESCRIBE_TOKENS, ResourceType.USER): TOKENS,
    (22, Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID): "of version 6, which is ours",
    (69, Operation.DESCRIBE, ResourceType.TOPIC): "of members, in tests/handlers/test_access.py",
}
"""Checks that the questions do not reach."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def told_by_us(tmp_path_factory: pytest.TempPathFactory) -> Told:
    with BrokerWithUsers(tmp_path_factory.mktemp("access") / "data") as broker:
        told = tell_all(broker)
        said = broker.output()
    assert "Traceback" not in said, said[-3000:]
    assert "-secret" not in said
    return told


@pytest.mark.parametrize("title", [question.title for question in QUESTIONS])
def test_who_may_do_what_is_answered_as_by_apache_kafka(title: str, told_by_us: Told) -> None:
    found = {
        user: answer
        for user, answer in told_by_us[title].items()
        if all(answer != told[title][user] for told in RECORDED.values() if title in told)
    }
    if title in DIFFERENCES:
        assert found, f"is answered alike by now: {DIFFERENCES[title]}"
        # Nobody is let in whom Kafka refuses, nor the other way round.
        kafka = RECORDED["4.3.1"][title]
        mine = told_by_us[title]
        for user in USERS:
            assert ("AUTHORIZATION" in mine[user]) is ("AUTHORIZATION" in kafka[user]), user
    else:
        assert not found


def test_every_question_was_asked_of_apache_kafka() -> None:
    assert set(RECORDED) == set(RELEASES)
    asked = {question.title for question in QUESTIONS}
    assert asked == {title for told in RECORDED.values() for title in told}
    assert all(
        set(by_user) == set(USERS) for told in RECORDED.values() for by_user in told.values()
    )


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_every_served_api_is_in_the_table_and_was_asked_about(key: int) -> None:
    assert key in CHECKS
    assert (key in NOT_ASKED) is all(question.key != key for question in QUESTIONS)


@pytest.mark.parametrize("key", sorted(CONTROLLER_HANDLERS))
def test_every_api_of_the_controller_is_in_a_table(key: int) -> None:
    if CONTROLLER_HANDLERS[key] is HANDLERS.get(key):
        assert key in CHECKS
    else:
        assert key in ON_CONTROLLERS


@pytest.mark.parametrize(
    ("key", "operation", "kind"),
    [
        pytest.param(
            key,
            check.operation,
            check.resource_type,
            id=f"{APIS[key].name}-{OPERATION_NAMES[check.operation]}",
        )
        for key, checks in CHECKS.items()
        for check in checks
        if (key, check.operation, check.resource_type) not in OTHERWISE_SHOWN
    ],
)
def test_every_check_of_the_table_is_made(
    key: int, operation: int, kind: int, told_by_us: Told
) -> None:
    right = f"{RESOURCE_TYPE_NAMES[kind]}-{OPERATION_NAMES[operation]}"
    only, but = f"only-{right}", f"but-{right}"
    told = [told_by_us[question.title] for question in QUESTIONS if question.key == key]
    assert any(one[only] != one["none"] or one[but] != one["all"] for one in told)


@pytest.mark.long
@pytest.mark.java
@pytest.mark.parametrize("release", RELEASES)
def test_apache_kafka_still_answers_as_recorded(release: str, tmp_path: Path) -> None:
    try:
        kafka = KafkaWithUsers(tmp_path / "kafka", release)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with kafka:
        assert tell_all(kafka) == RECORDED[release]
