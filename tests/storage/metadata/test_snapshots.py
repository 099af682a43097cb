"""Snapshot files: what goes in comes out, and nothing else does."""

from __future__ import annotations

import random
import re
import stat
from pathlib import Path

import pytest

from protocol.logdata.metadata import (
    FeatureLevelRecord,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    control_batch,
    decode_record,
    encode_record,
    metadata_batch,
)
from protocol.records.builder import build_batch
from protocol.records.walk import walk
from storage.disk import DiskFilesystem
from storage.metadata import snapshot_writing
from storage.metadata.snapshots import (
    SNAPSHOT_BATCH_RECORDS,
    DamagedSnapshot,
    SnapshotId,
    Snapshots,
    SnapshotWriter,
    read_snapshot,
    snapshot_id_of,
)
from tests.storage.metadata.snapshot_files import (
    ENTRIES,
    FOLDER,
    ID,
    LAST_MS,
    NOW_MS,
    entries_of,
    memory,
    write,
)

# Written by `kafka-storage format` of Apache Kafka 3.9.0 (storage.md 16.2).
BOOTSTRAP = bytes.fromhex(
    "0000000000000000000000470000000002994a40c7002000000000000001a1f88620a7000001a1f88620a7ffffffff"
    "ffffffffffffffffffff000000012a000000080000000316000000000000000000000000000000000000"
    "00010000004f0000000002347a3470000000000000000001a1f88620d0000001a1f88620d0ffffffffffffffffffff"
    "ffffffff000000013a000000012e010c00116d657461646174612e76657273696f6e001500"
    "0000000000000000020000003f00000000023b328483002000000000000001a1f88620d1000001a1f88620d1ffffff"
    "ffffffffffffffffffffff000000011a00000008000000040600000000"
)


def test_what_was_written_is_read_again() -> None:
    files = memory()
    path = write(files, ID, ENTRIES, [(b"later", b"batch")])
    head, *data = read_snapshot(files, path)
    assert head.controls == (SnapshotHeaderRecord(last_contained_log_timestamp=LAST_MS),)
    assert not head.records
    assert [batch.records for batch in data] == [ENTRIES, [(b"later", b"batch")]]
    assert [batch.base_offset for batch in data] == [1, 1 + len(ENTRIES)]
    assert {batch.timestamp_ms for batch in (head, *data)} == {NOW_MS}


def test_a_snapshot_of_nothing_has_a_header_and_a_footer() -> None:
    files = memory()
    path = write(files, ID, [])
    assert [batch.records for batch in read_snapshot(files, path)] == [[]]


def test_the_bytes_are_those_that_the_builders_of_batches_make() -> None:
    files = memory()
    values = [b"v" * size for size in (0, 1, 63, 64, 8191, 8192)] * 30
    keyed = [(b"k" * size, b"v" * (300 - size)) for size in (0, 1, 63, 64, 200)] * 30
    path = write(files, ID, [(None, value) for value in values], keyed)
    place = {"epoch": ID.epoch, "timestamp_ms": NOW_MS}
    header = SnapshotHeaderRecord(last_contained_log_timestamp=LAST_MS)
    assert files.read_bytes(path) == (
        control_batch([header], base_offset=0, **place)
        + metadata_batch(values, base_offset=1, **place)
        + build_batch(
            [(NOW_MS, key, value, ()) for key, value in keyed],
            base_offset=1 + len(values),
            leader_epoch=ID.epoch,
        )
        + control_batch([SnapshotFooterRecord()], base_offset=1 + len(values) + len(keyed), **place)
    )


def test_further_control_records_follow_the_header_in_its_batch() -> None:
    files = memory()
    level = KRaftVersionRecord(k_raft_version=1)
    path = write(files, ID, ENTRIES, first_records=[level])
    head, data = read_snapshot(files, path)
    assert head.controls == (SnapshotHeaderRecord(last_contained_log_timestamp=LAST_MS), level)
    assert data.base_offset == 2


def test_many_records_go_into_batches_of_a_thousand() -> None:
    files = memory()
    records: list[tuple[bytes | None, bytes]] = [(None, b"%d" % n) for n in range(2500)]
    path = write(files, ID, iter(records))
    assert entries_of(files, path) == records
    counts = [len(batch.records) for batch in read_snapshot(files, path)][1:]
    assert counts == [SNAPSHOT_BATCH_RECORDS, SNAPSHOT_BATCH_RECORDS, 452]


