"""The promises of KIP-630's text for snapshots: their files, and when they and the log go.

The draft's "snapshot offset" is the last one that a snapshot has; ours, as Kafka's, is one past it
(storage.md 12.4). So where the text says X - 1, the end offset is X. Each test names its passage.
What the text says of Fetch and FetchSnapshot is tested where those are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.logdata.metadata import (
    FeatureLevelRecord,
    TopicRecord,
    control_batch,
    encode_record,
    metadata_batch,
)
from protocol.logdata.metadata import LeaderChangeMessage as LeaderChange
from storage.disk import DiskFilesystem
from storage.layout import LOG, file_name
from storage.metadata.loading import MetadataRefused, load
from storage.metadata.snapshot_rules import (
    HeldSnapshot,
    Reason,
    Retained,
    RetentionRules,
    SnapshotRules,
    new_log_start,
    retained,
    snapshot_due,
)
from storage.metadata.snapshots import SnapshotId, Snapshots, snapshot_id_of
from tests.storage.metadata.snapshot_files import (
    ENTRIES,
    FOLDER,
    NOW_MS,
    entries_of,
    memory,
    write,
)

if TYPE_CHECKING:
    from tests.support.memory_filesystem import MemoryFilesystem

LAG_MS = 900_000
RULES = RetentionRules(max_replication_lag_ms=LAG_MS)


LEVEL = encode_record(FeatureLevelRecord(name="metadata.version", feature_level=21))


def topic(number: int) -> bytes:
    return encode_record(TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big")))


def log_from(files: MemoryFilesystem, base_offset: int, *numbers: int) -> None:
    """A log in which each of these topics is a batch; one that begins at 0 has a leader and a
    level before them."""
    place = {"epoch": 1, "timestamp_ms": NOW_MS}
    data, offset = bytearray(), base_offset
    if not base_offset:
        change = LeaderChange(leader_id=1, voters=[], granting_voters=[])
        data += control_batch([change], base_offset=0, **place)
        data += metadata_batch([LEVEL], base_offset=1, **place)
        offset = 2
    for number in numbers:
        data += metadata_batch([topic(number)], base_offset=offset, **place)
        offset += 1
    files.write_bytes(f"{FOLDER}/{file_name(base_offset, LOG)}", bytes(data))


def snapshot_of(files: MemoryFilesystem, end_offset: int, *numbers: int) -> None:
    entries = [(None, LEVEL), *((None, topic(number)) for number in numbers)]
    write(files, SnapshotId(end_offset, 1), entries)


def held(end_offset: int, *, age_ms: int = 0, epoch: int = 1) -> HeldSnapshot:
    return HeldSnapshot(SnapshotId(end_offset, epoch), 1000, NOW_MS - age_ms)


def topics_in(files: MemoryFilesystem) -> list[str]:
    """What a start knows."""
    return sorted(load(files, "/data").image.topics)


def log_start(
    snapshots: list[HeldSnapshot], *replicated: int, now: int = 0, rules: RetentionRules = RULES
) -> int:
    return new_log_start(now, snapshots, replicated, NOW_MS, rules)


# Proposed Changes: "This snapshot file on disk is described by the largest offset and epoch from
# the replicated log that has been included."


def test_a_snapshot_is_known_by_offset_and_epoch() -> None:
    files = memory()
    path = write(files, SnapshotId(5_120_794, 2))
    assert Snapshots(files, FOLDER).ids == [SnapshotId(5_120_794, 2)]
    assert entries_of(files, path) == ENTRIES


# Snapshot Format: "The snapshot will be stored in the topic partition directory and will have a
# name of <SnapshotOffset>-<SnapshotOffsetEpoch>.checkpoint. For example for the topic
# __cluster_metadata, partition 0, snapshot offset 5120793 and snapshot epoch 2, the full filename
# will be __cluster_metadata-0/00000000000005120793-2.checkpoint."
#
# Kafka pads the epoch too and names the offset after the last (storage.md 12.4).


def test_the_name_is_offset_and_epoch_as_kafka_writes_them() -> None:
    name = "00000000000005120794-0000000002.checkpoint"
    assert SnapshotId(5_120_794, 2).file_name == name
    assert snapshot_id_of(name) == SnapshotId(5_120_794, 2)
    files = memory()
    assert write(files, SnapshotId(5_120_794, 2)) == f"{FOLDER}/{name}"


# Proposed Changes: "The __cluster_metadata topic partition will have the latest snapshot and zero
# or more older snapshots."


def test_several_snapshots_stand_side_by_side() -> None:
    files = memory()
    ids = [SnapshotId(100, 1), SnapshotId(200, 1), SnapshotId(300, 2)]
    for snapshot_id in reversed(ids):
        write(files, snapshot_id)
    snapshots = Snapshots(files, FOLDER)
    assert snapshots.ids == ids
    assert snapshots.latest == ids[-1]


# When to Snapshot: "If the number of records between the latest snapshot and the high-watermark is
# greater than controller.snapshot.minimum.records, then the Kafka Controller will perform a new
# snapshot."


@pytest.mark.parametrize(("records", "due"), [(999, None), (1000, None), (1001, Reason.RECORDS)])
def test_more_records_than_the_minimum_make_a_snapshot_due(
    records: int, due: Reason | None
) -> None:
    rules = SnapshotRules(minimum_records=1000)
    assert snapshot_due(records, 1, NOW_MS, NOW_MS, rules) is due


# Public Interfaces: "controller.snapshot.minimum.records is the minimum number of records committed
# after the latest snapshot before the Kafka Controller will perform another snapshot."
#
# Kafka ships bytes and time in its place; 0 leaves it to these.


def test_a_minimum_of_zero_leaves_it_to_the_rules_that_kafka_ships() -> None:
    assert snapshot_due(10**9, 1, NOW_MS, NOW_MS, SnapshotRules()) is None


# When to Increase the Log Begin Offset: "LBO can be increase/set to an offset X if the following is
# true: There is a snapshot for the topic partition which includes the offset for X - 1"


def test_the_log_begins_where_a_snapshot_ends_and_never_after_it() -> None:
    assert log_start([]) == 0
    assert log_start([], 500, now=40) == 40
    assert log_start([held(100)]) == 100
    assert log_start([held(100)], 500) == 100, "replicas are further than the snapshot"


# "and one of the following is true: All of the live replicas (followers and observers) have
# replicated LBO"


def test_the_log_waits_for_the_slowest_live_replica() -> None:
    snapshots = [held(100), held(200)]
    assert log_start(snapshots, 200, 200) == 200
    assert log_start(snapshots, 199, 500) == 100
    assert log_start(snapshots, 99, 500) == 0


def test_a_log_that_nobody_follows_waits_for_nobody() -> None:
    assert log_start([held(100), held(200)]) == 200


# "or LBO is max.replication.lag.ms old." And of max.replication.lag.ms: "The maximum amount of time
# that leader will wait for an offset to get replicated to all of the live replicas before advancing
# the LBO."


def test_the_log_waits_no_longer_than_the_lag_allowed() -> None:
    snapshots = [held(100, age_ms=LAG_MS), held(200, age_ms=LAG_MS - 1)]
    assert log_start(snapshots, 0) == 100
    assert log_start(snapshots, 200, 0) == 100
    assert log_start(snapshots, 200) == 200
    nobody = RetentionRules(max_replication_lag_ms=0)
    assert log_start(snapshots, 0, rules=nobody) == 200


# Legends: "LBO - log begin offset - the smallest offset in the replicated log." It is only ever
# increased.


def test_the_log_never_begins_earlier_again() -> None:
    assert log_start([held(100)], 0, now=70) == 70
    assert log_start([held(100)], 200, now=150) == 150


# When to Delete Snapshots: "The broker will delete any snapshot with a latest offset and epoch
# (SnapshotOffsetAndEpoch) less than the LBO - 1 (log begin offset)."


def test_snapshots_below_the_log_go_and_the_one_that_the_log_follows_stays() -> None:
    snapshots = [held(100), held(200), held(300, epoch=2)]
    result = retained(0, [], snapshots, [250], NOW_MS, RULES)
    assert result == Retained(200, [SnapshotId(100, 1)])
    result = retained(0, [], snapshots, [], NOW_MS, RULES)
    assert result == Retained(300, [SnapshotId(100, 1), SnapshotId(200, 1)])


# Proposed Changes: "Having multiple snapshots is useful for minimizing re-fetching of the snapshot"


def test_a_snapshot_that_a_slow_replica_may_be_fetching_stays_for_the_lag_allowed() -> None:
    snapshots = [held(100, age_ms=LAG_MS - 1), held(200)]
    assert retained(0, [], snapshots, [0], NOW_MS, RULES) == Retained(0, [])
    later = retained(0, [], snapshots, [0], NOW_MS + LAG_MS, RULES)
    assert later == Retained(200, [SnapshotId(100, 1)])


# Proposed Changes: "It is safe for the log to truncate a prefix of the log up to the latest
# snapshot."


def test_a_start_knows_the_same_without_the_log_before_the_snapshot() -> None:
    files = memory()
    log_from(files, 0, 1, 2, 3, 4)
    assert topics_in(files) == ["t1", "t2", "t3", "t4"]
    snapshot_of(files, 4, 1, 2)
    assert topics_in(files) == ["t1", "t2", "t3", "t4"]
    files.remove(f"{FOLDER}/{file_name(0, LOG)}")
    log_from(files, 4, 3, 4)
    assert topics_in(files) == ["t1", "t2", "t3", "t4"]


# Loading Snapshots: "After loading the snapshot, the Kafka Controller will apply operations in the
# replicated log with an offset greater than the snapshot's offset"


def test_what_the_snapshot_has_is_not_applied_again() -> None:
    files = memory()
    log_from(files, 0, 1, 2, 3)
    snapshot_of(files, 4, 1)  # the log's topic 2 has been removed in the meantime, say
    assert topics_in(files) == ["t1", "t3"]


# Validation of Snapshot and Log: "There is an invariant that every log must have at least one
# snapshot where the offset of the snapshot is between LogBeginOffset - 1 and High-Watermark. If
# this is not the case then the replica should assume that the log is empty."
#
# An empty log would be an empty cluster: as in Kafka, the start is refused (storage.md 12.3, M7).


@pytest.mark.parametrize("end_offset", [None, 3])
def test_a_log_whose_beginning_is_in_no_snapshot_is_refused(end_offset: int | None) -> None:
    files = memory()
    log_from(files, 4, 3, 4)
    if end_offset is not None:
        snapshot_of(files, end_offset, 1)
    with pytest.raises(MetadataRefused, match=file_name(4, LOG)):
        load(files, "/data")


# Overview: "Follower and observer replicas fetch the snapshots from the leader". Response Handling:
# "Copy the bytes in Bytes to the local snapshot file starting at file position Position."


def test_a_snapshot_that_is_removed_can_be_read_to_its_end_by_who_has_begun(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = str(tmp_path_factory.mktemp("snapshots"))
    files = DiskFilesystem()
    snapshot_id = SnapshotId(100, 1)
    write(files, snapshot_id, folder=folder)
    snapshots = Snapshots(files, folder)
    content = files.read_bytes(snapshots.path(snapshot_id))
    file = snapshots.open_to_read(snapshot_id)
    got = file.pread(100, 0)
    snapshots.remove_removed(snapshots.remove(snapshot_id))
    assert got + file.pread(len(content), len(got)) == content
    file.close()
