"""The metadata log and snapshots, dumped and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    TopicRecord,
    control_batch,
    encode_record,
    metadata_batch,
)
from protocol.logdata.metadata import LeaderChangeMessage as LeaderChange
from protocol.records.builder import build_batch
from storage.inspection.dump import DumpOptions, Row, dump
from storage.inspection.findings import Report
from storage.inspection.partition_check import PartitionCheck
from storage.inspection.top_files import TopFiles
from storage.layout import LOG, file_name
from storage.metadata.snapshots import SnapshotId
from tests.storage.metadata.snapshot_files import FOLDER, ID, LAST_MS, NOW_MS, memory, write
from tests.storage.metadata.test_snapshots import BOOTSTRAP

if TYPE_CHECKING:
    from storage.inspection.findings import Finding
    from tests.support.memory_filesystem import MemoryFilesystem

LOG_PATH = f"{FOLDER}/{file_name(0, LOG)}"
TOPIC_ID = bytes(15) + b"\7"
LEVEL = encode_record(FeatureLevelRecord(name="metadata.version", feature_level=21))
TOPIC = encode_record(TopicRecord(name="orders", topic_id=TOPIC_ID))
CONFIG = encode_record(
    ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1\n2")
)


def log_of(*values: bytes) -> MemoryFilesystem:
    """A metadata log: a leader change, then these values in one batch."""
    files = memory()
    change = LeaderChange(leader_id=1, voters=[LeaderChange.Voter(voter_id=1)], granting_voters=[])
    place = {"epoch": 1, "timestamp_ms": NOW_MS}
    files.write_bytes(
        LOG_PATH,
        bytes(
            control_batch([change], base_offset=0, **place)
            + metadata_batch(values, base_offset=1, **place)
        ),
    )
    return files


def rows(files: MemoryFilesystem, path: str, **wanted: bool) -> list[Row]:
    return [row for row in dump(files, path, DumpOptions(**wanted)) if row.inside]


def errors(files: MemoryFilesystem) -> list[Finding]:
    return [found for found in PartitionCheck(files, FOLDER).run() if found.severity == "error"]


def test_records_of_the_metadata_log_are_shown_by_type_and_with_their_fields() -> None:
    files = log_of(TOPIC, CONFIG)
    change, topic, config = rows(files, LOG_PATH, values=True)
    assert change.what == "control"
    assert change.as_json()["type"] == "LeaderChangeMessage"
    assert topic.as_json() == {
        "what": "record",
        "offset": 1,
        "timestamp": NOW_MS,
        "type": "TopicRecord",
        "version": 0,
        "data": {"name": "orders", "topic_id": "AAAAAAAAAAAAAAAAAAAABw"},
    }
    assert str(config) == (
        f"  record offset=2 timestamp={NOW_MS} type=ConfigRecord version=0 data={{resource_type=2 "
        "resource_name=orders name=retention.ms value=1\\n2}"
    )
    assert str(change).endswith(
        "data={version=0 leader_id=1 voters=[{voter_id=1 "
        "voter_directory_id=AAAAAAAAAAAAAAAAAAAAAA}] granting_voters=[]}"
    )


def test_without_values_there_are_types_only_and_without_records_batches() -> None:
    files = log_of(TOPIC)
    assert str(rows(files, LOG_PATH, records=True)[1]) == (
        f"  record offset=1 timestamp={NOW_MS} type=TopicRecord version=0"
    )
    assert rows(files, LOG_PATH) == []


def test_a_record_that_is_unknown_is_shown_as_it_is_with_the_reason() -> None:
    files = log_of(TOPIC, b"\1\x7f\0\0")
    _, _, unknown = rows(files, LOG_PATH, values=True)
    assert unknown.fields["value"] == "0x017f0000"
    assert "api key 127" in str(unknown.fields["why"])


def test_a_snapshot_is_shown_from_its_header_to_its_footer() -> None:
    files = memory()
    path = write(files, ID, [(None, LEVEL)])
    header, level, footer = rows(files, path, values=True)
    assert header.as_json()["data"] == {"version": 0, "last_contained_log_timestamp": LAST_MS}
    assert level.as_json()["data"] == {"name": "metadata.version", "feature_level": 21}
    assert footer.as_json()["type"] == "SnapshotFooterRecord"


def test_apache_kafkas_bootstrap_checkpoint_is_shown() -> None:
    files = memory()
    files.write_bytes("/data/bootstrap.checkpoint", BOOTSTRAP)
    shown = rows(files, "/data/bootstrap.checkpoint", values=True)
    assert [row.fields["type"] for row in shown] == [
        "SnapshotHeaderRecord",
        "FeatureLevelRecord",
        "SnapshotFooterRecord",
    ]


def test_values_of_other_partitions_are_not_taken_for_metadata() -> None:
    files = memory()
    folder = "/data/__consumer_offsets-3"
    files.make_dir(folder)
    path = write(files, ID, [(None, LEVEL), (b"key", b"value")], folder=folder)
    _, first, second, _ = rows(files, path, values=True)
    assert "type" not in first.fields
    assert (second.fields["key"], second.fields["value"]) == ("key", "value")


def test_a_log_and_a_snapshot_that_are_whole_pass_the_check() -> None:
    files = log_of(TOPIC, CONFIG)
    write(files, SnapshotId(3, 1), [(None, LEVEL), (None, TOPIC)])
    assert errors(files) == []


def test_the_check_names_a_snapshot_that_ends_too_early_or_says_what_it_cannot_say() -> None:
    files = log_of(TOPIC)
    path = write(files, SnapshotId(2, 1), [(None, LEVEL)])
    whole = files.read_bytes(path)
    files.write_bytes(path, whole[:-75])
    (error,) = errors(files)
    assert (error.file, error.kind, error.position) == (SnapshotId(2, 1).file_name, "batch", 174)
    assert error.reason == "the file ends here, but a snapshot ends with a footer"

    spoilt = bytearray(whole)
    spoilt[100] ^= 1
    files.write_bytes(path, bytes(spoilt))
    (error,) = errors(files)
    assert (error.kind, error.position) == ("checksum", 83)

    files.remove(path)
    write(files, SnapshotId(2, 1), [(None, b"\2nonsense")])
    (error,) = errors(files)
    assert (error.kind, error.position) == ("record", 83)
    assert "frame of version 2" in error.reason


def test_the_check_names_a_record_of_the_log_that_a_start_would_refuse() -> None:
    change = encode_record(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
    files = log_of(TOPIC, change + b"\0")
    (error,) = errors(files)
    assert (error.file, error.position, error.offset) == (file_name(0, LOG), 86, 1)
    assert "offset 2" in error.reason
    assert "garbage after the message" in error.reason

    files = memory()
    files.write_bytes(LOG_PATH, build_batch([(1, b"key", TOPIC, ())], leader_epoch=1))
    assert len(errors(files)) == 1


def test_a_bootstrap_checkpoint_is_not_blamed_for_the_files_before_it() -> None:
    files = memory()
    files.write_bytes("/data/.kafka_cleanshutdown", b"garbage")
    files.write_bytes("/data/bootstrap.checkpoint", BOOTSTRAP)
    report = Report()
    TopFiles(files, "/data", frozenset(files.list_dir("/data")), report).check()
    named = {found.file for found in report.taken()}
    assert ".kafka_cleanshutdown" in named
    assert "bootstrap.checkpoint" not in named
    files.write_bytes("/data/bootstrap.checkpoint", BOOTSTRAP[:-1])
    TopFiles(files, "/data", frozenset(files.list_dir("/data")), report).check()
    assert "bootstrap.checkpoint" in {found.file for found in report.taken()}
