"""The broker of each module here counts its codec calls on a metrics page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.handlers.conftest import broker as broker
from tests.handlers.conftest import caller as caller
from tests.handlers.conftest import own_broker as own_broker
from tests.handlers.conftest import topic as topic
from tests.support.scraped import CodecCalls
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    # On a slow machine retention would look into compressed batches meanwhile.
    return {"metrics.port": str(free_port()), "log.initial.task.delay.ms": "3600000"}


@pytest.fixture
def calls(broker: BrokerProcess) -> CodecCalls:
    """What codecs do from the beginning of the test on."""
    return CodecCalls(int(broker.settings["metrics.port"]))
