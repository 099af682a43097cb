"""ListOffsets, versions 1 to 11."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.records.builder import build_batch
from tests.support.caller import NOW_MS, Caller, batch

VERSIONS = range(1, 12)
LATEST, EARLIEST, LARGEST_TIMESTAMP, EARLIEST_LOCAL, LAST_TIERED, EARLIEST_PENDING = (
    -1, -2, -3, -4, -5, -6,
)  # fmt: skip
FIRST_VERSION = {LARGEST_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LAST_TIERED: 9, EARLIEST_PENDING: 11}

Asked = ListOffsetsRequest.Topic.Partition


def ask(*asked: tuple[str, Asked], isolation_level: int = 0) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsRequest.Topic(name=name, partitions=[item]) for name, item in asked],
    )


@pytest.fixture
def filled(caller: Caller, topic: str) -> str:
    """Offsets 0-1 at NOW and NOW+1, 2-4 at NOW+100, NOW+500, NOW+300; the log starts at 1."""
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a", b"b"))
    caller.produce(topic, build_batch([(NOW_MS + at, None, b"v", ()) for at in (100, 500, 300)]))
    caller.delete_records(topic, 1)
    return topic


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ends_of_a_log_have_no_timestamp(caller: Caller, filled: str, version: int) -> None:
    latest = caller.offset(filled, LATEST, version=version)
    earliest = caller.offset(filled, EARLIEST, version=version)

    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 5, -1)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 1, -1)
    assert latest.leader_epoch == earliest.leader_epoch == (0 if version >= 4 else -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("after_ms", "offset", "at_ms"),
    [(-10_000, 1, 1), (1, 1, 1), (2, 2, 100), (100, 2, 100), (101, 3, 500), (500, 3, 500)],
)
def test_a_time_finds_the_first_record_that_is_not_older(
    caller: Caller, filled: str, version: int, after_ms: int, offset: int, at_ms: int
) -> None:
    found = caller.offset(filled, NOW_MS + after_ms, version=version)

    assert (found.error_code, found.offset, found.timestamp) == (0, offset, NOW_MS + at_ms)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_time_after_every_record_finds_nothing(caller: Caller, filled: str, version: int) -> None:
    found = caller.offset(filled, NOW_MS + 501, version=version)

    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)
    assert found.leader_epoch == -1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("time", sorted(FIRST_VERSION))
def test_a_special_time_is_refused_in_versions_older_than_itself(
    caller: Caller, filled: str, version: int, time: int
) -> None:
    found = caller.offset(filled, time, version=version)

    if version < FIRST_VERSION[time]:
        assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        return
    assert found.error_code == 0
    assert (found.offset, found.timestamp) == {
        LARGEST_TIMESTAMP: (3, NOW_MS + 500),
        EARLIEST_LOCAL: (1, -1),
        LAST_TIERED: (-1, -1),
        EARLIEST_PENDING: (-1, -1),
    }[time]
    if time in (LAST_TIERED, EARLIEST_PENDING):
        assert found.leader_epoch == -1


@pytest.mark.parametrize("time", [-7, -(2**63)])
def test_a_time_that_means_nothing_is_refused(caller: Caller, filled: str, time: int) -> None:
    assert caller.offset(filled, time).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [1, 7, 11])
def test_an_empty_log_has_ends_and_no_times(caller: Caller, topic: str, version: int) -> None:
    caller.create_topic(topic)

    assert caller.offset(topic, LATEST, version=version).offset == 0
    assert caller.offset(topic, EARLIEST, version=version).offset == 0
    assert caller.offset(topic, 0, version=version).offset == -1
    if version >= 7:
        found = caller.offset(topic, LARGEST_TIMESTAMP, version=version)
        assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_does_not_exist_is_told_alone(caller: Caller, filled: str, version: int) -> None:
    answer = caller.call(
        ask(
            ("missing", Asked(partition_index=0, timestamp=-1)),
            (filled, Asked(partition_index=9, timestamp=-1)),
            (filled, Asked(partition_index=0, timestamp=-1)),
        ),
        version,
    )

    entries = [found.partitions[0] for found in answer.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [entry.error_code for entry in entries] == [unknown, unknown, 0]
    assert [entry.offset for entry in entries] == [-1, -1, 5]


@pytest.mark.parametrize("version", [1, 5, 11])
def test_a_partition_named_twice_is_refused_for_it_alone(
    caller: Caller, filled: str, version: int
) -> None:
    answer = caller.call(
        ask(
            (filled, Asked(partition_index=0, timestamp=-1)),
            (filled, Asked(partition_index=0, timestamp=-2)),
            ("missing", Asked(partition_index=0, timestamp=-1)),
        ),
        version,
    )

    assert [found.partitions[0].error_code for found in answer.topics] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("version", [4, 11])
def test_a_leader_epoch_that_is_not_ours_is_told(caller: Caller, filled: str, version: int) -> None:
    def code(epoch: int) -> int:
        asked = Asked(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
        found: int = caller.call(ask((filled, asked)), version).topics[0].partitions[0].error_code
        return found

    assert code(0) == code(-1) == 0
    assert code(1) == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [2, 7, 11])
def test_read_committed_sees_the_last_stable_offset(
    caller: Caller, filled: str, version: int
) -> None:
    asked = Asked(partition_index=0, timestamp=-1)

    answer = caller.call(ask((filled, asked), isolation_level=1), version)

    assert answer.topics[0].partitions[0].offset == 5


def test_a_log_emptied_by_deletion_has_no_times(caller: Caller, filled: str) -> None:
    caller.delete_records(filled, 5)

    assert caller.offset(filled, EARLIEST).offset == 5
    assert caller.offset(filled, NOW_MS).offset == -1
    assert caller.offset(filled, LARGEST_TIMESTAMP).offset == -1
