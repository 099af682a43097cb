"""DescribeConfigs, versions 0 to 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSIONS = range(5)
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
FROM_TOPIC, FROM_STATIC, FROM_DEFAULT = 1, 4, 5
BOOL, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)

Result = DescribeConfigsResponse.Result

#: What user interfaces and Kafka Connect read.
WANTED_OF_TOPICS = {
    "cleanup.policy": LIST,
    "retention.ms": LONG,
    "retention.bytes": LONG,
    "segment.bytes": INT,
    "min.insync.replicas": INT,
    "max.message.bytes": INT,
    "compression.type": STRING,
    "message.timestamp.type": STRING,
}
WANTED_OF_BROKERS = {
    "auto.create.topics.enable": BOOL,
    "delete.topic.enable": BOOL,
    "log.retention.hours": INT,
    "log.retention.bytes": LONG,
    "inter.broker.protocol.version": STRING,
}


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"log.retention.bytes": "123456789"}


def describe(
    caller: Caller,
    resource_type: int,
    name: str,
    *,
    version: int = 4,
    keys: list[str] | None = None,
    **options: bool,
) -> Result:
    asked = DescribeConfigsRequest.Resource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    answer = caller.call(DescribeConfigsRequest(resources=[asked], **options), version)
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    found: Result = result
    return found


def named(result: Result) -> dict[str, Result.Config]:
    assert result.error_code == 0
    assert len({config.name for config in result.configs}) == len(result.configs)
    return {config.name: config for config in result.configs}


def test_version_0_says_whether_a_value_is_the_default(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, retention_ms="5000")

    configs = named(describe(caller, TOPIC, topic, version=0))

    assert (configs["retention.ms"].value, configs["retention.ms"].is_default) == ("5000", False)
    assert configs["cleanup.policy"].is_default
    assert not configs["retention.bytes"].is_default, "the broker's own setting is not a default"
    assert set(WANTED_OF_TOPICS) <= set(configs)
    assert all(config.config_source == -1 for config in configs.values())


@pytest.mark.parametrize("version", range(1, 5))
def test_later_versions_say_where_a_value_comes_from(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic, retention_ms="5000")

    configs = named(describe(caller, TOPIC, topic, version=version))

    assert configs["retention.ms"].config_source == FROM_TOPIC
    assert configs["retention.bytes"].config_source == FROM_STATIC
    assert configs["cleanup.policy"].config_source == FROM_DEFAULT
    assert all(config.synonyms == [] for config in configs.values())
    assert not any(config.is_sensitive for config in configs.values())


@pytest.mark.parametrize("version", range(1, 5))
def test_synonyms_are_listed_with_the_effective_value_first(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic, retention_bytes="42")

    configs = named(describe(caller, TOPIC, topic, version=version, include_synonyms=True))

    found = [(s.name, s.value, s.source) for s in configs["retention.bytes"].synonyms]
    assert found == [
        ("retention.bytes", "42", FROM_TOPIC),
        ("log.retention.bytes", "123456789", FROM_STATIC),
        ("log.retention.bytes", "-1", FROM_DEFAULT),
    ]
    for config in configs.values():
        if config.synonyms:
            first = config.synonyms[0]
            # The value itself may be in another unit: log.retention.hours of retention.ms.
            assert first.source == config.config_source, config.name


@pytest.mark.parametrize("version", VERSIONS)
def test_types_and_documentation_come_with_version_3(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)

    plain = named(describe(caller, TOPIC, topic, version=version))
    documented = named(describe(caller, TOPIC, topic, version=version, include_documentation=True))

    if version < 3:
        assert {config.config_type for config in plain.values()} == {0}
        return
    assert {name: plain[name].config_type for name in WANTED_OF_TOPICS} == WANTED_OF_TOPICS
    assert {config.documentation for config in plain.values()} == {None}
    assert all(config.documentation for config in documented.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_keys_asked_for_are_told(caller: Caller, topic: str, version: int) -> None:
    caller.create_topic(topic)
    keys = ["segment.bytes", "no.such.key", "retention.ms"]

    some = named(describe(caller, TOPIC, topic, version=version, keys=keys))
    none = named(describe(caller, TOPIC, topic, version=version, keys=[]))

    assert set(some) == {"segment.bytes", "retention.ms"}
    assert none == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_settings_of_the_broker(caller: Caller, version: int) -> None:
    configs = named(describe(caller, BROKER, "1", version=version))

    assert set(WANTED_OF_BROKERS) <= set(configs)
    assert configs["log.retention.bytes"].value == "123456789"
    assert configs["log.retention.hours"].read_only
    assert not configs["log.retention.bytes"].read_only
    if version >= 3:
        assert {name: configs[name].config_type for name in WANTED_OF_BROKERS} == WANTED_OF_BROKERS
        assert configs["log.retention.bytes"].config_source == FROM_STATIC
    for config in configs.values():
        assert config.value is None or not config.is_sensitive, config.name
    assert any(config.is_sensitive for config in configs.values())


def test_the_default_of_all_brokers_is_empty(caller: Caller) -> None:
    assert named(describe(caller, BROKER, "")) == {}


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (TOPIC, "", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (0, "", ErrorCode.INVALID_REQUEST),
        (127, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_is_refused(
    caller: Caller, resource_type: int, name: str, code: ErrorCode
) -> None:
    refused = describe(caller, resource_type, name)

    assert (refused.error_code, refused.configs) == (code, [])
    assert refused.error_message
