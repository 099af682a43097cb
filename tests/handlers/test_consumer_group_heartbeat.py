"""ConsumerGroupHeartbeat (KIP-848): a member joins, gives up and gets partitions, and leaves."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import NOTHING, Found, GroupCaller, Member, rebalance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.broker_process import BrokerProcess

    NewMember = Callable[..., ConsumerMember]

VERSIONS = range(2)
Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3", "group.consumer.max.size": "4"}


@pytest.fixture
def new(groups: GroupCaller, group: str, topic: str) -> Callable[..., ConsumerMember]:
    """Makes members of the test's group that read its topic."""

    def make(**facts: Any) -> ConsumerMember:
        facts = {"topics": [topic], "member_id": str(uuid.uuid4()), **facts}
        return ConsumerMember(groups, group, **facts)

    return make


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lonely_member_gets_all_partitions_at_once(
    groups: GroupCaller, topic: str, new: NewMember, version: int
) -> None:
    topic_id = groups.create_topic(topic, partitions=3)
    one = new(version=version)

    joined = one.join()

    assert (joined.error_code, joined.error_message) == (0, None)
    assert joined.member_id == one.member_id
    assert joined.member_epoch == 1
    assert joined.heartbeat_interval_ms == 5000
    assert one.assigned == {topic_id: [0, 1, 2]}
    again = one.own()
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)
    assert one.beat().assignment is None


