"""Offsets in the first versions of their requests, which clients send to any of several processes:
Kafka keeps them in ZooKeeper, and needs no coordinator for them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from tests.broker.test_processes import TOPIC, Directory, directory, make_topic, until

if TYPE_CHECKING:
    from tests.support.caller import Caller

pytestmark = pytest.mark.linux

__all__ = ["directory"]

GROUPS = [f"billing-{number}" for number in range(4)]


def commit(caller: Caller, group: str, offset: int) -> int:
    """Commit it for a partition, in version 0; the error code."""
    topic = OffsetCommitRequest.Topic(
        name=TOPIC,
        partitions=[
            OffsetCommitRequest.Topic.Partition(
                partition_index=0, committed_offset=offset, committed_metadata="m"
            )
        ],
    )
    (answered,) = caller.call(OffsetCommitRequest(group_id=group, topics=[topic]), 0).topics
    code: int = answered.partitions[0].error_code
    return code


def committed(caller: Caller, group: str, version: int = 0) -> tuple[int, int]:
    """The error code and the offset."""
    topic = OffsetFetchRequest.Topic(name=TOPIC, partition_indexes=[0])
    request = OffsetFetchRequest(group_id=group, topics=[topic])
    (answered,) = caller.call(request, version).topics
    (partition,) = answered.partitions
    return partition.error_code, partition.committed_offset


def coordinator(caller: Caller, group: str) -> int:
    """The number of the process that coordinates it."""
    request = FindCoordinatorRequest(key=group, key_type=0)
    found: int = caller.call(request, 1).node_id - 1
    return found


def test_offsets_of_the_first_version_are_kept_by_the_coordinator_whoever_is_asked(
    directory: Directory,
) -> None:
    directory.start(2)
    make_topic(directory)
    with directory.connect(0) as zero, directory.connect(1) as one:
        callers = (zero, one)
        assert committed(one, GROUPS[0]) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        for number, group in enumerate(GROUPS):  # the first makes the topic of the offsets
            for asked, caller in enumerate((one, zero)):
                assert commit(caller, group, 10 * number + asked) == ErrorCode.NONE
                for reader in callers:
                    assert committed(reader, group) == (ErrorCode.NONE, 10 * number + asked)
        found = {group: coordinator(zero, group) for group in GROUPS}
        assert set(found.values()) == {0, 1}, "each coordinates some of them"
        for number, group in enumerate(GROUPS):
            of_others = callers[1 - found[group]]
            assert committed(callers[found[group]], group, 1) == (ErrorCode.NONE, 10 * number + 1)
            refused = committed(of_others, group, 1)
            assert refused == (ErrorCode.NOT_COORDINATOR, -1), "later ones look for it"


def test_they_outlive_the_process_that_keeps_them(directory: Directory) -> None:
    directory.start(2)
    make_topic(directory)
    with directory.connect(0) as caller:
        assert commit(caller, GROUPS[0], 7) == ErrorCode.NONE
        keeper = coordinator(caller, GROUPS[0])
    os.kill(directory.children()[keeper], signal.SIGKILL)

    with directory.connect(1 - keeper) as caller:
        until(lambda: committed(caller, GROUPS[0]) == (ErrorCode.NONE, 7))
