"""The consumer group of KIP-848: joining, epochs, giving up before getting, leaving, records."""

from __future__ import annotations

import pytest

from broker.coordinator.effects import Caller, GroupRules
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import ConsumerGroupCurrentMemberAssignmentKey, encode_record
from tests.coordinator.consumer_world import (
    REBALANCE_MS,
    SESSION_MS,
    ConsumerWorld,
    FakeTopics,
    assignment_of,
    key_versions,
    refusal,
)


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld(FakeTopics(t=4, u=2))


def shared(world: ConsumerWorld) -> None:
    """A and B have two partitions of t each, at epoch 2."""
    world.join("A", "t")
    world.join("B", "t")
    a = world.heartbeat("A", 1)
    world.heartbeat("A", 1, owned=assignment_of(a))
    world.heartbeat("B", 2)
    assert world.group.state == "Stable"


# Joining


def test_the_first_member_gets_everything_at_epoch_1(world: ConsumerWorld) -> None:
    answer = world.join("A", "t", "u")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("A", 1, 5000)
    assert world.given(answer) == {"t": [0, 1, 2, 3], "u": [0, 1]}
    assert world.group.state == "Stable"


def test_the_first_join_writes_what_kafka_writes_in_its_order(world: ConsumerWorld) -> None:
    world.join("A", "t")
    assert key_versions(world.written) == [5, 4, 3, 7, 6, 8]


def test_the_first_join_writes_the_bytes_that_kafka_3_9_wrote_and_the_epochs_of_4() -> None:
    # storage.md 16.5: a console consumer of group g848 and topic a2, looked at in Kafka's log.
    topics = FakeTopics()
    topics.create("a2", 3)
    topic_id = bytes.fromhex("ea6d84ea43b14048aeea0b0a483952a1")
    topics.topics["a2"] = topics.topics["a2"]._replace(topic_id=topic_id)
    world = ConsumerWorld(topics)
    world.join(
        "RvaPOOfASCmLBb8NiXhbIg",
        "a2",
        rebalance_timeout_ms=300_000,
        caller=Caller("console-consumer", "/127.0.0.1", 0),
    )
    values = {key[1]: (value or b"").hex() for key, value in map(encode_record, world.written)}
    assert values[5] == (
        "0000000011636f6e736f6c652d636f6e73756d65720b2f3132372e302e302e310203613201000493e0000100"
        "0100"
    )
    assert values[4] == "000002ea6d84ea43b14048aeea0b0a483952a103613200000003010000"
    assert values[3] == values[6] == "00000000000100"
    assert values[7] == "000002ea6d84ea43b14048aeea0b0a483952a1040000000000000001000000020000"
    # Between the partitions and the two last bytes 3.9 has a zero, for no tags; tag 0 is null here,
    # by which Kafka 4.3 understands the member's epoch for each partition.
    assert values[8] == (
        "000000000001000000000002ea6d84ea43b14048aeea0b0a483952a1040000000000000001000000020100"
        "01000100"
    )


def test_a_member_of_version_0_without_an_id_is_given_one(world: ConsumerWorld) -> None:
    answer = world.join("", "t", caller=Caller("app", "/127.0.0.1", 0))
    assert answer.member_id == "app-1"
    assert world.held("app-1") == {"t": [0, 1, 2, 3]}


def test_a_member_that_joins_again_keeps_its_place(world: ConsumerWorld) -> None:
    shared(world)
    before = world.held("A")
    answer = world.join("A", "t")
    assert (answer.member_epoch, world.given(answer)) == (2, before)
    assert world.written == []


def test_a_member_may_read_nothing(world: ConsumerWorld) -> None:
    answer = world.join("A")
    assert (answer.member_epoch, world.given(answer)) == (1, {})
    assert world.group.state == "Stable"
    assert key_versions(world.written) == [5, 3, 7, 6, 8]


def test_a_topic_that_does_not_exist_yet_is_read_when_it_does(world: ConsumerWorld) -> None:
    assert world.given(world.join("A", "later")) == {}
    world.topics.create("later", 3)
    answer = world.heartbeat("A", 1)
    assert (answer.member_epoch, world.given(answer)) == (2, {"later": [0, 1, 2]})


