"""The last member of the newer protocol comes back as a classic one: its group is a classic group.

In a running broker, for a group itself only says what is to be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_member import ConsumerMember
from tests.support.group_caller import GroupCaller, Member, subscription

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POLICY = "group.consumer.migration.policy"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", settings={"offsets.topic.num.partitions": "1"})
    process.start()
    yield process
    if process.run is not None:
        process.kill()


@pytest.fixture
def groups(broker: BrokerProcess) -> Iterator[GroupCaller]:
    with GroupCaller(broker.host, broker.port) as caller:
        caller.create_topic("t", partitions=2)
        yield caller


def kind(groups: GroupCaller) -> str:
    (found,) = groups.call(ListGroupsRequest(), 5).groups
    name: str = found.group_type
    return name


def newer_member(groups: GroupCaller, *, instance_id: str | None = None) -> ConsumerMember:
    member = ConsumerMember(groups, "g", topics=["t"], member_id="new", instance_id=instance_id)
    assert member.join().error_code == 0
    return member


def classic_member(
    broker: BrokerProcess, *protocols: str, instance_id: str | None = None
) -> Member:
    spoken = dict.fromkeys(protocols or ("range",), subscription("t"))
    return Member.connect(broker, "g", protocols=spoken, instance_id=instance_id)


def lead_alone(member: Member) -> None:
    """Join, which makes it the leader, and assign."""
    joined = member.join()
    assert (joined.error_code, joined.leader) == (0, member.member_id)
    assert member.sync({member.member_id: b"x"}).assignment == b"x"


def test_a_static_member_restarts_with_the_classic_protocol(
    broker: BrokerProcess, groups: GroupCaller
) -> None:
    newer_member(groups, instance_id="i").leave(epoch=-2)
    assert kind(groups) == "consumer"
    with classic_member(broker, instance_id="i") as old:
        joined = old.enter()

        assert kind(groups) == "classic"
        assert old.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
        lead_alone(old)
        assert old.generation > joined.generation_id > 0
        assert groups.group("g").group_state == "Stable"


def test_a_member_goes_on_in_the_classic_protocol_under_its_id(
    broker: BrokerProcess, groups: GroupCaller
) -> None:
    newer_member(groups)
    with classic_member(broker) as old:
        old.member_id = "new"
        assert old.join().error_code == 0

        assert kind(groups) == "classic"
        lead_alone(old)


def test_who_is_let_in_is_told_the_protocol_of_the_group_it_syncs_with(
    broker: BrokerProcess, groups: GroupCaller
) -> None:
    new = newer_member(groups, instance_id="i")
    with (
        classic_member(broker, "range") as first,
        classic_member(broker, "roundrobin", "range", instance_id="i") as second,
    ):
        first.enter()
        new.leave(epoch=-2)
        assert kind(groups) == "consumer"

        joined = second.enter()

        assert kind(groups) == "classic"
        assert joined.protocol_name == "range"
        assert second.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert first.heartbeat(generation=joined.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS


def test_it_is_a_classic_group_after_a_crash(broker: BrokerProcess, groups: GroupCaller) -> None:
    newer_member(groups, instance_id="i").leave(epoch=-2)
    with classic_member(broker, instance_id="i") as old:
        old.enter()
        generation, member_id = old.generation, old.member_id
    broker.kill()

    broker.start()

    with GroupCaller(broker.host, broker.port) as again:
        assert kind(again) == "classic"
        (found,) = again.group("g").members
        assert found.member_id == member_id
        assert again.heartbeat_code("g", generation, member_id, group_instance_id="i") == 0


def test_where_no_downgrade_is_allowed_it_stays_a_consumer_group(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "data", settings={"offsets.topic.num.partitions": "1", POLICY: "upgrade"}
    )
    with broker, GroupCaller(broker.host, broker.port) as groups:
        groups.create_topic("t", partitions=2)
        newer_member(groups, instance_id="i").leave(epoch=-2)
        with classic_member(broker, instance_id="i") as old:
            old.enter()

            assert kind(groups) == "consumer"
            assert old.sync().error_code == 0
