"""Produce requests of many connections that one turn of the loop reads."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Any

import pytest

from broker.network.turn import WAITING_BYTES_MAX
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponse
from storage.steps import run_here
from tests.broker.network.test_connection import framed, partition_of
from tests.support.caller import Target, batch, fetch_request, produce_request
from tests.support.fake_connection import FakeClient, InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "t"
VERSION = 9
ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1


class CountedFile:
    """A log file that counts its writes, and refuses them on demand."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.writes = 0
        self.refusing = False

    def write_at(self, buffers: list[Any], position: int) -> None:
        self.writes += 1
        if self.refusing:
            raise OSError(errno.ENOSPC, "no space")
        self._file.write_at(buffers, position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data") as running:
        run_here(running.running.broker.topics.create(TOPIC, 1, {}))
        yield running


@pytest.fixture
def file(broker: InProcessBroker) -> CountedFile:
    segment = partition_of(broker).log.active
    counted = CountedFile(segment.file)
    segment._file = counted  # type: ignore[assignment]
    return counted


def produce(correlation_id: int, *, acks: int = ACKS_LEADER, size: int = 40) -> bytes:
    request = produce_request((TOPIC, 0, batch(b"v" * size)), acks=acks)
    return framed(request, VERSION, correlation_id)


def fetch(correlation_id: int, offset: int) -> bytes:
    return framed(fetch_request(Target(TOPIC, offset), max_wait_ms=0), 12, correlation_id)


def result_of(client: FakeClient) -> ProduceResponse.Topic.Partition:
    """The only answer that this client was sent."""
    (answer,) = client.writes
    (size,) = struct.unpack_from(">i", answer)
    assert len(answer) == size + 4
    (topic,) = ProduceResponse.decode(VERSION, answer[9:]).responses
    (partition,) = topic.partition_responses
    found: ProduceResponse.Topic.Partition = partition
    return found


def test_requests_of_one_turn_are_written_together_and_answered_after_it(
    broker: InProcessBroker, file: CountedFile
) -> None:
    clients = [broker.connect() for _ in range(5)]

    for number, client in enumerate(clients):
        client.feed(produce(number))
    assert not any(client.writes for client in clients)
    assert file.writes == 0
    broker.turn()

    assert file.writes == 1
    assert [client.answered() for client in clients] == [[0], [1], [2], [3], [4]]
    assert [result_of(client).base_offset for client in clients] == [0, 1, 2, 3, 4]


def test_a_connection_that_is_read_again_in_the_same_turn_has_its_batches_written_first(
    broker: InProcessBroker, file: CountedFile
) -> None:
    one, other = broker.connect(), broker.connect()
    one.feed(produce(1))
    other.feed(produce(2))

    one.feed(produce(3))  # into the buffer in which its first batch came

    assert file.writes == 1
    assert (one.answered(), other.answered()) == ([1], [2])
    broker.turn()
    assert one.answered() == [1, 3]
    assert partition_of(broker).high_watermark == 3


def test_a_fetch_in_the_same_turn_sees_what_came_before_it(broker: InProcessBroker) -> None:
    producer, consumer = broker.connect(), broker.connect()
    producer.feed(produce(1))

    consumer.feed(fetch(2, 0))

    assert consumer.answered() == [2]
    assert partition_of(broker).high_watermark == 1
    broker.turn()
    assert producer.answered() == [1]


def test_many_bytes_do_not_wait_for_the_end_of_the_turn(
    broker: InProcessBroker, file: CountedFile
) -> None:
    small, large = broker.connect(), broker.connect()
    small.feed(produce(1))

    large.feed(produce(2, size=WAITING_BYTES_MAX))

    assert file.writes == 1
    assert (small.answered(), large.answered()) == ([1], [2])


@pytest.mark.parametrize("acks", [ACKS_LEADER, ACKS_ALL])
def test_a_write_that_fails_is_told_to_everybody_whose_batch_was_in_it(
    broker: InProcessBroker, file: CountedFile, acks: int
) -> None:
    clients = [broker.connect() for _ in range(3)]
    file.refusing = True

    for number, client in enumerate(clients):
        client.feed(produce(number, acks=acks))
    broker.turn()
    broker.turn_until(lambda: all(client.writes for client in clients))

    for client in clients:
        assert result_of(client).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert result_of(client).base_offset == -1
    assert partition_of(broker).log.next_offset == 0


def test_a_write_that_a_fetch_brings_about_and_that_fails_is_told_to_the_producers(
    broker: InProcessBroker, file: CountedFile
) -> None:
    producer, consumer = broker.connect(), broker.connect()
    file.refusing = True
    producer.feed(produce(1))

    consumer.feed(fetch(2, 0))
    broker.turn()

    assert result_of(producer).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_fails_before_the_turn_ends_acknowledges_nothing(
    broker: InProcessBroker,
) -> None:
    producer = broker.connect()
    producer.feed(produce(1))

    partition_of(broker).log.fail("the disk is gone")
    broker.turn()

    assert result_of(producer).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_batch_for_a_topic_that_goes_before_the_turn_ends_is_refused(
    broker: InProcessBroker,
) -> None:
    producer = broker.connect()
    producer.feed(produce(1))

    topics = broker.running.broker.topics
    run_here(topics.delete(topics.by_name[TOPIC]))
    broker.turn()

    assert result_of(producer).error_code != ErrorCode.NONE


def test_who_is_gone_before_the_turn_ends_takes_no_answer_and_harms_nobody(
    broker: InProcessBroker,
) -> None:
    gone, stays = broker.connect(), broker.connect()
    gone.feed(produce(1))
    stays.feed(produce(2))

    gone.lose()
    broker.turn()

    assert stays.answered() == [2]
    assert partition_of(broker).high_watermark == 2


def test_an_end_of_file_behind_a_request_does_not_take_its_answer(broker: InProcessBroker) -> None:
    client = broker.connect()
    client.feed(produce(1))

    client.connection.eof_received()
    assert not client.transport.closed
    broker.turn()

    assert client.answered() == [1]
    assert client.transport.closed


def test_requests_without_an_answer_are_written_too(
    broker: InProcessBroker, file: CountedFile
) -> None:
    client, other = broker.connect(), broker.connect()
    client.feed(produce(1, acks=ACKS_NONE))
    other.feed(produce(2))
    broker.turn()

    assert file.writes == 1
    assert (client.writes, other.answered()) == ([], [2])


def test_a_sync_that_begins_in_the_same_turn_covers_what_waits_for_its_end(
    broker: InProcessBroker,
) -> None:
    client = broker.connect()
    parts = broker.running.broker
    synced: list[int] = []
    parts.group_commit.wait(
        [partition_of(broker).log],
        lambda failed: synced.append(partition_of(broker).log.recovery_point),
    )
    client.feed(produce(1))
    broker.turn_until(lambda: bool(synced))

    assert synced == [1]
