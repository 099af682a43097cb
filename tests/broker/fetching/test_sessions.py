"""Incremental fetch sessions (KIP-227), without a broker."""

from __future__ import annotations

from itertools import count

import pytest

from broker.fetching.sessions import EVICT_AFTER_MS, MAX_EPOCH, FetchPartition, FetchSessions, Plan
from protocol.errors import ErrorCode, KafkaError


def wanted(topic: str | bytes, index: int = 0, offset: int = 0) -> FetchPartition:
    return FetchPartition(
        topic,
        index,
        fetch_offset=offset,
        max_bytes=1000,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )


class Client:
    """A consumer that talks to a cache of sessions."""

    def __init__(self, sessions: FetchSessions) -> None:
        self.sessions = sessions
        self.now_ms = 0

    def fetch(
        self,
        session_id: int,
        epoch: int,
        *items: FetchPartition,
        forgotten: tuple[tuple[str | bytes, int], ...] = (),
        by_id: bool = False,
    ) -> Plan:
        return self.sessions.plan(
            session_id=session_id,
            epoch=epoch,
            wanted=list(items),
            forgotten=list(forgotten),
            uses_topic_ids=by_id,
            now_ms=self.now_ms,
        )


@pytest.fixture
def client() -> Client:
    ids = count(101)
    return Client(FetchSessions(2, lambda: next(ids)))


def read(plan: Plan) -> list[tuple[str | bytes, int, int]]:
    return [(item.topic, item.index, item.fetch_offset) for item in plan.wanted]


def test_without_a_session_each_fetch_reads_what_it_names(client: Client) -> None:
    plan = client.fetch(0, -1, wanted("a"), wanted("b"))

    assert plan.session_id == 0
    assert not plan.incremental
    assert read(plan) == [("a", 0, 0), ("b", 0, 0)]
    assert len(client.sessions) == 0


def test_a_session_reads_on_what_is_not_named_again(client: Client) -> None:
    first = client.fetch(0, 0, wanted("a"), wanted("b"))

    second = client.fetch(first.session_id, 1, wanted("b", offset=7))
    third = client.fetch(first.session_id, 2, wanted("c"), forgotten=(("a", 0),))

    assert first.session_id == 101
    assert not first.incremental
    assert second.incremental
    assert read(second) == [("a", 0, 0), ("b", 0, 7)]
    assert read(third) == [("b", 0, 7), ("c", 0, 0)]


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "code"),
    [
        (999, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (101, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (101, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_fetch_that_does_not_fit_its_session_is_refused_as_a_whole(
    client: Client, session_id: int, epoch: int, by_id: bool, code: ErrorCode
) -> None:
    client.fetch(0, 0, wanted("a"))

    with pytest.raises(KafkaError) as refused:
        client.fetch(session_id, epoch, by_id=by_id)

    assert refused.value.code == code
    assert read(client.fetch(101, 1)) == [("a", 0, 0)]


def test_the_epoch_wraps_to_1(client: Client) -> None:
    plan = client.fetch(0, 0, wanted("a"))
    client.sessions._sessions[plan.session_id].epoch = MAX_EPOCH

    client.fetch(plan.session_id, MAX_EPOCH)

    assert read(client.fetch(plan.session_id, 1)) == [("a", 0, 0)]


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_closes_the_session_it_names(client: Client, epoch: int) -> None:
    first = client.fetch(0, 0, wanted("a"))

    second = client.fetch(first.session_id, epoch, wanted("b"))

    assert second.session_id == (102 if epoch == 0 else 0)
    with pytest.raises(KafkaError):
        client.fetch(first.session_id, 1)


def test_a_full_cache_refuses_sessions_until_one_has_been_idle(client: Client) -> None:
    first = client.fetch(0, 0, wanted("a"))
    client.fetch(0, 0, wanted("b"))

    assert client.fetch(0, 0, wanted("c")).session_id == 0
    client.now_ms = EVICT_AFTER_MS
    assert client.fetch(0, 0, wanted("c")).session_id == 103

    assert len(client.sessions) == 2
    with pytest.raises(KafkaError):
        client.fetch(first.session_id, 1)


def test_a_session_knows_topics_by_id_as_well(client: Client) -> None:
    topic_id = bytes(range(16))
    plan = client.fetch(0, 0, wanted(topic_id), by_id=True)

    again = client.fetch(plan.session_id, 1, wanted(topic_id, 3), by_id=True)

    assert read(again) == [(topic_id, 0, 0), (topic_id, 3, 0)]