def test_no_batch_has_more_than_eight_mebibytes() -> None:
    files = memory()
    records: list[tuple[bytes | None, bytes]] = [
        (b"k" * 1000, bytes([n]) * 3_000_000) for n in range(5)
    ]
    path = write(files, ID, records)
    assert entries_of(files, path) == records
    sizes = [size for _, size, _ in walk(files.read_bytes(path))]
    assert len(sizes) == 5
    assert max(sizes) <= 8 << 20


def test_batches_are_cut_at_the_limit_wherever_it_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_writing, "SNAPSHOT_BATCH_BYTES", 300)
    seed = 20_240_611
    rng = random.Random(seed)
    for number in range(50):
        files = memory()
        records = [
            (rng.choice([None, rng.randbytes(rng.randrange(70))]), rng.randbytes(rng.randrange(90)))
            for _ in range(rng.randrange(40))
        ]
        path = write(files, ID, records)
        assert entries_of(files, path) == records, f"seed {seed}, round {number}"
        assert max(size for _, size, _ in walk(files.read_bytes(path))) <= 300


def test_a_record_that_no_batch_can_hold_is_refused_and_nothing_is_left() -> None:
    files = memory()
    with pytest.raises(ValueError, match="8388608"):
        write(files, ID, [(None, bytes(8 << 20))])
    assert files.list_dir(FOLDER) == []


def test_there_is_no_snapshot_before_it_is_finished() -> None:
    files = memory()
    writer = SnapshotWriter(
        files, FOLDER, ID, last_contained_ms=LAST_MS, unique="abc", now_ms=NOW_MS
    )
    writer.append(ENTRIES)
    assert files.list_dir(FOLDER) == [
        "00000000000000000123-0000000004-abc.checkpoint.part",
    ]
    assert Snapshots(files, FOLDER).latest is None
    writer.abandon()
    assert files.list_dir(FOLDER) == []


def test_the_same_snapshot_is_not_written_twice() -> None:
    files = memory()
    path = write(files)
    before = files.read_bytes(path)
    with pytest.raises(FileExistsError):
        write(files, ID, [])
    assert files.read_bytes(path) == before
    assert files.list_dir(FOLDER) == [ID.file_name]


def test_nobody_writes_to_a_snapshot_any_more(tmp_path: Path) -> None:
    files = DiskFilesystem()
    path = write(files, folder=str(tmp_path))
    assert stat.S_IMODE((tmp_path / ID.file_name).stat().st_mode) == 0o400
    assert entries_of(files, path) == ENTRIES


def test_apache_kafkas_bootstrap_checkpoint_is_read() -> None:
    files = memory()
    files.write_bytes("/data/bootstrap.checkpoint", BOOTSTRAP)
    head, data = read_snapshot(files, "/data/bootstrap.checkpoint")
    assert head.controls == (SnapshotHeaderRecord(last_contained_log_timestamp=0),)
    ((key, value),) = data.records
    assert key is None
    assert decode_record(value) == FeatureLevelRecord(name="metadata.version", feature_level=21)
    assert (data.position, data.base_offset, data.timestamp_ms) == (83, 1, 0x1A1F88620D0)


def test_apache_kafkas_bootstrap_checkpoint_is_refused_under_the_name_of_another_epoch() -> None:
    files = memory()
    files.write_bytes(f"{FOLDER}/{SnapshotId(1, 0).file_name}", BOOTSTRAP)
    assert len(entries_of(files, f"{FOLDER}/{SnapshotId(1, 0).file_name}")) == 1
    path = f"{FOLDER}/{SnapshotId(1, 7).file_name}"
    files.write_bytes(path, BOOTSTRAP)
    with pytest.raises(DamagedSnapshot, match="epoch 0, the snapshot of 7"):
        entries_of(files, path)


KAFKA_WRITTEN = Path(__file__).parent / "kafka_written"


def test_a_snapshot_of_apache_kafka_is_read_and_ours_of_the_same_records_is_the_same() -> None:
    found = [path for path in KAFKA_WRITTEN.rglob("*.checkpoint") if snapshot_id_of(path.name)]
    assert found
    for path in found:
        snapshot_id = snapshot_id_of(path.name)
        assert snapshot_id is not None
        disk = DiskFilesystem()
        head, *data = read_snapshot(disk, str(path))
        for batch in data:
            for _, value in batch.records:
                decode_record(value)
        theirs = path.read_bytes()
        header = head.controls[0]
        assert isinstance(header, SnapshotHeaderRecord)
        # Kafka takes the time again for each batch; so each is compared with ours of its time.
        for position, size, _ in walk(theirs):
            files = memory()
            writer = SnapshotWriter(
                files,
                FOLDER,
                snapshot_id,
                last_contained_ms=header.last_contained_log_timestamp,
                unique="1",
                first_records=head.controls[1:],
                now_ms=int.from_bytes(theirs[position + 27 : position + 35], "big"),
            )
            for batch in data:
                writer.append(batch.records)
            writer.finish()
            ours = files.read_bytes(writer.path)
            assert ours[position : position + size] == theirs[position : position + size]
            assert len(ours) == len(theirs)


