"""A data directory: who may have it, what is in it, and how it is left.

The names of the rows (C1, D1, ...) are those of the table that tells how Apache Kafka 3.9 reacts.
"""

from __future__ import annotations

import errno
import json
import random

import pytest

from storage.checkpoints import decode_offsets, encode_offsets
from storage.data_dir import DataDirectory
from storage.epochs import LeaderEpochs
from storage.errors import DataDirectoryError, LockHeld, OffsetOutOfRange
from storage.identity import encode_partition_metadata
from storage.layout import CLEAN_SHUTDOWN, CLEAN_STATE, PARTITION_METADATA, is_deleted_directory
from storage.reports import RecoveryReport
from storage.topics import Topic
from tests.storage.logs import NOW_MS, Settings, batches_in, everything, produce
from tests.support.checkpoints import write_checkpoints
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.record_deletion import delete_records
from tests.support.topic_store import open_topics

KEY = ("orders", 0)
SETTINGS = Settings(segment_bytes=400, index_interval_bytes=100)


class Start:
    """One start on a data directory."""

    def __init__(self, files: MemoryFilesystem, *, node_id: int = 1) -> None:
        self.files = files
        self.random = random.Random(len(files.calls))
        self.directory = DataDirectory.take(files, "/data", node_id=node_id, new_uuid=self.new_uuid)
        self.topics = open_topics(files, "/data")
        self.topics.begin_epoch()
        self.reports = self.directory.open_logs(self.topics, lambda _: SETTINGS, now_ms=NOW_MS)

    def new_uuid(self) -> bytes:
        return self.random.randbytes(16)

    def create(self, name: str, partition_count: int = 1) -> Topic:
        topic = self.topics.create(name, self.new_uuid(), partition_count, {})
        for number in range(partition_count):
            self.directory.create_partition(topic, number, SETTINGS, now_ms=NOW_MS)
        return topic

    def fill(self, name: str = "orders", count: int = 6) -> None:
        log = self.directory.logs[name, 0]
        for _ in range(count):
            produce(log, bytes(60), b"second")
        log.sync()


def used() -> tuple[MemoryFilesystem, Topic]:
    """A directory with one topic of twelve records, stopped in good order."""
    files = MemoryFilesystem()
    start = Start(files)
    topic = start.create("orders")
    start.fill()
    assert start.directory.close()
    return files, topic


def reasons(reports: list[RecoveryReport]) -> list[str]:
    return [report.reason for report in reports]


def offsets(start: Start) -> list[tuple[int, int]]:
    return batches_in(everything(start.directory.logs["orders", 0]))


SIX = [(2 * n, 2 * n + 1) for n in range(6)]


def test_a_new_directory_gets_an_identity_that_stays() -> None:
    files = MemoryFilesystem()
    first = Start(files)
    first.directory.close()

    second = Start(files)

    assert second.directory.identity.encode() == first.directory.identity.encode()
    assert second.reports == []


def test_d5_a_directory_of_another_node_or_cluster_is_refused_in_one_sentence() -> None:
    files, _ = used()

    with pytest.raises(DataDirectoryError, match=r"meta\.properties says node\.id=1, but node"):
        Start(files, node_id=2)
    with pytest.raises(DataDirectoryError, match=r"cluster\.id=other is configured"):
        DataDirectory.take(
            files, "/data", node_id=1, new_uuid=lambda: bytes(16), cluster_id="other"
        )
    assert Start(files).reports == [], "the lock was given back"


def test_m13_an_identity_without_a_directory_id_is_completed() -> None:
    files = MemoryFilesystem()
    files.write_bytes("/data/meta.properties", b"version=1\nnode.id=1\ncluster.id=c\n")

    start = Start(files)

    assert start.directory.identity.directory_id
    assert b"directory.id=" in files.read_bytes("/data/meta.properties")


def test_a_directory_with_topics_and_without_identity_is_refused() -> None:
    files, _ = used()
    files.remove("/data/meta.properties")

    with pytest.raises(DataDirectoryError, match="restore the file"):
        Start(files)


def test_d8_a_second_broker_is_refused_and_told_which_file_is_locked() -> None:
    files = MemoryFilesystem()
    Start(files)

    with pytest.raises(LockHeld, match=r"/data/\.lock is locked"):
        Start(files)