def test_a_group_that_is_full_takes_no_more(world: ConsumerWorld) -> None:
    world = ConsumerWorld(world.topics, GroupRules(consumer_max_size=1))
    world.join("A", "t")
    with pytest.raises(KafkaError) as error:
        world.join("B", "t")
    assert refusal(error) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The consumer group has reached its maximum capacity of 1 members.",
    )
    assert world.join("A", "t").error_code == 0


# Giving up before getting


def test_a_partition_is_given_up_before_another_member_gets_it(world: ConsumerWorld) -> None:
    world.join("A", "t")
    new = world.join("B", "t")
    assert (new.member_epoch, world.given(new)) == (2, {})  # all are still A's
    told = world.heartbeat("A", 1)
    assert told.member_epoch == 1
    rest = world.given(told)
    assert rest is not None
    assert len(rest["t"]) == 2
    assert world.given(world.heartbeat("B", 2)) is None  # A has not said that it gave them up
    assert world.heartbeat("A", 1, owned=assignment_of(told)).member_epoch == 2
    got = world.given(world.heartbeat("B", 2))
    assert got == {"t": sorted({0, 1, 2, 3} - set(rest["t"]))}
    assert world.group.state == "Stable"


def test_a_member_that_still_holds_what_it_was_told_to_give_up_stays_where_it_is(
    world: ConsumerWorld,
) -> None:
    world.join("A", "t")
    everything = {world.id_of("t"): frozenset(range(4))}
    world.join("B", "t")
    world.heartbeat("A", 1)
    for _ in range(2):
        answer = world.heartbeat("A", 1, owned=everything)
        assert answer.member_epoch == 1
        assert world.written == []
    assert world.group.state == "Reconciling"


def test_a_member_that_does_not_give_up_in_its_rebalance_timeout_is_fenced(
    world: ConsumerWorld,
) -> None:
    world.join("A", "t", rebalance_timeout_ms=20_000)
    world.join("B", "t")
    world.heartbeat("A", 1)
    world.pass_ms(19_999)
    assert "A" in world.group.members
    world.pass_ms(1)
    assert key_versions(world.written) == [-8, -7, -5, 3]
    with pytest.raises(KafkaError) as error:
        world.heartbeat("A", 1)
    assert refusal(error) == (ErrorCode.UNKNOWN_MEMBER_ID, "Member A is not a member of group g.")
    assert world.given(world.heartbeat("B", 2)) == {"t": [0, 1, 2, 3]}


def test_who_gave_up_in_time_is_not_fenced(world: ConsumerWorld) -> None:
    world.join("A", "t", rebalance_timeout_ms=20_000)
    world.join("B", "t")
    told = world.heartbeat("A", 1)
    world.pass_ms(10_000)
    world.heartbeat("A", 1, owned=assignment_of(told))
    world.pass_ms(20_000)
    assert set(world.group.members) == {"A", "B"}


def test_a_topic_that_is_deleted_is_given_up(world: ConsumerWorld) -> None:
    world.join("A", "t", "u")
    world.topics.delete("u")
    told = world.heartbeat("A", 1)
    assert (told.member_epoch, world.given(told)) == (1, {"t": [0, 1, 2, 3]})
    assert world.heartbeat("A", 1, owned=assignment_of(told)).member_epoch == 2
    assert world.group.state == "Stable"


def test_a_topic_made_again_under_its_name_is_another_topic(world: ConsumerWorld) -> None:
    world.join("A", "u")
    world.topics.delete("u")
    world.topics.create("u", 2)
    told = world.heartbeat("A", 1)
    assert world.given(told) == {}
    again = world.heartbeat("A", 1, owned={})
    assert again.member_epoch == 2
    assert assignment_of(again) == {world.id_of("u"): frozenset({0, 1})}


def test_a_changed_subscription_starts_a_new_epoch(world: ConsumerWorld) -> None:
    world.join("A", "t")
    told = world.heartbeat("A", 1, names=["u"])
    assert (told.member_epoch, world.given(told)) == (1, {})
    moved = world.heartbeat("A", 1, owned={})
    assert (moved.member_epoch, world.given(moved)) == (2, {"u": [0, 1]})


def test_the_order_of_topic_names_means_nothing(world: ConsumerWorld) -> None:
    world.join("A", "t", "u")
    world.heartbeat("A", 1, names=["u", "t", "u"])
    assert world.written == []


# Epochs


