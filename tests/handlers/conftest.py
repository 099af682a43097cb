"""One broker for each module of these tests; each test has a topic name of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.group_caller import GroupCaller, Member
from tests.support.running_controller import RunningController

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
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


@pytest.fixture
def group(topic: str) -> str:
    """A group id that no other test uses; the group does not exist yet."""
    return f"group-{topic}"[:200]


@pytest.fixture
def groups(broker: BrokerProcess) -> Iterator[GroupCaller]:
    with GroupCaller(broker.host, broker.port) as client:
        yield client


@pytest.fixture
def member(broker: BrokerProcess, group: str) -> Iterator[Callable[..., Member]]:
    """Makes members of the test's group, or of the one that is named first."""
    made: list[Member] = []

    def make(group_id: str = group, **facts: Any) -> Member:
        made.append(Member.connect(broker, group_id, **facts))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningController]:
    """A controller with its listener, and without a snapshot."""
    with RunningController(tmp_path_factory.mktemp("node") / "data") as controller:
        controller.append(5)
        yield controller


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[RunningController]:
    with RunningController(tmp_path / "data") as controller:
        yield controller


@pytest.fixture
def follower(node: RunningController) -> Iterator[Caller]:
    with node.connect() as caller:
        yield caller
