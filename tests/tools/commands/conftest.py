"""One broker for the commands, which answers as another release of Kafka at each of its doors."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOORS = {
    "TODAY": "",
    "V08": "0.8.2",
    "V09": "0.9",
    "V010": "0.10.2",
    "V011": "0.11",
    "V21": "2.1",
    "V41": "4.1",
}


class Doors(BrokerProcess):
    """A broker with a listener for each release."""

    def at(self, door: str) -> str:
        """host:port of a listener."""
        return f"{self.host}:{self.ports[door]}"

    ports: dict[str, int]


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    ports = {name: free_port() for name in DOORS}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in DOORS),
        "inter.broker.listener.name": "TODAY",
        "auto.create.topics.enable": "false",
        **{
            f"listener.name.{name.lower()}.as.version": release
            for name, release in DOORS.items()
            if release
        },
    }
    running = Doors(tmp_path_factory.mktemp("commands"), settings=settings)
    running.ports = ports
    with running:
        yield running
        assert "Traceback" not in running.output()


@pytest.fixture(scope="package")
def bootstrap(broker: Doors) -> str:
    return broker.at("TODAY")


@pytest.fixture(scope="package")
def new_name() -> Callable[[], str]:
    """Names of topics that no other test has."""
    numbers = itertools.count()
    return lambda: f"topic-{next(numbers)}"
