"""Bad input to groups: each gets its code, and no other group notices."""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.registry import APIS
from tests.support.group_caller import (
    Found,
    GroupCaller,
    Member,
    Versions,
    assignment,
    rebalance,
    subscription,
)
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from protocol.schema import Message
    from tests.support.broker_process import BrokerProcess

    NewMember = Callable[..., Member]

JOIN, HEARTBEAT = 11, 12
MAX_SIZE = 20
SEED = 20261121


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"offsets.topic.num.partitions": "3", "group.max.size": str(MAX_SIZE)}


# Ids


LONGEST = "g" * 32_767


@pytest.mark.parametrize(
    "request_of",
    [
        lambda group: JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
        ),
        lambda group: SyncGroupRequest(
            group_id=group,
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        ),
        lambda group: HeartbeatRequest(group_id=group, generation_id=1, member_id="m"),
        lambda group: LeaveGroupRequest(group_id=group, members=[]),
    ],
    ids=["join", "sync", "heartbeat", "leave"],
)
def test_an_id_without_a_letter_is_invalid(
    groups: GroupCaller, request_of: Callable[[str], Message]
) -> None:
    assert groups.call(request_of("")).error_code == ErrorCode.INVALID_GROUP_ID


def test_an_id_longer_than_a_string_may_be_is_no_request(
    broker: BrokerProcess, member: NewMember
) -> None:
    """Kafka closes the connection, too."""
    one = member()
    rebalance(one)
    for size in (32_768, 100_000):
        head = struct.pack(">hhih", HEARTBEAT, 4, 1, 1) + b"c\x00"
        body = encode_unsigned_varint(size + 1) + b"g" * size + bytes(4) + b"\x02m\x00\x00"
        with GroupCaller(broker.host, broker.port) as client:
            client.send_raw(struct.pack(">i", len(head) + len(body)) + head + body)
            assert client.closed_by_server()
    assert one.heartbeat() == 0


def encode_unsigned_varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


@pytest.mark.parametrize("text", ["a b", "\x00", "grüße", "../..", "\udcff", LONGEST], ids=ascii)
def test_any_other_text_is_an_id(
    groups: GroupCaller, topic: str, member: NewMember, text: str
) -> None:
    groups.create_topic(topic)

    assert groups.commit(text, {(topic, 0): 5}) == {(topic, 0): 0}
    one = member(text)
    rebalance(one)

    assert one.commit({(topic, 0): 6}) == {(topic, 0): 0}
    assert groups.committed(text, None) == {(topic, 0): Found(6)}
    assert groups.group(text).group_state == "Stable"


@pytest.mark.parametrize("instance_id", [None, "i" * 32_700])
def test_a_member_may_have_the_longest_names(
    groups: GroupCaller, group: str, member: NewMember, instance_id: str | None
) -> None:
    one = member(client_id="\N{PARTY POPPER}" * 8191, instance_id=instance_id)
    rebalance(one)

    (shown,) = groups.group(group).members
    assert (shown.member_id, shown.group_instance_id) == (one.member_id, instance_id)
    assert shown.client_id == "\N{PARTY POPPER}" * 8191
    assert one.heartbeat() == 0


# Garbage where the broker only carries bytes


def garbage() -> list[bytes]:
    chance = Random(SEED)
    whole = subscription("a", "b")
    return [
        b"",
        b"\x00",
        b"\xff\xff" + whole[2:],
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hi", 1, -2),
        struct.pack(">hih", 0, 1, 30_000) + b"x",
        whole[:-3],
        struct.pack(">hih", 0, 1, 2) + b"\xff\xfe",
        *(chance.randbytes(chance.randrange(1, 200)) for _ in range(8)),
    ]