@pytest.mark.parametrize(("epoch", "size"), [(3, "greater"), (1, "smaller")])
def test_an_epoch_that_is_not_the_members_is_fenced(
    world: ConsumerWorld, epoch: int, size: str
) -> None:
    shared(world)
    with pytest.raises(KafkaError) as error:
        world.heartbeat("A", epoch)
    assert refusal(error) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the "
        "group coordinator (2). The member must abandon all its partitions and rejoin.",
    )


def test_an_answer_that_was_lost_is_given_again(world: ConsumerWorld) -> None:
    world.join("A", "t")
    world.topics.grow("t", 6)
    first = world.heartbeat("A", 1)  # which A does not hear of
    owned = {world.id_of("t"): frozenset(range(4))}
    again = world.heartbeat("A", 1, names=["t"], owned=owned, rebalance_timeout_ms=REBALANCE_MS)
    assert first.member_epoch == again.member_epoch == 2
    assert world.given(first) == world.given(again) == {"t": [0, 1, 2, 3, 4, 5]}


def test_an_answer_that_was_lost_comes_with_the_assignment_even_if_not_asked(
    world: ConsumerWorld,
) -> None:
    world.join("A", "t")
    world.topics.grow("t", 5)
    world.heartbeat("A", 1)
    again = world.heartbeat("A", 1, owned={world.id_of("t"): frozenset(range(4))})
    assert (again.member_epoch, world.given(again)) == (2, {"t": [0, 1, 2, 3, 4]})


def test_a_member_that_waits_for_others_may_miss_two_answers(world: ConsumerWorld) -> None:
    world.join("A", "t")
    world.join("B", "t")
    world.topics.grow("t", 6)
    for _ in range(3):
        assert world.heartbeat("B", 2, owned={}).member_epoch == 3
        assert world.group.state == "Reconciling"


def test_the_epoch_before_is_not_right_for_who_holds_more_than_it_was_given(
    world: ConsumerWorld,
) -> None:
    shared(world)
    with pytest.raises(KafkaError) as error:
        world.heartbeat("A", 1, owned={world.id_of("t"): frozenset(range(4))})
    assert error.value.code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_write_that_failed_has_not_happened(world: ConsumerWorld) -> None:
    world.join("A", "t")
    world.topics.grow("t", 6)
    world.heartbeat("A", 1, loses_the_write=True)
    assert (world.group.group_epoch, world.held("A")) == (1, {"t": [0, 1, 2, 3]})
    answer = world.heartbeat("A", 1)
    assert (answer.member_epoch, world.given(answer)) == (2, {"t": [0, 1, 2, 3, 4, 5]})


def test_a_first_join_that_could_not_be_written_leaves_no_member(world: ConsumerWorld) -> None:
    world.heartbeat(
        "A", 0, names=["t"], owned={}, rebalance_timeout_ms=REBALANCE_MS, loses_the_write=True
    )
    assert world.group.members == {}
    with pytest.raises(KafkaError) as error:
        world.heartbeat("A", 1)
    assert refusal(error) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")


def test_nothing_is_written_for_a_member_without_news(world: ConsumerWorld) -> None:
    shared(world)
    for owned in (None, {}, world.group.members["A"].current.assigned):
        answer = world.heartbeat("A", 2, owned=owned)
        assert (answer.member_epoch, answer.assignment, world.written) == (2, None, [])


def test_a_member_at_another_address_is_noted_and_disturbs_nobody(
    world: ConsumerWorld,
) -> None:
    shared(world)
    world.heartbeat("A", 2, caller=Caller("app", "/127.0.0.2", 1))
    assert key_versions(world.written) == [5]
    assert world.group.state == "Stable"


# Leaving


def test_leaving_writes_what_kafka_writes_in_its_order(world: ConsumerWorld) -> None:
    world.join("A", "t")
    answer = world.heartbeat("A", -1)
    assert (answer.member_id, answer.member_epoch) == ("A", -1)
    assert key_versions(world.written) == [-8, -7, -5, 4, 3]
    assert encode_record(world.written[3])[1] == bytes.fromhex("00000100")
    assert world.group.state == "Empty"
    assert world.group.is_empty()


