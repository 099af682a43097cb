"""ListOffsets v0, from the time before timestamps: the offsets at which segments begin.

A time stands for the segments whose files were last written to by then (LO-2 of records.md 9, and
10.4), whatever the format and whatever the records say.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest
from tests.support.caller import NOW_MS, Caller
from tests.support.old_sets import messages

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess

RELEASES = ("0.9.0", "0.10.2", "3.0")
LATEST, EARLIEST = -1, -2
MANY = 100

Asked = ListOffsetsRequest.Topic.Partition


def ask(
    caller: Caller, topic: str, timestamp: int, count: int = MANY, *, partition: int = 0
) -> tuple[int, list[int]]:
    """The error code and the offsets."""
    asked = Asked(partition_index=partition, timestamp=timestamp, max_num_offsets=count)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[asked])]
    )
    entry = caller.call(request, 0).topics[0].partitions[0]
    assert entry.partition_index == partition
    return entry.error_code, list(entry.old_style_offsets)


@pytest.fixture(params=RELEASES)
def segments(
    request: pytest.FixtureRequest, broker: BrokerProcess, caller: Caller, topic: str
) -> str:
    """A topic with segments from 0, 2 and 4, written to at 1000, 2000 and 3000 s; the end is 5."""
    caller.create_topic(
        topic, message_format_version=request.param, segment_bytes="400", cleanup_policy="delete"
    )
    for value in (b"a", b"b", b"c"):
        pair = messages(*[value * 150] * (2 if value != b"c" else 1), magic=1)
        assert caller.produce(topic, pair, version=2).error_code == 0
    files = sorted((broker.data / f"{topic}-0").glob("*.log"))
    assert [int(path.stem) for path in files] == [0, 2, 4]
    for number, path in enumerate(files):
        os.utime(path, (1000 * (number + 1),) * 2)
    return topic


def test_latest_is_the_end_and_then_the_segments_downwards(caller: Caller, segments: str) -> None:
    assert ask(caller, segments, LATEST) == (0, [5, 4, 2, 0])


def test_earliest_is_the_log_start_alone(caller: Caller, segments: str) -> None:
    assert ask(caller, segments, EARLIEST) == (0, [0])


@pytest.mark.parametrize(
    ("at_s", "offsets"),
    [
        (999, []),
        (1000, [0]),
        (1999, [0]),
        (2000, [2, 0]),
        (3500, [4, 2, 0]),
    ],
)
def test_a_time_is_that_of_files_and_not_of_records(
    caller: Caller, segments: str, at_s: int, offsets: list[int]
) -> None:
    """The end counts as of now, so no time in the past has it."""
    assert ask(caller, segments, at_s * 1000) == (0, offsets)
    assert ask(caller, segments, NOW_MS) == (0, [4, 2, 0])


def test_a_time_to_come_has_the_end_too(caller: Caller, segments: str) -> None:
    assert ask(caller, segments, int(time.time() * 1000) + 60_000) == (0, [5, 4, 2, 0])


@pytest.mark.parametrize("count", [0, 1, 2, 3, -1, -(2**31), 2**31 - 1])
def test_no_more_are_told_than_were_asked_for(caller: Caller, segments: str, count: int) -> None:
    expected = [5, 4, 2, 0][: max(count, 0)]

    assert ask(caller, segments, LATEST, count) == (0, expected)
    assert ask(caller, segments, EARLIEST, count) == (0, [0][: max(count, 0)])
    assert ask(caller, segments, 3_500_000, count) == (0, [4, 2, 0][: max(count, 0)])


@pytest.mark.parametrize("offset", [1, 3, 4, 5])
def test_nothing_below_the_log_start_is_told(caller: Caller, segments: str, offset: int) -> None:
    caller.delete_records(segments, offset)

    code, latest = ask(caller, segments, LATEST)

    assert (code, ask(caller, segments, EARLIEST)) == (0, (0, [offset]))
    assert latest[0] == 5
    assert latest[-1] == offset
    assert latest == sorted(latest, reverse=True)


def test_an_empty_log_has_one_offset(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    assert ask(caller, topic, LATEST) == (0, [0])
    assert ask(caller, topic, EARLIEST) == (0, [0])
    assert ask(caller, topic, 1000) == (0, [])


@pytest.mark.parametrize("timestamp", [-3, -4, -7, -(2**63)])
def test_a_special_time_that_is_younger_is_refused(
    caller: Caller, segments: str, timestamp: int
) -> None:
    assert ask(caller, segments, timestamp) == (ErrorCode.UNSUPPORTED_VERSION, [])


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, 0, -3])
def test_a_partition_that_does_not_exist_is_error_3_with_no_offsets(
    caller: Caller, topic: str, timestamp: int
) -> None:
    caller.create_topic(topic)

    unknown: tuple[int, list[int]] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert ask(caller, topic, timestamp, partition=1) == unknown
    assert ask(caller, topic, timestamp, partition=-1) == unknown
    assert ask(caller, "missing", timestamp) == unknown
