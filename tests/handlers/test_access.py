"""What somebody might try who may not: names that look alike, requests that outlive a rule,
sessions of others. What is allowed to whom, right by right, is in tests/clients/access."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.acls import ANY, CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from protocol.logdata.metadata_names import METADATA_TOPIC, METADATA_TOPIC_ID
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.registry import APIS
from tests.clients.access.servers import BrokerWithUsers, connect_as
from tests.support.caller import Caller, Target, batch, fetch_request, produce_request, records_in
from tests.support.compacted import wait_until
from tests.support.running_controller import RunningController

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER = "none"
OTHER = "all"
"""Two users, of whom there are no rules yet."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerWithUsers]:
    with BrokerWithUsers(tmp_path_factory.mktemp("guarded") / "data") as broker:
        yield broker
        said = broker.output()
        assert "Traceback" not in said, said[-3000:]
        assert "-secret" not in said


@pytest.fixture
def administrator(guarded: BrokerWithUsers) -> Iterator[Caller]:
    with Caller(guarded.host, guarded.port) as client:
        yield client


@pytest.fixture
def user(guarded: BrokerWithUsers) -> Iterator[Caller]:
    with connect_as(USER, guarded) as client:
        yield client


def rule(
    administrator: Caller,
    name: str,
    operation: int,
    *,
    kind: int = ResourceType.TOPIC,
    permission: int = Permission.ALLOW,
    pattern: int = PatternType.LITERAL,
    principal: str = f"User:{USER}",
) -> None:
    creation = CreateAclsRequest.Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )
    (made,) = administrator.call(CreateAclsRequest(creations=[creation])).results
    assert made.error_code == ErrorCode.NONE


def remove_rules(administrator: Caller, name: str, permission: int = ANY) -> None:
    asked = DeleteAclsRequest.Filter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=permission,
    )
    (gone,) = administrator.call(DeleteAclsRequest(filters=[asked])).filter_results
    assert gone.matching_acls


def produced(client: Caller, topic: str, value: bytes = b"v") -> int:
    code: int = client.produce(topic, batch(value)).error_code
    return code


