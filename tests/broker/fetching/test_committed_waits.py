"""A fetch of committed records that waits is answered when a transaction ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.messages.fetch import FetchRequest
from protocol.records.layout import HEADER
from protocol.registry import APIS
from storage.steps import run_here
from tests.support.caller import Target, batch, fetch_request
from tests.support.fake_connection import FakeClient, InProcessBroker
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker.partitions.topic import Partition

TOPIC = "t"
PRODUCER = 7


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data") as running:
        run_here(running.running.broker.topics.create(TOPIC, 1, {}))
        yield running


@pytest.fixture
def partition(broker: InProcessBroker) -> Partition:
    found = broker.running.broker.topics.partition(TOPIC, 0)
    assert found is not None
    return found


def append(partition: Partition, sequence: int) -> None:
    raw = batch(
        b"x" * 100,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    partition.log.append(memoryview(bytearray(raw)), HEADER.unpack_from(raw))
    partition.log.write()
    partition.wake(len(raw))


def end(partition: Partition, *, commit: bool) -> None:
    partition.log.append_marker(PRODUCER, 0, commit=commit, coordinator_epoch=0, now_ms=0)
    partition.log.write()
    partition.wake(78)


def fetching(broker: InProcessBroker, *, min_bytes: int) -> FakeClient:
    client = broker.connect()
    request: FetchRequest = fetch_request(
        Target(TOPIC), max_wait_ms=60_000, min_bytes=min_bytes, isolation_level=1
    )
    wire = WireClient.__new__(WireClient)
    wire.client_id = "fake"
    client.feed(wire.frame(request, 11, 1))
    return client


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_shows_more_than_its_own_bytes(
    broker: InProcessBroker, partition: Partition, commit: bool
) -> None:
    append(partition, 0)
    client = fetching(broker, min_bytes=350)
    append(partition, 1)
    assert client.answered() == []

    end(partition, commit=commit)

    assert client.answered() == [1]
    answer: Any = APIS[1].response.decode(11, b"".join(client.writes)[8:])
    entry = answer.responses[0].partitions[0]
    assert (entry.high_watermark, entry.last_stable_offset) == (3, 3)
    aborted = [(one.producer_id, one.first_offset) for one in entry.aborted_transactions]
    assert aborted == ([] if commit else [(PRODUCER, 0)])
