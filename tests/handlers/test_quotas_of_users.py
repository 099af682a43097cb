"""Quotas of authenticated users: what one does by many client ids and connections adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.handlers.quota_calls import alter, entry, user
from tests.support.caller import Caller, batch, produce_request
from tests.support.secured import SecuredBroker, authenticate, shake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "t"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder: Path = tmp_path_factory.mktemp("secured")
    with SecuredBroker(folder) as broker:
        with Caller(broker.host, broker.ports["PLAINTEXT"]) as admin:
            admin.create_topic(TOPIC)
            (answered,) = alter(admin, entry(user("alice"), producer_byte_rate=10_000.0))
            assert answered.error_code == 0
        yield broker


def waits_ms(secured: SecuredBroker, name: str, client_id: str, protocol: str) -> int:
    with secured.connect(protocol) as client:
        client.client_id = client_id
        shake(client, "PLAIN")
        assert authenticate(client, f"\0{name}\0{name}-secret".encode()).error_code == 0
        request = produce_request((TOPIC, 0, batch(b"v" * 40_000)), acks=1)
        wait_ms: int = client.call(request, 9).throttle_time_ms
        return wait_ms


def test_no_client_id_and_no_connection_evades_the_quota_of_a_user(secured: SecuredBroker) -> None:
    protocols = ["SASL_PLAINTEXT", "SASL_SSL"] * 2

    told = [
        waits_ms(secured, "alice", f"made-up-{number}", protocol)
        for number, protocol in enumerate(protocols)
    ]

    assert told[:2] == [0, 0]
    assert 0 < told[2] < told[3]
    assert waits_ms(secured, "bob", "made-up-0", "SASL_SSL") == 0
