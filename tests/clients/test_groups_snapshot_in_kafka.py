"""Our snapshots of groups lie in a directory that Apache Kafka goes on with, and then we do again.

Kafka takes no notice of them. What it appends comes on top of a snapshot; where it has cut the log
below the end of one, and given the same offsets to other commits, the snapshot is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.messages.delete_groups import DeleteGroupsRequest
from storage.disk import DiskFilesystem
from storage.inspection.directory_check import check
from storage.layout import CLEAN_SHUTDOWN, RECOVERY_POINTS
from tests.clients.moving.kafka import kafka
from tests.support.broker_process import BrokerProcess
from tests.support.compacted import wait_until
from tests.support.group_caller import Found, GroupCaller
from tests.support.kafka_release import KAFKA_3_9

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.group_caller import Place
    from tests.support.kafka_process import KafkaProcess
    from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.java, pytest.mark.slow]

TOPIC = "t"
ONE_SHARD = {"offsets.topic.num.partitions": "1"}
GROUPS = [f"group-{number}" for number in range(100)]
LONG = "what it is " * 360


def commit(server: ServerProcess, groups: list[str], offset: int) -> None:
    caller = GroupCaller(server.host, server.port)
    wait_until(lambda: answers(caller), "the coordinator")
    for number, group in enumerate(groups):
        assert set(caller.commit(group, {(TOPIC, 0): (offset + number, LONG)}).values()) == {0}
    caller.close()


def answers(caller: GroupCaller) -> bool:
    (found,) = caller.fetch_offsets(GROUPS[0], None).groups
    return not found.error_code


def committed(server: ServerProcess) -> dict[str, dict[Place, Found]]:
    caller = GroupCaller(server.host, server.port)
    wait_until(lambda: answers(caller), "the coordinator")
    found = {group: caller.committed(group, None) for group in GROUPS}
    caller.close()
    return found


def delete(server: ServerProcess, group: str) -> None:
    caller = GroupCaller(server.host, server.port)
    answer = caller.call(DeleteGroupsRequest(groups_names=[group]), 2)
    assert [result.error_code for result in answer.results] == [0]
    caller.close()


def snapshots(data: Path) -> list[Path]:
    return sorted(data.glob("__consumer_offsets-*/*.checkpoint"))


@pytest.fixture
def ours(tmp_path: Path) -> BrokerProcess:
    """A broker that has stopped and left a snapshot of all groups."""
    broker = BrokerProcess(tmp_path / "data", settings=ONE_SHARD)
    with broker:
        caller = GroupCaller(broker.host, broker.port)
        caller.create_topic(TOPIC, 1)
        caller.close()
        commit(broker, GROUPS, 0)
    assert len(snapshots(broker.data)) == 1
    return broker


@pytest.fixture
def theirs(tmp_path: Path, ours: BrokerProcess) -> KafkaProcess:
    """Kafka on the same directory, not started."""
    return kafka(tmp_path / "kafka", ours.data, KAFKA_3_9)


def started_again(
    ours: BrokerProcess, theirs: KafkaProcess
) -> tuple[dict[str, dict[Place, Found]], str]:
    """What our broker says then, and what its log says."""
    ours.port = theirs.port
    ours.start()
    try:
        wait_until(lambda: "groups loaded" in ours.output(), "the load")
        return committed(ours), ours.output()
    finally:
        ours.stop()


def test_kafka_takes_no_notice_and_what_it_appends_comes_on_top(
    ours: BrokerProcess, theirs: KafkaProcess
) -> None:
    before = snapshots(ours.data)
    theirs.start()
    try:
        assert {group: list(found) for group, found in committed(theirs).items()} == {
            group: [(TOPIC, 0)] for group in GROUPS
        }
        commit(theirs, GROUPS[:10], 1000)
        delete(theirs, GROUPS[20])
        said = committed(theirs)
    finally:
        theirs.stop()
    assert theirs.complaints() == []
    assert said[GROUPS[3]][TOPIC, 0].offset == 1003
    assert said[GROUPS[20]] == {}
    assert snapshots(ours.data) == before

    found, output = started_again(ours, theirs)
    assert found == said
    (line,) = [line for line in output.splitlines() if "groups loaded" in line]
    assert f"offsets_of_snapshots={len(GROUPS)}" in line
    assert list(check(DiskFilesystem(), str(ours.data), deep=True)) == []


def test_a_log_that_kafka_has_cut_and_filled_again_is_read_without_the_snapshot(
    ours: BrokerProcess, theirs: KafkaProcess
) -> None:
    (snapshot,) = snapshots(ours.data)
    log = snapshot.parent / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2 + 2000] ^= 1  # amid a commit
    log.write_bytes(data)
    (ours.data / CLEAN_SHUTDOWN).unlink()
    (ours.data / RECOVERY_POINTS).unlink()
    theirs.start()
    try:
        lost = committed(theirs)
        assert lost[GROUPS[-1]] == {}
        commit(theirs, [GROUPS[0]] * 80, 5000)
        said = committed(theirs)
    finally:
        theirs.stop()
    assert snapshots(ours.data) == [snapshot]

    found, output = started_again(ours, theirs)
    assert found == said
    (line,) = [line for line in output.splitlines() if "a snapshot of groups is not used" in line]
    assert snapshot.name in line
    assert "the leader epoch" in line, line