# Names


def test_a_snapshot_is_named_by_its_end_offset_and_epoch() -> None:
    assert ID.file_name == "00000000000000000123-0000000004.checkpoint"
    largest = SnapshotId(2**63 - 1, 2**31 - 1)
    assert largest.file_name == "09223372036854775807-2147483647.checkpoint"


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.checkpoint",
        "leader-epoch-checkpoint",
        "00000000000000000123.snapshot",
        "00000000000000000123-4.checkpoint",
        "00000000000000000123-0000000004.checkpoint.part",
        "00000000000000000123-0000000004.checkpoint.deleted",
        "00000000000000000123-0000000004-x.checkpoint",
        "09223372036854775808-0000000004.checkpoint",
        "00000000000000000123-2147483648.checkpoint",
        "\u0661" + "0" * 19 + "-0000000004.checkpoint",
    ],
)
def test_other_files_are_no_snapshots(name: str) -> None:
    files = memory()
    files.write_bytes(f"{FOLDER}/{name}", b"")
    assert Snapshots(files, FOLDER).ids == []


def test_the_latest_is_of_the_highest_epoch_then_of_the_highest_offset() -> None:
    files = memory()
    for snapshot_id in (SnapshotId(100, 2), SnapshotId(90, 3), SnapshotId(99, 2)):
        files.write_bytes(f"{FOLDER}/{snapshot_id.file_name}", b"")
    snapshots = Snapshots(files, FOLDER)
    assert snapshots.ids == [SnapshotId(99, 2), SnapshotId(100, 2), SnapshotId(90, 3)]
    snapshots.add(SnapshotId(95, 3))
    assert snapshots.latest == SnapshotId(95, 3)


# The folder


def test_a_removed_snapshot_is_set_aside_first_and_can_be_read_to_its_end() -> None:
    files = memory()
    write(files)
    snapshots = Snapshots(files, FOLDER)
    file = snapshots.open_to_read(ID)
    size = snapshots.size(ID)
    aside = snapshots.remove(ID)
    assert snapshots.ids == []
    assert files.list_dir(FOLDER) == [f"{ID.file_name}.deleted"]
    snapshots.remove_removed(aside)
    assert files.list_dir(FOLDER) == []
    assert len(file.pread(size, 0)) == size


def test_a_start_removes_what_is_unfinished_or_set_aside_and_nothing_else() -> None:
    files = memory()
    write(files)
    left = [
        "00000000000000000123-0000000004.checkpoint.deleted",
        "00000000000000000200-0000000004-8613.checkpoint.part",
        "00000000000000000300-0000000005.checkpoint.part",
    ]
    others = ["00000000000000000000.log.deleted", "x.checkpoint.part", "partition.metadata"]
    for name in (*left, *others):
        files.write_bytes(f"{FOLDER}/{name}", b"")
    assert Snapshots(files, FOLDER).tidy() == left
    assert sorted(files.list_dir(FOLDER)) == sorted([ID.file_name, *others])


def test_the_rules_learn_of_each_snapshot_its_size_and_the_time_up_to_which_it_goes() -> None:
    files = memory()
    write(files)
    snapshots = Snapshots(files, FOLDER)
    (held,) = snapshots.held()
    assert (held.id, held.last_contained_ms) == (ID, LAST_MS)
    assert held.size == len(files.read_bytes(snapshots.path(ID)))
    newer = SnapshotId(200, 4)
    write(files, newer)
    snapshots.add(newer)
    files.reads.clear()
    assert [known.id for known in snapshots.held()] == [ID, newer]
    assert {path for path, _, _ in files.reads} == {snapshots.path(newer)}


def test_the_bytes_on_the_page_of_the_format_are_those_of_a_snapshot() -> None:
    page = Path(__file__).parents[3] / "docs" / "formats" / "metadata-snapshot.md"
    block = re.findall(r"^```\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)[-1]
    shown = bytes.fromhex("".join(line.partition("   ")[0] for line in block.splitlines()))
    files = memory()
    level = FeatureLevelRecord(name="metadata.version", feature_level=21)
    assert files.read_bytes(write(files, ID, [(None, encode_record(level))])) == shown