def test_a_clean_stop_leaves_what_kafka_expects() -> None:
    files = MemoryFilesystem()
    start = Start(files)
    start.create("orders", 2)
    start.fill()

    assert start.directory.close(broker_epoch=7)

    assert files.read_bytes(f"/data/{CLEAN_SHUTDOWN}") == b'{"version":0,"brokerEpoch":7}'
    assert (
        files.read_bytes("/data/recovery-point-offset-checkpoint")
        == files.read_bytes("/data/replication-offset-checkpoint")
        == encode_offsets({("orders", 0): 12, ("orders", 1): 0})
    )
    assert files.read_bytes("/data/log-start-offset-checkpoint") == encode_offsets({})
    path = "/data/orders-0/leader-epoch-checkpoint"
    assert LeaderEpochs.decode(files.read_bytes(path), path).entries() == [(0, 0)]
    assert files.list_dir("/data/orders-1") == [PARTITION_METADATA]  # it was never written to
    assert not files.exists("/data/.lock")
    assert files.calls.index("sync /data/orders-0/00000000000000000012.snapshot") < (
        files.calls.index(f"create /data/{CLEAN_SHUTDOWN}.tmp")
    )


def test_the_marker_is_gone_before_a_log_is_opened() -> None:
    files, _ = used()

    Start(files)

    assert not files.exists(f"/data/{CLEAN_SHUTDOWN}")
    start = Start(files.power_cut(random.Random(3)))
    assert offsets(start) == SIX


def test_a_clean_start_scans_nothing() -> None:
    files, _ = used()
    files.reads.clear()

    start = Start(files)

    assert start.reports == []
    read = [path for path, _, _ in files.reads if path.endswith((".log", "index"))]
    assert not [path for path in read if "/__cluster_metadata-0/" not in path]
    assert offsets(start) == SIX
    produce(start.directory.logs["orders", 0], b"next")
    assert start.directory.logs["orders", 0].end_offset_for(0) == (0, 12)
    assert start.directory.logs["orders", 0].end_offset_for(1) == (1, 13)


def test_a_start_with_a_stale_marker_looks_through_the_log() -> None:
    files, _ = used()
    marker = files.read_bytes(f"/data/{CLEAN_SHUTDOWN}")
    notes = files.read_bytes(f"/data/{CLEAN_STATE}")
    start = Start(files)
    start.fill(count=1)
    files.locked.clear()
    files.write_bytes(f"/data/{CLEAN_SHUTDOWN}", marker)
    files.write_bytes(f"/data/{CLEAN_STATE}", notes)

    start = Start(files)

    assert len(start.reports) == 1
    assert offsets(start) == [*SIX, (12, 13)]


@pytest.mark.parametrize("notes", [None, b"", b"{}", b'{"version": 4, "partitions": {}}', b"[1]"])
def test_a_marker_without_readable_notes_is_not_believed(notes: bytes | None) -> None:
    files, _ = used()
    files.remove(f"/data/{CLEAN_STATE}")
    if notes is not None:
        files.write_bytes(f"/data/{CLEAN_STATE}", notes)

    start = Start(files)

    assert [report.file for report in start.reports] == [CLEAN_STATE]
    assert offsets(start) == SIX


def test_a_log_that_failed_leaves_the_marker_out() -> None:
    files, _ = used()
    start = Start(files)
    start.directory.logs["orders", 0].fail("for this test")

    assert not start.directory.close()

    assert not files.exists(f"/data/{CLEAN_SHUTDOWN}")
    assert not files.exists("/data/.lock")


def test_c1_offsets_above_the_end_are_cut_to_it() -> None:
    files, _ = used()
    files.remove(f"/data/{CLEAN_SHUTDOWN}")
    for name in ("recovery-point", "replication", "cleaner"):
        files.write_bytes(f"/data/{name}-offset-checkpoint", b"0\n1\norders 0 99\n")

    start = Start(files)

    assert offsets(start) == SIX
    assert start.directory.logs["orders", 0].recovery_point == 12


@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start", "cleaner"])
def test_c2_a_malformed_checkpoint_is_taken_for_absent(name: str) -> None:
    """Unlike Kafka, which stops."""
    files, _ = used()
    files.write_bytes(f"/data/{name}-offset-checkpoint", b"not a checkpoint")

    start = Start(files)

    assert [report.file for report in start.reports] == [f"{name}-offset-checkpoint"]
    assert offsets(start) == SIX


def test_c3_a_log_start_inside_a_batch_is_kept() -> None:
    files, _ = used()
    files.write_bytes("/data/log-start-offset-checkpoint", b"0\n1\norders 0 5\n")

    start = Start(files)
    log = start.directory.logs["orders", 0]

    assert log.start_offset == 5
    with pytest.raises(OffsetOutOfRange):
        log.read(4, 100)
    assert offsets(start) == SIX[2:]


