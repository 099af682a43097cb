"""Listeners that are opened and closed while the broker runs, by kafka-configs."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from tests.support.broker_changes import SET, alter, delete_all, described, set_all
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.running_controller import RunningController
from tests.support.server_process import ServerFailed, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
MAP = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"}


@pytest.fixture
def running(own_broker: BrokerProcess) -> BrokerProcess:
    own_broker.port = free_port()
    own_broker.start()
    return own_broker


@pytest.fixture
def caller(running: BrokerProcess) -> Iterator[Caller]:
    with Caller(HOST, running.port) as client:
        yield client


def listeners(running: BrokerProcess, *others: str) -> dict[str, str]:
    return {"listeners": ",".join((f"PLAINTEXT://{HOST}:{running.port}", *others))}


def refuses(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def dialled(caller: Caller) -> int:
    """The port on which this client is told that the broker is."""
    (node,) = caller.call(MetadataRequest(topics=[]), 9).brokers
    port: int = node.port
    return port


def test_a_listener_is_opened_and_closed_while_the_broker_runs(
    running: BrokerProcess, caller: Caller
) -> None:
    port = free_port()
    row = described(caller)["listeners"]
    assert (row.value, row.read_only) == (f"PLAINTEXT://{HOST}:{running.port}", False)

    set_all(caller, MAP | listeners(running, f"INSIDE://{HOST}:{port}"))

    with Caller(HOST, port) as inside:
        assert (dialled(inside), dialled(caller)) == (port, running.port)

        delete_all(inside, "listeners", *MAP)

        assert inside.closed_by_server()
    assert refuses(port)
    assert dialled(caller) == running.port


def test_a_broker_may_move_to_another_port(running: BrokerProcess, caller: Caller) -> None:
    port = free_port()

    set_all(caller, {"listeners": f"PLAINTEXT://{HOST}:{port}"})

    assert refuses(running.port)
    with Caller(HOST, port) as moved:
        assert dialled(moved) == port
    # Of a listener that is still there, connections stay.
    assert dialled(caller) == running.port


def test_a_port_that_the_system_chose_may_be_named(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Caller(HOST, own_broker.port) as caller:
        set_all(caller, listeners(own_broker))
        assert dialled(caller) == own_broker.port
        delete_all(caller, "listeners")
        with Caller(HOST, own_broker.port) as again:
            assert dialled(again) == own_broker.port


def test_the_listeners_outlive_a_restart_and_say_so(running: BrokerProcess, caller: Caller) -> None:
    port = free_port()
    set_all(caller, listeners(running, f"SSL://{HOST}:{port}") | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT"
    })  # fmt: skip
    running.stop()

    running.start()

    with Caller(HOST, port) as second:
        assert dialled(second) == port
    assert "set while the broker ran" in running.output()
    running.stop()
    with socket.socket() as taken:
        taken.bind((HOST, port))
        taken.listen()
        with pytest.raises(ServerFailed, match="holds over the file and --listen"):
            running.start()


def test_an_address_that_is_taken_changes_nothing(running: BrokerProcess, caller: Caller) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        free, busy = free_port(), taken.getsockname()[1]
        wanted = listeners(running, f"INSIDE://{HOST}:{free}", f"OUTSIDE://{HOST}:{busy}")
        names = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"
        changes = {**wanted, "listener.security.protocol.map": names}

        refused = alter(caller, *((key, SET, value) for key, value in changes.items()))

    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert f"can't listen on OUTSIDE://{HOST}:{busy}" in (refused.error_message or "")
    assert refuses(free)
    row = described(caller)["listeners"]
    assert row.value == f"PLAINTEXT://{HOST}:{running.port}"


def test_asking_whether_a_listener_could_be_opened_opens_none(
    running: BrokerProcess, caller: Caller
) -> None:
    port = free_port()
    changes = MAP | listeners(running, f"INSIDE://{HOST}:{port}")

    asked = alter(
        caller, *((key, SET, value) for key, value in changes.items()), validate_only=True
    )

    assert asked.error_code == 0
    assert refuses(port)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"listeners": f"INSIDE://{HOST}:0"}, "which protocol INSIDE speaks"),
        ({"listeners": f"SSL://{HOST}:0"}, "listener.name.ssl.ssl.keystore.location: is missing"),
        ({"listeners": ""}, "wanted"),
        (
            {"listeners": f"SSL://{HOST}:0,PLAINTEXT://{HOST}:0"}
            | {"listener.security.protocol.map": "SSL:SSL,PLAINTEXT:PLAINTEXT"},
            "listener.name.ssl.ssl.keystore.location: is missing",
        ),
    ],
)
def test_listeners_that_cannot_be_are_refused(
    running: BrokerProcess, caller: Caller, changes: dict[str, str], reason: str
) -> None:
    refused = alter(caller, *((key, SET, value) for key, value in changes.items()))

    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert reason in (refused.error_message or "")


def test_the_listeners_of_the_controller_stay(own_node: RunningController) -> None:
    named = {one.name: str(one) for one in own_node.broker.settings.current.listeners}
    moved = f"{named['PLAINTEXT']},CONTROLLER://{HOST}:{free_port()}"

    with own_node.connect_as_client() as caller:
        refused = alter(caller, ("listeners", SET, moved))

    assert "those of the controller are opened at the start" in (refused.error_message or "")
