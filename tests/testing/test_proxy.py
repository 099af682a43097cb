"""`triglot.testing.FaultProxy`: faults in front of a broker that knows nothing of them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from testing import Broker, BrokerFailed, FaultProxy
from testing.control import ControlError
from tests.support.broker_process import CHECKOUT
from tests.support.caller import Caller, batch
from tests.support.wire_client import ConnectionClosed, WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.topic("orders").create()
        yield broker


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_a_client_meets_its_faults_and_stays_on_it(broker: Broker) -> None:
    with FaultProxy(broker.bootstrap) as proxy, Caller(proxy.host, proxy.port) as caller:
        (named,) = caller.call(MetadataRequest(topics=[]), 9).brokers
        assert f"{named.host}:{named.port}" == proxy.bootstrap != broker.bootstrap
        with (
            proxy.faults.drop_answer("Produce", topic="orders") as fault,
            pytest.raises(ConnectionClosed),
        ):
            caller.produce("orders", batch(b"one"))
        assert fault.fired == 1
        assert len(broker.topic("orders").records()) == 1
        assert "Produce" in [one.api for one in proxy.conversations()]
        assert proxy.unfired() == []


def test_what_only_a_broker_can_do_is_refused(broker: Broker) -> None:
    with FaultProxy(broker.bootstrap) as proxy:
        with pytest.raises(ControlError, match="only the broker can"):
            proxy.faults.rebalance("billing")
        with pytest.raises(ControlError, match="a proxy has no disk"):
            proxy.faults.full_disk()


def test_answers_name_the_address_by_which_a_container_is_reached(broker: Broker) -> None:
    port = free_port()
    with (
        FaultProxy(
            broker.bootstrap,
            ports=range(port, port + 1),
            advertised="proxy.example",
            advertised_port=19_192,
        ) as proxy,
        WireClient("127.0.0.1", port) as client,
    ):
        assert proxy.bootstrap == "proxy.example:19192"
        (named,) = client.call(MetadataRequest(topics=[]), 9).brokers
        found = client.call(FindCoordinatorRequest(key="billing", key_type=0), 2)
    for one in (named, found):
        assert (one.host, one.port) == ("proxy.example", 19_192)


def test_the_command_takes_a_range_of_ports_and_an_address_to_advertise(broker: Broker) -> None:
    port = free_port()
    command = [sys.executable, "-m", "tools", "faults", "--in-front-of", broker.bootstrap]
    command += ["--listen", f"127.0.0.1:{port}-{port + 3}", "--testing", "127.0.0.1:0", "--json"]
    with subprocess.Popen(
        [*command, "--advertise", "localhost:19192", "--log-level", "error"],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert json.loads(run.stdout.readline())["port"] == port
        with WireClient("127.0.0.1", port) as client:
            (named,) = client.call(MetadataRequest(topics=[]), 9).brokers
        assert (named.host, named.port) == ("localhost", 19_192)
        run.terminate()
        assert run.wait() == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--listen", "127.0.0.1:9192-9191"), "the ports rise"),
        (("--listen", "127.0.0.1:9192-all"), "the ports rise"),
        (("--advertise", "localhost:19192"), "wants one in --listen, too"),
    ],
)
def test_wrong_addresses_are_refused_in_one_line(words: tuple[str, str], why: str) -> None:
    command = [sys.executable, "-m", "tools", "faults", "--in-front-of", NOBODY, *words]
    run = subprocess.run(
        [*command, "--testing", "127.0.0.1:0"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert why in run.stderr.splitlines()[-1]


def test_a_port_that_is_taken_is_told(broker: Broker) -> None:
    with (
        pytest.raises(BrokerFailed, match=r"the proxy can't listen on 127\.0\.0\.1: .*in use"),
        FaultProxy(NOBODY, ports=range(broker.port, broker.port + 1)),
    ):
        pass


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="in_front_of is host:port of a broker, found 'kafka'"):
        FaultProxy("kafka")
    with pytest.raises(ValueError, match="ports, which were not given"):
        FaultProxy(NOBODY, advertised_port=1)
    with pytest.raises(BrokerFailed, match="does not run"):
        FaultProxy(NOBODY).faults.clear()