def test_c4_a_log_start_above_the_end_is_ignored_with_a_report() -> None:
    """Unlike Kafka, which deletes the log."""
    files, _ = used()
    files.write_bytes("/data/log-start-offset-checkpoint", b"0\n1\norders 0 25\n")

    start = Start(files)

    assert reasons(start.reports) == [
        "the checkpointed log start 25 is above the log's end 12; it is ignored"
    ]
    assert offsets(start) == SIX


def test_d1_d2_what_is_not_ours_is_left_alone() -> None:
    """Unlike Kafka, which does not start beside a foreign folder."""
    files, _ = used()
    for path in ("foo/x", "foo-bar/x", "lost+found/x", "remote-log-index-cache/x", "notes.txt",
                 "orders-0/sub/x", "orders-0/notes.txt", "unknown-3/x",
                 "t-0.0123456789abcdef0123456789abcdef-stray/x"):  # fmt: skip
        files.write_bytes(f"/data/{path}", b"foreign")

    start = Start(files)

    assert sorted(report.partition for report in start.reports) == [
        "foo", "foo-bar", "lost+found", "t-0.0123456789abcdef0123456789abcdef-stray", "unknown-3",
    ]  # fmt: skip
    assert offsets(start) == SIX
    for path in ("foo/x", "orders-0/sub/x", "unknown-3/x"):
        assert files.read_bytes(f"/data/{path}") == b"foreign"


@pytest.mark.parametrize("content", [None, b"", b"garbage"])
def test_d3_d4_a_missing_or_malformed_partition_metadata_is_written_again(
    content: bytes | None,
) -> None:
    """Unlike Kafka, which quarantines the partition or stops."""
    files, topic = used()
    files.remove("/data/orders-0/partition.metadata")
    if content is not None:
        files.write_bytes("/data/orders-0/partition.metadata", content)

    start = Start(files)

    assert offsets(start) == SIX
    assert files.read_bytes("/data/orders-0/partition.metadata") == encode_partition_metadata(
        topic.topic_id
    )


def test_a_missing_folder_is_made_again_and_its_loss_told() -> None:
    files, _ = used()
    files.remove_tree("/data/orders-0")

    start = Start(files)

    assert [(r.partition, r.offsets_lost) for r in start.reports] == [("orders-0", 12)]
    assert offsets(start) == []
    assert produce(start.directory.logs["orders", 0], b"new") == 0


def test_a_deleted_topic_is_renamed_at_once_and_removed_later() -> None:
    files, _ = used()
    start = Start(files)
    start.create("other", 3)
    piece = start.directory.logs["orders", 0].read(0, 10_000)
    assert piece is not None

    topic = start.topics.remove("orders")
    renamed = start.directory.delete_topic(topic)

    assert not files.exists("/data/orders-0")
    assert [is_deleted_directory(path.rpartition("/")[2]) for path in renamed] == [True]
    assert batches_in(piece.read())[0] == (0, 1)
    assert b"orders" not in files.read_bytes("/data/recovery-point-offset-checkpoint")
    again = start.create("orders")
    assert again.topic_id != topic.topic_id
    assert offsets(start) == []
    start.directory.close()
    assert Start(files).reports == []
    assert not files.exists(renamed[0]), "the next start removes what was not yet"


def test_a_topic_made_after_a_crash_in_a_deletion_does_not_inherit_its_records() -> None:
    files, _ = used()
    start = Start(files)
    start.topics.remove("orders")  # and the process dies before the folders are renamed
    files.locked.clear()

    start = Start(files)
    assert start.reports == []
    assert not [name for name in files.list_dir("/data") if name.startswith("orders")]
    start.create("orders")

    assert offsets(start) == []


def test_a_deletion_that_an_error_cut_short_is_finished_before_the_name_is_used_again() -> None:
    files, _ = used()
    start = Start(files)
    topic = start.topics.remove("orders")
    files.faults = {len(files.calls): errno.EIO}
    with pytest.raises(OSError, match="rename"):
        start.directory.delete_topic(topic)

    again = start.create("orders")

    assert again.topic_id != topic.topic_id
    assert offsets(start) == []
    assert not [name for name in files.list_dir("/data") if "-stray" in name or "-delete" in name]
    start.directory.close()
    assert Start(files).reports == []


