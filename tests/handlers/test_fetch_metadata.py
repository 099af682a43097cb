"""Fetch of the metadata log on the controller's listener.

What Apache Kafka 3.9.1 answers was looked up with the same requests; where we do otherwise, the
test says so.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.metadata import NoOpRecord
from protocol.messages.fetch import FetchRequest
from protocol.records.batch import Batch
from protocol.records.walk import walk
from protocol.schema import ZERO_UUID
from storage.log import Log
from tests.support.caller import Caller, Timed, batches_in
from tests.support.metadata_fetches import LONG_MS, NOTHING, VERSIONS, Entry, asking, entry_of, told
from tests.support.running_controller import HOST, RunningController

if TYPE_CHECKING:
    pass


def fetched(node: RunningController, offset: int, last_epoch: int, **more: Any) -> Entry:
    """What comes in an answer without an error."""
    with node.connect() as follower:
        entry = entry_of(follower.call(asking(offset, last_epoch, node.epoch, **more), 17))
    assert entry.error_code == 0
    assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (1, node.epoch)
    return entry


def stored(node: RunningController) -> bytes:
    """All of the log, as it is on the disk."""
    return b"".join(
        segment.file.pread(segment.written_size, 0) for segment in node.metadata.log.segments
    )


# What there is


@pytest.mark.parametrize("version", VERSIONS)
def test_the_log_comes_as_it_is_on_the_disk(
    node: RunningController, follower: Caller, version: int
) -> None:
    answer = follower.call(asking(0, 0, node.epoch, wait_ms=LONG_MS), version)

    entry = entry_of(answer)
    assert (entry.error_code, bytes(entry.records)) == (0, stored(node))
    assert (entry.high_watermark, entry.log_start_offset) == (node.end_offset, 0)
    assert (entry.last_stable_offset, entry.aborted_transactions) == (-1, [])
    assert entry.preferred_read_replica == -1
    assert told(entry) == (NOTHING, NOTHING)
    assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (1, node.epoch)
    endpoints = [(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints]
    assert endpoints == ([(1, HOST, node.port, None)] if version >= 16 else [])


def test_a_follower_that_has_a_part_gets_the_rest(node: RunningController) -> None:
    last = fetched(node, node.end_offset - 1, node.epoch)
    two = fetched(node, node.end_offset - 2, node.epoch)

    assert batches_in(last.records) == 1
    assert batches_in(two.records) == 2
    assert stored(node).endswith(bytes(two.records))
    assert bytes(two.records).endswith(bytes(last.records))


def test_an_offset_amid_a_batch_gives_the_whole_batch(own_node: RunningController) -> None:
    start = own_node.end_offset
    own_node.run(lambda: own_node.controller.append([NoOpRecord()] * 3))

    whole = fetched(own_node, start, own_node.epoch)
    amid = fetched(own_node, start + 2, own_node.epoch)

    assert batches_in(whole.records) == 1
    assert bytes(amid.records) == bytes(whole.records)


def test_a_follower_gets_all_of_it_segment_by_segment(own_node: RunningController) -> None:
    own_node.append(3)
    own_node.take_snapshot()
    own_node.append(3)
    whole = stored(own_node)

    found, offset = b"", 1
    while offset < own_node.end_offset:
        entry = fetched(own_node, offset, own_node.epoch)
        assert entry.records
        found += bytes(entry.records)
        offset = last_offset_in(bytes(entry.records)) + 1

    assert len(list(own_node.metadata.log.segments)) == 2
    assert whole.endswith(found)


def last_offset_in(records: bytes) -> int:
    """The offset of the last record of these batches."""
    *_, (position, size, _) = walk(memoryview(records))
    return Batch(memoryview(records)[position : position + size]).last_offset


@pytest.mark.parametrize("sizes", [{"max_bytes": 200}, {"partition_max_bytes": 200}])
def test_sizes_above_zero_are_kept_to_unlike_in_kafka_3_9(
    node: RunningController, sizes: dict[str, int]
) -> None:
    whole = fetched(node, node.end_offset - 4, node.epoch)

    part = fetched(node, node.end_offset - 4, node.epoch, **sizes)

    assert bytes(whole.records).startswith(bytes(part.records))
    assert 0 < len(part.records) <= 200 < len(whole.records)


@pytest.mark.parametrize("size", [1, -1])
def test_a_size_that_fits_no_batch_gives_the_first_and_no_size_gives_all(
    node: RunningController, size: int
) -> None:
    entry = fetched(node, node.end_offset - 4, node.epoch, max_bytes=size, partition_max_bytes=size)

    assert batches_in(entry.records) == (1 if size == 1 else 4)


# Snapshots


@pytest.mark.parametrize("last_epoch", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_who_has_nothing_is_told_of_the_latest_snapshot(
    own_node: RunningController, version: int, last_epoch: int
) -> None:
    own_node.take_snapshot()
    own_node.append(2)
    latest = own_node.take_snapshot()
    own_node.append(2)

    with own_node.connect() as follower:
        answer = follower.call(asking(0, last_epoch, own_node.epoch, wait_ms=LONG_MS), version)

    entry = entry_of(answer)
    assert (entry.error_code, bytes(entry.records)) == (0, b"")
    assert told(entry) == (latest, NOTHING)
    assert (entry.high_watermark, entry.log_start_offset) == (own_node.end_offset, 0)
    assert entry.current_leader.leader_epoch == own_node.epoch


def test_without_a_snapshot_there_is_only_the_log(node: RunningController) -> None:
    assert told(fetched(node, 0, 0)) == (NOTHING, NOTHING)


def test_whoever_is_in_the_log_needs_no_snapshot(own_node: RunningController) -> None:
    own_node.take_snapshot()
    own_node.append(2)

    entry = fetched(own_node, 1, own_node.epoch)

    assert told(entry) == (NOTHING, NOTHING)
    assert entry.records


def test_below_the_log_start_there_is_only_the_snapshot(own_node: RunningController) -> None:
    own_node.append(3)
    latest = own_node.take_snapshot()
    own_node.append(3)
    own_node.raise_start(latest.end_offset)
    epoch = own_node.epoch

    below = fetched(own_node, latest.end_offset - 1, epoch)
    at_it = fetched(own_node, latest.end_offset, epoch)
    above = fetched(own_node, latest.end_offset + 1, epoch)

    assert told(below) == (latest, NOTHING)
    assert bytes(below.records) == b""
    assert below.log_start_offset == latest.end_offset
    assert told(at_it) == told(above) == (NOTHING, NOTHING)
    assert [batches_in(entry.records) for entry in (at_it, above)] == [3, 2]


def test_at_the_log_start_the_epoch_must_be_that_of_the_snapshot(
    own_node: RunningController,
) -> None:
    own_node.begin_epoch()
    latest = own_node.take_snapshot()
    own_node.begin_epoch()
    own_node.raise_start(latest.end_offset)

    for last_epoch in (latest.epoch - 1, latest.epoch + 1):
        assert told(fetched(own_node, latest.end_offset, last_epoch)) == (latest, NOTHING)
    agreeing = fetched(own_node, latest.end_offset, latest.epoch)
    assert (told(agreeing), batches_in(agreeing.records)) == ((NOTHING, NOTHING), 1)


def test_who_knows_only_epochs_before_the_oldest_snapshot_has_to_load_the_latest(
    own_node: RunningController,
) -> None:
    first = own_node.epoch
    own_node.begin_epoch()
    own_node.take_snapshot()
    own_node.append()
    latest = own_node.take_snapshot()

    assert told(fetched(own_node, 1, first)) == (latest, NOTHING)
    assert told(fetched(own_node, 10**6, first)) == (latest, NOTHING)


# Where logs part


def test_an_offset_past_the_end_is_told_where_the_end_is(node: RunningController) -> None:
    entry = fetched(node, 99_999, node.epoch, wait_ms=LONG_MS)

    assert told(entry) == (NOTHING, (node.epoch, node.end_offset))
    assert bytes(entry.records) == b""


def test_a_log_with_more_of_an_epoch_than_ours_is_told_where_the_epoch_ended(
    own_node: RunningController,
) -> None:
    first, end_of_first = own_node.epoch, own_node.end_offset
    own_node.begin_epoch()
    own_node.append(3)

    more = fetched(own_node, end_of_first + 1, first, wait_ms=LONG_MS)
    the_same = fetched(own_node, end_of_first, first)

    assert told(more) == (NOTHING, (first, end_of_first))
    assert told(the_same) == (NOTHING, NOTHING)
    assert batches_in(the_same.records) == 4


def test_a_log_with_an_epoch_that_ours_does_not_have_is_told_of_the_one_before(
    own_node: RunningController,
) -> None:
    first, end_of_first = own_node.epoch, own_node.end_offset
    own_node.run(lambda: setattr(own_node.metadata, "epoch", first + 1))
    own_node.begin_epoch()

    entry = fetched(own_node, end_of_first, first + 1)

    assert own_node.epoch == first + 2
    assert told(entry) == (NOTHING, (first, end_of_first))


def test_an_epoch_of_which_only_the_snapshot_is_left_is_known_by_it(
    own_node: RunningController,
) -> None:
    latest = own_node.take_snapshot()
    own_node.run(lambda: setattr(own_node.metadata, "epoch", latest.epoch + 1))
    own_node.begin_epoch()
    own_node.append()
    own_node.raise_start(latest.end_offset)

    entry = fetched(own_node, latest.end_offset + 1, latest.epoch + 1)

    assert told(entry) == (NOTHING, (latest.epoch, latest.end_offset))


# Refusals


def refused(node: RunningController, request: FetchRequest, version: int = 17) -> Entry:
    """The entry of an answer with an error; leader and log start are told all the same."""
    with node.connect() as follower, Timed() as took:
        answer = follower.call(request, version)
    entry = entry_of(answer)
    assert took.ms < LONG_MS
    assert (entry.high_watermark, bytes(entry.records)) == (-1, b"")
    assert entry.log_start_offset == 0
    assert told(entry) == (NOTHING, NOTHING)
    assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (1, node.epoch)
    assert bool(answer.node_endpoints) == (version >= 16)
    return entry


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("change", "code"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_fetch_of_another_epoch_is_told_the_present_one(
    node: RunningController, version: int, change: int, code: ErrorCode
) -> None:
    request = asking(node.end_offset, 0, node.epoch + change, wait_ms=LONG_MS)

    assert refused(node, request, version).error_code == code


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "nonsense",
    [
        {"wait_ms": -1},
        {"offset": -1},
        {"last_epoch": -1},
        {"last_epoch": 2**31 - 1},
        {"replica_id": 1},
    ],
)
def test_what_makes_no_sense_is_an_invalid_request(
    node: RunningController, version: int, nonsense: dict[str, Any]
) -> None:
    sound = {"offset": 0, "last_epoch": 0, "epoch": node.epoch}

    entry = refused(node, asking(**{**sound, **nonsense}), version)

    assert entry.error_code == ErrorCode.INVALID_REQUEST


def test_an_epoch_above_the_leaders_own_makes_no_sense_whatever_the_present_one_is(
    node: RunningController,
) -> None:
    for epoch in (-1, 0, node.epoch - 1):
        entry = refused(node, asking(0, epoch + 1, epoch))
        assert entry.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_that_does_not_lead_says_who_does(own_node: RunningController, version: int) -> None:
    own_node.run(lambda: setattr(own_node.controller, "leader_id", 7))
    with own_node.connect() as follower:
        answer = follower.call(asking(0, 0, own_node.epoch, wait_ms=LONG_MS), version)

    entry = entry_of(answer)
    assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert entry.current_leader.leader_id == 7
    assert entry.current_leader.leader_epoch == own_node.epoch
    assert answer.node_endpoints == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "shape",
    [
        {"topic_id": bytes(15) + b"\x02"},
        {"topic_id": ZERO_UUID},
        {"index": 1},
        {"partitions": 2},
        {"partitions": 0},
        {"topics": 2},
        {"topics": 0},
    ],
)
def test_any_other_log_is_an_invalid_request(
    node: RunningController, follower: Caller, version: int, shape: dict[str, Any]
) -> None:
    answer = follower.call(asking(0, 0, node.epoch, wait_ms=LONG_MS, **shape), version)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert all(not bytes(e.records) for topic in answer.responses for e in topic.partitions)


@pytest.mark.parametrize("version", range(13))
def test_a_fetch_by_name_is_an_invalid_request(
    node: RunningController, follower: Caller, version: int
) -> None:
    answer = follower.call(asking(0, 0, node.epoch), version)

    # Kafka's answer has no entry, and before version 7 no place for the error.
    codes = {entry.error_code for topic in answer.responses for entry in topic.partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}
    assert answer.error_code == (ErrorCode.INVALID_REQUEST if version >= 7 else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_for_another_cluster_is_refused_before_anything_else(
    node: RunningController, follower: Caller, version: int
) -> None:
    wrong = asking(-1, 0, node.epoch, cluster_id="wrong", topics=2)
    right = asking(0, 0, node.epoch, cluster_id=node.broker.directory.identity.cluster_id)

    assert follower.call(wrong, version).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert entry_of(follower.call(right, version)).error_code == 0


def test_a_session_is_not_begun(node: RunningController, follower: Caller) -> None:
    for number, epoch in ((0, 0), (5, 3)):
        request = asking(0, 0, node.epoch, session_id=number, session_epoch=epoch)
        entry = entry_of(follower.call(request, 17))
        assert (entry.error_code, bytes(entry.records)) == (0, stored(node))


def test_a_disk_that_cannot_be_read_is_a_storage_error(
    own_node: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "made up")

    monkeypatch.setattr(Log, "read", read)

    entry = refused(own_node, asking(0, 0, own_node.epoch, wait_ms=LONG_MS))

    assert entry.error_code == ErrorCode.KAFKA_STORAGE_ERROR
