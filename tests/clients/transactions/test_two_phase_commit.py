"""A two-phase commit of Kafka's Java client (KIP-939), whose process is killed between the phases.

The client has its part behind public methods and switches on none of it by itself
(`java/transactions/common/triglot/TwoPhase.java`); Apache Kafka keeps no transaction yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.clients.drivers.program_driver import JAVA_VERSIONS
from tests.clients.transactions.hosts import JavaHost
from tests.clients.transactions.telling import set_transaction_version
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.clients, pytest.mark.java, pytest.mark.timeout(600)]

COMMITTED = "read_committed"
RELEASES = [JAVA_VERSIONS["java-4"], pytest.param("4.3.1", marks=pytest.mark.long)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"transaction.two.phase.commit.enable": "true"}
    with BrokerProcess(tmp_path / "data", settings=settings) as started:
        with Caller(started.host, started.port) as caller:
            set_transaction_version(caller, 2)
            caller.create_topic("t")
        yield started


@pytest.fixture(params=RELEASES)
def new_host(
    request: pytest.FixtureRequest, server: BrokerProcess, tmp_path: Path
) -> Iterator[Callable[[str], JavaHost]]:
    """Starts the client; those that are left at the end are killed."""
    hosts: list[JavaHost] = []

    def start(name: str) -> JavaHost:
        (tmp_path / name).mkdir()
        try:
            hosts.append(JavaHost(request.param, server.bootstrap, tmp_path / name))
        except NotAvailable as reason:
            end_of_test("java", f"{request.param}: {reason}")
        return hosts[-1]

    yield start
    for host in hosts:
        host.kill()  # twice does no harm


def test_what_a_killed_client_has_prepared_is_committed_by_the_next_after_a_kill_of_the_broker(
    server: BrokerProcess, new_host: Callable[[str], JavaHost]
) -> None:
    first, second = new_host("first"), new_host("second")
    first.open_two_phase("p", "x")
    first.begin("p")
    first.send("p", "t", "prepared")
    prepared = first.prepare("p")
    first.kill()
    server.kill()
    server.start()

    assert second.recover("q", "x") == prepared
    assert second.read("t", COMMITTED) == []
    second.commit("q")

    assert second.read("t", COMMITTED) == ["prepared"]
    second.begin("q")
    second.send("q", "t", "later")
    second.commit("q")
    assert second.read("t", COMMITTED) == ["prepared", "later"]
    assert second.recover("r", "x") == "-1:-1"
