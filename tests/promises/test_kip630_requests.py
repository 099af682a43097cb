"""The promises of KIP-630's text for Fetch and FetchSnapshot, through a running controller.

The draft's snapshot offset is the last one that a snapshot has; ours, as Kafka's, is one past it.
Where Kafka shipped something else than the text says, the test says so and follows Kafka
(storage.md 12.4, 12.5). Each test names its passage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tests.support.caller import batches_in
from tests.support.metadata_fetches import NOTHING, asking, entry_of, told
from tests.support.running_controller import RunningController

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from protocol.messages.fetch import FetchResponse

Piece = FetchSnapshotResponse.Topic.Partition
LAG_MS = 900_000
SOON_MS = 60_000
"""Longer than any of these tests takes."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningController]:
    with RunningController(tmp_path / "data") as controller:
        controller.append(3)
        yield controller


def fetched(
    node: RunningController, offset: int, last_epoch: int, replica_id: int = -1
) -> FetchResponse.Topic.Partition:
    """What a replica is answered that has all below `offset`."""
    with node.connect() as follower:
        request = asking(offset, last_epoch, node.epoch, replica_id=replica_id)
        return entry_of(follower.call(request, 17))


def piece(
    node: RunningController, wanted: tuple[int, int], position: int = 0, max_bytes: int = 1 << 20
) -> Piece:
    asked = FetchSnapshotRequest.Topic.Partition
    request = FetchSnapshotRequest(
        max_bytes=max_bytes,
        topics=[
            FetchSnapshotRequest.Topic(
                name="__cluster_metadata",
                partitions=[
                    asked(
                        partition=0,
                        current_leader_epoch=node.epoch,
                        snapshot_id=asked.SnapshotId(end_offset=wanted[0], epoch=wanted[1]),
                        position=position,
                    )
                ],
            )
        ],
    )
    with node.connect() as follower:
        answer = follower.call(request, 1)
    ((found,),) = [topic.partitions for topic in answer.topics]
    assert isinstance(found, Piece)
    return found


# Design: "if the Kafka topic partition leader receives a fetch request with an offset and epoch
# greater than or equal to the log begin offset (x, a) then the leader handles the request as
# describe in KIP-595. Otherwise, the leader will respond with the offset and epoch of the latest
# snapshot (y, c)"


def test_from_the_log_begin_offset_on_there_is_the_log_and_before_it_the_snapshot(
    node: RunningController,
) -> None:
    older = node.take_snapshot()
    node.append(2)
    latest = node.take_snapshot()
    node.append(2)
    node.raise_start(older.end_offset)

    at_the_begin = fetched(node, older.end_offset, older.epoch)
    before = fetched(node, older.end_offset - 1, older.epoch)

    assert (batches_in(at_the_begin.records), told(at_the_begin)) == (2, (NOTHING, NOTHING))
    assert (bytes(before.records), told(before)) == (b"", (latest, NOTHING))


# Handling Fetch Request: "the leader will respond with a SnapshotOffsetAndEpoch of the latest
# snapshot and a NextOffsetAndEpoch of the offset right after SnapshotOffsetAndEpoch." Kafka gives
# the snapshot alone: its end offset is the offset right after.


def test_the_log_goes_on_where_the_snapshot_ends(node: RunningController) -> None:
    node.take_snapshot()
    end_offset = node.append(2)

    (snapshot, diverging) = told(fetched(node, 0, 0))
    after = fetched(node, *snapshot)

    assert diverging == NOTHING
    assert told(after) == (NOTHING, NOTHING)
    assert snapshot[0] + batches_in(after.records) == end_offset


# Request Handling: "Find the snapshot for SnapshotOffsetAndEpoch [...] Send the bytes in the
# snapshot from Position up to MaxBytes. Set Continue to true if there are renaming bytes in the
# snapshots." Response Handling: "the follower is expected to send another FetchSnapshotRequest with
# an Position of Position + len(Bytes) from the response." Kafka tells the size, not Continue.


