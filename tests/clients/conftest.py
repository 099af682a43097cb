"""The server that the clients talk to, and the clients.

By default the server is our broker; `TEST_PROCESSES=2` has it serve by so many processes.
`TEST_SERVER=kafka` takes Apache Kafka instead (which proves the tests), `TEST_BOOTSTRAP=host:port`
one that is already there; tests that must stop or kill their server are skipped then.

A client whose runtime is missing is skipped with the reason, unless `TEST_REQUIRE_CLIENTS`
names its runtime: a list of python, java, node, go, rust, kerberos between commas.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import Clients
from tests.clients.grid_clients import GridDrivers
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.clients.drivers.driver import Driver
    from tests.support.server_process import ServerProcess

#: A first fetch of jars and packages happens inside the first test that wants them.
FIRST_FETCH_TIMEOUT_S = 600

RUNTIME_MARKS = ("java", "node", "go", "rust")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.get_closest_marker(runtime) for runtime in RUNTIME_MARKS):
            item.add_marker(pytest.mark.timeout(FIRST_FETCH_TIMEOUT_S))


class OutsideServer:
    """A server that somebody else runs."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.host, _, port = bootstrap.rpartition(":")
        self.port = int(port)


def _new_server(data: Path, settings: Mapping[str, str]) -> ServerProcess:
    if os.environ.get("TEST_SERVER") == "kafka":
        return KafkaProcess(data, settings=settings)
    return BrokerProcess(data, settings=settings)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess | OutsideServer]:
    """The server that most tests share; each uses topics of its own."""
    outside = os.environ.get("TEST_BOOTSTRAP")
    if outside:
        yield OutsideServer(outside)
        return
    with _new_server(tmp_path_factory.mktemp("shared") / "data", {}) as server:
        yield server


@pytest.fixture
def bootstrap(broker: ServerProcess | OutsideServer) -> str:
    return broker.bootstrap


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts a server of the test's own, which it may stop, kill and start again."""
    if os.environ.get("TEST_BOOTSTRAP"):
        pytest.skip("a server from outside cannot be stopped")
    servers: list[ServerProcess] = []

    def start(**settings: str) -> ServerProcess:
        data = tmp_path / f"data-{len(servers)}"
        server = _new_server(data, {key.replace("_", "."): settings[key] for key in settings})
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        if server.run is not None:
            server.stop()


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    found = Clients(lambda name: tmp_path_factory.mktemp(name))
    yield found
    found.close()


@pytest.fixture(scope="session")
def grid_drivers(
    clients: Clients, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GridDrivers]:
    """The clients of the grid, old ones too."""
    drivers = GridDrivers(clients, tmp_path_factory.mktemp("grid"))
    yield drivers
    drivers.close()


@pytest.fixture
def client(clients: Clients, request: pytest.FixtureRequest) -> Driver:
    """The client that the parameter names."""
    return clients.get(request.param)


_topic_numbers = itertools.count(1)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses, not even one of another run on the same server."""
    return f"topic-{next(_topic_numbers)}-{os.urandom(4).hex()}"
