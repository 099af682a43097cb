"""Retention that waits for groups, whichever process coordinates them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from storage.metadata.image import TOPIC_RESOURCE
from tests.broker.test_processes import (
    PARTITIONS,
    TOPIC,
    Directory,
    altered,
    directory,
    leaders,
    make_topic,
    produce_everywhere,
    until,
)

if TYPE_CHECKING:
    from tests.support.caller import Caller

pytestmark = pytest.mark.linux

__all__ = ["directory"]

OFTEN = (
    *("--set", "log.retention.check.interval.ms=100"),
    *("--set", "log.initial.task.delay.ms=100"),
)
RECORDS = 3
EARLIEST = -2


def groups_of_each(caller: Caller) -> dict[int, str]:
    """A group of each coordinator, by its id."""
    found: dict[int, str] = {}
    for number in range(32):
        group = f"g{number}"
        node_id = caller.call(FindCoordinatorRequest(key=group, key_type=0), 1).node_id
        found.setdefault(node_id, group)
    return found


def commit(directory: Directory, node_id: int, group: str, offset: int) -> None:
    """For each partition, at the coordinator."""
    partition = OffsetCommitRequest.Topic.Partition
    topic = OffsetCommitRequest.Topic(
        name=TOPIC,
        partitions=[
            partition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index in range(PARTITIONS)
        ],
    )
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    with directory.connect(node_id - 1) as caller:
        (answered,) = caller.call(request, 2).topics
        assert [entry.error_code for entry in answered.partitions] == [0] * PARTITIONS


def starts(directory: Directory) -> list[int]:
    """Where the log of each partition begins, as its leader says."""
    found = {}
    for number in range(len(directory.ports)):
        with directory.connect(number) as caller:
            for partition, leader in enumerate(leaders(caller)):
                if leader == 1 + number:
                    found[partition] = caller.offset(TOPIC, EARLIEST, partition=partition).offset
    return [found[partition] for partition in range(PARTITIONS)]


def test_records_wait_for_groups_of_all_coordinators(directory: Directory) -> None:
    directory.start(2, *OFTEN)
    make_topic(directory)
    with directory.connect(1) as caller:
        groups = groups_of_each(caller)
        assert set(groups) == {1, 2}
        names = ",".join(groups.values())
        assert altered(caller, TOPIC_RESOURCE, TOPIC, "retention.wait.groups", names) == 0
        assert altered(caller, TOPIC_RESOURCE, TOPIC, "retention.ms", "1") == 0
    for number in range(RECORDS):
        produce_everywhere(directory, b"%d" % number)

    commit(directory, 1, groups[1], 1)
    commit(directory, 2, groups[2], 2)
    until(lambda: starts(directory) == [1] * PARTITIONS)
    commit(directory, 1, groups[1], RECORDS)
    until(lambda: starts(directory) == [2] * PARTITIONS)
    commit(directory, 2, groups[2], RECORDS)
    until(lambda: starts(directory) == [RECORDS] * PARTITIONS)
