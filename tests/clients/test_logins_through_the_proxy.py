"""Logins by SASL, which pass through `triglot faults`, and faults behind them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from testing.control import Control
from testing.faults import Faults, conversations
from tests.support.proxy_process import ProxyProcess
from tests.support.secured import SecuredBroker, send_token, shake
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        broker.add_scram_users()
        with ProxyProcess(broker.bootstrap_of("SASL_PLAINTEXT")) as proxy:
            yield proxy


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_confluent_kafka_logs_in_and_meets_a_fault(
    proxy: ProxyProcess, topic: str, mechanism: str
) -> None:
    import confluent_kafka

    told: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": proxy.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
    )
    faults = Faults(Control.at(proxy.control))
    with faults.fail("Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER") as fault:
        producer.produce(topic, b"a", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(60) == 0

    assert told == [None]
    assert fault.fired == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kafka_python_logs_in(proxy: ProxyProcess, topic: str, mechanism: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=proxy.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="bob",
        sasl_plain_password="bob-secret",
    )
    assert producer.send(topic, b"a").get(timeout=60).offset == 0
    producer.close()


def test_a_login_of_the_oldest_kind_has_tokens_without_headers(proxy: ProxyProcess) -> None:
    with WireClient(proxy.host, proxy.port, client_id="oldest") as client:
        assert shake(client, "PLAIN", version=0).error_code == 0
        assert send_token(client, b"\0alice\0alice-secret") == b""
        asked = conversations(Control.at(proxy.control), client="oldest")
    assert [one.api for one in asked] == ["SaslHandshake"]
    assert not any("secret" in str(one) for one in asked)
