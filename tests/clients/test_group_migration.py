"""A group changes its protocol while it runs, member by member, and loses nothing.

A commit that is under way while its member is told to join again may be refused, as in Kafka; then
a few records are read twice.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PARTITIONS = 12
HEARTBEATS = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
CONSUMER: dict[str, Any] = {"group.protocol": "consumer"}
CLASSIC: dict[str, Any] = {"heartbeat.interval.ms": 300, "session.timeout.ms": 6000}
WITHIN_S = 30


class Member:
    """A consumer on a thread. `owned` is what it has now, `read` the values it was given."""

    def __init__(self, bootstrap: str, settings: dict[str, Any]) -> None:
        self.owned: set[int] = set()
        self.read: list[bytes] = []
        self.lost = 0
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        def assigned(_: Any, partitions: list[Any]) -> None:
            self.owned |= {partition.partition for partition in partitions}

        def revoked(_: Any, partitions: list[Any]) -> None:
            self.owned -= {partition.partition for partition in partitions}

        def lost(_: Any, partitions: list[Any]) -> None:
            self.lost += 1

        self._consumer.subscribe(["t"], on_assign=assigned, on_revoke=revoked, on_lost=lost)
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.read.append(message.value())
        self._consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=HEARTBEATS) as process:
        yield process


def until(what: Callable[[], bool], why: str) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < end_s, why
        time.sleep(0.05)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_classic_members_are_exchanged_for_others_and_back(
    server: BrokerProcess, strategy: str
) -> None:
    admin_module = pytest.importorskip("confluent_kafka.admin")
    admin = admin_module.AdminClient({"bootstrap.servers": server.bootstrap})
    for made in admin.create_topics([admin_module.NewTopic("t", PARTITIONS, 1)]).values():
        made.result()
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    sent: list[bytes] = []
    members: list[Member] = []

    def send() -> None:
        for number in range(len(sent), len(sent) + 240):
            sent.append(b"%d" % number)
            producer.produce("t", sent[-1], partition=number % PARTITIONS)
        producer.flush()

    def join(settings: dict[str, Any]) -> Member:
        member = Member(server.bootstrap, settings)
        members.append(member)
        return member

    def settled(*alive: Member) -> None:
        """All is shared out evenly among these, and all that was sent has been read."""
        fair = PARTITIONS // len(alive)
        until(lambda: all(len(m.owned) == fair for m in alive), f"{[m.owned for m in alive]}")
        send()
        until(lambda: len(read()) == len(sent), f"not all of {len(sent)} were read")

    def read() -> set[bytes]:
        return {value for member in members for value in member.read}

    def kind() -> str:
        return str(admin.describe_consumer_groups(["g"])["g"].result().type.name)

    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    try:
        first, second = join(classic), join(classic)
        settled(first, second)
        assert kind() == "CLASSIC"
        newer = join(CONSUMER)
        settled(first, second, newer)
        assert kind() == "CONSUMER"
        first.close()
        settled(second, newer)
        newer.close()
        settled(second)
        assert kind() == "CLASSIC"
    finally:
        for member in members:
            member.close()
    assert read() == set(sent)
    assert [member.lost for member in members] == [0, 0, 0]
