"""Subscriptions to metrics of clients (KIP-714): their settings, the two calls, and the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.push_telemetry import PushTelemetryRequest
from tests.support.broker_changes import APPEND, DELETE, SET, alter, described
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.scraped import counters, scrape
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CLIENT_METRICS = 16
JAVA = (Path(__file__).parents[1] / "protocol" / "otlp" / "java-3.9.1.zst").read_bytes()
ZSTD = 4
FROM_DEFAULT, FROM_CLIENT_METRICS = 5, 7
Change = tuple[str, int, str | None]


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"metrics.port": str(free_port())}


@pytest.fixture
def name(caller: Caller, topic: str) -> Iterator[str]:
    """Of a subscription, which is gone behind the test."""
    yield topic
    altered(caller, topic, *((key, DELETE, None) for key in ("metrics", "interval.ms", "match")))


def altered(caller: Caller, name: str, *changes: Change) -> tuple[int, str | None]:
    answered = alter(caller, *changes, name=name, resource_type=CLIENT_METRICS)
    return answered.error_code, answered.error_message


def rows(caller: Caller, name: str) -> dict[str, tuple[str | None, int]]:
    found = described(caller, name, resource_type=CLIENT_METRICS)
    return {key: (row.value, row.config_source) for key, row in found.items()}


def listed(caller: Caller) -> list[str]:
    answer = caller.call(ListConfigResourcesRequest(resource_types=[CLIENT_METRICS]), 1)
    return [one.resource_name for one in answer.config_resources]


def subscribed(caller: Caller, instance_id: bytes = bytes(16)) -> Any:
    return caller.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def test_a_subscription_is_made_described_listed_and_taken_away(caller: Caller, name: str) -> None:
    nothing = {
        "interval.ms": ("300000", FROM_DEFAULT),
        "match": ("", FROM_DEFAULT),
        "metrics": ("", FROM_DEFAULT),
    }
    assert rows(caller, name) == nothing
    changes = {"metrics": "a.,b.", "interval.ms": "1000", "match": "client_id=x.*"}

    assert altered(caller, name, *((key, SET, text) for key, text in changes.items())) == (0, None)

    assert rows(caller, name) == {
        key: (text, FROM_CLIENT_METRICS) for key, text in sorted(changes.items())
    }
    assert listed(caller) == [name]
    assert altered(caller, name, ("interval.ms", DELETE, None), ("nope", DELETE, None))[0] == 0
    assert rows(caller, name)["interval.ms"] == ("300000", FROM_DEFAULT)


def test_the_older_call_replaces_a_subscription(caller: Caller, name: str) -> None:
    altered(caller, name, ("metrics", SET, "a."), ("interval.ms", SET, "1000"))
    Resource = AlterConfigsRequest.Resource
    asked = Resource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=[Resource.Config(name="interval.ms", value="2000")],
    )

    (answered,) = caller.call(
        AlterConfigsRequest(resources=[asked], validate_only=False), 2
    ).responses

    assert answered.error_code == 0
    assert rows(caller, name)["metrics"] == ("", FROM_DEFAULT)
    assert rows(caller, name)["interval.ms"] == ("2000", FROM_CLIENT_METRICS)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        # The codes of Kafka 3.9 and 4.3, but for the text in place of a number, where 3.9 fails.
        (("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "3600001"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("interval.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("match", SET, "colour=red"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id=("), ErrorCode.INVALID_CONFIG),
        (("metrics", APPEND, "a."), ErrorCode.INVALID_CONFIG),
        (("nope", SET, "a"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_subscription_cannot_have_is_refused(
    caller: Caller, name: str, change: Change, code: ErrorCode
) -> None:
    found, text = altered(caller, name, change)

    assert (found, bool(text)) == (code, True)
    assert listed(caller) == []


def test_a_subscription_without_a_name_is_none(caller: Caller) -> None:
    code, _ = altered(caller, "", ("interval.ms", SET, "1000"))
    assert code == ErrorCode.INVALID_REQUEST


def test_what_a_client_pushes_is_seen_on_the_page(
    broker: BrokerProcess, caller: Caller, name: str
) -> None:
    port = int(broker.settings["metrics.port"])
    altered(
        caller,
        name,
        ("metrics", SET, "org.apache.kafka.producer."),
        ("match", SET, "client_software_name=till.*,client_source_address=127\\.0\\.0\\.1"),
    )
    nobody = subscribed(caller)
    caller.call(ApiVersionsRequest(client_software_name="till-2", client_software_version="7"), 3)
    asked = subscribed(caller)

    pushed = caller.call(
        PushTelemetryRequest(
            client_instance_id=asked.client_instance_id,
            subscription_id=asked.subscription_id,
            terminating=False,
            compression_type=ZSTD,
            metrics=JAVA,
        ),
        0,
    )

    assert (nobody.error_code, nobody.requested_metrics) == (0, [])
    assert (asked.error_code, asked.requested_metrics) == (0, ["org.apache.kafka.producer."])
    assert asked.client_instance_id != nobody.client_instance_id
    assert asked.accepted_compression_types == [4, 3, 1, 2]
    assert (asked.push_interval_ms, asked.telemetry_max_bytes) == (300_000, 1_048_576)
    assert not asked.delta_temporality
    assert pushed.error_code == 0
    page = scrape(port, "/client-metrics").body
    (row,) = [one for one in page.splitlines() if one.endswith("_send_total counter") is False
              and one.startswith("org_apache_kafka_producer_record_send_total")]  # fmt: skip
    assert 'client_id="wire",client_software_name="till-2",client_software_version="7"' in row
    assert row.endswith(" 16.0")
    found = counters(port)
    assert found["client_metrics_clients"] >= 2
    assert found["client_metrics_bytes"] == len(JAVA)
    assert found["client_metrics_pushes_total"] == 1
    again = subscribed(caller, asked.client_instance_id)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert counters(port)["client_metrics_refusals_total"] == 1
