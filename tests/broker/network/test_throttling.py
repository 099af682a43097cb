"""A client above its quota: what it is answered, and that nothing more of it is handled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.metadata import MetadataRequest
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP
from storage.steps import run_here
from tests.handlers.quota_calls import Part, client, entry, ip, user
from tests.support.caller import NOW_MS, Target, batch, fetch_request, produce_request
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker
from tests.support.old_sets import messages, wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from protocol.schema import Message

TOPIC = "t"
ANONYMOUS = user("ANONYMOUS")
SHORT = 2
"""Windows over which rates are taken: what is above the quota is above it for a second."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data", quota_window_num=str(SHORT)) as running:
        run_here(running.running.broker.topics.create(TOPIC, 1, {}))
        yield running


def set_quota(broker: InProcessBroker, *parts: Part, **quotas: float | None) -> None:
    request = AlterClientQuotasRequest(entries=[entry(*parts, **quotas)], validate_only=False)
    (answered,) = Asker(broker).call(request, 1).entries
    assert answered.error_code == 0, answered.error_message


def produce(size: int, *, acks: int = 1) -> Message:
    return produce_request((TOPIC, 0, batch(b"v" * size)), acks=acks)


def end_offset(broker: InProcessBroker) -> int:
    found = broker.running.broker.topics.partition(TOPIC, 0)
    assert found is not None
    return found.high_watermark


def test_no_answer_tells_of_a_wait_while_there_is_no_quota(broker: InProcessBroker) -> None:
    asker = Asker(broker)

    assert asker.call(produce(100_000), 9).throttle_time_ms == 0
    assert asker.call(fetch_request(Target(TOPIC, 1)), 12).throttle_time_ms == 0


@pytest.mark.parametrize("version", [3, 5, 6, 9, 12])
@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_is_answered_at_once_and_muted(
    broker: InProcessBroker, version: int, acks: int
) -> None:
    set_quota(broker, ANONYMOUS, producer_byte_rate=10_000.0)
    asker = Asker(broker)

    asker.send(produce(12_000, acks=acks), version)
    asker.send(produce(10), version)
    broker.turn_until(lambda: len(asker.answers()) >= 1)

    (answered,) = asker.answers()
    assert 200 <= answered.throttle_time_ms <= 250
    assert answered.responses[0].partition_responses[0].error_code == 0
    assert end_offset(broker) == 1, "the next request has not been started"
    broker.turn_until(lambda: len(asker.answers()) == 2)
    assert end_offset(broker) == 2


def test_a_producer_without_answers_is_muted_and_loses_nothing(broker: InProcessBroker) -> None:
    set_quota(broker, ANONYMOUS, producer_byte_rate=10_000.0)
    asker = Asker(broker)

    asker.send(produce(11_000, acks=0), 9)
    asker.send(produce(10, acks=0), 9)
    asker.fake.connection.eof_received()
    broker.turn(3)

    assert end_offset(broker) == 1
    broker.turn_until(lambda: asker.fake.transport.closed)
    assert end_offset(broker) == 2


def test_connections_of_one_user_wait_for_each_others_requests(broker: InProcessBroker) -> None:
    set_quota(broker, ANONYMOUS, producer_byte_rate=10_000.0)
    askers = [Asker(broker) for _ in range(12)]

    waits = [asker.call(produce(1_000), 9).throttle_time_ms for asker in askers]

    assert waits[0] == 0
    assert waits[-1] > waits[-2] > 0


@pytest.mark.parametrize("version", [4, 7, 12])
def test_a_fetch_above_the_quota_gets_nothing_and_asks_again(
    broker: InProcessBroker, version: int
) -> None:
    asker = Asker(broker)
    for _ in range(4):
        asker.call(produce(6_000), 9)
    set_quota(broker, ANONYMOUS, consumer_byte_rate=10_000.0)

    first = asker.call(fetch_request(Target(TOPIC)), version)
    held_up = asker.call(fetch_request(Target(TOPIC, 1)), version)

    assert first.throttle_time_ms == 0
    assert 0 < len(bytes(first.responses[0].partitions[0].records)) <= 10_000
    assert held_up.responses == []
    assert 0 < held_up.throttle_time_ms <= 1_000
    assert held_up.session_id == 0
    assert not broker.running.broker.fetch_sessions


def test_an_incremental_fetch_keeps_its_session(broker: InProcessBroker) -> None:
    asker = Asker(broker)
    set_quota(broker, ANONYMOUS, consumer_byte_rate=10_000.0)
    begun = asker.call(fetch_request(Target(TOPIC), session_epoch=0), 12)
    for _ in range(2):
        asker.call(produce(9_000), 9)

    session = {"session_id": begun.session_id, "session_epoch": 1}
    asker.call(fetch_request(Target(TOPIC), **session), 12)
    session["session_epoch"] = 2
    held_up = asker.call(fetch_request(Target(TOPIC, 1), **session), 12)

    assert begun.session_id == held_up.session_id > 0
    assert held_up.throttle_time_ms > 0
    assert held_up.responses == []


