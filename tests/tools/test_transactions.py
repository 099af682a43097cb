"""`triglot transactions` as a user types it, and brokers that cannot be started at will: old ones,
one that loads, and one whose transactions end while they are looked at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from protocol.messages.describe_producers import DescribeProducersResponse
from protocol.messages.describe_transactions import DescribeTransactionsResponse
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.messages.list_transactions import ListTransactionsResponse
from protocol.messages.metadata import MetadataResponse
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest, refused
from tests.support.scripted_broker import ScriptedBroker
from tools.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

METADATA, COORDINATOR, INIT, MARKERS, PRODUCERS = 3, 10, 22, 27, 61
DESCRIBE, LIST = 65, 66

KAFKA_2_8 = {METADATA: (0, 11), COORDINATOR: (0, 3), INIT: (0, 4), MARKERS: (0, 1)}
KAFKA_3_0 = {**KAFKA_2_8, COORDINATOR: (0, 4), PRODUCERS: (0, 0), DESCRIBE: (0, 0), LIST: (0, 0)}

LOADING, NOT_LEADER, CONCURRENT, INVALID_EPOCH = 14, 6, 51, 47
PLACE = ("--topic-partition", "orders-0")
BY_PRODUCER = (*PLACE, "--producer-id", "7", "--producer-epoch", "2", "--coordinator-epoch", "5")


def run(*arguments: str) -> int:
    return main(["transactions", *arguments])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["abort"], "one of the arguments --topic-partition --transactional-id is required"),
        (["abort", *PLACE], "--topic-partition wants --start-offset, or --producer-id"),
        (["abort", *PLACE, "--producer-id", "7"], "--topic-partition wants --start-offset, or"),
        (["abort", *BY_PRODUCER, "--start-offset", "1"], "--start-offset stands without"),
        (["abort", *PLACE, "--transactional-id", "x"], "not allowed with"),
        (["abort", "--transactional-id", "x", "--start-offset", "1"], "stands alone"),
        (["abort", "--topic-partition", "orders", "--start-offset", "1"], "as in orders-0, found"),
        (["abort", "--topic-partition", "orders-x", "--start-offset", "1"], "as in orders-0"),
        (["find-hanging", "--partition", "1"], "--partition wants a --topic"),
        (["find-hanging", "--max-transaction-timeout", "x"], "wanted a whole number from 0 on"),
        (["describe"], "--transactional-id"),
        (["describe-producers"], "--topic-partition"),
        (["list", "--duration-filter", "-1"], "wanted a whole number from 0 on"),
        ([], "ACTION"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    wrong: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = run(*wrong)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert sentence in capsys.readouterr().err


class Cluster:
    """One broker with a transaction of `bank` that is open in orders-0 from offset 42 on."""

    def __init__(self, versions: dict[int, tuple[int, int]]) -> None:
        self.broker = ScriptedBroker(
            {
                METADATA: self.metadata,
                COORDINATOR: self.coordinator,
                PRODUCERS: self.producers,
                LIST: self.listed,
                DESCRIBE: self.described,
                INIT: self.initialized,
                MARKERS: lambda request: refused(request, self.marker_code),
            },
            versions,
        )
        self.codes: dict[int, list[int]] = {}
        #: What the partition has open, one answer after the other; the last counts for ever.
        self.start_offsets = [42]
        self.state = "CompleteAbort"
        self.marker_code = 0

    def code(self, key: int) -> int:
        left = self.codes.get(key)
        return left.pop(0) if left else 0

    def keys(self) -> list[int]:
        """What was asked, without Metadata and FindCoordinator."""
        return [key for key, _, _ in self.broker.asked if key not in (METADATA, COORDINATOR)]

    def metadata(self, _: Any) -> MetadataResponse:
        topic = MetadataResponse.Topic
        partition = topic.Partition(
            error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        return MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=1, host=self.broker.host, port=self.broker.port)
            ],
            topics=[
                topic(error_code=0, name=name, partitions=[partition])
                for name in ("orders", "__transaction_state")
            ],
        )

    def coordinator(self, request: Any) -> FindCoordinatorResponse:
        assert request.key_type == 1
        where = {"node_id": 1, "host": self.broker.host, "port": self.broker.port}
        found = FindCoordinatorResponse.Coordinator(key="bank", error_code=0, **where)
        return FindCoordinatorResponse(coordinators=[found], **where)

    def producers(self, _: Any) -> DescribeProducersResponse:
        kind = DescribeProducersResponse.Topic
        start = self.start_offsets.pop(0) if self.start_offsets[1:] else self.start_offsets[0]
        producer = kind.Partition.ProducerState(
            producer_id=7,
            producer_epoch=2,
            last_timestamp=1000,
            coordinator_epoch=-1,
            current_txn_start_offset=start,
        )
        entry = kind.Partition(
            partition_index=0, error_code=self.code(PRODUCERS), active_producers=[producer]
        )
        return DescribeProducersResponse(topics=[kind(name="orders", partitions=[entry])])

    def listed(self, request: Any) -> ListTransactionsResponse:
        one = ListTransactionsResponse.TransactionState(
            transactional_id="bank", producer_id=7, transaction_state=self.state
        )
        return ListTransactionsResponse(
            error_code=self.code(LIST), unknown_state_filters=[], transaction_states=[one]
        )

    def described(self, _: Any) -> DescribeTransactionsResponse:
        kind = DescribeTransactionsResponse.TransactionState
        found = kind(
            error_code=self.code(DESCRIBE),
            transactional_id="bank",
            transaction_state=self.state,
            transaction_timeout_ms=2_000,
            transaction_start_time_ms=-1,
            producer_id=7,
            producer_epoch=3,
            topics=[kind.Topic(topic="orders", partitions=[0])],
        )
        return DescribeTransactionsResponse(transaction_states=[found])

    def initialized(self, request: Any) -> InitProducerIdResponse:
        assert request.transaction_timeout_ms == 2_000
        return InitProducerIdResponse(error_code=self.code(INIT), producer_id=7, producer_epoch=4)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(getattr(request, "param", KAFKA_3_0))
    with made.broker:
        yield made


of_2_8 = pytest.mark.parametrize("cluster", [KAFKA_2_8], indirect=True)


def ask(cluster: Cluster, *arguments: str) -> int:
    return run(*arguments, "--bootstrap", cluster.broker.bootstrap, "--timeout", "1")


@of_2_8
def test_a_broker_before_3_0_gets_a_marker_and_says_nothing_more(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(cluster, "abort", *BY_PRODUCER) == 0
    assert capsys.readouterr().out == (
        "aborted in orders-0: the transaction of producer 7, epoch 2\n"
    )
    (request,) = (asked for key, _, asked in cluster.broker.asked if key == MARKERS)
    assert isinstance(request, WriteTxnMarkersRequest)
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 2, 5)
    assert marker.transaction_result is False
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", [0])]

    for arguments in (["describe-producers", *PLACE], ["find-hanging"], ["list"]):
        assert ask(cluster, *arguments) == 1
        said = capsys.readouterr().err
        assert (
            "Kafka 3.0 is the first" in said or "speaks no version of ListTransactions" in said
        ), said


def test_a_marker_that_is_refused_is_exit_code_1(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.marker_code = INVALID_EPOCH
    assert ask(cluster, "abort", *BY_PRODUCER) == 1
    assert "partition orders-0: WriteTxnMarkers: INVALID_PRODUCER_EPOCH (47)" in (
        capsys.readouterr().err
    )


def test_what_ends_while_it_is_looked_at_does_not_hang(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(cluster, "find-hanging", "--topic", "orders", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["hanging"]
    assert (found["start_offset"], found["reason"]) == (42, "'bank' is in state CompleteAbort")

    for later in (-1, 44):
        cluster.start_offsets = [42, later]
        assert ask(cluster, "find-hanging", "--topic", "orders", "--json") == 0
        assert json.loads(capsys.readouterr().out)["hanging"] == []


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("Ongoing", "the transaction of 'bank' has epoch 3"),
        ("PrepareAbort", None),
        ("Empty", "'bank' is in state Empty"),
    ],
)
def test_an_older_epoch_hangs_unless_an_end_is_on_its_way(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], state: str, reason: str | None
) -> None:
    cluster.state = state
    assert ask(cluster, "find-hanging", "--topic", "orders", "--json") == 0
    found = json.loads(capsys.readouterr().out)["hanging"]
    assert [one["reason"] for one in found] == ([] if reason is None else [reason])


def test_partitions_that_cannot_be_looked_at_are_named_and_exit_code_1(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.codes[PRODUCERS] = [NOT_LEADER]
    assert ask(cluster, "find-hanging", "--topic", "orders") == 1
    out, err = capsys.readouterr()
    assert out == "0 hanging transactions, 0 partitions looked at\n"
    assert "partition orders-0 was not looked at: NOT_LEADER_OR_FOLLOWER (6)" in err
    assert "1 partition could not be looked at" in err


def test_a_coordinator_that_loads_or_ends_something_is_asked_again(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.state = "Ongoing"
    cluster.codes = {DESCRIBE: [LOADING], INIT: [CONCURRENT, CONCURRENT], LIST: [LOADING]}
    assert ask(cluster, "abort", "--transactional-id", "bank") == 0
    assert capsys.readouterr().out == (
        "aborted: the transaction of 'bank' in 1 partition; its producer is fenced\n"
    )
    assert ask(cluster, "list") == 0
    assert cluster.keys() == [DESCRIBE, DESCRIBE, INIT, INIT, INIT, LIST, LIST]


def test_an_end_that_does_not_come_is_told_after_the_timeout(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.state = "Ongoing"
    cluster.codes = {INIT: [CONCURRENT] * 1000}
    assert ask(cluster, "abort", "--transactional-id", "bank") == 1
    assert "transactional id 'bank': CONCURRENT_TRANSACTIONS" in capsys.readouterr().err


def test_every_action_is_taught(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("list", "describe", "describe-producers", "find-hanging", "abort"):
        with pytest.raises(SystemExit) as ended:
            run(action, "--help")
        assert ended.value.code == 0
        assert len(capsys.readouterr().out) > 500
