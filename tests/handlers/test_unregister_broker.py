"""UnregisterBroker, on both kinds of listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.metadata import RegisterBrokerRecord
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.running_controller import RunningController

GONE = RegisterBrokerRecord(
    broker_id=7,
    incarnation_id=bytes(range(16)),
    broker_epoch=3,
    end_points=[],
    features=[],
    rack=None,
    fenced=True,
    log_dirs=[],
)
Connect = Callable[[RunningController], Any]
BOTH = pytest.mark.parametrize(
    "connect", [RunningController.connect, RunningController.connect_as_client]
)


def unregistered(
    connect: Connect, node: RunningController, broker_id: int
) -> tuple[int, str | None]:
    with connect(node) as caller:
        answer = caller.call(UnregisterBrokerRequest(broker_id=broker_id), 0)
    return answer.error_code, answer.error_message


@BOTH
def test_a_broker_that_has_gone_is_forgotten_once(
    own_node: RunningController, connect: Connect
) -> None:
    own_node.run(lambda: own_node.controller.append([GONE]))

    assert unregistered(connect, own_node, 7) == (0, None)

    assert list(own_node.controller.image.brokers) == [1]
    again = (ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 7 is not currently registered")
    assert unregistered(connect, own_node, 7) == again


@BOTH
def test_this_broker_is_not_forgotten_while_it_runs(
    node: RunningController, connect: Connect
) -> None:
    code, text = unregistered(connect, node, 1)

    assert (code, text) == (
        ErrorCode.INVALID_REQUEST,
        "Broker ID 1 is this broker, which is running",
    )
    assert 1 in node.controller.image.brokers