def test_deleted_records_stay_deleted() -> None:
    files, _ = used()
    start = Start(files)

    assert delete_records(start.directory, "orders", 0, 7) == 7

    assert files.read_bytes("/data/log-start-offset-checkpoint") == encode_offsets({KEY: 7})
    start = Start(files.power_cut(random.Random(1)))
    assert start.directory.logs["orders", 0].start_offset == 7
    assert offsets(start) == SIX[3:]


def test_a_wrong_bit_in_a_log_start_moves_no_log_start() -> None:
    files, _ = used()
    start = Start(files)
    delete_records(start.directory, "orders", 0, 7)
    start.directory.close()
    path = "/data/log-start-offset-checkpoint"
    whole = files.read_bytes(path)

    for position in range(len(whole)):
        copy, spoilt = files.copy(), bytearray(whole)
        spoilt[position] ^= 1 << position % 7
        copy.write_bytes(path, bytes(spoilt))
        start = Start(copy)
        assert start.directory.logs[KEY].start_offset == 7, position
        (report,) = start.reports
        assert "one bit is wrong" in report.reason
        assert report.file == "log-start-offset-checkpoint"


def test_a_log_start_that_kafka_has_moved_is_believed_though_an_old_checksum_stayed() -> None:
    files, _ = used()
    start = Start(files)
    delete_records(start.directory, "orders", 0, 7)
    start.directory.close()
    path = "/data/log-start-offset-checkpoint"
    files.write_bytes(path, files.read_bytes(path).replace(b"orders 0 7", b"orders 0 5"))
    state = "/data/__cluster_metadata-0/quorum-state"
    said = json.loads(files.read_bytes(state))
    del said["triglotSince"]  # as Kafka leaves the file when it has started
    files.write_bytes(state, json.dumps(said).encode())

    start = Start(files)

    assert start.directory.logs[KEY].start_offset == 5
    start.directory.close()
    assert decode_offsets(files.read_bytes(path), path) == {KEY: 5}
    assert Start(files).directory.logs[KEY].start_offset == 5
    assert delete_records(start.directory, "orders", 0, -1) == 12


def test_a_log_start_is_answered_when_all_below_it_is_on_the_disk() -> None:
    """Else a power cut leaves a log that ends below its start."""
    files, _ = used()
    start = Start(files)
    start.fill(count=3)
    end = start.directory.logs["orders", 0].next_offset

    assert delete_records(start.directory, "orders", 0, end) == end

    for seed in range(10):
        again = Start(files.power_cut(random.Random(seed)))
        assert again.directory.logs["orders", 0].start_offset == end, f"seed {seed}"


def test_no_checkpoint_notes_a_log_start_that_a_power_cut_could_put_above_the_end() -> None:
    files, _ = used()
    start = Start(files)
    log = start.directory.logs["orders", 0]
    before = log.recovery_point
    start.fill(count=3)
    log.delete_records(-1)
    assert log.start_offset > before

    write_checkpoints(start.directory)
    for seed in range(10):
        again = Start(files.power_cut(random.Random(seed)))
        assert "above" not in " ".join(reasons(again.reports)), f"seed {seed}"


def test_what_a_killed_process_wrote_is_on_the_disk_after_the_next_clean_stop() -> None:
    files = MemoryFilesystem()
    start = Start(files)
    start.create("orders")
    files.kill()
    assert Start(files).directory.close()

    for seed in range(20):
        assert Start(files.power_cut(random.Random(seed))).reports == [], f"seed {seed}"


def test_a_raise_of_the_log_start_that_a_crash_takes_back_costs_no_epochs() -> None:
    files, _ = used()
    start = Start(files)
    log = start.directory.logs["orders", 0]
    epochs = log.epochs.entries()
    log.delete_records(3)
    log.store_epochs()
    log.sync()
    files.kill()

    assert Start(files).directory.logs["orders", 0].epochs.entries()[: len(epochs)] == epochs


def test_a_checkpoint_can_be_written_by_another_thread() -> None:
    files, _ = used()
    start = Start(files)
    steps = start.directory.checkpoints.everything()
    start.fill(count=1)

    for step in steps:
        step.sync()

    assert files.read_bytes("/data/recovery-point-offset-checkpoint") == encode_offsets({KEY: 12})


def test_each_start_leads_in_a_new_epoch() -> None:
    files, _ = used()
    for epoch in (1, 2):
        start = Start(files)
        log = start.directory.logs["orders", 0]
        assert log.leader_epoch == epoch
        start.fill(count=1)
        start.directory.close()

    path = "/data/orders-0/leader-epoch-checkpoint"
    stored = LeaderEpochs.decode(files.read_bytes(path), path)
    assert stored.entries() == [(0, 0), (1, 12), (2, 14)]
