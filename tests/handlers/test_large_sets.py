"""Sets that are prepared on the worker thread: their order, and what may happen meanwhile."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.registry import APIS
from tests.support.caller import Caller, Target, fetch_request, produce_request
from tests.support.old_sets import magics, messages, read_through, seen, wrapper
from tests.support.topic_changes import change

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

PRODUCE, FETCH = APIS[0], APIS[1]
RELEASES = ("0.9.0", "0.10.2", "3.0")
COUNT = 5_000

_chance = random.Random(3)
#: Far above the size up to which the loop prepares a set itself; some 30 ms of work.
LARGE = wrapper(
    messages(*[_chance.randbytes(40).hex().encode() for _ in range(COUNT)], magic=1), magic=1
)
SMALL = wrapper(messages(b"a", b"b", magic=1), magic=1)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("acks", [1, -1])
def test_sets_of_one_connection_are_stored_and_answered_in_their_order(
    caller: Caller, topic: str, release: str, acks: int
) -> None:
    caller.create_topic(topic, message_format_version=release)
    sets = [LARGE, SMALL, LARGE, SMALL, SMALL, LARGE]

    sent = [caller.send(produce_request((topic, 0, data), acks=acks), 2) for data in sets]

    offsets = [
        caller.receive(PRODUCE, 2, number).responses[0].partition_responses[0].base_offset
        for number in sent
    ]
    assert offsets == [0, COUNT, COUNT + 2, 2 * COUNT + 2, 2 * COUNT + 4, 2 * COUNT + 6]


@pytest.mark.parametrize("release", RELEASES)
def test_a_partition_named_twice_gets_its_sets_in_their_order(
    caller: Caller, topic: str, release: str
) -> None:
    caller.create_topic(topic, partitions=2, message_format_version=release)
    request = produce_request((topic, 0, LARGE), (topic, 1, SMALL), (topic, 0, SMALL))

    answer = caller.call(request, 2)

    entries = [answered.partition_responses[0] for answered in answer.responses]
    assert [(entry.index, entry.base_offset) for entry in entries] == [(0, 0), (1, 0), (0, COUNT)]


@pytest.mark.parametrize("release", RELEASES)
def test_producers_that_write_at_the_same_time_leave_no_hole_and_no_overlap(
    broker: BrokerProcess, caller: Caller, topic: str, release: str
) -> None:
    """In format 0 a compressed set has its offsets inside, and is made for one place only."""
    caller.create_topic(topic, message_format_version=release)

    def produce(first: int) -> None:
        with Caller(broker.host, broker.port) as own:
            for number in range(first, first + 6):
                sent = LARGE if number % 2 else SMALL
                assert own.produce(topic, sent, version=2).error_code == 0

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = seen(read_through(caller, topic, version=3, at_most=1 << 24))
    assert [record.offset for record in found] == list(range(9 * (COUNT + 2)))


@pytest.mark.parametrize("release", RELEASES)
def test_a_set_that_came_whole_is_stored_though_its_sender_is_gone(
    broker: BrokerProcess, caller: Caller, topic: str, release: str
) -> None:
    caller.create_topic(topic, message_format_version=release)

    with Caller(broker.host, broker.port) as gone:
        gone.send(produce_request((topic, 0, LARGE), acks=-1), 2)

    deadline = time.monotonic() + 5
    while caller.end_offset(topic) != COUNT:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert caller.produce(topic, SMALL, version=2).base_offset == COUNT


def test_without_acks_they_are_stored_too_and_a_bad_one_closes_the_connection(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic, message_format_version="0.9.0")
    spoiled = bytearray(LARGE)
    spoiled[1000] ^= 1

    with Caller(broker.host, broker.port) as silent:
        silent.send(produce_request((topic, 0, LARGE), acks=0), 2)
        assert silent.produce(topic, SMALL, version=2).base_offset == COUNT
        silent.send(produce_request((topic, 0, bytes(spoiled)), acks=0), 2)
        assert silent.closed_by_server()

    assert caller.end_offset(topic) == COUNT + 2


@pytest.mark.parametrize("after_ms", [0, 5, 15, 30])
def test_a_topic_deleted_meanwhile_takes_its_set_along(
    broker: BrokerProcess, caller: Caller, topic: str, after_ms: int
) -> None:
    caller.create_topic(topic, message_format_version="0.9.0")
    caller.produce(topic, LARGE, version=2)
    with Caller(broker.host, broker.port) as writer, Caller(broker.host, broker.port) as reader:
        produced = writer.send(produce_request((topic, 0, LARGE)), 2)
        wanted = Target(topic, 0, partition_max_bytes=1 << 24)
        fetched = reader.send(fetch_request(wanted), 1)
        time.sleep(after_ms / 1000)

        caller.delete_topic(topic)

        entry = writer.receive(PRODUCE, 2, produced).responses[0].partition_responses[0]
        told = reader.receive(FETCH, 1, fetched).responses[0].partitions[0]
    refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert entry.error_code in (0, *refused)
    assert entry.base_offset == (-1 if entry.error_code else COUNT)
    assert told.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("after_ms", [0, 10])
def test_a_format_switched_meanwhile_is_that_of_the_next_set_at_the_latest(
    broker: BrokerProcess, caller: Caller, topic: str, after_ms: int
) -> None:
    caller.create_topic(topic, message_format_version="0.9.0")
    with Caller(broker.host, broker.port) as writer:
        produced = writer.send(produce_request((topic, 0, LARGE)), 2)
        time.sleep(after_ms / 1000)
        assert change(caller, topic, message_format_version="3.0") == 0
        writer.receive(PRODUCE, 2, produced)
        assert writer.produce(topic, SMALL, version=2).base_offset == COUNT

    data = read_through(caller, topic, version=4, at_most=1 << 24)
    assert magics(data)[-1] == 2
    assert [record.offset for record in seen(data)] == list(range(COUNT + 2))


def test_a_stop_answers_what_is_being_prepared(own_broker: BrokerProcess, topic: str) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic(topic, message_format_version="0.9.0")
        sent = caller.send(produce_request((topic, 0, LARGE)), 2)
        time.sleep(0.05)
        assert own_broker.stop() == 0
        entry = caller.receive(PRODUCE, 2, sent).responses[0].partition_responses[0]
    assert (entry.error_code, entry.base_offset) == (0, 0)
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        assert caller.end_offset(topic) == COUNT
