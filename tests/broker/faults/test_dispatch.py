"""Requests that meet faults, on a broker in the process of the test: answers and effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.faults.injection import FaultInjection
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.caller import Target, batch, by_partition, fetch_request, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER
V_PRODUCE, V_FETCH = 12, 12


@pytest.fixture
def testing() -> FaultInjection:
    return FaultInjection()


@pytest.fixture
def broker(tmp_path: Path, testing: FaultInjection) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data", testing) as found:
        topic = CreateTopicsRequest.Topic
        request = CreateTopicsRequest(
            topics=[
                topic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
                for name in ("orders", "bills")
            ],
            timeout_ms=10_000,
        )
        answered = Asker(found).call(request, 5)
        assert [one.error_code for one in answered.topics] == [0, 0]
        yield found


def test_an_error_takes_the_place_of_the_effect(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    testing.engine.add({"api": "Produce", "error": ERROR.name})

    first = asker.call(produce_request(("orders", 0, batch(b"a"))), V_PRODUCE)
    second = asker.call(produce_request(("orders", 0, batch(b"a"))), V_PRODUCE)

    assert codes(first) == [ERROR]
    assert codes(second) == [0]
    assert ends(asker) == {"orders": [1, 0], "bills": [0, 0]}


@pytest.mark.parametrize("acks", [1, -1])
def test_an_error_of_one_partition_leaves_the_others_of_the_request(
    broker: InProcessBroker, testing: FaultInjection, acks: int
) -> None:
    asker = Asker(broker)
    testing.engine.add(
        {"api": "Produce", "topic": "orders", "partition": 1, "error": "CORRUPT_MESSAGE"}
    )
    sets = [(topic, index, batch(b"x")) for topic in ("orders", "bills") for index in (0, 1)]

    answered = asker.call(produce_request(*sets, acks=acks), V_PRODUCE)

    told = {
        (topic.name, one.index): one.error_code
        for topic in answered.responses
        for one in topic.partition_responses
    }
    assert told.pop(("orders", 1)) == ErrorCode.CORRUPT_MESSAGE
    assert set(told.values()) == {0}
    assert len(told) == 3
    assert ends(asker) == {"orders": [1, 0], "bills": [1, 1]}


def test_a_producer_that_wants_no_answer_loses_its_connection(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    testing.engine.add({"api": "Produce", "error": ERROR.name})

    asker.send(produce_request(("orders", 0, batch(b"a")), acks=0), V_PRODUCE)
    broker.turn_until(lambda: asker.fake.transport.closed)

    assert asker.answers() == []
    assert ends(Asker(broker))["orders"] == [0, 0]


def test_a_lost_answer_is_one_of_a_request_that_took_effect(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    testing.engine.add({"api": "Produce", "close": "after", "on_call": 2})

    for value in (b"a", b"b"):
        asker.send(produce_request(("orders", 0, batch(value))), V_PRODUCE)
    broker.turn_until(lambda: asker.fake.transport.closed)

    assert [codes(one) for one in asker.answers()] == [[0]], "what was due before is answered"
    assert ends(Asker(broker))["orders"] == [2, 0]


def test_a_connection_that_is_closed_before_leaves_no_effect(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    testing.engine.add({"api": "Produce", "close": "before"})

    asker.send(produce_request(("orders", 0, batch(b"a"))), V_PRODUCE)
    broker.turn_until(lambda: asker.fake.transport.closed)

    assert asker.answers() == []
    assert ends(Asker(broker))["orders"] == [0, 0]


def test_what_is_never_answered_took_effect_and_holds_its_connection_open(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker, other = Asker(broker), Asker(broker)
    testing.engine.add({"api": "Produce", "never_answer": True})

    asker.send(produce_request(("orders", 0, batch(b"a"))), V_PRODUCE)
    asker.send(produce_request(("orders", 0, batch(b"b"))), V_PRODUCE)

    assert ends(other)["orders"] == [1, 0], "the next request is not started"
    assert asker.answers() == []
    assert not asker.fake.transport.closed


def test_a_delayed_answer_holds_up_nobody_else(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker, other = Asker(broker), Asker(broker)
    testing.engine.add({"api": "Produce", "delay_ms": 3_600_000})

    asker.send(produce_request(("orders", 0, batch(b"a"))), V_PRODUCE)

    assert ends(other)["orders"] == [1, 0]
    assert asker.answers() == []


def test_a_delayed_answer_comes(broker: InProcessBroker, testing: FaultInjection) -> None:
    testing.engine.add({"api": "Produce", "delay_ms": 10})

    answered = Asker(broker).call(produce_request(("orders", 0, batch(b"a"))), V_PRODUCE)

    assert codes(answered) == [0]


@pytest.mark.parametrize("request_", [produce_request(("orders", 0, batch(b"a"))), None])
def test_a_throttled_client_is_told_and_held_back(
    broker: InProcessBroker, testing: FaultInjection, request_: Any
) -> None:
    asker = Asker(broker)
    request = request_ or fetch_request(Target("orders"))
    version = V_PRODUCE if request_ else V_FETCH
    testing.engine.add({"api": ["Produce", "Fetch"], "throttle_ms": 250})

    asker.send(request, version)
    asker.send(request, version)
    broker.turn_until(lambda: len(asker.answers()) >= 1)

    (answered,) = asker.answers()
    assert answered.throttle_time_ms == 250
    broker.turn_until(lambda: len(asker.answers()) == 2)
    assert asker.answers()[1].throttle_time_ms == 0


@pytest.mark.parametrize("version", [1, 4, 7, 9, 12])
def test_metadata_with_an_error_still_names_the_broker(
    broker: InProcessBroker, testing: FaultInjection, version: int
) -> None:
    asker = Asker(broker)
    testing.engine.add({"api": "Metadata", "topic": "orders", "error": "LEADER_NOT_AVAILABLE"})
    topics = [MetadataRequest.Topic(name=name) for name in ("orders", "bills")]

    answered = asker.call(MetadataRequest(topics=topics), version)

    told = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answered.topics}
    assert told == {"orders": (ErrorCode.LEADER_NOT_AVAILABLE, 0), "bills": (0, 2)}
    assert len(answered.brokers) == 1


def test_metadata_of_all_topics_has_the_error_for_each(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    testing.engine.add({"api": "Metadata", "error": "LEADER_NOT_AVAILABLE"})

    answered = asker.call(MetadataRequest(topics=None), 9)

    assert {topic.error_code for topic in answered.topics} == {ErrorCode.LEADER_NOT_AVAILABLE}
    assert len(answered.topics) == 2
    assert len(answered.brokers) == 1


def test_a_session_goes_on_after_an_error_in_it(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    asker.call(produce_request(("orders", 0, batch(b"a")), ("bills", 0, batch(b"b"))), V_PRODUCE)
    full = asker.call(
        fetch_request(Target("orders", 1), Target("bills", 1), session_epoch=0), V_FETCH
    )
    testing.engine.add({"api": "Fetch", "topic": "orders", "error": ERROR.name})

    hit = asker.call(incremental(full.session_id, 1, max_wait_ms=60_000), V_FETCH)
    asker.call(produce_request(("orders", 0, batch(b"c"))), V_PRODUCE)
    later = asker.call(incremental(full.session_id, 2), V_FETCH)

    assert hit.error_code == 0
    assert hit.session_id == full.session_id
    assert by_partition(hit)["orders", 0].error_code == ERROR
    assert ("bills", 0) not in by_partition(hit)
    assert by_partition(later)["orders", 0].error_code == 0
    assert by_partition(later)["orders", 0].high_watermark == 2


def test_a_full_fetch_with_an_error_begins_the_session_that_was_asked_for(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    asker.call(produce_request(("orders", 0, batch(b"a")), ("bills", 0, batch(b"b"))), V_PRODUCE)
    testing.engine.add({"api": "Fetch", "topic": "orders", "error": ERROR.name})

    full = asker.call(fetch_request(Target("orders"), Target("bills"), session_epoch=0), V_FETCH)
    later = asker.call(incremental(full.session_id, 1), V_FETCH)

    assert by_partition(full)["orders", 0].error_code == ERROR
    assert not by_partition(full)["orders", 0].records
    assert by_partition(full)["bills", 0].records
    assert by_partition(later)["orders", 0].records, "what the error took the place of comes now"


def test_an_error_of_sessions_is_said_of_the_whole_fetch(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    full = asker.call(fetch_request(Target("orders"), session_epoch=0), V_FETCH)
    testing.engine.add({"api": "Fetch", "error": "FETCH_SESSION_ID_NOT_FOUND"})

    hit = asker.call(incremental(full.session_id, 1), V_FETCH)

    assert hit.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", [0, 4, 6, 7, 11, 12])
def test_a_fetch_without_a_session_has_the_error_for_each_partition(
    broker: InProcessBroker, testing: FaultInjection, version: int
) -> None:
    asker = Asker(broker)
    testing.engine.add({"api": "Fetch", "partition": 1, "error": "OFFSET_OUT_OF_RANGE"})

    answered = asker.call(fetch_request(Target("orders"), Target("orders", partition=1)), version)

    assert by_partition(answered)["orders", 0].error_code == 0
    assert by_partition(answered)["orders", 1].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert answered.error_code == 0


def test_a_request_without_topics_meets_the_error_as_a_whole(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    testing.engine.add({"api": "JoinGroup", "error": "COORDINATOR_LOAD_IN_PROGRESS"})
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[],
    )

    assert asker.call(request, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_request_that_needs_a_topic_of_the_broker_first_is_counted_once(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    fault = testing.engine.add({"api": "FindCoordinator", "times": 2, "delay_ms": 1})

    answered = asker.call(FindCoordinatorRequest(key="g", key_type=0), 3)
    produced = asker.call(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
    )

    assert answered.error_code == produced.error_code == 0
    assert (fault.calls, fault.fired) == (1, 1)
    sent = testing.conversations.entries(api="FindCoordinator")
    assert [one.text for one in sent] == ["{key: g, key_type: 0}"]
    assert sent[0].fault.startswith("1: FindCoordinator")


def test_conversations_have_what_a_client_has_sent(
    broker: InProcessBroker, testing: FaultInjection
) -> None:
    asker = Asker(broker)
    topic_id = broker.running.broker.topics.by_name["orders"].topic_id

    asker.call(produce_request((topic_id, 1, batch(b"a")), acks=1), 13)

    (sent,) = testing.conversations.entries(api="Produce", client="fake")
    assert sent.version == 13
    assert sent.text == (
        "{transactional_id: null, acks: 1, timeout_ms: 0, topic_data: [{topic_id: orders, "
        f"partition_data: [{{index: 1, records: <{len(batch(b'a'))} bytes>}}]}}]}}"
    )


def incremental(session_id: int, epoch: int, max_wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        topics=[], max_wait_ms=max_wait_ms, min_bytes=1, session_id=session_id, session_epoch=epoch
    )


def codes(answered: Any) -> list[int]:
    return [one.error_code for topic in answered.responses for one in topic.partition_responses]


def ends(asker: Asker) -> dict[str, list[int]]:
    """The end of each partition of both topics."""
    topic = ListOffsetsRequest.Topic
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.Partition(partition_index=index, timestamp=-1) for index in (0, 1)
                ],
            )
            for name in ("orders", "bills")
        ],
    )
    answered = asker.call(request, 5)
    return {one.name: [part.offset for part in one.partitions] for one in answered.topics}
