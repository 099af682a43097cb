"""What the client makes of brokers that say what ours seldom does: leaders that move, answers that
are lost, versions of other ages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.client.cluster import EARLIEST, LATEST, Cluster, ProduceUnknown, TopicPartition
from pipeline.client.fetching import LARGEST_ENTRY_BYTES
from pipeline.errors import CorruptData, NoSuchTopic, Refused, Unreachable
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.produce import ProduceResponse
from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages
from tests.broker.scripted_broker import ScriptedBroker
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

PRODUCE, FETCH, LIST_OFFSETS, METADATA, COMMIT, COORDINATOR, CREATE = 0, 1, 2, 3, 8, 10, 19
PLACE = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
BATCH = build_batch([(1, b"k", bytes(500), [])])
NEWEST = {PRODUCE: (0, 13), FETCH: (0, 18), LIST_OFFSETS: (0, 11), METADATA: (0, 13)}
NEWEST |= {COMMIT: (0, 10), COORDINATOR: (0, 6), CREATE: (0, 7)}
NOT_LEADER, TIMED_OUT, TOO_FEW_REPLICAS = 6, 7, 19


class Broker(ScriptedBroker):
    """Node 1, whose metadata has topic `orders` with one partition, led by `leader`."""

    def __init__(
        self,
        script: dict[int, Callable[[Any], Any]],
        versions: dict[int, tuple[int, int]] | None = None,
    ) -> None:
        super().__init__({METADATA: self._metadata, **script}, NEWEST | (versions or {}))
        self.nodes = {1: (self.host, self.port)}
        self.leader = 1
        self.topics = ["orders"]

    def requests(self, key: int) -> list[Any]:
        return [request for asked, _, request in self.asked if asked == key]

    def version(self, key: int) -> int:
        return next(version for asked, version, _ in self.asked if asked == key)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        kind = MetadataResponse.Topic
        partition = kind.Partition(
            error_code=0, partition_index=0, leader_id=self.leader, replica_nodes=[], isr_nodes=[]
        )
        wanted = {asked.name for asked in request.topics or ()} or set(self.topics)
        return MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=node, host=host, port=port)
                for node, (host, port) in self.nodes.items()
            ],
            topics=[
                kind(error_code=0, name=name, topic_id=TOPIC_ID, partitions=[partition])
                if name in self.topics
                else kind(error_code=3, name=name, partitions=[])
                for name in wanted
            ],
        )


def cluster(broker: Broker, *, timeout_s: float = 5.0) -> Cluster:
    return Cluster(broker.bootstrap, timeout_s=timeout_s)


def in_turn(*answers: Any) -> Callable[[Any], Any]:
    """Each answer once, the last one for ever; what is callable is given the request."""
    left = list(answers)

    def answer(request: Any) -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        return found(request) if callable(found) else found

    return answer


def fetched(records: bytes = b"", error_code: int = 0, **more: Any) -> FetchResponse:
    kind = FetchResponse.Topic
    partition = kind.Partition(
        partition_index=0, error_code=error_code, high_watermark=9, records=records, **more
    )
    return FetchResponse(
        responses=[kind(topic="orders", topic_id=TOPIC_ID, partitions=[partition])]
    )


def produced(base_offset: int, error_code: int = 0) -> ProduceResponse:
    kind = ProduceResponse.Topic
    partition = kind.Partition(index=0, error_code=error_code, base_offset=base_offset)
    return ProduceResponse(
        responses=[kind(name="orders", topic_id=TOPIC_ID, partition_responses=[partition])]
    )


def listed(error_code: int = 0, **more: Any) -> ListOffsetsResponse:
    kind = ListOffsetsResponse.Topic
    partition = kind.Partition(partition_index=0, error_code=error_code, **more)
    return ListOffsetsResponse(topics=[kind(name="orders", partitions=[partition])])


def breaks(_: Any) -> Any:
    """Ends the connection instead of an answer."""
    raise OSError


# Leaders.


def test_a_fetch_follows_the_leader() -> None:
    with Broker({FETCH: lambda _: fetched(BATCH)}) as second:

        def moved(_: FetchRequest) -> FetchResponse:
            first.leader = 2
            return fetched(error_code=NOT_LEADER)

        with Broker({FETCH: in_turn(fetched(), moved)}) as first:
            first.nodes[2] = (second.host, second.port)
            with cluster(first) as client:
                assert len(client.fetch(PLACE, 0).entries) == 0
                assert client.fetch(PLACE, 0).entries == BATCH
                assert client.fetch(PLACE, 0).entries == BATCH
        assert len(first.requests(FETCH)) == 2
        assert len(second.requests(FETCH)) == 2


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


# Producing.


def test_a_write_is_not_repeated_when_its_answer_is_lost() -> None:
    with Broker({PRODUCE: breaks}) as broker, cluster(broker) as client:
        with pytest.raises(ProduceUnknown, match=r"lost the connection to .* at Produce") as raised:
            client.produce(PLACE, [BATCH])
        assert (raised.value.partition, raised.value.stored, raised.value.code) == (PLACE, 0, 0)
        assert not raised.value.may_send_rest
        assert len(broker.requests(PRODUCE)) == 1


def test_what_was_stored_before_an_answer_was_lost_is_told() -> None:
    answers = in_turn(produced(70), produced(71), breaks)
    with Broker({PRODUCE: answers}) as broker, cluster(broker) as client:
        with pytest.raises(ProduceUnknown) as raised:
            client.produce(PLACE, [BATCH] * 4)
        assert (raised.value.stored, raised.value.base_offset) == (2, 70)


def test_only_what_was_not_stored_is_sent_to_the_next_leader() -> None:
    refused = produced(-1, NOT_LEADER)
    answers = in_turn(produced(70), refused, refused, produced(71), produced(72))
    entries = [build_batch([(1, b"k%d" % number, b"", [])]) for number in range(3)]
    with Broker({PRODUCE: answers}) as broker, cluster(broker) as client:
        assert client.produce(PLACE, entries) == 70
        sent = [
            bytes(request.topic_data[0].partition_data[0].records)
            for request in broker.requests(PRODUCE)
        ]
        assert sent == [*entries, *entries[1:]]


def test_an_order_that_was_broken_is_not_mended_by_sending_again() -> None:
    answers = in_turn(produced(70), produced(-1, NOT_LEADER), produced(71))
    with Broker({PRODUCE: answers}) as broker, cluster(broker) as client:
        with pytest.raises(ProduceUnknown, match=r"NOT_LEADER_OR_FOLLOWER \(6\)") as raised:
            client.produce(PLACE, [BATCH] * 3)
        assert (raised.value.stored, raised.value.may_send_rest) == (1, False)
        assert len(broker.requests(PRODUCE)) == 3


def test_offsets_out_of_order_are_told() -> None:
    with (
        Broker({PRODUCE: in_turn(produced(70), produced(60))}) as broker,
        cluster(broker) as client,
        pytest.raises(ProduceUnknown, match="offsets were given out of order"),
    ):
        client.produce(PLACE, [BATCH] * 2)


def test_what_a_broker_is_not_ready_for_is_refused_in_the_end() -> None:
    answer = produced(-1, TOO_FEW_REPLICAS)
    with Broker({PRODUCE: in_turn(answer)}) as broker, cluster(broker, timeout_s=0.4) as client:
        with pytest.raises(Refused, match=r"NOT_ENOUGH_REPLICAS \(19\)") as raised:
            client.produce(PLACE, [BATCH])
        assert raised.value.code == TOO_FEW_REPLICAS
        assert len(broker.requests(PRODUCE)) > 1


def test_a_write_that_timed_out_may_have_been_stored() -> None:
    answer = produced(-1, TIMED_OUT)
    with Broker({PRODUCE: in_turn(answer)}) as broker, cluster(broker) as client:
        with pytest.raises(ProduceUnknown, match=r"REQUEST_TIMED_OUT \(7\)"):
            client.produce(PLACE, [BATCH])
        assert len(broker.requests(PRODUCE)) == 1


def test_a_broker_takes_the_formats_of_its_age() -> None:
    expected = {(0, 0): (0, 0), (0, 1): (0, 0), (0, 2): (0, 1), (0, 9): (0, 2), (3, 13): (2, 2)}
    for versions, formats in expected.items():
        with Broker({}, {PRODUCE: versions}) as broker, cluster(broker) as client:
            assert client.formats(PLACE) == formats
            for magic in {0, 1, 2} - set(range(formats[0], formats[1] + 1)):
                if magic == 1 and formats[1] == 0:
                    continue
                entry = build_messages([(1, b"k", b"v", ())], magic=1) if magic < 2 else BATCH
                wanted = f"^orders-0 takes no records of format {magic}: "
                with pytest.raises(Refused, match=wanted) as raised:
                    client.produce(PLACE, [entry], magic=magic)
                assert raised.value.code == 35


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


def test_a_topic_whose_making_got_no_answer_is_ours() -> None:
    def made(code: int) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[CreateTopicsResponse.Topic(name="orders", error_code=code)]
        )

    script: dict[int, Callable[[Any], Any]] = {CREATE: in_turn(made(41), breaks, made(36))}
    with Broker(script) as broker, cluster(broker) as client:
        client.create_topic("orders", 1)
        assert len(broker.requests(CREATE)) == 3
        with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
            client.create_topic("orders", 1)


def test_a_broker_that_lost_its_versions_is_one_line() -> None:
    began = time.monotonic()
    with Broker({}, {LIST_OFFSETS: (90, 99)}) as broker, cluster(broker) as client:
        with pytest.raises(Unreachable, match="speaks versions 90 to 99 of ListOffsets, wanted"):
            client.offsets([PLACE], LATEST)
        assert time.monotonic() - began < 3
