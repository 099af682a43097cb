"""Apache Kafka's own brokers follow our metadata log, and its tools ask our controller.

What a follower has fetched is compared with our files, byte for byte.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from protocol.messages.describe_cluster import DescribeClusterRequest
from tests.clients.available import end_of_test
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.fetched import NotAvailable
from tests.support.kafka_follower import KafkaFollower, metadata_files
from tests.support.kafka_release import KAFKA_4, RELEASES, Release
from tests.support.kafka_tools import run_tool
from tests.support.server_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java]

QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"


class Node(BrokerProcess):
    """Our broker, with a listener for its controller and snapshots every few changes."""

    def __init__(self, data: Path) -> None:
        self.controller = f"{self.host}:{free_port()}"
        super().__init__(
            data,
            settings={
                "listeners": f"PLAINTEXT://{self.host}:{free_port()},CONTROLLER://{self.controller}",
                "controller.listener.names": "CONTROLLER",
                "controller.snapshot.minimum.records": "20",
            },
        )

    def create_topics(self, *names: str) -> None:
        with Caller(self.host, self.port) as caller:
            for name in names:
                caller.create_topic(name, partitions=3)

    def cluster_id(self) -> str:
        with Caller(self.host, self.port) as caller:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            cluster_id: str = caller.call(request, 1).cluster_id
            return cluster_id

    def files(self) -> dict[str, bytes]:
        return metadata_files(self.data)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "ours") as node:
        yield node


@pytest.fixture(params=RELEASES, ids=lambda release: release.name)
def follower(node: Node, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KafkaFollower]:
    """Not started yet."""
    release: Release = request.param
    try:
        kafka = KafkaFollower(
            tmp_path / "kafka",
            controller=node.controller,
            cluster_id=node.cluster_id(),
            release=release,
        )
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    yield kafka
    if kafka.run is not None:
        kafka.kill()


def test_a_broker_of_kafka_loads_our_snapshot_and_follows_our_log(
    node: Node, follower: KafkaFollower
) -> None:
    node.create_topics(*(f"topic-{number}" for number in range(12)))
    assert [name for name in node.files() if name.endswith(".checkpoint")]

    follower.start()
    follower.wait_for(node.files())
    node.create_topics("later")
    follower.wait_for(node.files())
    # The next epoch begins: it learns of it, and goes on.
    node.stop()
    node.start()
    node.create_topics("in-another-epoch")
    follower.wait_for(node.files())


def test_a_broker_of_kafka_follows_from_the_first_record_on(
    node: Node, follower: KafkaFollower
) -> None:
    assert list(node.files()) == [f"{0:020d}.log"]

    follower.start()
    follower.wait_for(node.files())


@pytest.mark.parametrize("asked", ["--bootstrap-server", "--bootstrap-controller"])
def test_kafkas_tools_show_the_quorum(node: Node, tmp_path: Path, asked: str) -> None:
    address = node.bootstrap if asked == "--bootstrap-server" else node.controller
    where = (asked, address)
    try:
        status = run_tool(KAFKA_4, QUORUM_TOOL, *where, "describe", "--status", folder=tmp_path)
    except NotAvailable as reason:
        end_of_test("java", str(reason))
    replicas = run_tool(KAFKA_4, QUORUM_TOOL, *where, "describe", "--replication", folder=tmp_path)
    cluster = run_tool(KAFKA_4, CLUSTER_TOOL, "cluster-id", *where, folder=tmp_path)

    said = dict(re.findall(r"^(\w+): +(.*)$", status.out, re.MULTILINE))
    assert (said["LeaderId"], said["LeaderEpoch"]) == ("1", "1"), status
    assert said["ClusterId"] == node.cluster_id()
    assert node.controller in said["CurrentVoters"]
    assert said["CurrentObservers"] == "[]"
    assert re.search(r"^1\s.*Leader", replicas.out, re.MULTILINE), replicas
    assert node.cluster_id() in cluster.out
