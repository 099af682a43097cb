"""A connection seen from its transport: what is written when, and when reading stops."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from storage.steps import run_here
from tests.support.caller import Target, batch, fetch_request, produce_request
from tests.support.fake_connection import FakeClient, InProcessBroker
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker.partitions.topic import Partition
    from protocol.schema import Message

TOPIC = "t"
ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
READ_AHEAD_BYTES = 8192
READ_AHEAD_REQUESTS = 8


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(
        tmp_path / "data",
        read_ahead_max_bytes=str(READ_AHEAD_BYTES),
        read_ahead_max_requests=str(READ_AHEAD_REQUESTS),
    ) as running:
        run_here(running.running.broker.topics.create(TOPIC, 1, {}))
        yield running


def partition_of(broker: InProcessBroker) -> Partition:
    found = broker.running.broker.topics.partition(TOPIC, 0)
    assert found is not None
    return found


def framed(request: Message, version: int, correlation_id: int) -> bytes:
    client = WireClient.__new__(WireClient)
    client.client_id = "fake"
    return client.frame(request, version, correlation_id)


def metadata(correlation_id: int) -> bytes:
    return framed(MetadataRequest(topics=[]), 9, correlation_id)


def produce(correlation_id: int, *, acks: int = ACKS_LEADER, topic: str = TOPIC) -> bytes:
    return framed(produce_request((topic, 0, batch(b"v" * 40)), acks=acks), 9, correlation_id)


def fetch(correlation_id: int, offset: int = 0, *, max_wait_ms: int = 60_000) -> bytes:
    return framed(fetch_request(Target(TOPIC, offset), max_wait_ms=max_wait_ms), 12, correlation_id)


def test_all_requests_of_one_burst_are_answered_by_one_write(broker: InProcessBroker) -> None:
    client = broker.connect()

    client.feed(b"".join([metadata(1), produce(2), metadata(3), produce(4), fetch(5, 1)[:-3]]))

    assert len(client.writes) == 1
    assert client.answered() == [1, 2, 3, 4]
    assert partition_of(broker).high_watermark == 2


def test_more_requests_than_one_burst_takes_are_all_answered(broker: InProcessBroker) -> None:
    client = broker.connect()

    client.feed(b"".join(metadata(number) for number in range(3 * READ_AHEAD_REQUESTS)))

    assert client.answered() == list(range(3 * READ_AHEAD_REQUESTS))
    assert len(client.writes) >= 3


def test_an_answer_that_waits_for_the_disk_holds_back_only_those_behind_it(
    broker: InProcessBroker,
) -> None:
    client = broker.connect()

    client.feed(metadata(1) + produce(2, acks=ACKS_ALL) + produce(3) + metadata(4))
    assert client.answered() == [1]
    assert partition_of(broker).high_watermark == 2, "the append behind it has been made"
    broker.turn_until(lambda: len(client.answered()) == 4)

    assert client.answered() == [1, 2, 3, 4]
    assert partition_of(broker).log.recovery_point >= 1


def test_requests_behind_a_waiting_fetch_are_not_started(broker: InProcessBroker) -> None:
    client, other = broker.connect(), broker.connect()

    client.feed(fetch(1) + produce(2) + metadata(3))
    assert client.answered() == []
    assert partition_of(broker).high_watermark == 0, "the produce has not been started"

    other.feed(produce(9))
    broker.turn(2)

    assert client.answered() == [1, 2, 3]
    assert partition_of(broker).high_watermark == 2


def test_a_fetch_that_waits_is_answered_when_its_time_is_over(broker: InProcessBroker) -> None:
    client = broker.connect()

    client.feed(fetch(1, max_wait_ms=1_000) + metadata(2))
    assert client.answered() == []
    broker.turn_until(lambda: client.answered() == [1, 2])

    assert not partition_of(broker).waits


def test_a_disconnect_forgets_the_fetch_that_waits(broker: InProcessBroker) -> None:
    client, other = broker.connect(), broker.connect()
    client.feed(fetch(1) + metadata(2))
    assert len(partition_of(broker).waits) == 1

    client.lose()

    assert not partition_of(broker).waits
    other.feed(produce(9))
    broker.turn(3)
    assert client.writes == []
    assert client.connection not in broker.running.broker.connections


def test_an_end_of_file_forgets_the_fetch_that_waits_and_closes(broker: InProcessBroker) -> None:
    client = broker.connect()
    client.feed(fetch(1))

    keeps_open = client.connection.eof_received()

    assert not keeps_open or client.transport.closed
    assert not partition_of(broker).waits


def test_an_end_of_file_lets_answers_out_that_wait_for_the_disk(broker: InProcessBroker) -> None:
    client = broker.connect()
    client.feed(produce(1, acks=ACKS_ALL) + metadata(2))

    assert client.connection.eof_received()
    assert not client.transport.closed
    broker.turn_until(lambda: client.transport.closed)

    assert client.answered() == [1, 2]


def test_an_end_of_file_behind_a_waiting_fetch_lets_earlier_answers_out(
    broker: InProcessBroker,
) -> None:
    client = broker.connect()
    client.feed(produce(1, acks=ACKS_ALL))
    client.feed(fetch(2, 1))

    keeps_open = client.connection.eof_received()

    assert keeps_open, "the produce is still owed"
    broker.turn_until(lambda: client.transport.closed)
    assert client.answered() == [1]


def test_an_end_of_file_with_nothing_owed_closes_at_once(broker: InProcessBroker) -> None:
    client = broker.connect()
    client.feed(metadata(1))

    client.connection.eof_received()

    assert client.transport.closed


def test_a_reader_that_does_not_keep_up_stops_the_handling_and_then_the_reading(
    broker: InProcessBroker,
) -> None:
    client = broker.connect()
    client.feed(metadata(1))
    client.connection.pause_writing()

    taken = client.feed(b"".join(metadata(number) for number in range(2, 2000)))

    assert client.answered() == [1], "nothing is handled that could not be sent"
    assert not client.is_read()
    assert READ_AHEAD_BYTES <= taken <= READ_AHEAD_BYTES + 65_536
    client.connection.resume_writing()
    assert client.is_read()
    handled = len(client.answered())
    assert client.answered() == list(range(1, handled + 1))
    assert handled > READ_AHEAD_BYTES // len(metadata(1))


def test_reading_stops_behind_a_fetch_that_waits_and_goes_on_after_it(
    broker: InProcessBroker,
) -> None:
    client, other = broker.connect(), broker.connect()
    client.feed(fetch(1))

    taken = client.feed(b"".join(metadata(number) for number in range(2, 2000)))
    assert not client.is_read()
    assert taken <= READ_AHEAD_BYTES + 65_536
    other.feed(produce(9))
    broker.turn(3)

    assert client.is_read()
    assert client.answered()[:3] == [1, 2, 3]


@pytest.mark.parametrize("size", [40, 200_000])
def test_megabytes_are_read_ahead_of_a_fetch_that_waits(tmp_path: Path, size: int) -> None:
    with InProcessBroker(tmp_path / "data", read_ahead_max_bytes="2000000") as broker:
        run_here(broker.running.broker.topics.create(TOPIC, 1, {}))
        client, other = broker.connect(), broker.connect()
        behind = framed(produce_request((TOPIC, 0, batch(b"x" * size)), acks=ACKS_LEADER), 9, 2)

        taken = client.feed(fetch(1) + behind * (4_000_000 // len(behind)))
        assert not client.is_read()
        assert 2_000_000 <= taken <= 3_000_000
        other.feed(produce(9))
        broker.turn(5)

        assert client.answered()[:3] == [1, 2, 2]
        assert client.is_read()
        assert partition_of(broker).high_watermark > taken // len(behind) - 2


def test_a_refused_client_that_goes_on_sending_still_gets_what_it_is_owed(
    broker: InProcessBroker,
) -> None:
    client = broker.connect()
    client.feed(produce(1, acks=ACKS_ALL) + b"\xff\xff\xff\xff")

    taken = client.feed(bytes(1_000_000))

    assert taken < 100_000
    broker.turn_until(lambda: client.transport.closed)
    assert client.answered() == [1]


def test_no_more_requests_are_started_than_may_be_owed(broker: InProcessBroker) -> None:
    client = broker.connect()

    client.feed(b"".join(produce(number, acks=ACKS_ALL) for number in range(20)))

    assert partition_of(broker).high_watermark == READ_AHEAD_REQUESTS
    broker.turn_until(lambda: len(client.answered()) == 20)
    assert client.answered() == list(range(20))
    assert partition_of(broker).high_watermark == 20


def test_acks_0_writes_nothing_and_its_failure_closes_without_a_byte(
    broker: InProcessBroker,
) -> None:
    client = broker.connect()
    client.feed(produce(1, acks=ACKS_NONE))
    assert (client.writes, client.transport.closed) == ([], False)

    client.feed(produce(2, acks=ACKS_NONE, topic="missing"))

    assert (client.writes, client.transport.closed) == ([], True)
    assert partition_of(broker).high_watermark == 1


def test_malformed_bytes_close_after_what_is_owed(broker: InProcessBroker) -> None:
    client = broker.connect()

    client.feed(metadata(1) + produce(2, acks=ACKS_ALL) + b"\xff\xff\xff\xff" + metadata(3))

    assert client.answered() == [1]
    assert not client.transport.closed
    assert not client.is_read()
    broker.turn_until(lambda: client.transport.closed)
    assert client.answered() == [1, 2]


def test_what_is_behind_a_request_that_is_not_served_is_not_started(
    broker: InProcessBroker,
) -> None:
    client = broker.connect()
    unserved = bytearray(metadata(1))
    unserved[4:6] = (300).to_bytes(2, "big")

    client.feed(bytes(unserved) + produce(2))

    assert (client.writes, client.transport.closed) == ([], True)
    assert partition_of(broker).high_watermark == 0


def test_a_stop_answers_the_fetch_that_waits_and_closes(broker: InProcessBroker) -> None:
    client = broker.connect()
    client.feed(fetch(1) + metadata(2))

    client.connection.close()
    broker.turn(2)

    assert client.answered() == [1]
    assert client.transport.closed


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(broker: InProcessBroker) -> None:
    idle, busy = broker.connect(), broker.connect()
    limit_s = broker.running.broker.settings.current.connections_max_idle_ms / 1000
    idle.connection.last_active_s -= limit_s + 1

    broker.running.broker.connections.close_idle()

    assert idle.transport.closed
    assert not busy.transport.closed


def test_housekeeping_forgets_a_producer_that_fell_silent(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.connect()
    sent = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    client.feed(framed(produce_request((TOPIC, 0, sent), acks=ACKS_LEADER), 9, 1))
    producers = partition_of(broker).log.producers
    settings = broker.running.broker.settings.current
    expiry = broker.running.broker.producer_expiry
    clock = iter((0, settings.producer_id_expiration_ms - 1, settings.producer_id_expiration_ms))
    monkeypatch.setattr(expiry, "_deletion_ms", lambda: next(clock))

    for _ in range(2):
        expiry.run()
        assert 7 in producers
    expiry.run()

    assert 7 not in producers


def test_a_connection_above_the_limit_of_its_address_is_closed(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "few", max_connections_per_ip="1") as few:
        first, second = few.connect(), few.connect()

        assert (first.transport.closed, second.transport.closed) == (False, True)
        second.lose()
        first.lose()
        assert not few.connect().transport.closed


def test_a_fetch_that_fails_when_it_is_woken_does_not_harm_the_producer(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = broker.connect(), broker.connect()
    reader.feed(fetch(1) + metadata(2))
    partition = partition_of(broker)

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(type(partition.log), "read", fail)
    writer.feed(produce(7) + metadata(8))
    broker.turn(2)

    assert writer.answered() == [7, 8]
    assert reader.answered() == [1, 2]


def test_answers_of_one_turn_do_not_depend_on_how_the_bytes_were_cut(
    broker: InProcessBroker,
) -> None:
    whole, cut = broker.connect(), broker.connect()
    data = b"".join(framed(ApiVersionsRequest(), 0, number) for number in range(5))

    whole.feed(data)
    for at in range(len(data)):
        cut.feed(data[at : at + 1])

    assert b"".join(whole.writes) == b"".join(cut.writes)
    assert len(whole.writes) == 1
    assert len(cut.writes) == 5


def test_a_connection_that_is_lost_leaves_nothing_for_the_collector(
    broker: InProcessBroker,
) -> None:
    client = FakeClient(broker)
    client.feed(metadata(1) + produce(2))
    assert client.answered() == [1, 2]
    seen = weakref.ref(client.connection)
    gc.disable()
    try:
        client.lose()
        del client
        assert seen() is None
    finally:
        gc.enable()
