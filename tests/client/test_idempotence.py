"""An idempotent producer: nothing is stored twice, whatever becomes of the answers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import pytest

from client.cluster import LATEST, Cluster, ProduceUnknown, TopicPartition
from client.errors import Refused
from protocol.errors import ErrorCode
from protocol.records.builder import batch_of_rows
from protocol.records.layout import BASE_OFFSET, BASE_SEQUENCE, HEADER, PRODUCER_ID
from protocol.records.walk import walk
from testing.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.broker_process import BrokerProcess

NAMES = itertools.count()


@pytest.fixture(scope="module")
def proxy(broker: BrokerProcess) -> Iterator[FaultProxy]:
    with FaultProxy(broker.bootstrap) as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Cluster]:
    with Cluster(proxy.bootstrap, timeout_s=60) as cluster:
        yield cluster
    proxy.faults.clear()


def new_place(client: Cluster, configs: Mapping[str, str] | None = None) -> TopicPartition:
    name = f"idempotent-{next(NAMES)}"
    client.create_topic(name, 1, configs)
    return TopicPartition(name, 0)


def batch(*values: bytes) -> bytearray:
    return batch_of_rows([(0, None, value, ()) for value in values])


class Stored(NamedTuple):
    """A batch in the log."""

    offset: int
    producer_id: int
    sequence: int


def stored(client: Cluster, place: TopicPartition) -> list[Stored]:
    entries = client.fetch(place, 0).entries
    headers = [HEADER.unpack_from(entries, position) for position, _, _ in walk(entries)]
    return [
        Stored(header[BASE_OFFSET], header[PRODUCER_ID], header[BASE_SEQUENCE])
        for header in headers
    ]


def test_a_batch_whose_answer_is_lost_is_stored_once(client: Cluster, proxy: FaultProxy) -> None:
    place, producer = new_place(client), client.idempotent_producer()
    assert producer.finish(producer.begin(place, batch(b"a", b"b"), magic=2)) == 0
    with proxy.faults.drop_answer("Produce", times=2) as fault:
        assert producer.finish(producer.begin(place, batch(b"c"), magic=2)) == 2
        assert fault.fired == 2
    assert producer.finish(producer.begin(place, batch(b"d"), magic=2)) == 3
    assert [(one.offset, one.sequence) for one in stored(client, place)] == [(0, 0), (2, 2), (3, 3)]


def test_a_write_that_times_out_at_the_broker_is_sent_again(
    client: Cluster, proxy: FaultProxy
) -> None:
    place, producer = new_place(client), client.idempotent_producer()
    with proxy.faults.fail("Produce", error="REQUEST_TIMED_OUT"):
        assert producer.finish(producer.begin(place, batch(b"a"), magic=2)) == 0
    assert len(stored(client, place)) == 1


def test_a_producer_that_the_broker_has_forgotten_begins_anew(
    client: Cluster, proxy: FaultProxy
) -> None:
    place, producer = new_place(client), client.idempotent_producer()
    producer.finish(producer.begin(place, batch(b"a"), magic=2))
    with proxy.faults.fail("Produce", error="UNKNOWN_PRODUCER_ID"):
        assert producer.finish(producer.begin(place, batch(b"b"), magic=2)) == 1
    first, second = stored(client, place)
    assert (first.sequence, second.sequence) == (0, 0)
    assert first.producer_id != second.producer_id


def test_a_producer_that_is_forgotten_after_a_lost_answer_does_not_guess(
    client: Cluster, proxy: FaultProxy
) -> None:
    place, producer = new_place(client), client.idempotent_producer()
    producer.finish(producer.begin(place, batch(b"a"), magic=2))
    proxy.faults.drop_answer("Produce")
    proxy.faults.fail("Produce", error="UNKNOWN_PRODUCER_ID")
    with pytest.raises(ProduceUnknown, match="not known what was stored"):
        producer.finish(producer.begin(place, batch(b"b"), magic=2))


def test_a_refused_batch_leaves_its_number_to_the_next(client: Cluster) -> None:
    place, producer = new_place(client, {"max.message.bytes": "1000"}), client.idempotent_producer()
    with pytest.raises(Refused) as refused:
        producer.finish(producer.begin(place, batch(bytes(2000)), magic=2))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    producer.finish(producer.begin(place, batch(b"a"), magic=2))
    (only,) = stored(client, place)
    assert only.sequence == 0


def test_who_is_given_no_id_writes_without_and_sends_nothing_twice(
    client: Cluster, proxy: FaultProxy
) -> None:
    place, producer = new_place(client), client.idempotent_producer()
    proxy.faults.fail("InitProducerId", error="CLUSTER_AUTHORIZATION_FAILED")
    producer.finish(producer.begin(place, batch(b"a"), magic=2))
    with proxy.faults.drop_answer("Produce"), pytest.raises(ProduceUnknown):
        producer.finish(producer.begin(place, batch(b"b"), magic=2))
    assert {(one.producer_id, one.sequence) for one in stored(client, place)} == {(-1, -1)}


def test_a_topic_of_an_older_format_gets_batches_without_numbers(client: Cluster) -> None:
    place = new_place(client, {"message.format.version": "0.10.2"})
    producer = client.idempotent_producer()
    for value in (b"a", b"b"):
        producer.finish(producer.begin(place, batch(value), magic=2))
    assert client.offsets([place], LATEST) == {place: 2}
