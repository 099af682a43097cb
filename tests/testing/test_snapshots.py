"""Snapshots of a broker, and its way back to them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster
from config.platforms import PORTABLE
from testing import Broker, BrokerFailed, TopicPartition
from testing.processes import broker_server
from tests.testing.test_topics import batch, values

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.topic("orders").create()
        broker.cluster.produce(ORDERS, [batch(b"a", b"b")])
        broker.cluster.commit_offsets("billing", {ORDERS: 1})
        yield broker


def assert_as_at_first(broker: Broker) -> None:
    assert broker.topics() == ["orders"]
    assert values(broker.topic("orders").records()) == [b"a", b"b"]
    assert broker.groups() == {"billing": "Empty"}
    assert broker.group("billing").offsets() == {ORDERS: 1}


def test_topics_records_and_offsets_are_as_they_were_as_often_as_wanted(broker: Broker) -> None:
    port, mark = broker.port, broker.snapshot()
    for _ in range(2):
        assert_as_at_first(broker)
        broker.topic("payments").create()
        broker.cluster.produce(ORDERS, [batch(b"c")])
        broker.cluster.commit_offsets("billing", {ORDERS: 3})
        broker.cluster.commit_offsets("audit", {ORDERS: 3})
        broker.restore(mark)
    assert_as_at_first(broker)
    assert broker.port == port


def test_a_broker_goes_on_after_its_snapshot_and_another_begins_with_it(broker: Broker) -> None:
    mark = broker.snapshot()
    broker.cluster.produce(ORDERS, [batch(b"c")])
    with Broker(directory=mark.directory) as other:
        assert_as_at_first(other)
    assert values(broker.topic("orders").records()) == [b"a", b"b", b"c"]


def test_a_transaction_that_was_open_can_be_ended_again_and_again(broker: Broker) -> None:
    producer = broker.cluster.transactional_producer("copier")
    producer.initialize()
    producer.send(ORDERS, batch(b"c"))
    prepared = producer.prepare()
    assert prepared is not None
    mark = broker.snapshot()
    for committed in (True, False, True):
        broker.restore(mark)
        assert values(broker.topic("orders").records()) == [b"a", b"b"]
        with Cluster(broker.bootstrap) as cluster:
            again = cluster.transactional_producer("copier")
            again.resume(prepared)
            (again.commit if committed else again.abort)()
        expected = [b"a", b"b", b"c"] if committed else [b"a", b"b"]
        assert values(broker.topic("orders").wait_for(len(expected))) == expected


def test_a_way_back_that_has_no_room_leaves_what_was(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, before = broker.snapshot(), broker.data

    def no_room(source: Path, into: Path) -> None:
        raise BrokerFailed("no room")

    with monkeypatch.context() as full:
        full.setattr("testing.broker.copy_data", no_room)
        with pytest.raises(BrokerFailed, match="no room"):
            broker.restore(mark)
    assert not broker.is_running
    assert broker.data == before
    broker.start()
    assert_as_at_first(broker)
    broker.restore(mark)
    assert_as_at_first(broker)


def forked_processes() -> set[int]:
    """Those of brokers, and what waits to be one."""
    parent = broker_server()._process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children")
    return {int(pid) for pid in children.read_text().split()}


@pytest.mark.skipif(sys.platform != "linux" or PORTABLE, reason="brokers are forked on Linux")
def test_a_way_back_is_taken_by_a_process_that_has_waited_for_it(broker: Broker) -> None:
    others = forked_processes() - {broker.pid}
    mark = broker.snapshot()
    spare: set[int] = set()
    while broker.pid not in spare:  # one that is not ready yet goes on to wait
        spare = forked_processes() - others - {broker.pid}
        threading.Event().wait(0.05)
        broker.restore(mark)
    assert_as_at_first(broker)
    broker.kill()
    broker.start()
    assert_as_at_first(broker)
    assert len(forked_processes() - others - {broker.pid}) <= 1
