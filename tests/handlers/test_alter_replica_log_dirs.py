"""AlterReplicaLogDirs, versions 0 to 2; the codes are those of Kafka 3.9 and 4.3."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.support.caller import Caller

Dir = AlterReplicaLogDirsRequest.Dir


def moved(
    caller: Caller, version: int, *wanted: tuple[str, str, list[int]]
) -> dict[tuple[str, int], int]:
    """The code for each partition; what is wanted are (path, topic, partitions)."""
    request = AlterReplicaLogDirsRequest(
        dirs=[
            Dir(path=path, topics=[Dir.Topic(name=topic, partitions=partitions)])
            for path, topic, partitions in wanted
        ]
    )
    return {
        (topic.topic_name, entry.partition_index): entry.error_code
        for topic in caller.call(request, version).results
        for entry in topic.partitions
    }


@pytest.fixture
def directory(caller: Caller) -> str:
    (found,) = caller.call(DescribeLogDirsRequest(topics=[]), 4).results
    path: str = found.log_dir
    return path


@pytest.mark.parametrize("version", range(3))
def test_replicas_stay_where_they_are(
    caller: Caller, topic: str, directory: str, version: int
) -> None:
    caller.create_topic(topic, 2)

    assert moved(caller, version, (directory, topic, [0, 1, 2]), (directory, "nope", [0])) == {
        (topic, 0): 0,
        (topic, 1): 0,
        (topic, 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_there_is_no_other_directory_to_move_to(caller: Caller, topic: str, directory: str) -> None:
    caller.create_topic(topic)

    for path in ("/elsewhere", "relative", f"{directory}/"):
        assert moved(caller, 2, (path, topic, [0, 1]), (path, "nope", [0])) == {
            (topic, 0): ErrorCode.LOG_DIR_NOT_FOUND,
            (topic, 1): ErrorCode.LOG_DIR_NOT_FOUND,
            ("nope", 0): ErrorCode.LOG_DIR_NOT_FOUND,
        }


def test_of_two_directories_for_one_replica_the_last_counts(
    caller: Caller, topic: str, directory: str
) -> None:
    caller.create_topic(topic)
    here, elsewhere = (directory, topic, [0]), ("/elsewhere", topic, [0])

    assert moved(caller, 2, here, elsewhere) == {(topic, 0): ErrorCode.LOG_DIR_NOT_FOUND}
    assert moved(caller, 2, elsewhere, here) == {(topic, 0): 0}
