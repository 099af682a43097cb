"""IncrementalAlterConfigs of the broker and its logger (versions 0 to 1). Of topics, see
test_alter_configs.

The outcomes are those of Apache Kafka 3.9.0 for the same requests, but for the keys that it does
not know: it keeps them for plug-ins, and here they are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest
from tests.support.broker_changes import (
    APPEND,
    BROKER_LOGGER,
    DELETE,
    SET,
    SUBTRACT,
    alter,
    delete_all,
    described,
    set_all,
    synonyms,
)
from tests.support.caller import Caller, batch
from tests.support.compacted import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.broker_process import BrokerProcess
    from tests.support.group_caller import GroupCaller

TOPIC, BROKER = 2, 4
FROM_TOPIC, FROM_BROKER, FROM_ALL, FROM_STATIC, FROM_DEFAULT = 1, 2, 3, 4, 5
INVALID = ErrorCode.INVALID_REQUEST


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"log.retention.bytes": "123456789"}


@pytest.fixture
def altered(broker: BrokerProcess) -> Iterator[Caller]:
    """A client of a broker that has no settings of its own before and after."""
    with Caller(broker.host, broker.port) as caller:
        yield caller
        for name in ("1", ""):
            request = AlterConfigsRequest.Resource(
                resource_type=BROKER, resource_name=name, configs=[]
            )
            answer = caller.call(AlterConfigsRequest(resources=[request], validate_only=False), 2)
            assert answer.responses[0].error_code == 0
        assert own(caller) == own(caller, "") == {}


def own(caller: Caller, name: str = "1") -> dict[str, str | None]:
    """What was set for this broker at run time, or ("") for all."""
    source = FROM_BROKER if name else FROM_ALL
    rows = described(caller, name).values()
    return {row.name: row.value for row in rows if row.config_source == source}


@pytest.mark.parametrize("version", range(2))
def test_a_brokers_setting_holds_over_that_of_all_brokers_and_the_file(
    altered: Caller, version: int
) -> None:
    for name, value in (("", "2000"), ("1", "3000")):
        change = ("log.retention.bytes", SET, value)
        assert alter(altered, change, name=name, version=version).error_code == 0

    row = described(altered)["log.retention.bytes"]
    assert (row.value, row.config_source, row.read_only) == ("3000", FROM_BROKER, False)
    assert synonyms(row) == [
        ("log.retention.bytes", "3000", FROM_BROKER),
        ("log.retention.bytes", "2000", FROM_ALL),
        ("log.retention.bytes", "123456789", FROM_STATIC),
        ("log.retention.bytes", "-1", FROM_DEFAULT),
    ]
    (row,) = described(altered, "").values()
    assert synonyms(row) == [("log.retention.bytes", "2000", FROM_ALL)]
    delete_all(altered, "log.retention.bytes")
    assert described(altered)["log.retention.bytes"].value == "2000"
    delete_all(altered, "log.retention.bytes", name="")
    assert described(altered)["log.retention.bytes"].value == "123456789"


def test_a_topic_takes_what_was_set_for_the_broker_unless_it_has_its_own(
    altered: Caller, topic: str
) -> None:
    altered.create_topic(topic, max_message_bytes="5000")
    altered.create_topic(f"{topic}-2")

    set_all(altered, {"message.max.bytes": "1000"}, name="")

    assert altered.produce(topic, batch(b"x" * 2000)).error_code == 0
    refused = altered.produce(f"{topic}-2", batch(b"x" * 2000))
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    row = described(altered, topic, resource_type=TOPIC)["max.message.bytes"]
    assert synonyms(row) == [
        ("max.message.bytes", "5000", FROM_TOPIC),
        ("message.max.bytes", "1000", FROM_ALL),
        ("message.max.bytes", "1048588", FROM_DEFAULT),
    ]
    delete_all(altered, "message.max.bytes", name="")
    assert altered.produce(f"{topic}-2", batch(b"x" * 2000)).error_code == 0


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ([("num.partitions", SET, "3")], INVALID, "cannot be changed at run time: it is read at"),
        (
            [("listeners", SET, "SSL://127.0.0.1:0")],
            INVALID,
            "listener.name.ssl.ssl.keystore.location: is missing",
        ),
        ([("listeners", SET, "PLAINTEXT://no.such.host:0")], INVALID, "can't listen on"),
        ([("process.roles", SET, "broker")], INVALID, "cannot be changed at run time"),
        ([("background.threads", SET, "many")], INVALID, "wanted a whole number"),
        ([("log.retention.mss", SET, "3")], INVALID, "did you mean log.retention.ms?"),
        ([("log.retention.ms", SET, "abc")], INVALID, "wanted a whole number"),
        ([("message.max.bytes", SET, "-1")], INVALID, "wanted at least 0"),
        ([("message.max.bytes", SET, None)], INVALID, "message.max.bytes has no value"),
        ([("message.max.bytes", 9, "1")], INVALID, "operation 9 on message.max.bytes"),
        ([("message.max.bytes", APPEND, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        (
            [("message.max.bytes", SET, "3000000"), ("num.partitions", SET, "3")],
            INVALID,
            "num.partitions: cannot be changed",
        ),
        (
            [("message.max.bytes", SET, "1"), ("message.max.bytes", DELETE, None)],
            INVALID,
            "message.max.bytes is named twice",
        ),
        ([("max.decompressed.batch.bytes", SET, "5")], INVALID, "less than message.max.bytes"),
    ],
)
def test_of_several_changes_of_a_broker_all_are_made_or_none(
    altered: Caller, changes: list[tuple[str, int, str | None]], code: ErrorCode, text: str
) -> None:
    set_all(altered, {"message.max.bytes": "2000000"})
    for validate_only in (True, False):
        refused = alter(altered, *changes, validate_only=validate_only)
        assert refused.error_code == code
        assert text in (refused.error_message or "")

    assert own(altered) == {"message.max.bytes": "2000000"}


@pytest.mark.parametrize(
    ("name", "text"),
    [("2", "broker 2 is not here, this is broker 1"), ("x", "a number"), ("-1", "a number")],
)
def test_another_broker_is_not_altered_here(altered: Caller, name: str, text: str) -> None:
    refused = alter(altered, ("message.max.bytes", SET, "1"), name=name)

    assert refused.error_code == INVALID
    assert text in (refused.error_message or "")


def test_what_is_one_brokers_is_not_set_for_all(altered: Caller) -> None:
    change = ("advertised.listeners", SET, "PLAINTEXT://kafka.example:9092")
    refused = alter(altered, change, name="")
    assert refused.error_code == INVALID
    assert "for one broker, by its id" in (refused.error_message or "")


@pytest.mark.parametrize("name", ["1", ""])
def test_what_has_no_effect_here_is_taken_as_by_kafka_and_shown(altered: Caller, name: str) -> None:
    changes = {"background.threads": "12", "log.cleaner.threads": "2"}

    set_all(altered, changes, name=name)

    assert own(altered, name=name) == changes
    found = described(altered)["log.cleaner.threads"]
    assert (found.value, found.read_only) == ("2", False)
    delete_all(altered, *changes, name=name)


def test_a_secret_is_not_repeated_in_a_refusal(altered: Caller) -> None:
    for key in ("ssl.key.password", "ssl.kye.password"):
        refused = alter(altered, (key, SET, "hunter2"))
        assert refused.error_code == INVALID
        assert "hunter2" not in (refused.error_message or "")


def test_lists_of_a_broker_are_appended_to_from_what_holds(altered: Caller) -> None:
    steps = [(APPEND, "compact", "delete,compact"), (SUBTRACT, "delete", "compact")]
    for operation, value, wanted in steps:
        assert alter(altered, ("log.cleanup.policy", operation, value)).error_code == 0
        assert own(altered) == {"log.cleanup.policy": wanted}
    change = ("log.cleanup.policy", APPEND, "compact")
    assert alter(altered, change, name="").error_code == 0
    assert own(altered, "") == {"log.cleanup.policy": "delete,compact"}


def test_deleting_what_is_not_set_or_not_known_is_no_fault(altered: Caller) -> None:
    for key in ("log.segment.bytes", "num.partitions", "no.such.key"):
        assert alter(altered, (key, DELETE, None)).error_code == 0


def test_validating_a_brokers_change_changes_nothing(altered: Caller) -> None:
    change = ("message.max.bytes", SET, "1")
    assert alter(altered, change, validate_only=True).error_code == 0
    assert own(altered) == {}


def test_a_change_that_a_topic_could_not_live_with_is_refused(altered: Caller, topic: str) -> None:
    altered.create_topic(topic, min_compaction_lag_ms="5000")

    refused = alter(altered, ("log.cleaner.max.compaction.lag.ms", SET, "1000"))

    assert refused.error_code == INVALID
    assert f"topic '{topic}'" in (refused.error_message or "")
    assert own(altered) == {}
    altered.delete_topic(topic)
    set_all(altered, {"log.cleaner.max.compaction.lag.ms": "1000"})


def test_a_commit_may_have_a_condition_from_the_moment_that_allows_it(
    altered: Caller, groups: GroupCaller, topic: str, group: str
) -> None:
    altered.create_topic(topic)
    place = (topic, 0)
    codes = []
    for settings in ({}, {"offsets.commit.conditional.enable": "true"}):
        set_all(altered, settings)
        codes.append(groups.commit(group, {place: 5}, expected={place: -1}, version=10)[place])
    assert codes == [ErrorCode.INVALID_REQUEST, 0]


def test_a_brokers_settings_survive_a_kill(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic("t")
        set_all(caller, {"message.max.bytes": "1000"})
        set_all(caller, {"log.retention.ms": "7000"}, name="")
    own_broker.kill()
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        assert own(caller) == {"message.max.bytes": "1000"}
        assert own(caller, "") == {"log.retention.ms": "7000"}
        refused = caller.produce("t", batch(b"x" * 2000))
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    own_broker.stop()


def test_the_level_of_the_log_is_changed_while_the_broker_runs(broker: BrokerProcess) -> None:
    def level(value: str | None) -> int:
        change = ("root", DELETE if value is None else SET, value)
        code: int = alter(caller, change, resource_type=BROKER_LOGGER).error_code
        return code

    with Caller(broker.host, broker.port) as caller:
        assert level("ERROR") == 0
        (row,) = described(caller, resource_type=BROKER_LOGGER).values()
        assert (row.name, row.value, row.config_source) == ("root", "ERROR", 6)
        caller.create_topic("silent")
        assert level(None) == 0
        caller.create_topic("told")
    wait_until(lambda: "told" in broker.output(), "the line in the log")
    assert "silent" not in broker.output()


@pytest.mark.parametrize(
    ("change", "name", "code"),
    [
        (("root", SET, "LOUD"), "1", ErrorCode.INVALID_CONFIG),
        (("kafka.server.KafkaApis", SET, "DEBUG"), "1", ErrorCode.INVALID_CONFIG),
        (("root", APPEND, "DEBUG"), "1", ErrorCode.INVALID_CONFIG),
        (("root", SET, "DEBUG"), "", ErrorCode.INVALID_REQUEST),
        (("root", SET, "DEBUG"), "2", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_level_or_a_logger_that_is_not_known_is_refused(
    caller: Caller, change: tuple[str, int, str], name: str, code: ErrorCode
) -> None:
    refused = alter(caller, change, name=name, resource_type=BROKER_LOGGER)
    assert refused.error_code == code
    assert refused.error_message


@pytest.mark.parametrize("resource_type", [0, 1, 7, 127])
def test_what_has_no_settings_that_can_be_changed_is_refused(
    caller: Caller, resource_type: int
) -> None:
    refused = alter(caller, ("a", SET, "b"), resource_type=resource_type)
    assert refused.error_code == INVALID
    assert refused.error_message
