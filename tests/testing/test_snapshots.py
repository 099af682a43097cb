"""Snapshots of a broker, and its way back to them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker.event_loop import new_event_loop
from client.cluster import Cluster
from config.platforms import PORTABLE
from testing import Broker, BrokerFailed, Snapshot, TopicPartition
from testing.folders import PREPARED_BYTES_MAX
from testing.processes import broker_server
from testing.serving import FaultsByLines
from tests.testing.test_topics import batch, values

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS = TopicPartition("orders", 0)
FORKED = pytest.mark.skipif(
    sys.platform != "linux" or PORTABLE, reason="brokers are forked on Linux"
)


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


def test_a_way_back_that_is_not_there_leaves_what_was(broker: Broker) -> None:
    mark, before = broker.snapshot(), broker.data
    elsewhere = Snapshot(mark.directory / "not-there")
    with pytest.raises(BrokerFailed, match="not-there can't be copied"):
        broker.restore(elsewhere)
    assert not broker.is_running
    assert broker.data == before
    broker.start()
    assert_as_at_first(broker)
    broker.restore(mark)
    assert_as_at_first(broker)


def test_every_mark_is_a_way_back_and_not_the_last_alone(broker: Broker) -> None:
    first = broker.snapshot()
    broker.cluster.produce(ORDERS, [batch(b"c")])
    second = broker.snapshot()
    for mark, expected in ((first, b"ab"), (second, b"abc"), (second, b"abc"), (first, b"ab")):
        broker.restore(mark)
        assert b"".join(filter(None, values(broker.topic("orders").records()))) == expected


def test_a_broker_goes_back_to_a_mark_of_another(broker: Broker) -> None:
    mark = broker.snapshot()
    with Broker() as other:
        other.restore(mark)
        assert_as_at_first(other)
        assert_as_at_first(broker)
        assert other.port != broker.port


def forked_processes() -> set[int]:
    """Those of brokers, and what waits to be one."""
    parent = broker_server()._process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children")
    return {int(pid) for pid in children.read_text().split()}


def waiting(others: set[int]) -> set[int]:
    """The process that waits to be a broker, as soon as what was asked before is done."""
    broker_server().ask("wait", pid=0)
    return forked_processes() - others


@FORKED
def test_a_way_back_is_taken_by_a_process_that_has_waited_for_it(broker: Broker) -> None:
    others = forked_processes()
    mark = broker.snapshot()
    for _ in range(2):
        prepared = waiting(others | {broker.pid})
        broker.restore(mark)
        assert prepared == {broker.pid}
    broker.kill()
    broker.start()
    assert_as_at_first(broker)
    assert len(waiting(others | {broker.pid})) == 1
    broker.discard()
    assert not waiting(others)


@FORKED
def test_a_process_that_has_waited_and_died_is_not_missed(broker: Broker) -> None:
    others = forked_processes()
    mark = broker.snapshot()
    (prepared,) = waiting(others)
    os.kill(prepared, signal.SIGKILL)
    while ") Z " not in Path(f"/proc/{prepared}/stat").read_text():
        threading.Event().wait(0.01)
    broker.restore(mark)
    assert_as_at_first(broker)


@FORKED
def test_no_process_waits_with_a_copy_of_much(broker: Broker) -> None:
    others = forked_processes()
    with (broker.data / "much").open("wb") as file:
        file.truncate(PREPARED_BYTES_MAX + 1)
    mark = broker.snapshot()
    assert not waiting(others)
    broker.restore(mark)
    assert_as_at_first(broker)


def test_no_time_passes_for_a_broker_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the timers that its start sets would run early, by as much as it has waited."""
    faults, waited_s = FaultsByLines(lambda: 0), 0.3
    monkeypatch.setattr(faults, "attach", lambda: time.sleep(waited_s))

    async def waited() -> float:
        began_s = loop.time()
        await faults.data_is_open()
        return loop.time() - began_s

    loop = new_event_loop()
    try:
        assert loop.run_until_complete(waited()) >= waited_s - 0.01  # its clock has milliseconds
    finally:
        loop.close()
