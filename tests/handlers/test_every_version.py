"""Every API in every version that is advertised, with bodies made from Kafka's own schemas.

Each request is answered by bytes that Kafka's schema of the response reads to the last one. The
only close without an answer is that of a Produce with acks=0 that failed. What the controller's
listener answers with a handler of its own is asked there.
"""

from __future__ import annotations

import contextlib
import struct
from random import Random
from typing import TYPE_CHECKING

import pytest

from broker.network.controller_handlers import CONTROLLER_HANDLERS
from broker.network.dispatch import HANDLERS
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.registry import APIS, Api
from tests.protocol.reference_schema import Tree, schema_for
from tests.protocol.reference_values import Chance, Empty, Largest, Smallest, Source, Zero, tree_of
from tests.support.caller import Caller
from tests.support.server_process import free_port
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from _pytest.mark.structures import ParameterSet

    from tests.support.broker_process import BrokerProcess

CHANCES = 8
PRODUCE, API_VERSIONS = 0, 18
PROBE_ID = 0x7EADBEEF

OF_THE_CONTROLLER = {
    key: handler for key, handler in CONTROLLER_HANDLERS.items() if handler is not HANDLERS.get(key)
}


def versions(table: Iterable[int]) -> list[ParameterSet]:
    return [
        pytest.param(APIS[key], version, id=f"{APIS[key].name}-v{version}")
        for key in table
        for version in range(APIS[key].min_version, APIS[key].max_version + 1)
    ]


@pytest.fixture(scope="module")
def controller_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def settings(controller_port: int) -> Mapping[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
    }


def frame(api: Api, version: int, correlation_id: int, tree: Tree, *, strange: bool) -> bytes:
    schema = schema_for(api.name, "Request", version)
    head = struct.pack(">hhih", api.key, version, correlation_id, 1) + b"t"
    if version in schema.flexible:
        head += b"\x01\x63\x02ab" if strange else b"\0"
    body = schema.encode(version, tree, strange_tags=strange)
    return struct.pack(">i", len(head) + len(body)) + head + body


def answer(caller: Caller, api: Api, version: int, sent: bytes) -> Tree | None:
    """What came back for these bytes, or None if only the probe behind them was answered."""
    caller.send_raw(sent + caller.frame(ApiVersionsRequest(), 0, PROBE_ID))
    received = caller.recv_frame()
    if struct.unpack_from(">i", received)[0] == PROBE_ID:
        return None
    assert caller.recv_frame()[:4] == struct.pack(">i", PROBE_ID)
    schema = schema_for(api.name, "Response", version)
    position = 4
    if version in schema.flexible and api.key != API_VERSIONS:
        assert received[position] == 0
        position += 1
    return schema.decode(version, received[position:])


def requests(api: Api, version: int) -> Iterator[tuple[Tree, bytes]]:
    """Requests of every shape: what is asked, and the frame."""
    schema = schema_for(api.name, "Request", version)
    chance = Random(f"{api.name} {version}")
    sources: list[Source] = [Empty(), Zero(), Smallest(), Largest()]
    sources += [Chance(chance) for _ in range(CHANCES)]
    for number, source in enumerate(sources):
        tree = tree_of(schema, version, source)
        yield tree, frame(api, version, number, tree, strange=number % 2 == 1)


@pytest.mark.parametrize(("api", "version"), versions(HANDLERS))
def test_whatever_is_asked_there_is_an_answer_and_the_broker_lives_on(
    broker: BrokerProcess, api: Api, version: int
) -> None:
    with Caller(broker.host, broker.port) as caller:
        for tree, sent in requests(api, version):
            if api.key == PRODUCE and tree["Acks"] == 0:
                expect_no_answer(broker, api, version, sent)
            else:
                assert answer(caller, api, version, sent) is not None, tree
        assert caller.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize(("api", "version"), versions(OF_THE_CONTROLLER))
def test_whatever_the_controller_is_asked_there_is_an_answer_and_it_lives_on(
    broker: BrokerProcess, controller_port: int, api: Api, version: int
) -> None:
    with Caller(broker.host, controller_port) as caller:
        for tree, sent in requests(api, version):
            assert answer(caller, api, version, sent) is not None, tree
        assert caller.call(ApiVersionsRequest(), 0).error_code == 0


def expect_no_answer(broker: BrokerProcess, api: Api, version: int, sent: bytes) -> None:
    """Whether something failed or not, and so whether the connection was closed or not."""
    with Caller(broker.host, broker.port) as caller, contextlib.suppress(ConnectionClosed):
        assert answer(caller, api, version, sent) is None
