"""A subscription by expression (KIP-848) matches the topics that its member may describe, as with
Apache Kafka 4."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from tests.clients.access.servers import BrokerWithUsers, KafkaWithUsers, connect_as
from tests.clients.access.users import make_rules
from tests.clients.available import end_of_test
from tests.support.caller import Caller
from tests.support.consumer_member import ConsumerMember
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.clients.access.servers import Server

Topic = CreateTopicsRequest.Topic
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerWithUsers]:
    with BrokerWithUsers(tmp_path / "data") as server:
        yield server


class Administrator:
    """Somebody on the listener without authentication, who makes topics and rules."""

    def __init__(self, server: Server) -> None:
        self.caller = Caller(server.host, server.port, timeout_s=60)
        make_rules(self.caller)
        for name in ("t", "u"):
            self.create(name)

    def create(self, name: str) -> None:
        topic = Topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        made = self.caller.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        assert [topic.error_code for topic in made.topics] == [0]

    def names(self) -> dict[bytes, str]:
        answer = self.caller.call(MetadataRequest(topics=None), 12)
        return {topic.topic_id: topic.name for topic in answer.topics}

    def allow(self, user: str, topic: str) -> None:
        rule = CreateAclsRequest.Creation(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{user}",
            host="*",
            operation=Operation.READ,
            permission_type=Permission.ALLOW,
        )
        assert self.caller.call(CreateAclsRequest(creations=[rule]), 3).results[0].error_code == 0

    def forbid_again(self, user: str, topic: str) -> None:
        gone = DeleteAclsRequest.Filter(
            resource_type_filter=ResourceType.TOPIC,
            resource_name_filter=topic,
            pattern_type_filter=PatternType.LITERAL,
            principal_filter=f"User:{user}",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        answer = self.caller.call(DeleteAclsRequest(filters=[gone]), 3)
        assert len(answer.filter_results[0].matching_acls) == 1


def member_of(user: str, server: Server) -> ConsumerMember:
    """A member that subscribes to everything; what it is assigned grows with its heartbeats."""
    caller = connect_as(user, server)
    group = f"g-{user}"
    caller.call(FindCoordinatorRequest(key=group, key_type=0), 2)  # makes the state topic
    member = ConsumerMember(caller, group, topics=[], member_id=f"member-of-{user}")
    ends = time.monotonic() + 60
    while (answer := member.join(subscribed_topic_regex="[tu].*")).error_code in NOT_YET:
        assert time.monotonic() < ends
        time.sleep(0.1)
    assert answer.error_code == 0, answer.error_message
    return member


def read_by(member: ConsumerMember, administrator: Administrator, *wanted: str) -> set[str]:
    """The topics that a member has when it has these, or after 30 s."""
    ends = time.monotonic() + 30
    while True:
        assert member.own().error_code == 0
        names = administrator.names()
        found = {names[topic_id] for topic_id in member.assigned}
        if found == set(wanted) or time.monotonic() > ends:
            return found
        time.sleep(0.02)


def _each_member_reads_what_it_may_describe(server: Server) -> None:
    administrator = Administrator(server)
    everything, some = (member_of(user, server) for user in ("all", "prefixed"))
    assert read_by(everything, administrator, "t", "u") == {"t", "u"}
    assert read_by(some, administrator, "t") == {"t"}
    for name in ("u2", "t2"):
        administrator.create(name)
    assert read_by(everything, administrator, "t", "t2", "u", "u2") == {"t", "t2", "u", "u2"}
    assert read_by(some, administrator, "t", "t2") == {"t", "t2"}


def test_an_expression_matches_the_topics_that_a_member_may_describe(
    broker: BrokerWithUsers,
) -> None:
    _each_member_reads_what_it_may_describe(broker)


@pytest.mark.long
@pytest.mark.java
def test_apache_kafka_matches_the_same_topics(tmp_path: Path) -> None:
    try:
        kafka = KafkaWithUsers(tmp_path / "kafka", "4.3.1")
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    with kafka:
        _each_member_reads_what_it_may_describe(kafka)


def test_a_rule_that_comes_or_goes_changes_what_an_expression_matches(
    broker: BrokerWithUsers,
) -> None:
    """With the member's next heartbeat; Kafka looks again after ten minutes."""
    administrator = Administrator(broker)
    member = member_of("prefixed", broker)
    assert read_by(member, administrator, "t") == {"t"}
    administrator.allow("prefixed", "u")
    assert read_by(member, administrator, "t", "u") == {"t", "u"}
    administrator.forbid_again("prefixed", "u")
    assert read_by(member, administrator, "t") == {"t"}