def test_a_snapshot_is_fetched_piece_by_piece(node: RunningController) -> None:
    wanted = node.take_snapshot()
    file = node.controller.snapshots.open_to_read(wanted)
    content = file.pread(file.size(), 0)
    file.close()

    found, goes_on = b"", True
    while goes_on:
        one = piece(node, wanted, len(found), max_bytes=100)
        assert one.position == len(found)
        found += bytes(one.unaligned_records)
        goes_on = len(found) < one.size

    assert found == content


# Errors: "SNAPSHOT_NOT_FOUND - when the fetch snapshot request specifies a SnapshotOffsetAndEpoch
# that doesn't exists on the leader." "OFFSET_OUT_OF_RANGE - when the fetch snapshot request's
# offset is greater than the size of the snapshot" (Kafka: POSITION_OUT_OF_RANGE, for the size
# itself too). "NOT_LEADER_FOR_PARTITION - when the fetch snapshot request is sent to a replica that
# is not the leader."


def test_every_error_of_the_text_has_its_code(node: RunningController) -> None:
    wanted = node.take_snapshot()
    size = piece(node, wanted).size

    missing = piece(node, (wanted.end_offset + 1, wanted.epoch))
    past = [piece(node, wanted, position) for position in (size, size + 1)]
    node.run(lambda: setattr(node.controller, "leader_id", 7))
    not_led = piece(node, wanted)

    assert missing.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert [one.error_code for one in past] == [ErrorCode.POSITION_OUT_OF_RANGE] * 2
    assert not_led.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# Response Handling, errors: "The follower can rediscover the new snapshot by send a fetch request
# with an offset and epoch of zero."


def test_an_offset_and_epoch_of_zero_find_the_new_snapshot(node: RunningController) -> None:
    gone = node.take_snapshot()
    node.append(2)
    new = node.take_snapshot()
    node.run(lambda: node.controller.snapshots.remove(gone))

    assert piece(node, gone).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert told(fetched(node, 0, 0)) == (new, NOTHING)
    assert piece(node, new).error_code == 0


# When to Increase the Log Begin Offset: "To minimize the need to send snapshots to slow replicas,
# the leader can delay increasing the log begin offset up to the minimum offset that it knows it has
# been replicate to all of the live replicas." "or LBO is max.replication.lag.ms old."


def test_the_log_begins_later_only_when_a_replica_that_follows_has_come_so_far(
    node: RunningController,
) -> None:
    node.append()
    behind = node.end_offset
    fetched(node, behind, node.epoch, replica_id=5)
    node.append()
    wanted = node.take_snapshot()

    node.run(node.controller.look)
    held_back = node.metadata.log.start_offset
    fetched(node, wanted.end_offset, node.epoch, replica_id=5)
    node.run(node.controller.look)

    assert held_back == 0
    assert node.metadata.log.start_offset == wanted.end_offset


def test_a_replica_that_loads_a_snapshot_keeps_it_and_the_log_after_it(
    node: RunningController,
) -> None:
    node.append()
    wanted = node.take_snapshot()
    node.run(
        lambda: node.controller.observers.loads(
            5, bytes(16), end_offset=wanted.end_offset, now_ms=node.broker.now_ms()
        )
    )
    node.append()
    newer = node.take_snapshot()

    node.run(node.controller.look)

    assert node.metadata.log.start_offset == wanted.end_offset
    assert node.controller.snapshots.ids == [wanted, newer]


def test_nobody_holds_the_log_back_for_longer_than_the_lag_allowed(
    node: RunningController,
) -> None:
    wanted = node.take_snapshot()
    start_ms = node.broker.now_ms()
    node.set_clock(start_ms + LAG_MS - SOON_MS)
    fetched(node, 1, node.epoch, replica_id=5)

    node.run(node.controller.look)
    held_back = node.metadata.log.start_offset
    node.set_clock(start_ms + LAG_MS)
    node.run(node.controller.look)

    assert held_back == 0
    assert node.metadata.log.start_offset == wanted.end_offset
