"""TxnOffsetCommit, and what others see of its offsets before and after the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.records.batch import Batch
from protocol.records.layout import TRANSACTIONAL_BIT
from tests.support.fake_connection import InProcessBroker
from tests.support.group_caller import subscription
from tests.support.transactions import (
    KnownTransactions,
    TransactionalClient,
    create_topic,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC, ID, PRODUCER, GROUP = "orders", "bank", 7, "readers"
OFFSETS = "__consumer_offsets"
ALL, OLD, NEW = range(7), range(5), range(5, 7)
"""From version 5 on the offsets partition joins the transaction by this."""
WITH_MEMBERS = range(3, 7)
NOTHING = -1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data", offsets_topic_num_partitions="1") as running:
        create_topic(running, TOPIC, 3)
        yield running


@pytest.fixture
def known(broker: InProcessBroker) -> KnownTransactions:
    return KnownTransactions.of(broker)


@pytest.fixture
def client(broker: InProcessBroker, known: KnownTransactions) -> TransactionalClient:
    known.begin(ID, PRODUCER, (OFFSETS, 0))
    return TransactionalClient(broker, ID, PRODUCER)


def fetched(
    client: TransactionalClient, *partitions: int, stable: bool = False, version: int = 7
) -> dict[int, tuple[int, int]]:
    """Error code and offset of each partition, as OffsetFetch tells it."""
    indexes = list(partitions or (0,))
    request = OffsetFetchRequest
    if version < 8:
        topics = [request.Topic(name=TOPIC, partition_indexes=indexes)]
        asked = request(group_id=GROUP, topics=topics, require_stable=stable)
        found = client.asker.call(asked, version).topics
    else:
        topic_id = client.broker.running.broker.topics.by_name[TOPIC].topic_id
        topic = request.Group.Topic(name=TOPIC, topic_id=topic_id, partition_indexes=indexes)
        group = request.Group(group_id=GROUP, topics=[topic])
        asked = request(groups=[group], require_stable=stable)
        found = client.asker.call(asked, version).groups[0].topics
    return {
        entry.partition_index: (entry.error_code, entry.committed_offset)
        for topic in found
        for entry in topic.partitions
    }


def plain_commit(client: TransactionalClient, offset: int, partition: int = 0) -> None:
    entry = OffsetCommitRequest.Topic.Partition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    topics = [OffsetCommitRequest.Topic(name=TOPIC, partitions=[entry])]
    request = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    assert client.asker.call(request, 7).topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_are_seen_by_nobody_before_the_end_and_then_if_it_is_a_commit(
    known: KnownTransactions, client: TransactionalClient, version: int, commit: bool
) -> None:
    plain_commit(client, 3)
    wanted = {(TOPIC, 0): 5, (TOPIC, 1): 6}

    assert client.commit_offsets(GROUP, wanted, version=version) == dict.fromkeys(wanted, 0)

    assert fetched(client, 0, 1, 2) == {0: (0, 3), 1: (0, NOTHING), 2: (0, NOTHING)}
    unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, NOTHING)
    for asked in range(7, 11):
        assert fetched(client, 0, 1, 2, stable=True, version=asked) == {
            0: unstable,
            1: unstable,
            2: (0, NOTHING),
        }
    assert known.end(ID, commit=commit) == []
    after = {0: (0, 5), 1: (0, 6)} if commit else {0: (0, 3), 1: (0, NOTHING)}
    for stable in (False, True):
        assert fetched(client, 0, 1, stable=stable) == after


@pytest.mark.parametrize("version", ALL)
def test_offsets_are_on_the_disk_before_the_answer_as_one_batch(
    broker: InProcessBroker, client: TransactionalClient, version: int
) -> None:
    client.commit_offsets(GROUP, {(TOPIC, 0): 5, (TOPIC, 1): 6}, version=version)

    log = partition_of(broker, OFFSETS).log
    assert log.recovery_point == log.written_offset == 2
    assert log.producers.open_since(PRODUCER) == 0
    found = log.read(0, 1000)
    assert found is not None
    stored = Batch(memoryview(found.read()))
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (PRODUCER, 0, 0)
    assert stored.attributes == TRANSACTIONAL_BIT


@pytest.mark.parametrize("version", NEW)
def test_the_offsets_partition_joins_by_the_first_commit(
    known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    known.begin(ID, PRODUCER)

    client.commit_offsets(GROUP, {(TOPIC, 0): 5}, version=version)

    assert known.places(ID) == [(OFFSETS, 0)]


@pytest.mark.parametrize("version", OLD)
def test_an_offsets_partition_that_was_not_added_is_refused(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    known.begin(ID, PRODUCER)

    (code,) = client.commit_offsets(GROUP, {(TOPIC, 0): 5}, version=version).values()

    abortable = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert code == abortable
    assert partition_of(broker, OFFSETS).log.next_offset == 0


LOADING, MISSING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, MISSING),
        (MISSING, MISSING),
        (LOADING, LOADING),
    ],
)
def test_what_the_coordinator_of_the_transaction_says_is_told_for_every_partition(
    known: KnownTransactions,
    client: TransactionalClient,
    version: int,
    said: ErrorCode,
    told: ErrorCode,
) -> None:
    known.refusal = said
    wanted = {(TOPIC, 0): 5, (TOPIC, 1): 6}

    codes = client.commit_offsets(GROUP, wanted, version=version)

    if told == LOADING and version < 2:
        told = MISSING  # producers before 2.3 end by the other
    assert codes == dict.fromkeys(wanted, told)


@pytest.mark.parametrize("version", ALL)
def test_without_verification_only_who_joins_by_committing_is_looked_at(
    tmp_path: Path, version: int
) -> None:
    settings = {"transaction_partition_verification_enable": "false"}
    with InProcessBroker(tmp_path / "data", **settings) as broker:
        create_topic(broker, TOPIC)
        client = TransactionalClient(broker, ID, PRODUCER)

        (code,) = client.commit_offsets(GROUP, {(TOPIC, 0): 5}, version=version).values()

        assert code == (ErrorCode.INVALID_PRODUCER_ID_MAPPING if version in NEW else 0)


def test_a_broker_without_a_coordinator_knows_no_transactional_id(
    broker: InProcessBroker,
) -> None:
    client = TransactionalClient(broker, ID, PRODUCER)

    for version in ALL:
        (code,) = client.commit_offsets(GROUP, {(TOPIC, 0): 5}, version=version).values()
        assert code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", ALL)
def test_what_cannot_be_committed_is_refused_alone(
    client: TransactionalClient, version: int
) -> None:
    wanted = {(TOPIC, 0): 5, (TOPIC, 3): 6, ("gone", 0): 7}

    codes = client.commit_offsets(GROUP, wanted, version=version)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version == 6 else unknown
    assert list(codes.values()) == [0, unknown, gone]
    large = client.commit_offsets(GROUP, {(TOPIC, 0): 5}, version=version, m="x" * 5000)
    assert list(large.values()) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_where_no_partition_is_known_nobody_is_asked(
    known: KnownTransactions, client: TransactionalClient
) -> None:
    codes = client.commit_offsets("other", {("gone", 0): 7, (TOPIC, 3): 1}, version=5)

    assert set(codes.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert known.asked == []


@pytest.mark.parametrize("version", ALL)
def test_a_group_without_a_name_is_refused(client: TransactionalClient, version: int) -> None:
    (code,) = client.commit_offsets("", {(TOPIC, 0): 7}, version=version).values()

    assert code == ErrorCode.INVALID_GROUP_ID


class Members:
    """A classic group of one member, which is static."""

    def __init__(self, client: TransactionalClient) -> None:
        protocol = JoinGroupRequest.Protocol(name="range", metadata=subscription(TOPIC))
        answer = client.asker.call(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                group_instance_id="one",
                protocol_type="consumer",
                protocols=[protocol],
            ),
            5,
        )
        assert answer.error_code == 0
        self.generation: int = answer.generation_id
        self.member_id: str = answer.member_id
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id="one",
            assignments=[],
        )
        assert client.asker.call(request, 3).error_code == 0

    def says(self, **changed: Any) -> dict[str, Any]:
        return {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": "one",
            **changed,
        }


@pytest.mark.parametrize("version", WITH_MEMBERS)
def test_a_zombie_of_the_group_commits_nothing(
    broker: InProcessBroker, client: TransactionalClient, version: int
) -> None:
    """KIP-447: one producer for all partitions of a member is safe by this."""
    members = Members(client)
    end = partition_of(broker, OFFSETS).log.next_offset

    def code(**says: Any) -> int:
        (found,) = client.commit_offsets(GROUP, {(TOPIC, 0): 5}, version=version, **says).values()
        return found

    stale = ErrorCode.ILLEGAL_GENERATION
    assert code(**members.says(generation_id_or_member_epoch=members.generation - 1)) == stale
    assert code(**members.says(generation_id_or_member_epoch=-1)) == stale
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert code(**members.says(member_id="nobody", group_instance_id=None)) == unknown
    assert code(**members.says(member_id="before")) == ErrorCode.FENCED_INSTANCE_ID
    assert code(**members.says(group_instance_id="two")) == unknown
    assert partition_of(broker, OFFSETS).log.next_offset == end
    assert code(**members.says()) == 0
    assert code() == 0, "who names no member is a client of the time before KIP-447"


@pytest.mark.parametrize("version", WITH_MEMBERS)
def test_a_zombie_of_a_consumer_group_commits_nothing(
    client: TransactionalClient, version: int
) -> None:
    joined = client.asker.call(
        ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="one",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        ),
        1,
    )
    assert joined.error_code == 0

    def code(member_id: str, member_epoch: int) -> int:
        (found,) = client.commit_offsets(
            GROUP,
            {(TOPIC, 0): 5},
            version=version,
            member_id=member_id,
            generation_id_or_member_epoch=member_epoch,
        ).values()
        return found

    assert code("one", joined.member_epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert code("one", joined.member_epoch - 1) == ErrorCode.ILLEGAL_GENERATION
    assert code("two", joined.member_epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code("one", joined.member_epoch) == 0
    assert code("", -1) == 0, "who names no member is a client of the time before KIP-447"


@pytest.mark.parametrize("version", WITH_MEMBERS)
def test_a_generation_of_a_group_that_is_not_there_is_illegal(
    client: TransactionalClient, version: int
) -> None:
    (code,) = client.commit_offsets(
        GROUP, {(TOPIC, 0): 5}, version=version, generation_id_or_member_epoch=3, member_id="m"
    ).values()

    assert code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(3))
def test_the_first_versions_commit_for_a_group_with_members(
    client: TransactionalClient, version: int
) -> None:
    Members(client)

    codes = client.commit_offsets(GROUP, {(TOPIC, 0): 5}, version=version)

    assert codes == {(TOPIC, 0): 0}


def test_a_producer_whose_epoch_the_partition_has_outgrown_is_refused(
    known: KnownTransactions, client: TransactionalClient
) -> None:
    client.commit_offsets(GROUP, {(TOPIC, 0): 5})
    known.end(ID, commit=True, raised=1)
    known.begin(ID, PRODUCER, (OFFSETS, 0))

    codes = client.commit_offsets(GROUP, {(TOPIC, 0): 6})

    assert codes == {(TOPIC, 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert fetched(client, stable=True) == {0: (0, 5)}


def test_the_newer_of_a_plain_commit_and_one_in_a_transaction_wins(
    known: KnownTransactions, client: TransactionalClient
) -> None:
    plain_commit(client, 3, partition=0)
    client.commit_offsets(GROUP, {(TOPIC, 0): 5, (TOPIC, 1): 6})
    plain_commit(client, 9, partition=1)

    known.end(ID, commit=True)

    assert fetched(client, 0, 1) == {0: (0, 5), 1: (0, 9)}


@pytest.mark.parametrize("commit", [None, True, False])
def test_a_restart_keeps_pending_offsets_pending(tmp_path: Path, commit: bool | None) -> None:
    settings = {"offsets_topic_num_partitions": "1"}
    with InProcessBroker(tmp_path / "data", **settings) as broker:
        create_topic(broker, TOPIC)
        known = KnownTransactions.of(broker)
        known.begin(ID, PRODUCER, (OFFSETS, 0))
        client = TransactionalClient(broker, ID, PRODUCER)
        client.commit_offsets(GROUP, {(TOPIC, 0): 5})
        if commit is not None:
            known.end(ID, commit=commit)

    with InProcessBroker(tmp_path / "data", **settings) as broker:
        known = KnownTransactions.of(broker)
        client = TransactionalClient(broker, ID, PRODUCER)
        if commit is None:
            unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, NOTHING)
            assert fetched(client, stable=True) == {0: unstable}
            known.begin(ID, PRODUCER, (OFFSETS, 0))
            assert known.end(ID, commit=True) == []
        assert fetched(client, stable=True) == {0: (0, NOTHING if commit is False else 5)}


# Groups and offsets that are deleted


def deleted(client: TransactionalClient) -> int:
    (result,) = client.asker.call(DeleteGroupsRequest(groups_names=[GROUP]), 2).results
    code: int = result.error_code
    return code


def states(client: TransactionalClient) -> tuple[list[str], str]:
    """The groups that ListGroups names, and the state that DescribeGroups tells."""
    listed = client.asker.call(ListGroupsRequest(states_filter=[], types_filter=[]), 5).groups
    described = client.asker.call(DescribeGroupsRequest(groups=[GROUP]), 5).groups
    return [one.group_id for one in listed], described[0].group_state


@pytest.mark.parametrize("before", [None, 3])
def test_a_group_that_is_deleted_takes_its_pending_offsets_along(
    known: KnownTransactions, client: TransactionalClient, before: int | None
) -> None:
    """As with Kafka, whose group is there with its first pending offset."""
    if before is not None:
        plain_commit(client, before)
    client.commit_offsets(GROUP, {(TOPIC, 0): 5})
    assert states(client) == ([GROUP], "Empty")

    assert deleted(client) == 0

    assert fetched(client, stable=True) == {0: (0, NOTHING)}
    assert states(client) == ([], "Dead")
    known.end(ID, commit=True)
    assert fetched(client, stable=True) == {0: (0, NOTHING)}
    assert deleted(client) == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pending_offset_can_be_deleted_alone(tmp_path: Path, restarts: bool) -> None:
    settings = {"offsets_topic_num_partitions": "1"}
    with InProcessBroker(tmp_path / "data", **settings) as broker:
        create_topic(broker, TOPIC, 2)
        known = KnownTransactions.of(broker)
        known.begin(ID, PRODUCER, (OFFSETS, 0))
        client = TransactionalClient(broker, ID, PRODUCER)
        client.commit_offsets(GROUP, {(TOPIC, 0): 5, (TOPIC, 1): 6})
        asked = OffsetDeleteRequest.Topic(
            name=TOPIC, partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=0)]
        )

        answer = client.asker.call(OffsetDeleteRequest(group_id=GROUP, topics=[asked]), 0)

        assert answer.topics[0].partitions[0].error_code == 0
        unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, NOTHING)
        assert fetched(client, 0, 1, stable=True) == {0: (0, NOTHING), 1: unstable}
        if not restarts:
            known.end(ID, commit=True)
            assert fetched(client, 0, 1) == {0: (0, NOTHING), 1: (0, 6)}
            return
    with InProcessBroker(tmp_path / "data", **settings) as broker:
        known = KnownTransactions.of(broker)
        known.begin(ID, PRODUCER, (OFFSETS, 0))
        client = TransactionalClient(broker, ID, PRODUCER)
        known.end(ID, commit=True)
        assert fetched(client, 0, 1, stable=True) == {0: (0, NOTHING), 1: (0, 6)}
