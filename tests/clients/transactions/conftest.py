"""The server of tests that kill it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.transactions.brokers import ON_KAFKA, REFERENCES, STABLE
from tests.clients.transactions.telling import SETTINGS, prepare
from tests.support.broker_process import BrokerProcess
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.server_process import ServerProcess

TRIGLOT = "triglot"


@pytest.fixture(params=[TRIGLOT, *(STABLE if ON_KAFKA else [])])
def killed_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the test's own: ours, and Apache Kafka where that is to prove the test."""
    if "TEST_BOOTSTRAP" in os.environ:
        pytest.skip("a server from outside cannot be killed")
    level = None
    try:
        if request.param == TRIGLOT:
            server: ServerProcess = BrokerProcess(tmp_path / "data", settings=SETTINGS)
        else:
            reference = REFERENCES[request.param]
            server = KafkaProcess(tmp_path / "data", settings=SETTINGS, release=reference.release)
            level = reference.level_to_set
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with server:
        prepare(server, level)
        yield server