def test_a_client_that_uses_too_much_of_the_loop_waits(broker: InProcessBroker) -> None:
    set_quota(broker, client("fake"), request_percentage=0.001)
    asker = Asker(broker)

    asker.send(MetadataRequest(topics=None), 12)
    asker.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    broker.turn(3)

    (answered,) = asker.answers()
    assert 0 < answered.throttle_time_ms <= 1_000
    broker.turn_until(lambda: len(asker.answers()) == 2)


class Handled(list[float]):
    """Stands for `ClientQuotas.handled`: the seconds that are counted."""

    def __call__(self, whose: tuple[str, str], seconds: float) -> int:
        assert whose == ("ANONYMOUS", "fake")
        self.append(seconds)
        return 0


NUMBERS = [b"%d %d" % (number, number * 7919 % 10_007) for number in range(20_000)]


def test_what_a_thread_works_on_a_large_set_counts(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_quota(broker, client("fake"), request_percentage=1e9)
    counted = Handled()
    monkeypatch.setattr(broker.running.broker.quotas, "handled", counted)

    old = wrapper(messages(*NUMBERS, magic=0), magic=0)
    answered = Asker(broker).call(produce_request((TOPIC, 0, old)), 1)

    assert answered.responses[0].partition_responses[0].error_code == 0
    of_loop, of_thread = counted
    assert of_loop > 0
    assert of_thread > 0


def test_what_a_thread_works_on_a_conversion_counts(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_quota(broker, client("fake"), request_percentage=1e9)
    large = build_batch([(NOW_MS, None, number, ()) for number in NUMBERS], codec=GZIP)
    Asker(broker).call(produce_request((TOPIC, 0, large)), 9)
    counted = Handled()
    monkeypatch.setattr(broker.running.broker.quotas, "handled", counted)

    answered = Asker(broker).call(fetch_request(Target(TOPIC)), 2)

    assert len(bytes(answered.responses[0].partitions[0].records)) > 10_000
    of_loop, of_thread = counted
    assert of_loop > 0
    assert of_thread > 0


def test_answers_of_before_a_quota_are_not_changed_by_it(broker: InProcessBroker) -> None:
    from protocol.messages.api_versions import ApiVersionsRequest

    set_quota(broker, client("fake"), request_percentage=0.001)
    asker = Asker(broker)
    assert asker.call(ApiVersionsRequest(), 3).throttle_time_ms > 0
    set_quota(broker, client("fake"), request_percentage=None)

    assert Asker(broker).call(ApiVersionsRequest(), 3).throttle_time_ms == 0


def create(*names: str, partitions: int = 10) -> Message:
    asked = CreateTopicsRequest.Topic
    return CreateTopicsRequest(
        topics=[
            asked(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for name in names
        ]
    )


def codes(answered: Any) -> list[int]:
    return [one.error_code for one in getattr(answered, "topics", ())] or [
        one.error_code for one in answered.responses
    ]


def test_topics_beyond_the_quota_are_refused_to_those_who_know(broker: InProcessBroker) -> None:
    set_quota(broker, ANONYMOUS, controller_mutation_rate=1.0)

    answered = Asker(broker).call(create("a", "b", "c"), 6)

    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert codes(answered) == [0, 0, refused]
    assert 8_500 <= answered.throttle_time_ms <= 9_000
    deleted = Asker(broker).call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=0), 5)
    assert codes(deleted) == [refused]
    assert "c" not in broker.running.broker.topics.by_name


def test_topics_beyond_the_quota_are_made_for_older_clients(broker: InProcessBroker) -> None:
    set_quota(broker, ANONYMOUS, controller_mutation_rate=1.0)
    asker = Asker(broker)

    answered = asker.call(create("a", "b"), 5)
    asker.send(MetadataRequest(topics=[]), 9)
    broker.turn(3)

    assert codes(answered) == [0, 0]
    assert 8_500 <= answered.throttle_time_ms <= 9_000
    assert len(asker.answers()) == 1, "it waits"


def test_connections_beyond_the_quota_of_an_address_are_closed_after_a_wait(
    broker: InProcessBroker,
) -> None:
    set_quota(broker, ip("127.0.0.1"), connection_creation_rate=1.0)
    let_in, *_, turned_away = [Asker(broker) for _ in range(3)]

    assert let_in.call(MetadataRequest(topics=[]), 9)
    assert not turned_away.fake.is_read()
    assert not turned_away.fake.transport.closed, "it is not told sooner than it should come again"
    broker.turn_until(lambda: turned_away.fake.transport.closed)
    assert turned_away.fake.writes == []


def test_quotas_hold_after_a_restart(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        set_quota(broker, user(None), producer_byte_rate=1.0)
    with InProcessBroker(tmp_path / "data") as broker:
        run_here(broker.running.broker.topics.create(TOPIC, 1, {}))

        assert Asker(broker).call(produce(1_000), 9).throttle_time_ms > 0