def test_version_0_may_leave_the_id_to_the_broker_and_version_1_may_not(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    groups.create_topic(topic)
    old = new(version=0, member_id="")

    assert old.join().error_code == 0
    assert old.member_id
    assert old.own().error_code == 0
    refused = new(member_id="").join()
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message


def test_a_partition_is_given_up_before_another_member_gets_it(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    topic_id = groups.create_topic(topic, partitions=4)
    one, two = new(), new()
    one.join()
    one.own()

    joined = two.join()
    assert (joined.error_code, two.epoch) == (0, 2)
    assert two.assigned == {}
    told = one.beat()
    kept = one.assigned[topic_id]
    assert (told.member_epoch, len(kept)) == (1, 2)
    assert two.beat().assignment is None

    done = one.own()
    assert done.member_epoch == 2
    two.beat()
    assert sorted(kept + two.assigned[topic_id]) == [0, 1, 2, 3]
    assert one.own().error_code == two.own().error_code == 0


def test_a_member_that_leaves_leaves_its_partitions_to_the_others(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    topic_id = groups.create_topic(topic, partitions=4)
    one, two = new(), new()
    one.join()
    two.join()
    one.beat()
    one.own()
    two.beat()

    left = two.leave()

    assert (left.error_code, left.member_epoch) == (0, -1)
    one.beat()
    assert one.assigned == {topic_id: [0, 1, 2, 3]}
    two.epoch = 2
    assert two.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_stale_epoch_is_fenced_and_a_lost_answer_is_repeated(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    topic_id = groups.create_topic(topic, partitions=2)
    one, two = new(), new()
    one.join()
    one.own()
    two.join()
    one.beat()
    kept = dict(one.assigned)
    before = one.epoch
    one.own()
    assert one.epoch == before + 1

    one.epoch = before
    repeated = one.own()
    assert (repeated.error_code, repeated.member_epoch) == (0, before + 1)
    assert one.assigned == kept
    one.epoch = before
    owned_more = one.beat(topic_partitions=[Owned(topic_id=topic_id, partitions=[0, 1])])
    assert owned_more.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    one.epoch = 77
    assert one.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert one.join().error_code == 0


def test_a_member_that_nobody_knows_must_join_first(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    groups.create_topic(topic)
    one, stranger = new(), new()
    stranger.epoch = 1
    assert stranger.beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND

    one.join()

    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.beat().error_code == 0


def test_topics_can_be_named_by_an_expression(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    ids = [groups.create_topic(f"{topic}-{name}") for name in ("a1", "a2", "b1")]
    one = new(topics=None)

    one.join(subscribed_topic_regex=f"{topic}-a.*")
    for _ in range(20):
        if len(one.assigned) == 2:
            break
        one.beat()
    assert one.assigned == {ids[0]: [0], ids[1]: [0]}


def test_an_expression_that_is_refused_is_logged_with_its_reason(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        bad = ConsumerMember(groups, "readers", topics=None, member_id="one")
        refused = bad.join(subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message is not None
    assert "missing ): (" in refused.error_message
    run = own_broker.run
    assert run is not None
    own_broker.stop()
    (line,) = [said for said in run.output().splitlines() if "subscription refused" in said]
    assert refused.error_message in line
    assert "group=readers" in line
    assert "client_id=" in line


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_the_assignors_of_the_server_have_names(
    groups: GroupCaller, topic: str, new: NewMember, assignor: str
) -> None:
    topic_id = groups.create_topic(topic, partitions=3)
    one = new()

    assert one.join(server_assignor=assignor).error_code == 0

    assert one.assigned == {topic_id: [0, 1, 2]}
    for unknown in ("sticky", assignor.upper()):
        assert new().join(server_assignor=unknown).error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


# Static members


def test_a_static_member_that_leaves_for_a_while_finds_its_partitions(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    topic_id = groups.create_topic(topic, partitions=4)
    static, other = new(instance_id="i"), new()
    static.join()
    other.join()
    static.beat()
    static.own()
    other.beat()
    other.own()
    mine = static.assigned

    left = static.leave(-2)
    assert (left.error_code, left.member_epoch) == (0, -2)
    other.beat()
    assert len(other.assigned[topic_id]) == 2
    back = new(instance_id="i")
    assert back.join().error_code == 0

    assert back.assigned == mine
    static.epoch = 2
    assert static.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_instance_of_a_name_that_lives_is_refused(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    groups.create_topic(topic)
    new(instance_id="i").join()

    refused = new(instance_id="i").join()

    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused.error_message


# What is refused at once


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
        {"topic_partitions": None},
        {"topic_partitions": [Owned(topic_id=bytes(16), partitions=[0])]},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
    ids=str,
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_first_heartbeat_that_does_not_say_all_is_invalid(
    groups: GroupCaller, topic: str, group: str, version: int, fields: dict[str, Any]
) -> None:
    groups.create_topic(topic)
    whole = {
        "group_id": group,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }

    refused = groups.call(ConsumerGroupHeartbeatRequest(**{**whole, **fields}), version)

    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message
    assert refused.assignment is None


def test_a_full_group_lets_nobody_in_and_goes_on(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    groups.create_topic(topic, partitions=2)
    members = [new() for _ in range(4)]
    for one in members:
        assert one.join().error_code == 0

    assert new().join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [one.beat().error_code for one in members] == [0, 0, 0, 0]


def test_a_topic_that_does_not_exist_yet_is_assigned_when_it_comes(
    groups: GroupCaller, topic: str, new: NewMember
) -> None:
    one = new()
    assert one.join().error_code == 0
    assert one.assigned == {}

    topic_id = groups.create_topic(topic, partitions=2)

    one.beat()
    assert one.assigned == {topic_id: [0, 1]}


# Commits, and the classic protocol


@pytest.mark.parametrize("version", [8, 9, 10])
def test_only_a_member_of_this_epoch_commits(
    groups: GroupCaller, topic: str, group: str, new: NewMember, version: int
) -> None:
    groups.create_topic(topic)
    one = new()
    one.join()
    place = (topic, 0)

    def commit(epoch: int, member_id: str) -> int:
        codes = groups.commit(
            group, {place: 5}, version=version, generation=epoch, member_id=member_id
        )
        return codes[place]

    knows_epochs = version >= 9
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert commit(one.epoch, one.member_id) == (0 if knows_epochs else unsupported)
    stale = ErrorCode.STALE_MEMBER_EPOCH if knows_epochs else unsupported
    assert commit(one.epoch + 1, one.member_id) == stale
    assert commit(one.epoch, "somebody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(-1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.committed(group, [place]) == {place: Found(5) if knows_epochs else NOTHING}


def test_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets(
    groups: GroupCaller, topic: str, group: str, new: NewMember, broker: BrokerProcess
) -> None:
    groups.create_topic(topic)
    with Member.connect(broker, group) as old:
        rebalance(old)
        old.commit({(topic, 0): 5})
        old.leave()
    one = new()

    assert one.join().error_code == 0

    assert groups.group(group).group_state == "Dead"
    assert groups.committed(group, [(topic, 0)])[topic, 0].offset == 5


def test_a_classic_group_that_lives_takes_no_member_of_the_newer_protocol(
    groups: GroupCaller, topic: str, group: str, new: NewMember, broker: BrokerProcess
) -> None:
    """Of members whose subscription cannot be read; Kafka 4 takes over those that it can read."""
    groups.create_topic(topic)
    with Member.connect(broker, group, protocols={"range": b"garbage"}) as old:
        rebalance(old)

        assert new().join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert old.heartbeat() == 0


def test_members_go_on_after_a_restart(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.create_topic("t", partitions=4)
        one, two = (ConsumerMember(groups, "g", topics=["t"], member_id=name) for name in "ab")
        one.join()
        two.join()
        one.beat()
        one.own()
        two.beat()
        two.own()
    own_broker.kill()

    own_broker.start()

    with GroupCaller(own_broker.host, own_broker.port) as groups:
        for member in (one, two):
            member.caller = groups
            epoch = member.epoch
            answer = member.own()
            assert (answer.error_code, answer.member_epoch) == (0, epoch)
            assert answer.assignment is None or len(member.assigned) == 1


def test_without_the_consumer_protocol_the_version_is_not_supported(
    own_broker: BrokerProcess,
) -> None:
    own_broker.settings = {"group.coordinator.rebalance.protocols": "classic"}
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        one = ConsumerMember(groups, "g", topics=["t"], member_id="m")
        assert one.join().error_code == ErrorCode.UNSUPPORTED_VERSION
