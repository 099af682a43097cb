"""Consumers that start together are assigned once, with nothing set: librdkafka's test 0113."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.drivers.confluent_driver import ConfluentDriver
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [pytest.mark.clients]

PARTITIONS = 12
TOPIC = "t"
WITHIN_S = 30
ATTEMPTS = 3
"""Groups, of which most must do so: on a busy machine consumers start further apart."""


class Member:
    """A consumer, and the sizes of the assignments that it was given."""

    def __init__(self, bootstrap: str, group: str, number: int, assignor: str) -> None:
        self.assigned: list[int] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": f"{group}-{number}",
                "partition.assignment.strategy": assignor,
                "log_level": 0,
            }
        )
        self.consumer.subscribe([TOPIC], on_assign=self._assign)

    def _assign(self, _: Any, partitions: list[Any]) -> None:
        self.assigned.append(len(partitions))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("start") / "data") as process:
        ConfluentDriver().create_topic(process.bootstrap, TOPIC, partitions=PARTITIONS, configs={})
        yield process


def assigned(server: BrokerProcess, group: str, count: int, assignor: str) -> list[list[int]]:
    """What each of so many consumers was given until all had the same."""
    members = [Member(server.bootstrap, group, number, assignor) for number in range(count)]
    end_s = time.monotonic() + WITHIN_S
    try:
        while any(len(each.consumer.assignment()) != PARTITIONS // count for each in members):
            assert time.monotonic() < end_s, [each.assigned for each in members]
            for each in members:
                each.consumer.poll(0.01)
        return [each.assigned for each in members]
    finally:
        for each in members:
            each.consumer.close()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_consumers_that_start_together_are_assigned_once(
    server: BrokerProcess, count: int, assignor: str
) -> None:
    groups = [f"{count}-{assignor}-{number}" for number in range(ATTEMPTS)]
    found = [assigned(server, group, count, assignor) for group in groups]
    once = [[PARTITIONS // count]] * count
    assert found.count(once) > ATTEMPTS / 2, found
