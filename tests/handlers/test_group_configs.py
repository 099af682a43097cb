"""Settings of groups (KIP-848): described, changed, listed, and lived by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.broker_changes import APPEND, DELETE, SET, alter, described, synonyms
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.consumer_member import ConsumerMember

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
FROM_DEFAULT, FROM_GROUP = 5, 8
Change = tuple[str, int, str | None]


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "group.consumer.min.session.timeout.ms": "200",
        "group.consumer.min.heartbeat.interval.ms": "50",
    }


def altered(caller: Caller, name: str, *changes: Change) -> tuple[int, str | None]:
    answered = alter(caller, *changes, name=name, resource_type=GROUP)
    return answered.error_code, answered.error_message


def listed(caller: Caller) -> list[str]:
    answer = caller.call(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    return [one.resource_name for one in answer.config_resources]


def test_a_groups_settings_are_described_set_listed_and_taken_away(
    caller: Caller, group: str
) -> None:
    before = described(caller, group, resource_type=GROUP)
    assert listed(caller) == []

    assert altered(caller, group, (SESSION, SET, "50000")) == (0, None)

    after = described(caller, group, resource_type=GROUP)
    assert (before[SESSION].value, before[SESSION].config_source) == ("45000", FROM_DEFAULT)
    assert (after[SESSION].value, after[SESSION].config_source) == ("50000", FROM_GROUP)
    assert not after[SESSION].read_only
    # As Kafka 4.3 answers.
    assert synonyms(after[SESSION]) == [
        (SESSION, "50000", FROM_GROUP),
        (f"group.{SESSION}", "45000", FROM_DEFAULT),
    ]
    assert after[HEARTBEAT].value == "5000"
    assert listed(caller) == [group]
    assert altered(caller, group, (SESSION, DELETE, None)) == (0, None)
    assert listed(caller) == []


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (
            (SESSION, SET, "199"),
            ErrorCode.INVALID_CONFIG,
            "wanted 200 to 60000 (group.consumer.min",
        ),
        ((SESSION, SET, "60001"), ErrorCode.INVALID_CONFIG, "wanted 200 to 60000"),
        ((HEARTBEAT, SET, "15001"), ErrorCode.INVALID_CONFIG, "wanted 50 to 15000"),
        ((HEARTBEAT, SET, "0"), ErrorCode.INVALID_CONFIG, "wanted at least 1"),
        ((HEARTBEAT, SET, "a"), ErrorCode.INVALID_CONFIG, "wanted a whole number"),
        ((HEARTBEAT, SET, None), ErrorCode.INVALID_REQUEST, "has no value"),
        ((HEARTBEAT, APPEND, "6000"), ErrorCode.INVALID_CONFIG, "is not a list"),
        (
            ("consumer.session.timeout", SET, "1"),
            ErrorCode.INVALID_CONFIG,
            f"did you mean {SESSION}",
        ),
    ],
)
def test_what_a_group_cannot_have_is_refused(
    caller: Caller, group: str, change: Change, code: ErrorCode, text: str
) -> None:
    found, said = altered(caller, group, change)

    assert found == code
    assert text in (said or "")
    assert listed(caller) == []


def test_what_is_for_groups_that_are_not_served_is_kept_without_effect(
    caller: Caller, group: str
) -> None:
    assert altered(caller, group, ("share.isolation.level", SET, "read_committed")) == (0, None)
    found = described(caller, group, resource_type=GROUP)["share.isolation.level"]
    assert (found.value, found.config_source) == ("read_committed", FROM_GROUP)
    altered(caller, group, ("share.isolation.level", DELETE, None))


def test_there_are_no_settings_of_all_groups(caller: Caller) -> None:
    assert altered(caller, "", (SESSION, SET, "50000"))[0] == ErrorCode.INVALID_REQUEST
    asked = DescribeConfigsRequest.Resource(
        resource_type=GROUP, resource_name="", configuration_keys=None
    )
    (result,) = caller.call(DescribeConfigsRequest(resources=[asked]), 4).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_members_are_told_the_interval_of_their_group_from_the_next_heartbeat_on(
    caller: Caller, group: str, topic: str
) -> None:
    caller.create_topic(topic)
    member = ConsumerMember(caller, group, topics=[topic], member_id="member")
    other = ConsumerMember(caller, topic, topics=[topic], member_id="member")
    first = member.join()

    altered(caller, group, (HEARTBEAT, SET, "700"))

    assert first.heartbeat_interval_ms == 5000
    assert member.beat().heartbeat_interval_ms == 700
    assert other.join().heartbeat_interval_ms == 5000
    altered(caller, group, (HEARTBEAT, DELETE, None))
    assert member.beat().heartbeat_interval_ms == 5000


def test_a_member_is_dropped_after_the_session_of_its_group_also_after_a_restart(
    own_broker: BrokerProcess, topic: str, group: str
) -> None:
    own_broker.settings["group.consumer.min.session.timeout.ms"] = "200"
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic(topic)
        altered(caller, group, (SESSION, SET, "200"), (HEARTBEAT, SET, "6000"))
    own_broker.stop()
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        lost = ConsumerMember(caller, group, topics=[topic], member_id="lost")
        heir = ConsumerMember(caller, group, topics=[topic], member_id="heir")
        assert lost.join().heartbeat_interval_ms == 6000
        heir.join()

        while not heir.assigned.get(caller.topic_id(topic)):
            heir.own()
            caller.see_nothing_come(0.05)

        assert lost.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