def test_a_member_that_goes_leaves_its_partitions_to_the_others(world: ConsumerWorld) -> None:
    shared(world)
    world.heartbeat("A", -1)
    assert world.group.state == "Assigning"
    answer = world.heartbeat("B", 2)
    assert (answer.member_epoch, world.given(answer)) == (3, {"t": [0, 1, 2, 3]})


def test_a_member_that_is_not_heard_of_within_its_session_goes(world: ConsumerWorld) -> None:
    shared(world)
    world.pass_ms(SESSION_MS - 1)
    world.heartbeat("B", 2)
    world.pass_ms(1)
    assert set(world.group.members) == {"B"}
    world.pass_ms(SESSION_MS)
    assert world.group.state == "Empty"
    assert world.group.deadline() is None


def test_sessions_start_anew_after_a_restart(world: ConsumerWorld) -> None:
    shared(world)
    world.pass_ms(SESSION_MS - 1)
    world.restart()
    world.pass_ms(SESSION_MS - 1)
    assert set(world.group.members) == {"A", "B"}
    assert world.heartbeat("A", 2).member_epoch == 2
    world.pass_ms(1)
    assert set(world.group.members) == {"A"}


def test_the_tombstones_of_a_group_remove_all_that_there_is(world: ConsumerWorld) -> None:
    shared(world)
    world.write(world.group.tombstones())
    assert key_versions(world.written) == [-8, -8, -7, -7, -6, -5, -5, -4, -3]
    keys = dict(world.log)
    assert not any(keys.values())
    assert (world.group.state, world.group.owners, world.group.targets) == ("Dead", {}, {})


# Commits and fetches of offsets


def test_who_may_commit_offsets(world: ConsumerWorld) -> None:
    group = world.group
    assert group.check_commit("", -1, 8, 0) == ErrorCode.NONE  # nobody is here
    shared(world)
    assert group.check_commit("A", 2, 9, 0) == ErrorCode.NONE
    assert group.check_commit("A", 1, 9, 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_commit("A", 3, 9, 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_commit("A", 2, 8, 0) == ErrorCode.UNSUPPORTED_VERSION
    assert group.check_commit("X", 2, 9, 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.check_commit("", -1, 9, 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_may_ask_for_offsets(world: ConsumerWorld) -> None:
    shared(world)
    assert world.group.check_fetch(None, -1, 0) == ErrorCode.NONE
    assert world.group.check_fetch("A", 2, 0) == ErrorCode.NONE
    assert world.group.check_fetch("A", 1, 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.group.check_fetch("X", 2, 0) == ErrorCode.UNKNOWN_MEMBER_ID


# What others see


def test_a_description_shows_what_each_has_and_is_to_have(world: ConsumerWorld) -> None:
    world.join("A", "t")
    world.join("B", "t", instance_id="i")
    group = world.group.describe(world.topics)
    assert (group.group_id, group.group_state) == ("g", "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "uniform")
    a, b = group.members
    assert (a.member_id, a.member_epoch, b.instance_id, b.member_type) == ("A", 1, "i", 1)
    assert [(e.topic_name, e.partitions) for e in a.assignment.topic_partitions] == [
        ("t", [0, 1, 2, 3])
    ]
    assert b.assignment.topic_partitions == []
    targets = [m.target_assignment.topic_partitions[0].partitions for m in (a, b)]
    assert sorted(n for target in targets for n in target) == [0, 1, 2, 3]
    assert [len(target) for target in targets] == [2, 2]
    assert (a.subscribed_topic_names, a.subscribed_topic_regex) == (["t"], "")


def test_of_two_owners_in_a_strange_log_the_later_one_stays(world: ConsumerWorld) -> None:
    world.join("A", "t")
    (mine,) = (record for record in world.written if key_versions([record]) == [8])
    key, value = mine
    other = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="B")
    world.write([(other, value), (key, None)])
    assert world.group.owners == {world.id_of("t"): dict.fromkeys(range(4), "B")}


def test_a_group_read_from_a_compacted_log_is_the_same(world: ConsumerWorld) -> None:
    shared(world)
    world.heartbeat("A", 2, caller=Caller("app", "/127.0.0.2", 1))  # 5 now comes after 7 and 8
    before = world.group.describe(world.topics)
    world.compact()
    world.restart()
    after = world.group.describe(world.topics)
    assert sorted(map(repr, after.members)) == sorted(map(repr, before.members))
    assert world.heartbeat("B", 2).member_epoch == 2
