"""A broker with its console, and records in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster
from tests.support.broker_process import BrokerProcess
from tests.support.console import ConsoleClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("console")
    # What retention will do is looked at, not what it has done.
    settings = {"log.initial.task.delay.ms": "86400000"}
    arguments = ("--console", "127.0.0.1:0")
    with BrokerProcess(folder, settings=settings, arguments=arguments) as running:
        yield running
        assert "Traceback" not in running.output()


@pytest.fixture(scope="package")
def client(broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def console(broker: BrokerProcess) -> ConsoleClient:
    return ConsoleClient(broker)
