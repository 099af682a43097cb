"""The client and brokers that say what ours seldom does: leaders that move, answers that are lost,
versions of other ages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from client import fetching
from client.cluster import EARLIEST, LATEST
from client.errors import CorruptData, NoSuchTopic, Refused, Unreachable
from client.fetching import LARGEST_ENTRY_BYTES
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tests.client.scripted_cluster import (
    BATCH,
    COMMIT,
    COORDINATOR,
    CREATE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    NOT_LEADER,
    PLACE,
    PRODUCE,
    TIMED_OUT,
    TOPIC_ID,
    Broker,
    breaks,
    cluster,
    fetched,
    in_turn,
    listed,
    produced,
)
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable


# Leaders.


def test_a_fetch_follows_the_leader() -> None:
    with Broker({FETCH: lambda _: fetched(BATCH)}) as second:

        def moved(_: FetchRequest) -> FetchResponse:
            first.leader = 2
            return fetched(error_code=NOT_LEADER)

        with Broker({FETCH: in_turn(fetched(), moved)}) as first:
            first.nodes[2] = (second.host, second.port)
            with cluster(first) as client:
                assert len(client.fetch(PLACE, 9).entries) == 0
                assert client.fetch(PLACE, 0).entries == BATCH
                assert client.fetch(PLACE, 0).entries == BATCH
        assert len(first.requests(FETCH)) == 2
        assert len(second.requests(FETCH)) == 2


def test_a_leader_that_hangs_is_left_for_the_next() -> None:
    with Broker({FETCH: lambda _: fetched(BATCH)}) as second:

        def hangs(_: FetchRequest) -> FetchResponse:
            first.leader = 2
            time.sleep(0.8)
            return fetched()

        with Broker({FETCH: hangs}) as first, cluster(first, timeout_s=0.4) as client:
            first.nodes[2] = (second.host, second.port)
            assert client.fetch(PLACE, 0, max_wait_ms=0).entries == BATCH


def test_a_lost_connection_is_made_again() -> None:
    with Broker({FETCH: in_turn(breaks, fetched(BATCH))}) as broker, cluster(broker) as client:
        assert client.fetch(PLACE, 0).entries == BATCH


def test_a_partition_without_a_leader_ends_in_one_line() -> None:
    with Broker({}) as broker, cluster(broker, timeout_s=0.4) as client:
        broker.leader = -1
        with pytest.raises(Unreachable, match=r"^partition orders-0 has no leader$"):
            client.fetch(PLACE, 0)


def test_a_topic_that_goes_away_ends_in_one_line() -> None:
    script: dict[int, Callable[[Any], Any]] = {FETCH: in_turn(fetched(error_code=3))}
    with Broker(script) as broker, cluster(broker, timeout_s=0.4) as client:
        assert client.partitions(["orders"]) == [PLACE]
        broker.topics = []
        with pytest.raises(NoSuchTopic, match="there is no partition orders-0 on 127"):
            client.fetch(PLACE, 0)


def test_a_broker_that_comes_back_may_know_of_no_topic_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "UNKNOWN_TOPIC_S", 0.3)
    away = [breaks] * 5
    answers = in_turn(*away, fetched(error_code=3), fetched(error_code=3), fetched(BATCH))
    with Broker({FETCH: answers}) as broker, cluster(broker) as client:
        assert client.partitions(["orders"]) == [PLACE]
        assert client.fetch(PLACE, 0).entries == BATCH


def test_a_topic_that_was_made_again_is_another_one() -> None:
    moved, gone = fetched(error_code=NOT_LEADER), fetched(error_code=100)
    answers = in_turn(fetched(BATCH), moved, fetched(BATCH), gone, fetched(BATCH))
    with Broker({FETCH: answers}) as broker, cluster(broker) as client:
        broker.topic_id = bytes(16)
        assert client.fetch(PLACE, 0).entries == BATCH
        # Brokers that are made newer one by one begin to tell an id.
        broker.topic_id = TOPIC_ID
        assert client.fetch(PLACE, 0).entries == BATCH
        broker.topic_id = bytes(range(1, 17))
        with pytest.raises(NoSuchTopic, match=r"^orders-0 was deleted, and made again, while it"):
            client.fetch(PLACE, 1)
        with cluster(broker) as other:
            assert other.fetch(PLACE, 1).entries == BATCH


def test_an_address_that_does_not_answer_is_told_with_who_named_it() -> None:
    with Broker({}) as broker, cluster(broker, timeout_s=0.4) as client:
        port = free_port()
        broker.nodes[1] = ("127.0.0.1", port)
        wanted = rf"cannot connect to 127\.0\.0\.1:{port}: .* refused; {broker.bootstrap} named"
        with pytest.raises(Unreachable, match=wanted):
            client.fetch(PLACE, 0)


# Versions.


@pytest.mark.parametrize("newest", [0, 3, 13])
def test_no_version_of_metadata_makes_a_topic(newest: int) -> None:
    with Broker({}, {METADATA: (0, newest)}) as broker, cluster(broker) as client:
        broker.topics += ["__consumer_offsets", "__mine"]
        with pytest.raises(NoSuchTopic, match=r"'order' .* did you mean 'orders'"):
            client.partitions(["order"])
        for request in broker.requests(METADATA):
            assert not request.topics or not request.allow_auto_topic_creation
        # Which topics are internal is told from version 1 on; before, two names are known.
        topics = {"orders": 1, "__mine": 1} | ({"__consumer_offsets": 1} if newest else {})
        assert client.topics() == topics


def test_topics_go_by_id_where_brokers_tell_ids() -> None:
    script = {FETCH: lambda _: fetched(BATCH), PRODUCE: lambda _: produced(4)}
    with Broker(script) as broker, cluster(broker) as client:
        assert client.fetch(PLACE, 0).entries == BATCH
        assert client.produce(PLACE, [BATCH]) == 4
        assert (broker.version(FETCH), broker.version(PRODUCE)) == (18, 13)
        assert broker.requests(FETCH)[0].topics[0].topic_id == TOPIC_ID
        assert broker.requests(FETCH)[0].session_epoch == -1
    with Broker(script, {METADATA: (0, 9)}) as broker, cluster(broker) as client:
        assert client.fetch(PLACE, 0).entries == BATCH
        assert client.produce(PLACE, [BATCH]) == 4
        assert (broker.version(FETCH), broker.version(PRODUCE)) == (12, 12)


def test_what_was_aborted_comes_with_committed_records_only() -> None:
    kind = FetchResponse.Topic.Partition.AbortedTransaction
    aborted = [kind(producer_id=7, first_offset=3), kind(producer_id=8, first_offset=5)]
    answers = in_turn(
        fetched(BATCH, last_stable_offset=6, log_start_offset=2, aborted_transactions=aborted),
        fetched(BATCH, aborted_transactions=None),
    )
    with Broker({FETCH: answers}) as broker, cluster(broker) as client:
        found = client.fetch(PLACE, 3, committed_only=True)
        assert found[1:] == (9, 2, 6, ((7, 3), (8, 5)))
        assert client.fetch(PLACE, 3)[1:] == (9, -1, -1, ())
        assert [request.isolation_level for request in broker.requests(FETCH)] == [1, 0]


def test_a_version_without_transactions_has_the_high_watermark_for_the_stable_offset() -> None:
    versions = {FETCH: (0, 3)}
    with (
        Broker({FETCH: lambda _: fetched(BATCH)}, versions) as broker,
        cluster(broker) as client,
    ):
        assert client.fetch(PLACE, 0, committed_only=True)[1:] == (9, -1, 9, ())


# Answers without records.


def test_a_quota_that_holds_a_fetch_back_is_waited_for() -> None:
    """However long: many tasks may have one quota together."""
    held_back = [FetchResponse(throttle_time_ms=100, responses=[])] * 6
    script = {FETCH: in_turn(*held_back, fetched(BATCH))}
    with Broker(script) as broker, cluster(broker, timeout_s=0.4) as client:
        assert client.fetch(PLACE, 0).entries == BATCH


def test_an_unforeseen_failure_of_a_broker_is_asked_about_again() -> None:
    script = {FETCH: in_turn(fetched(error_code=-1), fetched(BATCH))}
    with Broker(script) as broker, cluster(broker) as client:
        assert client.fetch(PLACE, 0).entries == BATCH


def test_remote_storage_that_is_slow_is_no_hole() -> None:
    script = {
        FETCH: in_turn(fetched(), fetched(BATCH), fetched()),
        LIST_OFFSETS: in_turn(listed(offset=6)),
    }
    with Broker(script) as broker, cluster(broker, timeout_s=0.4) as client:
        assert client.fetch(PLACE, 5).entries == BATCH
        with pytest.raises(Unreachable, match=r"^orders-0 offset 5 is in remote storage, which"):
            client.fetch(PLACE, 5)
        assert len(client.fetch(PLACE, 6).entries) == 0
        (asked,) = broker.requests(LIST_OFFSETS)[-1].topics
        assert asked.partitions[0].timestamp == -4
        before = len(broker.requests(LIST_OFFSETS))
        assert len(client.fetch(PLACE, 9).entries) == 0
        assert len(broker.requests(LIST_OFFSETS)) == before
    script = {FETCH: in_turn(fetched())}
    with Broker(script, {LIST_OFFSETS: (0, 7)}) as broker, cluster(broker) as client:
        assert len(client.fetch(PLACE, 5).entries) == 0


# Entries.


def cut(request: FetchRequest) -> FetchResponse:
    """As brokers before Kafka 0.10.1 do."""
    size = request.topics[0].partitions[0].partition_max_bytes
    return fetched((BATCH * 3)[:size])


@pytest.mark.parametrize("size", [5, 12, 100])
def test_an_entry_that_does_not_fit_is_asked_for_again(size: int) -> None:
    with Broker({FETCH: cut}, {FETCH: (0, 2)}) as broker, cluster(broker) as client:
        assert client.fetch(PLACE, 0, max_bytes=size).entries == BATCH
        sizes = [one.topics[0].partitions[0].partition_max_bytes for one in broker.requests(FETCH)]
        assert sizes == ([5, 10, 20, len(BATCH)] if size == 5 else [size, len(BATCH)])


def test_what_cannot_be_an_entry_is_corrupt() -> None:
    too_short = bytes(8) + b"\0\0\0\x0d" + bytes(20)
    too_large = bytes(8) + LARGEST_ENTRY_BYTES.to_bytes(4) + bytes(20)
    for records in (too_short, too_large):
        with (
            Broker({FETCH: in_turn(fetched(records))}, {FETCH: (0, 2)}) as broker,
            cluster(broker) as client,
            pytest.raises(CorruptData, match=r"^orders-0 offset 5: .* cannot be an entry"),
        ):
            client.fetch(PLACE, 5)


def test_a_cut_entry_alone_is_corrupt_where_brokers_give_it_whole() -> None:
    with (
        Broker({FETCH: in_turn(fetched(BATCH[:100]))}) as broker,
        cluster(broker) as client,
        pytest.raises(CorruptData, match=rf"says it has {len(BATCH)} bytes, and 100 came$"),
    ):
        client.fetch(PLACE, 5)


def test_an_entry_that_more_room_does_not_bring_is_corrupt() -> None:
    """As where the length is damaged, of a segment that ends before it."""
    with (
        Broker({FETCH: in_turn(fetched(BATCH[:100]))}, {FETCH: (0, 2)}) as broker,
        cluster(broker) as client,
    ):
        with pytest.raises(CorruptData, match=rf"says it has {len(BATCH)} bytes, and 100 came$"):
            client.fetch(PLACE, 5, max_bytes=100)
        assert len(broker.requests(FETCH)) == 2


def test_whole_entries_before_a_damaged_one_are_handed_on() -> None:
    damaged = BATCH + bytes(40)
    with Broker({FETCH: in_turn(fetched(damaged))}) as broker, cluster(broker) as client:
        assert client.fetch(PLACE, 5).entries == BATCH


# Offsets.


def test_the_oldest_version_knows_times_of_segments() -> None:
    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        (partition,) = request.topics[0].partitions
        known = {LATEST: [90], EARLIEST: [3], 5000: [40]}
        return listed(old_style_offsets=known.get(partition.timestamp, []))

    versions = {LIST_OFFSETS: (0, 0)}
    with Broker({LIST_OFFSETS: answer}, versions) as broker, cluster(broker) as client:
        found = [client.offsets([PLACE], time_ms)[PLACE] for time_ms in (EARLIEST, LATEST, 5000)]
        assert found == [3, 90, 40]
        # No segment is so old, so that all of them are younger.
        assert client.offsets([PLACE], 1000) == {PLACE: 3}


def test_a_topic_in_format_0_is_asked_for_segments_too() -> None:
    answers = in_turn(listed(43), listed(old_style_offsets=[40]), listed(43), listed())
    with Broker({LIST_OFFSETS: answers}) as broker, cluster(broker) as client:
        assert client.offsets([PLACE], 5000) == {PLACE: 40}
        versions = [version for key, version, _ in broker.asked if key == LIST_OFFSETS]
        assert versions == [11, 0]


# Groups and topics.


def test_a_coordinator_that_is_only_starting_is_waited_for() -> None:
    def coordinator(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = FindCoordinatorResponse.Coordinator(
            key=request.coordinator_keys[0],
            node_id=1,
            host=broker.host,
            port=broker.port,
            error_code=0,
        )
        return FindCoordinatorResponse(coordinators=[found])

    def not_yet(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        answer = coordinator(request)
        answer.coordinators[0].error_code = 15
        return answer

    def committed(code: int) -> Callable[[OffsetCommitRequest], OffsetCommitResponse]:
        kind = OffsetCommitResponse.Topic
        partition = kind.Partition(partition_index=0, error_code=code)
        return lambda _: OffsetCommitResponse(topics=[kind(name="orders", partitions=[partition])])

    script: dict[int, Callable[[Any], Any]] = {
        COORDINATOR: in_turn(not_yet, coordinator),
        COMMIT: in_turn(committed(16), committed(0), committed(25)),
    }
    with Broker(script) as broker, cluster(broker) as client:
        client.commit_offsets("g", {PLACE: 5})
        assert len(broker.requests(COMMIT)) == 2
        with pytest.raises(Refused, match=r"^group 'g': UNKNOWN_MEMBER_ID \(25\)"):
            client.commit_offsets("g", {PLACE: 5})


def made(code: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreateTopicsResponse.Topic(name="orders", error_code=code)])


@pytest.mark.parametrize("lost", [breaks, made(TIMED_OUT)], ids=["lost", "timed-out"])
def test_a_topic_whose_making_got_no_answer_is_ours(lost: Any) -> None:
    script: dict[int, Callable[[Any], Any]] = {CREATE: in_turn(made(41), made(89), lost, made(36))}
    with Broker(script) as broker, cluster(broker) as client:
        client.create_topic("orders", 1)
        assert len(broker.requests(CREATE)) == 4
        with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
            client.create_topic("orders", 1)


def test_a_broker_that_lost_its_versions_is_one_line() -> None:
    began = time.monotonic()
    with Broker({}, {LIST_OFFSETS: (90, 99)}) as broker, cluster(broker) as client:
        with pytest.raises(Unreachable, match="speaks versions 90 to 99 of ListOffsets, wanted"):
            client.offsets([PLACE], LATEST)
        assert time.monotonic() - began < 3