@pytest.mark.parametrize("data", garbage(), ids=lambda data: data.hex()[:24])
def test_a_group_works_with_metadata_and_assignments_that_nobody_understands(
    groups: GroupCaller, topic: str, group: str, member: NewMember, data: bytes
) -> None:
    groups.create_topic(topic)
    one = member(protocols={"range": data})
    joined = one.enter()
    assert joined.members[0].metadata == data
    assert one.sync({one.member_id: data}).assignment == data
    assert one.commit({(topic, 0): 5}) == {(topic, 0): 0}
    assert one.heartbeat() == 0

    (shown,) = groups.group(group).members
    assert (shown.member_metadata, shown.member_assignment) == (data, data)
    # What it reads cannot be known, so nothing of it is let go while it lives.
    assert offset_delete(groups, group, topic) in (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert one.leave().members[0].error_code == 0
    assert offset_delete(groups, group, topic) == 0


def test_a_subscription_that_cannot_be_read_protects_all_offsets(
    groups: GroupCaller, topic: str, group: str, member: NewMember
) -> None:
    groups.create_topic(topic)
    groups.commit(group, {(topic, 0): 5})
    rebalance(member(protocols={"range": b"\x00\x00\x7f"}))

    assert offset_delete(groups, group, topic) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert groups.committed(group, None) == {(topic, 0): Found(5)}


def offset_delete(groups: GroupCaller, group: str, topic: str) -> int:
    entry = OffsetDeleteRequest.Topic
    asked = entry(name=topic, partitions=[entry.Partition(partition_index=0)])
    answer = groups.call(OffsetDeleteRequest(group_id=group, topics=[asked]), 0)
    assert answer.error_code == 0
    code: int = answer.topics[0].partitions[0].error_code
    return code


def test_an_assignment_may_name_members_that_do_not_exist_and_one_twice(member: NewMember) -> None:
    one = member()
    one.enter()
    share = SyncGroupRequest.Assignment
    assignments = [
        share(member_id="nobody", assignment=b"x"),
        share(member_id=one.member_id, assignment=b"first"),
        share(member_id=one.member_id, assignment=b"last"),
    ]

    request = SyncGroupRequest(
        group_id=one.group,
        generation_id=one.generation,
        member_id=one.member_id,
        assignments=assignments,
    )
    answer = one.caller.call(request, 4)

    assert (answer.error_code, answer.assignment) == (0, b"last")


def test_a_protocol_named_twice_is_spoken_once(member: NewMember) -> None:
    one, two = member(), member()
    request = one.join_request()
    request.protocols *= 2

    first = one.caller.call(request, 3)
    assert first.error_code == 0
    one.member_id, one.generation = first.member_id, first.generation_id
    two.knock()
    one.hear_of_rebalance()
    one.send_join()

    assert {one.joined().protocol_name, two.joined().protocol_name} == {"range"}


# Too many


def test_ten_thousand_that_want_to_join_a_full_group_stay_out_and_nobody_notices(
    broker: BrokerProcess, groups: GroupCaller, topic: str, group: str, member: NewMember
) -> None:
    groups.create_topic(topic)
    members = [member(versions=Versions(join=3)) for _ in range(MAX_SIZE)]
    rebalance(*members)
    other = member(f"{group}-other")
    rebalance(other)
    crowd = [GroupCaller(broker.host, broker.port) for _ in range(20)]
    stranger = Member(groups, group)
    frame = groups.frame(stranger.join_request(), 3)

    for client in crowd:
        client.send_raw(frame * 500)
    noticed = {one.heartbeat() for one in members}
    for offset in range(100):
        noticed.add(other.heartbeat())
        noticed |= set(other.commit({(topic, 0): offset}).values())
    refused = [join_code(client.recv_frame(), 3) for client in crowd for _ in range(500)]

    assert refused == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 10_000
    assert noticed == {0}
    assert {one.heartbeat() for one in [*members, other]} == {0}
    assert len(groups.group(group).members) == MAX_SIZE
    for client in crowd:
        client.close()


def test_of_many_that_join_at_once_as_many_get_in_as_there_is_room_for(
    broker: BrokerProcess, groups: GroupCaller, group: str, member: NewMember
) -> None:
    """The one that was in it before has no right to stay: those count that came in time."""
    other = member(f"{group}-other")
    rebalance(other)
    crowd = [Member.connect(broker, group, versions=Versions(join=3)) for _ in range(400)]
    first = crowd[0]
    assert first.join().error_code == 0
    for one in crowd[1:]:
        one.send_join()
    first.hear_of_rebalance()
    assert other.heartbeat() == 0
    first.send_join()

    codes = [first.joined().error_code, *(one.joined().error_code for one in crowd[1:])]

    assert codes.count(0) == MAX_SIZE
    assert codes.count(ErrorCode.GROUP_MAX_SIZE_REACHED) == len(crowd) - MAX_SIZE
    assert len(groups.group(group).members) == MAX_SIZE
    assert other.heartbeat() == 0
    for one in crowd:
        one.close()


def test_ten_thousand_that_ask_for_an_id_and_never_join_keep_nobody_waiting(
    broker: BrokerProcess, groups: GroupCaller, group: str, member: NewMember
) -> None:
    frame = groups.frame(Member(groups, group, session_ms=6000).join_request(), 4)
    with GroupCaller(broker.host, broker.port) as crowd:
        for _ in range(20):
            crowd.send_raw(frame * 500)
            codes = {join_code(crowd.recv_frame(), 4) for _ in range(500)}
            assert codes == {ErrorCode.MEMBER_ID_REQUIRED}
    one = member()

    assert one.enter().generation_id == 1
    assert one.sync({one.member_id: assignment("t", 0)}).assignment == assignment("t", 0)


def join_code(frame: bytes, version: int) -> int:
    answer: Any = APIS[JOIN].response.decode(version, frame[4:])
    code: int = answer.error_code
    return code


def test_a_join_cut_anywhere_closes_that_connection_and_no_other(
    broker: BrokerProcess, member: NewMember
) -> None:
    one = member()
    rebalance(one)
    whole = one.caller.frame(one.join_request(), 9)
    chance = Random(SEED)
    for size in chance.sample(range(30, len(whole) - 1), 30):
        cut = struct.pack(">i", size - 4) + whole[4:size]
        with GroupCaller(broker.host, broker.port) as client:
            client.send_raw(cut)
            with pytest.raises(ConnectionClosed):
                client.recv_frame()
    assert one.heartbeat() == 0


def test_a_client_that_is_gone_while_its_join_waits_disturbs_nobody(
    groups: GroupCaller, group: str, member: NewMember
) -> None:
    stays = member()
    rebalance(stays)
    leaves = member(rebalance_ms=1000)
    leaves.knock()
    stays.hear_of_rebalance()
    leaves.close()

    joined = stays.join()

    assert joined.error_code == 0
    facts: dict[str, Any] = {one.member_id: assignment("t", 0) for one in joined.members}
    assert stays.sync(facts).assignment == assignment("t", 0)
    assert groups.group(group).group_state == "Stable"
