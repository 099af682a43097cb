"""AlterConfigs (versions 0 to 2) and IncrementalAlterConfigs (0 to 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.support.broker_changes import described
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    pass

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
Replacing = AlterConfigsRequest.Resource
Changing = IncrementalAlterConfigsRequest.Resource


def overrides(caller: Caller, topic: str) -> dict[str, str]:
    """The settings of the topic that are its own."""
    asked = DescribeConfigsRequest.Resource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    (result,) = caller.call(DescribeConfigsRequest(resources=[asked]), 4).results
    return {config.name: config.value for config in result.configs if config.config_source == 1}


def replacing(name: str, resource_type: int = TOPIC, **configs: str | None) -> Replacing:
    return Replacing(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            Replacing.Config(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def replace(
    caller: Caller, *resources: Replacing, version: int = 2, validate_only: bool = False
) -> list[int]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return [entry.error_code for entry in caller.call(request, version).responses]


def changing(
    name: str, *changes: tuple[str, int, str | None], resource_type: int = TOPIC
) -> Changing:
    return Changing(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            Changing.Config(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def change(
    caller: Caller, *resources: Changing, version: int = 1, validate_only: bool = False
) -> list[int]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return [entry.error_code for entry in caller.call(request, version).responses]


@pytest.mark.parametrize("version", range(3))
def test_what_is_not_named_goes_back_to_its_default(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic, retention_ms="5000", segment_bytes="1048576")

    codes = replace(caller, replacing(topic, retention_ms="7000"), version=version)

    assert codes == [0]
    assert overrides(caller, topic) == {"retention.ms": "7000"}
    assert replace(caller, replacing(topic), version=version) == [0]
    assert overrides(caller, topic) == {}


@pytest.mark.parametrize("version", range(3))
def test_a_bad_replacement_is_refused_and_its_neighbours_are_made(
    caller: Caller, topic: str, version: int
) -> None:
    for name in (topic, f"{topic}-2"):
        caller.create_topic(name, retention_ms="5000")

    codes = replace(
        caller,
        replacing(topic, retention_ms="soon"),
        replacing(f"{topic}-2", retention_ms="1"),
        replacing("missing", retention_ms="1"),
        replacing("1", BROKER, log_retention_hours="1"),
        version=version,
    )

    assert codes == [
        ErrorCode.INVALID_CONFIG,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert overrides(caller, topic) == {"retention.ms": "5000"}
    assert overrides(caller, f"{topic}-2") == {"retention.ms": "1"}


def test_validating_a_replacement_changes_nothing(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, retention_ms="5000")

    assert replace(caller, replacing(topic, retention_ms="1"), validate_only=True) == [0]
    assert replace(caller, replacing(topic, nonsense="1"), validate_only=True) == [
        ErrorCode.INVALID_CONFIG
    ]
    assert overrides(caller, topic) == {"retention.ms": "5000"}


@pytest.mark.parametrize("version", range(2))
def test_single_settings_are_set_and_deleted(caller: Caller, topic: str, version: int) -> None:
    caller.create_topic(topic, retention_ms="5000", segment_bytes="1048576")

    codes = change(
        caller,
        changing(
            topic,
            ("retention.ms", SET, "9"),
            ("segment.bytes", DELETE, None),
            ("max.message.bytes", SET, "1000"),
        ),
        version=version,
    )

    assert codes == [0]
    assert overrides(caller, topic) == {"retention.ms": "9", "max.message.bytes": "1000"}


@pytest.mark.parametrize("version", range(2))
def test_lists_are_appended_to_and_subtracted_from(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)
    steps = [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (APPEND, "delete", "compact,delete"),
        (SUBTRACT, "compact", "delete"),
    ]
    for operation, value, wanted in steps:
        codes = change(
            caller, changing(topic, ("cleanup.policy", operation, value)), version=version
        )
        assert codes == [0]
        assert overrides(caller, topic) == {"cleanup.policy": wanted}


def test_only_lists_are_appended_to(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    for operation in (APPEND, SUBTRACT):
        codes = change(caller, changing(topic, ("retention.ms", operation, "1")))
        assert codes == [ErrorCode.INVALID_CONFIG]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", -1, "1")], ErrorCode.INVALID_REQUEST),
        ([("no.such.key", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such.key", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", SET, "compakt")], ErrorCode.INVALID_CONFIG),
        ([("segment.bytes", SET, "1"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_of_several_changes_all_are_made_or_none(
    caller: Caller, topic: str, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    caller.create_topic(topic, retention_ms="5000")

    assert change(caller, changing(topic, *changes)) == [code]
    assert overrides(caller, topic) == {"retention.ms": "5000"}


def test_a_resource_named_twice_is_refused_both_times(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    twice = change(
        caller,
        changing(topic, ("retention.ms", SET, "1")),
        changing(topic, ("retention.bytes", SET, "1")),
    )
    replaced = replace(caller, replacing(topic, retention_ms="1"), replacing(topic))

    assert twice == replaced == [ErrorCode.INVALID_REQUEST] * 2
    assert overrides(caller, topic) == {}


def test_validating_a_change_changes_nothing(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    codes = change(caller, changing(topic, ("retention.ms", SET, "1")), validate_only=True)

    assert codes == [0]
    assert overrides(caller, topic) == {}


@pytest.mark.parametrize("version", range(3))
def test_the_settings_of_a_broker_are_replaced(caller: Caller, version: int) -> None:
    for name in ("1", ""):
        codes = [
            replace(caller, replacing(name, BROKER, **configs), version=version)
            for configs in ({"log_roll_ms": "9", "message_max_bytes": "1000"}, {"log_roll_ms": "8"})
        ]
        assert codes == [[0], [0]]
        rows = described(caller, name)
        assert rows["log.roll.ms"].value == "8"
        assert "message.max.bytes" not in rows or rows["message.max.bytes"].value == "1048588"
        assert replace(caller, replacing(name, BROKER, num_partitions="2")) == [
            ErrorCode.INVALID_REQUEST
        ]
        assert described(caller, name)["log.roll.ms"].value == "8"
        assert replace(caller, replacing(name, BROKER), version=version) == [0]
    assert described(caller)["log.roll.ms"].value is None
    assert described(caller, "") == {}


@pytest.mark.parametrize(("name", "kind"), [("t", TOPIC), ("1", BROKER), ("", BROKER)])
def test_a_replacement_without_a_value_is_refused(caller: Caller, name: str, kind: int) -> None:
    if kind == TOPIC:
        caller.create_topic(name)
    assert replace(caller, replacing(name, kind, compression_type=None)) == [
        ErrorCode.INVALID_REQUEST
    ]


def test_loggers_are_not_replaced(caller: Caller) -> None:
    assert replace(caller, replacing("1", BROKER_LOGGER, root="DEBUG")) == [
        ErrorCode.INVALID_REQUEST
    ]


def test_a_change_holds_for_the_next_batch(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    assert caller.produce(topic, batch(b"x" * 2000)).error_code == 0

    change(caller, changing(topic, ("max.message.bytes", SET, "1000")))
    assert caller.produce(topic, batch(b"x" * 2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE

    change(caller, changing(topic, ("max.message.bytes", DELETE, None)))
    assert caller.produce(topic, batch(b"x" * 2000)).error_code == 0


def test_a_changed_segment_size_holds_for_the_log_that_is_open(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    for _ in range(3):
        caller.produce(topic, batch(b"x" * 3000))
    assert len(list((broker.data / f"{topic}-0").glob("*.log"))) == 1

    change(caller, changing(topic, ("segment.bytes", SET, "4000")))
    for _ in range(3):
        caller.produce(topic, batch(b"x" * 3000))

    assert len(list((broker.data / f"{topic}-0").glob("*.log"))) == 4
    assert len(caller.values(topic)) == 6


def test_changes_survive_a_kill(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic("t")
        change(caller, changing("t", ("retention.ms", SET, "12")))
    own_broker.kill()
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        assert overrides(caller, "t") == {"retention.ms": "12"}
    own_broker.stop()
