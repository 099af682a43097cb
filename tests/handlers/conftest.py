"""One broker for each module of these tests; each test has a topic name of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    """Settings of the module's broker; a module that needs others defines its own fixture."""
    return {}


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, str]
) -> Iterator[BrokerProcess]:
    """A running broker. After the last test it must stop cleanly and have had no fault."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=settings)
    process.start()
    yield process
    if process.run is None:
        return
    run = process.run
    code = process.stop()
    said = run.output()
    assert code == 0, said[-3000:]
    assert "a handler failed" not in said, said[-3000:]
    assert "Traceback" not in said, said[-3000:]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker for one test, which starts, stops and kills it; not started yet."""
    process = BrokerProcess(tmp_path / "data")
    yield process
    if process.run is not None:
        process.kill()


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[Caller]:
    with Caller(broker.host, broker.port) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; the topic does not exist yet."""
    return re.sub(r"[^a-zA-Z0-9-]+", "-", request.node.name).strip("-")[-200:]
