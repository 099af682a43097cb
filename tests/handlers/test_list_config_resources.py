"""ListConfigResources, versions 0 and 1."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.caller import Caller

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def listed(caller: Caller, *types: int, version: int = 1) -> list[tuple[int, str]]:
    answer = caller.call(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert answer.error_code == 0
    return [(found.resource_type, found.resource_name) for found in answer.config_resources]


def test_what_has_settings_is_listed_by_kind(caller: Caller, topic: str) -> None:
    for name in (f"{topic}-2", topic):
        caller.create_topic(name)
    topics = [(TOPIC, topic), (TOPIC, f"{topic}-2")]
    loggers = [(BROKER_LOGGER, "1")]

    assert listed(caller) == [*topics, (BROKER, "1"), *loggers]
    assert listed(caller, TOPIC) == topics
    assert listed(caller, BROKER_LOGGER, GROUP) == loggers
    assert listed(caller, CLIENT_METRICS) == []


def test_version_0_lists_what_clients_are_asked_to_measure(caller: Caller) -> None:
    assert listed(caller, version=0) == []


@pytest.mark.parametrize("unknown", [0, 1, 127, -1])
def test_a_kind_without_settings_is_refused(caller: Caller, unknown: int) -> None:
    answer = caller.call(ListConfigResourcesRequest(resource_types=[TOPIC, unknown]), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.config_resources == []
