"""Incremental fetches over a real socket (KIP-227)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.registry import APIS
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, Target, batch, by_partition, fetch_request, records_in

if TYPE_CHECKING:
    from pathlib import Path

BY_NAME, BY_ID = 12, 13
VERSIONS = [7, 11, 12, 13, 15, 18]
LONG_MS = 4_000


class Consumer:
    """A client with a fetch session, as KIP-227 has it."""

    def __init__(self, caller: Caller, version: int) -> None:
        self.caller = caller
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def fetch(
        self, *wanted: Target, forget: tuple[str | bytes, int] | None = None, max_wait_ms: int = 0
    ) -> FetchResponse:
        forgotten = []
        if forget is not None:
            topic, index = forget
            names = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
            forgotten = [FetchRequest.ForgottenTopic(partitions=[index], **names)]
        request = fetch_request(
            *wanted,
            session_id=self.session_id,
            session_epoch=self.epoch,
            forgotten_topics_data=forgotten,
            max_wait_ms=max_wait_ms,
        )
        answer: FetchResponse = self.caller.call(request, self.version)
        if answer.error_code == 0:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture
def known(caller: Caller, topic: str, version: int) -> str | bytes:
    """A topic of three partitions, by what this version calls it."""
    topic_id = caller.create_topic(topic, partitions=3)
    return topic_id if version >= BY_ID else topic


def test_a_session_answers_only_what_has_changed(
    caller: Caller, topic: str, version: int, known: str | bytes
) -> None:
    consumer = Consumer(caller, version)
    caller.produce(topic, batch(b"a"), partition=0)

    first = by_partition(consumer.fetch(*(Target(known, 0, p) for p in range(3))))
    assert consumer.session_id > 0
    assert set(first) == {(known, 0), (known, 1), (known, 2)}
    assert records_in(first[known, 0].records) == [(0, b"a")]

    assert by_partition(consumer.fetch(Target(known, 1, 0))) == {}

    caller.produce(topic, batch(b"b"), partition=1)
    changed = by_partition(consumer.fetch())
    assert set(changed) == {(known, 1)}
    assert records_in(changed[known, 1].records) == [(0, b"b")]
    assert changed[known, 1].high_watermark == 1

    unread = by_partition(consumer.fetch())
    assert records_in(unread[known, 1].records) == [(0, b"b")], "data not moved past comes again"


def test_partitions_are_added_and_forgotten(
    caller: Caller, topic: str, version: int, known: str | bytes
) -> None:
    consumer = Consumer(caller, version)
    for partition in range(3):
        caller.produce(topic, batch(b"%d" % partition), partition=partition)

    assert set(by_partition(consumer.fetch(Target(known, 0, 0)))) == {(known, 0)}
    assert set(by_partition(consumer.fetch(Target(known, 0, 2)))) == {(known, 0), (known, 2)}
    assert set(by_partition(consumer.fetch(forget=(known, 0)))) == {(known, 2)}
    assert set(by_partition(consumer.fetch(forget=(known, 2)))) == set()


def test_a_moved_log_start_is_news(
    caller: Caller, topic: str, version: int, known: str | bytes
) -> None:
    consumer = Consumer(caller, version)
    caller.produce(topic, batch(b"a"))
    consumer.fetch(Target(known, 1, 0))
    assert consumer.fetch().responses == []

    caller.delete_records(topic, 1)

    changed = by_partition(consumer.fetch())
    assert changed[known, 0].log_start_offset == 1


def test_an_unknown_session_and_a_wrong_epoch_are_refused_as_a_whole(
    caller: Caller, topic: str, version: int, known: str | bytes
) -> None:
    consumer = Consumer(caller, version)
    consumer.fetch(Target(known))
    session_id = consumer.session_id

    def code(session_id: int, epoch: int) -> int:
        request = fetch_request(session_id=session_id, session_epoch=epoch)
        answer = caller.call(request, version)
        assert answer.responses == []
        found: int = answer.error_code
        return found

    assert code(session_id ^ 1, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code(0, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code(session_id, 2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code(session_id, 1) == 0
    assert code(session_id, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code(session_id, 2) == 0


def test_a_session_is_known_on_other_connections_and_closed_by_epoch_minus_1(
    broker: BrokerProcess, caller: Caller, version: int, known: str | bytes
) -> None:
    consumer = Consumer(caller, version)
    consumer.fetch(Target(known))
    with Caller(broker.host, broker.port) as other:
        consumer.caller = other
        assert consumer.fetch().error_code == 0

        closing = fetch_request(Target(known), session_id=consumer.session_id, session_epoch=-1)
        answer = other.call(closing, version)
        assert (answer.error_code, answer.session_id) == (0, 0)
        assert len(answer.responses) == 1

        assert consumer.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_of_names_can_not_go_on_with_ids(caller: Caller, topic: str) -> None:
    topic_id = caller.create_topic(topic)
    consumer = Consumer(caller, BY_NAME)
    consumer.fetch(Target(topic))

    consumer.version = BY_ID
    assert consumer.fetch().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    mixed = consumer.fetch(Target(topic_id))
    assert (mixed.error_code, mixed.responses) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, [])

    consumer.version = BY_NAME
    assert consumer.fetch().error_code == 0


def test_a_topic_made_anew_is_unknown_to_a_session_of_ids(caller: Caller, topic: str) -> None:
    old_id = caller.create_topic(topic)
    consumer = Consumer(caller, BY_ID)
    consumer.fetch(Target(old_id))
    caller.delete_topic(topic)
    new_id = caller.create_topic(topic)
    caller.produce(topic, batch(b"new"))

    for _ in range(2):
        entry = by_partition(consumer.fetch())[old_id, 0]
        assert entry.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    assert new_id != old_id
    assert set(by_partition(consumer.fetch(Target(new_id), forget=(old_id, 0)))) == {(new_id, 0)}


def test_a_session_of_names_reads_a_topic_made_anew(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"old"))
    consumer = Consumer(caller, BY_NAME)
    consumer.fetch(Target(topic))
    caller.delete_topic(topic)

    for _ in range(2):
        entry = by_partition(consumer.fetch())[topic, 0]
        assert entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    caller.create_topic(topic)
    caller.produce(topic, batch(b"new"))
    assert records_in(by_partition(consumer.fetch())[topic, 0].records) == [(0, b"new")]


def test_an_incremental_fetch_without_news_waits_and_is_woken(
    broker: BrokerProcess, caller: Caller, topic: str, version: int, known: str | bytes
) -> None:
    with Caller(broker.host, broker.port) as reader:
        consumer = Consumer(reader, version)
        consumer.fetch(Target(known, 0, 0), Target(known, 0, 1))

        started_s = time.monotonic()
        assert consumer.fetch(max_wait_ms=150).responses == []
        assert time.monotonic() - started_s >= 0.14

        waiting = reader.send(
            fetch_request(
                session_id=consumer.session_id, session_epoch=consumer.epoch, max_wait_ms=LONG_MS
            ),
            version,
        )
        reader.see_nothing_come()
        caller.produce(topic, batch(b"a"), partition=1)
        answer = by_partition(reader.receive(APIS[1], version, waiting))

    assert set(answer) == {(known, 1)}


def test_a_full_cache_answers_without_a_session(tmp_path: Path) -> None:
    settings = {"max.incremental.fetch.session.cache.slots": "1"}
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as broker,
        Caller(broker.host, broker.port) as caller,
    ):
        caller.create_topic("t")
        first, second = Consumer(caller, 12), Consumer(caller, 12)
        first.fetch(Target("t"))

        refused = second.fetch(Target("t"))

        assert (refused.session_id, refused.error_code) == (0, 0)
        assert len(refused.responses) == 1
        assert first.fetch().error_code == 0
