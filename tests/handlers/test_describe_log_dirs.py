"""DescribeLogDirs, versions 0 to 5."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.registry import APIS
from tests.support.caller import Caller, batch

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

VERSIONS = range(6)
Asked = DescribeLogDirsRequest.Topic


def described(caller: Caller, *topics: Asked, version: int = 5) -> DescribeLogDirsResponse.Result:
    """What is said of the one directory there is; of all topics if none is named."""
    answer = caller.call(DescribeLogDirsRequest(topics=list(topics) or None), version)
    assert answer.error_code == 0
    (result,) = answer.results
    assert result.error_code == 0
    found: DescribeLogDirsResponse.Result = result
    return found


def sizes(result: DescribeLogDirsResponse.Result) -> dict[tuple[str, int], int]:
    for topic in result.topics:
        for partition in topic.partitions:
            assert (partition.offset_lag, partition.is_future_key) == (0, False)
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_size_of_a_partition_is_that_of_its_batches(
    broker: BrokerProcess, caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic, partitions=2)
    sent = [batch(b"a" * 1000), batch(b"b")]
    for one in sent:
        caller.produce(topic, one, partition=1)

    result = described(caller, version=version)

    assert result.log_dir == str(broker.data)
    found = sizes(result)
    assert found[topic, 0] == 0
    assert found[topic, 1] == sum(map(len, sent))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_room_on_the_disk_is_told_since_version_4(
    broker: BrokerProcess, caller: Caller, version: int
) -> None:
    result = described(caller, version=version)

    status = os.statvfs(broker.data)
    if version < 4:
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)
        return
    assert result.total_bytes == status.f_blocks * status.f_frsize
    assert abs(result.usable_bytes - status.f_bavail * status.f_frsize) < 1 << 30
    assert not result.is_cordoned


# What Apache Kafka 3.9 answers: what does not exist is left out, and nothing comes twice.
def test_only_what_is_asked_for_and_exists_is_told_and_once(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, partitions=2)

    some = described(
        caller,
        Asked(topic="missing", partitions=[0]),
        Asked(topic=topic, partitions=[1, 1, 7, -1]),
        Asked(topic=topic, partitions=[1]),
    )

    assert [(one.name, len(one.partitions)) for one in some.topics] == [(topic, 1)]
    assert set(sizes(some)) == {(topic, 1)}
    assert described(caller, Asked(topic=topic, partitions=[])).topics == []


def test_the_metadata_log_is_no_partition_of_a_topic(caller: Caller) -> None:
    assert described(caller, Asked(topic="__cluster_metadata", partitions=[0])).topics == []


def test_segments_that_nobody_has_opened_since_the_start_count_too(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic("t", segment_bytes="1000000")
        for _ in range(5):
            caller.produce("t", batch(os.urandom(400_000)))
        before = sizes(described(caller))
        files = list((own_broker.data / "t-0").glob("*.log"))
        assert len(files) > 1
        assert before["t", 0] == sum(file.stat().st_size for file in files)
    own_broker.stop()
    own_broker.start()

    with Caller(own_broker.host, own_broker.port) as caller:
        assert sizes(described(caller)) == before
        assert sizes(described(caller)) == before


def test_requests_behind_it_are_answered_after_it_and_a_client_may_leave(
    broker: BrokerProcess, caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    with Caller(broker.host, broker.port) as other:
        other.send(DescribeLogDirsRequest(topics=None), 4)
    ids = [caller.send(DescribeLogDirsRequest(topics=None), 4) for _ in range(20)]

    for one in ids:
        assert len(caller.receive(APIS[DescribeLogDirsRequest.key], 4, one).results) == 1