def test_a_rule_holds_from_its_answer_on_for_connections_that_are_open(
    administrator: Caller, user: Caller, topic: str
) -> None:
    administrator.create_topic(topic)
    assert produced(user, topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rule(administrator, topic, Operation.WRITE)
    assert produced(user, topic) == ErrorCode.NONE
    rule(administrator, topic, Operation.WRITE, permission=Permission.DENY)
    assert produced(user, topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    remove_rules(administrator, topic, Permission.DENY)
    assert produced(user, topic) == ErrorCode.NONE
    remove_rules(administrator, topic)
    assert produced(user, topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_produces_under_way_at_a_deny_are_stored_and_told_or_neither(
    administrator: Caller, user: Caller, topic: str
) -> None:
    administrator.create_topic(topic)
    rule(administrator, topic, Operation.WRITE)
    sent = [produce_request((topic, 0, batch(b"%d" % number))) for number in range(300)]
    first = [user.send(request, 12) for request in sent[:200]]
    rule(administrator, topic, Operation.WRITE, permission=Permission.DENY)
    later = [user.send(request, 12) for request in sent[200:]]
    codes = [_code(user, correlation) for correlation in (*first, *later)]

    assert set(codes[200:]) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    stored = [b"%d" % number for number, code in enumerate(codes) if code == ErrorCode.NONE]
    assert administrator.values(topic) == stored


def test_a_produce_that_begins_before_a_deny_and_ends_after_it_is_refused(
    administrator: Caller, user: Caller, topic: str
) -> None:
    administrator.create_topic(topic)
    rule(administrator, topic, Operation.WRITE)
    frame = user.frame(produce_request((topic, 0, batch(b"v"))), 12, 7)
    user.send_raw(frame[:-1])
    rule(administrator, topic, Operation.WRITE, permission=Permission.DENY)
    user.send_raw(frame[-1:])
    assert _code(user, 7) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert administrator.values(topic) == []


def _code(client: Caller, correlation: int) -> int:
    answer = client.receive(APIS[0], 12, correlation)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.parametrize("by_id", [False, True])
def test_a_fetch_that_waits_is_told_nothing_that_came_after_a_deny(
    administrator: Caller, user: Caller, topic: str, by_id: bool
) -> None:
    topic_id = administrator.create_topic(topic)
    rule(administrator, topic, Operation.READ)
    version = 16 if by_id else 12
    request = fetch_request(Target(topic_id if by_id else topic), max_wait_ms=3000)
    sent = user.send(request, version)
    user.see_nothing_come()
    rule(administrator, topic, Operation.READ, permission=Permission.DENY)
    assert produced(administrator, topic, b"secret") == ErrorCode.NONE

    answer = user.receive(APIS[1], version, sent)
    for told in answer.responses:
        for entry in told.partitions:
            assert records_in(entry.records) == []


def test_a_fetch_session_of_somebody_else_gives_nothing(
    guarded: BrokerWithUsers, administrator: Caller, user: Caller, topic: str
) -> None:
    administrator.create_topic(topic)
    assert produced(administrator, topic, b"secret") == ErrorCode.NONE
    with connect_as(OTHER, guarded) as other:
        rule(administrator, topic, Operation.READ, principal=f"User:{OTHER}")
        opened = other.call(fetch_request(Target(topic), session_epoch=0), 12)
        assert opened.session_id
        assert records_in(opened.responses[0].partitions[0].records)

        for asked in (fetch_request(), fetch_request(Target(topic))):
            asked.session_id, asked.session_epoch = opened.session_id, 1
            answer = user.call(asked, 12)
            entries = [entry for told in answer.responses for entry in told.partitions]
            assert [records_in(entry.records) for entry in entries if entry.records] == []
            assert answer.error_code or {entry.error_code for entry in entries} == {
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
            }


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(str.upper, id="upper case"),
        pytest.param(lambda name: name + ".", id="a dot more"),
        pytest.param(lambda name: name[:-1], id="shorter"),
        pytest.param(lambda name: name.replace("a", "\u0430"), id="a letter of another script"),
        pytest.param(lambda name: name + "\u200b", id="something that is not seen"),
        pytest.param(lambda name: name + "\0", id="a zero byte"),
        pytest.param(lambda name: " " + name, id="a space"),
    ],
)
def test_a_name_that_looks_like_another_is_another(
    administrator: Caller, user: Caller, topic: str, change: object
) -> None:
    name = f"a-{topic}"
    assert callable(change)
    rule(administrator, name, Operation.ALL)
    assert produced(user, name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produced(user, change(name)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert user.fetch(change(name)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_prefix_is_one_of_characters_as_they_are(
    administrator: Caller, user: Caller, topic: str
) -> None:
    rule(administrator, f"{topic}-*", Operation.WRITE, pattern=PatternType.PREFIXED)
    assert produced(user, f"{topic}-a") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rule(administrator, f"{topic}-", Operation.WRITE, pattern=PatternType.PREFIXED)
    assert produced(user, f"{topic}-a") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produced(user, topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_group_that_reads_what_one_may_not_describe_shows_no_members(
    administrator: Caller, user: Caller, topic: str, group: str
) -> None:
    administrator.create_topic(topic)
    joined = administrator.call(
        ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="",
            member_epoch=0,
            rebalance_timeout_ms=9000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        ),
        0,
    )
    assert joined.error_code == ErrorCode.NONE
    rule(administrator, group, Operation.DESCRIBE, kind=ResourceType.GROUP)
    asked = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    (hidden,) = user.call(asked).groups
    assert (hidden.error_code, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    rule(administrator, topic, Operation.DESCRIBE)
    (shown,) = user.call(asked).groups
    assert len(shown.members) == 1
    assert shown.authorized_operations == 1 << Operation.DESCRIBE


def test_who_is_refused_stands_in_the_log_once(
    guarded: BrokerWithUsers, user: Caller, topic: str
) -> None:
    for _ in range(5):
        assert produced(user, topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def denials() -> list[str]:
        said = [line for line in guarded.output().splitlines() if f"topic '{topic}'" in line]
        return [line for line in said if "access denied" in line]

    wait_until(lambda: bool(denials()), "the line in the log")
    (line,) = denials()
    assert f"principal=User:{USER}" in line
    assert "operation=write" in line


def test_followers_of_the_metadata_log_need_a_right_of_the_cluster(tmp_path: Path) -> None:
    rules = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    wanted = FetchSnapshotRequest.Topic.Partition(
        partition=0,
        current_leader_epoch=1,
        snapshot_id=FetchSnapshotRequest.Topic.Partition.SnapshotId(end_offset=1, epoch=1),
        position=0,
    )
    snapshot = FetchSnapshotRequest(
        topics=[FetchSnapshotRequest.Topic(name=METADATA_TOPIC, partitions=[wanted])]
    )
    log = fetch_request(Target(METADATA_TOPIC_ID))
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for settings, is_refused in (
        (rules, True),
        ({**rules, "super.users": "User:ANONYMOUS"}, False),
    ):
        folder = tmp_path / str(is_refused)
        with RunningController(folder, **settings) as node, node.connect() as follower:
            for request, version in ((snapshot, 0), (log, 17), (cluster, 1)):
                code = follower.call(request, version).error_code
                assert (code == refused) is is_refused, request


def test_the_name_of_the_cluster_is_no_topic(administrator: Caller, user: Caller) -> None:
    rule(administrator, CLUSTER_NAME, Operation.ALL, kind=ResourceType.CLUSTER)
    assert produced(user, CLUSTER_NAME) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
