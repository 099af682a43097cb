"""The cases of storage.md, section 17, that concern a check and a repair, row by row.

Each: what a check says, that a repair leaves no error, and what is served afterwards.
"""

from __future__ import annotations

import json

import pytest

from protocol.records.builder import build_batch
from protocol.records.walk import walk
from storage.checkpoints import decode_offsets, encode_offsets
from storage.epochs import LeaderEpochs
from storage.errors import DataDirectoryError
from storage.inspection.findings import ERROR, WARNING
from storage.layout import LOG, RECEIVE_TIMES, SNAPSHOT, TIME_INDEX, file_name
from tests.storage.inspection.directories import (
    LOG_0,
    ORDERS,
    TOP,
    Contents,
    contents_in,
    entries_of,
    errors,
    findings,
    in_memory,
    notes,
    opened,
    repaired,
    ten_batches,
)
from tests.storage.logs import batches_in, everything
from tests.support.memory_filesystem import MemoryFilesystem

FOLDER = "orders-0"
LOG_NAME = f"{FOLDER}/{file_name(0, LOG)}"
INDEX_NAME = f"{FOLDER}/{file_name(0, '.index')}"
TIMES_NAME = f"{FOLDER}/{file_name(0, TIME_INDEX)}"
EPOCHS = f"{FOLDER}/leader-epoch-checkpoint"
METADATA = f"{FOLDER}/partition.metadata"
MARKER = ".kafka_cleanshutdown"
QUORUM = "__cluster_metadata-0/quorum-state"
POINTS = "recovery-point-offset-checkpoint"
STARTS = "log-start-offset-checkpoint"
SYNCED = "synced-offset-checkpoint"
TAKEN = "taken-over-checkpoint"
WATERMARKS = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"


def kinds(files: MemoryFilesystem) -> set[str]:
    return {found.kind for found in findings(files)}


def severities(files: MemoryFilesystem) -> set[str]:
    return {found.severity for found in findings(files)}


def served(files: MemoryFilesystem) -> list[tuple[int, int]]:
    """The offsets of the batches that a broker serves after its start."""
    directory, _ = opened(files)
    log = directory.logs["orders", 0]
    assert not log.failed
    return batches_in(everything(log))


def assert_repaired(files: MemoryFilesystem, offsets: list[int]) -> None:
    """A repair that leaves no error, nothing to do for a second one, and these base offsets."""
    assert [change for change in repaired(files) if change.left] == []
    assert errors(files) == []
    assert repaired(files) == []
    assert [first for first, _ in served(files)] == offsets


ALL = list(range(0, 20, 2))


@pytest.fixture
def clean() -> Contents:
    return ten_batches(clean=True)


@pytest.fixture
def crashed() -> Contents:
    return ten_batches(clean=False)


def test_the_fixture_is_flawless_after_a_clean_stop_and_after_a_crash(
    clean: Contents, crashed: Contents
) -> None:
    assert findings(in_memory(clean)) == []
    assert notes(in_memory(clean)) == []
    assert findings(in_memory(crashed)) == []
    assert [found.kind for found in notes(in_memory(crashed))] == ["not-clean"]
    assert [first for first, _ in served(in_memory(clean))] == ALL


# S: segments and indexes


@pytest.mark.parametrize("tail", [bytes(1000), b"\x7f" * 333, b"\0\0\0\0\0\0\0\x14\0\0\1\0"])
def test_s1_bytes_after_the_last_batch_above_the_recovery_point(
    crashed: Contents, tail: bytes
) -> None:
    files = in_memory(crashed | {LOG_NAME: crashed[LOG_NAME] + tail})

    (found,) = findings(files)
    assert found.position == len(crashed[LOG_NAME])
    assert found.offset == 20
    assert "a start cuts them off" in found.reason
    assert found.severity == ("error" if tail[:1] == b"\x7f" else "warning")
    assert_repaired(files, ALL)
    assert files.read_bytes(f"{LOG_0}.damaged-20-end") == tail


def test_s2_the_same_under_a_clean_marker_is_a_lie(clean: Contents) -> None:
    files = in_memory(clean | {LOG_NAME: clean[LOG_NAME] + bytes(100)})

    assert kinds(files) == {"zeros", "marker"}
    assert severities(files) == {"error"}
    assert_repaired(files, ALL)
    assert not files.exists(f"{TOP}/{MARKER}")


def flipped(contents: Contents, batch_number: int, byte: int = 70) -> Contents:
    sizes = [len(entry) for entry in entries_of(contents)[FOLDER]]
    data = bytearray(contents[LOG_NAME])
    data[sum(sizes[:batch_number]) + byte] ^= 1
    return contents | {LOG_NAME: bytes(data)}


@pytest.mark.parametrize("marked", [False, True])
def test_s3_to_s5_a_flipped_bit_costs_one_batch(marked: bool) -> None:
    contents = ten_batches(clean=marked)
    files = in_memory(flipped(contents, 5))

    (found,) = [f for f in findings(files) if f.kind == "checksum"]
    assert (found.severity, found.partition, found.offset) == ("error", FOLDER, 10)
    assert found.position == sum(map(len, entries_of(contents)[FOLDER][:5]))
    assert_repaired(files, [offset for offset in ALL if offset != 10])
    aside = files.read_bytes(f"{LOG_0}.damaged-10-12")
    assert len(aside) == len(entries_of(contents)[FOLDER][5])
    # After a crash a start writes a snapshot of the end, and here it has not come to a sync.
    unsynced = set() if marked else {"left-over"}
    assert {found.kind for found in notes(files)} == {"gap", "set-aside", "not-clean"} | unsynced


@pytest.mark.parametrize("garbage", [b"\xa5" * 16, bytes(7), b"\0\0\0\1\0\0\0\1"])
def test_s6_and_s7_an_index_that_is_not_this_logs(clean: Contents, garbage: bytes) -> None:
    files = in_memory(clean | {INDEX_NAME: garbage})

    assert {"index", "marker"} >= kinds(files) > set()
    assert_repaired(files, ALL)
    assert files.read_bytes(f"{TOP}/{INDEX_NAME}")[:8] != garbage[:8]


@pytest.mark.parametrize("name", [INDEX_NAME, TIMES_NAME])
def test_s8_and_s9_an_index_of_a_sealed_segment_is_missing(name: str) -> None:
    """The active one's may not have been made."""
    rolled = ten_batches(clean=False, segment_bytes=600)
    files = in_memory({key: data for key, data in rolled.items() if key != name})

    (found,) = findings(files)
    assert (found.severity, found.kind) == ("warning", "index-missing")
    assert_repaired(files, ALL)
    assert findings(files) == []


def test_s10_zeros_at_the_end_of_indexes_are_what_kafka_leaves_in_a_crash(
    crashed: Contents,
) -> None:
    sizes = {INDEX_NAME: 10_485_760, TIMES_NAME: 10_485_756}
    longer = {name: bytes(size) for name, size in sizes.items()}
    files = in_memory(crashed | longer)

    assert findings(files) == []
    assert {found.kind for found in notes(files)} == {"not-clean", "index-zeros"}
    assert repaired(files) == []


def two_segments(second: int, contents: Contents, first_batch: int) -> Contents:
    """The fixture with the batches from one on once more in a second segment."""
    entries = entries_of(contents)[FOLDER]
    return contents | {f"{FOLDER}/{file_name(second, LOG)}": b"".join(entries[first_batch:])}


def test_s11_a_gap_between_segments_is_told_and_survives_a_repair(crashed: Contents) -> None:
    entries = entries_of(crashed)[FOLDER]
    contents = crashed | {
        LOG_NAME: b"".join(entries[:3]),
        f"{FOLDER}/{file_name(10, LOG)}": b"".join(entries[5:]),
    }
    files = in_memory(contents)

    assert "gap" in kinds(files)
    assert_repaired(files, [0, 2, 4, 10, 12, 14, 16, 18])


def test_s12_a_segment_that_repeats_offsets_is_put_aside(crashed: Contents) -> None:
    files = in_memory(two_segments(10, crashed, 5))

    assert "overlap" in kinds(files)
    assert_repaired(files, ALL)
    assert files.exists(f"{ORDERS}/{file_name(10, LOG)}.damaged")


def test_s12_also_if_it_begins_below_its_own_base(crashed: Contents) -> None:
    files = in_memory(two_segments(10, crashed, 3))

    assert {"overlap", "offset-order"} <= kinds(files)
    assert_repaired(files, ALL)


def test_s13_batches_that_are_repeated_go_and_what_follows_stays(crashed: Contents) -> None:
    entries = entries_of(crashed)[FOLDER]
    files = in_memory(crashed | {LOG_NAME: b"".join(entries[:5] + entries[2:])})

    assert "offset-order" in kinds(files)
    assert_repaired(files, ALL)
    assert files.read_bytes(f"{LOG_0}.damaged-10-10") == b"".join(entries[2:5])


def test_s14_an_empty_log_is_flawless(crashed: Contents) -> None:
    empty = {LOG_NAME: b"", INDEX_NAME: b"", TIMES_NAME: b"", EPOCHS: b"0\n1\n5 0\n"}
    gone = {POINTS: b"0\n0\n", WATERMARKS: b"0\n0\n"}
    kept = {name: data for name, data in crashed.items() if not name.endswith(SNAPSHOT)}
    assert findings(in_memory(kept | empty | gone)) == []


@pytest.mark.parametrize(
    ("suffix", "severity"), [(".cleaned", "warning"), (".swap", "warning"), (".deleted", "note")]
)
def test_s16_to_s18_left_overs_are_named_and_left_to_the_start(
    crashed: Contents, suffix: str, severity: str
) -> None:
    files = in_memory(crashed | {f"{FOLDER}/{file_name(50, LOG)}{suffix}": crashed[LOG_NAME]})

    found = [f for f in (*findings(files), *notes(files)) if f.kind == "left-over"]
    assert [f.severity for f in found] == [severity]
    assert repaired(files) == []


# P: producers and epochs


def test_p1_no_snapshot_under_a_clean_marker() -> None:
    contents = ten_batches(clean=True, producer=True)
    kept = {name: data for name, data in contents.items() if not name.endswith(SNAPSHOT)}
    files = in_memory(kept)

    assert kinds(files) == {"snapshot", "marker"}
    assert_repaired(files, ALL)
    assert (
        contents_in(files)[f"{FOLDER}/{file_name(20, SNAPSHOT)}"]
        == (contents[f"{FOLDER}/{file_name(20, SNAPSHOT)}"])
    )


def test_p3_a_snapshot_with_a_wrong_checksum() -> None:
    contents = ten_batches(clean=True, producer=True)
    name = f"{FOLDER}/{file_name(20, SNAPSHOT)}"
    files = in_memory(contents | {name: contents[name][:-1] + b"\x01"})

    (found,) = findings(files)
    assert "the checksum is" in found.reason
    assert_repaired(files, ALL)
    assert files.read_bytes(f"{TOP}/{name}") == contents[name]
    assert files.exists(f"{TOP}/{name}.damaged")


@pytest.mark.parametrize(("point", "severity"), [(0, WARNING), (20, ERROR)])
def test_an_empty_snapshot_is_damage_only_where_a_crash_cannot_have_left_it(
    point: int, severity: str
) -> None:
    contents = ten_batches(clean=False, producer=True, segment_bytes=400)
    name = max(name for name in contents if name.endswith(SNAPSHOT))
    files = in_memory(contents | {name: b"", POINTS: b"0\n1\norders 0 %d\n" % point})

    (found,) = [one for one in findings(files) if one.kind == "snapshot"]

    assert (found.severity, found.file) == (severity, name.rpartition("/")[2])
    assert [first for first, _ in served(files)] == ALL


def test_receive_times_that_a_power_cut_tore_are_no_damage(clean: Contents) -> None:
    name = next(name for name in clean if name.endswith(RECEIVE_TIMES))
    files = in_memory(clean | {name: clean[name][:-3]})

    (found,) = findings(files)

    assert (found.severity, found.file) == (WARNING, RECEIVE_TIMES)
    assert [first for first, _ in served(files)] == ALL


def test_a_snapshot_that_is_whole_and_not_true_is_found() -> None:
    contents = ten_batches(clean=True, producer=True)
    name = f"{FOLDER}/{file_name(20, SNAPSHOT)}"
    other = ten_batches(clean=True)[name]
    assert findings(in_memory(contents | {name: other})) == [], "a producer may have expired"
    later = f"{FOLDER}/{file_name(10, SNAPSHOT)}"
    (found,) = findings(in_memory(contents | {later: contents[name]}))
    assert "last offset 19, the log says 9" in found.reason


@pytest.mark.parametrize(
    "epochs", [b"0\n2\n7 12\n9 99\n", b"0\n1\n9 4\n", b"0\n1\n5 6\n", b"1\n", b"x"]
)
def test_p4_an_epoch_file_that_is_ahead_or_wrong(clean: Contents, epochs: bytes) -> None:
    files = in_memory(clean | {EPOCHS: epochs})

    assert kinds(files) == {"epochs"}
    assert_repaired(files, ALL)
    repaired = LeaderEpochs.decode(files.read_bytes(f"{TOP}/{EPOCHS}"), EPOCHS)
    assert repaired.entries() == [(5, 0)]
    assert files.read_bytes(f"{TOP}/{EPOCHS}.damaged") == epochs


def test_p5_the_epoch_file_is_missing(clean: Contents) -> None:
    files = in_memory({name: data for name, data in clean.items() if name != EPOCHS})

    assert kinds(files) == {"epochs"}
    assert_repaired(files, ALL)
    repaired = LeaderEpochs.decode(files.read_bytes(f"{TOP}/{EPOCHS}"), EPOCHS)
    assert repaired.entries() == [(5, 0)]


# C: checkpoints


@pytest.mark.parametrize("name", [POINTS, WATERMARKS, CLEANER])
def test_c1_a_checkpoint_above_the_end(crashed: Contents, name: str) -> None:
    files = in_memory(crashed | {name: b"0\n1\norders 0 25\n"})

    (found,) = findings(files)
    assert (found.severity, found.file, found.offset) == ("warning", name, 25)
    assert_repaired(files, ALL)
    assert findings(files) == []


@pytest.mark.parametrize("name", [POINTS, WATERMARKS, STARTS, CLEANER])
@pytest.mark.parametrize("data", [b"1\n0\n", b"0\n7\norders 0 0\n", b"0\n1\norders 0\n", b"\xff"])
def test_c2_a_malformed_checkpoint(clean: Contents, name: str, data: bytes) -> None:
    files = in_memory(clean | {name: data})

    assert [f for f in findings(files) if f.kind == "malformed"] != []
    assert_repaired(files, ALL)
    assert files.read_bytes(f"{TOP}/{name}.damaged") == data


def test_c2_the_lines_that_can_be_read_are_kept(crashed: Contents) -> None:
    files = in_memory(crashed | {STARTS: b"0\n2\norders 0 5\nord\xc3\n"})
    repaired(files)
    assert files.read_bytes(f"{TOP}/{STARTS}") == encode_offsets({("orders", 0): 5})


@pytest.mark.parametrize("name", [STARTS, POINTS, SYNCED, TAKEN])
def test_c2_a_wrong_bit_is_told_and_set_right(clean: Contents, name: str) -> None:
    whole = encode_offsets({("orders", 0): 5})
    if name in clean:
        whole = clean[name]
    for position in range(len(whole)):
        spoilt = bytearray(whole)
        spoilt[position] ^= 1 << position % 7
        files = in_memory(clean | {name: bytes(spoilt)})
        assert [(f.kind, f.file) for f in findings(files)] == [("malformed", name)], position
        assert_repaired(files, ALL)
        found = decode_offsets(files.read_bytes(f"{TOP}/{name}"), name)
        assert found == decode_offsets(whole, name), position


def test_c3_a_log_start_inside_a_batch_is_nothing_to_tell(clean: Contents) -> None:
    assert findings(in_memory(clean | {STARTS: b"0\n1\norders 0 5\n"})) == []


def test_c4_a_log_start_above_the_end_is_taken_out_and_nothing_is_deleted(
    clean: Contents,
) -> None:
    files = in_memory(clean | {STARTS: b"0\n1\norders 0 25\n"})

    (found,) = findings(files)
    assert (found.severity, found.offset) == ("error", 25)
    assert "Apache Kafka would delete the log" in found.reason
    assert_repaired(files, ALL)


# D: the directory


@pytest.mark.parametrize("name", ["foo", "foo-bar", "lost+found"])
def test_d1_a_foreign_folder_is_a_warning(clean: Contents, name: str) -> None:
    files = in_memory(clean)
    files.make_dir(f"{TOP}/{name}")
    assert [(f.severity, f.file) for f in findings(files)] == [("warning", name)]
    assert repaired(files) == []


def test_d2_foreign_files_and_kafkas_own_folder_are_at_most_notes(clean: Contents) -> None:
    files = in_memory(clean | {"notes.txt": b"x", f"{FOLDER}/readme": b"y"})
    files.make_dir(f"{TOP}/remote-log-index-cache")
    files.make_dir(f"{ORDERS}/sub")
    assert findings(files) == []
    assert [f.file for f in notes(files)] == ["notes.txt", "readme", "sub"]


def test_d3_a_partition_of_no_known_topic(clean: Contents) -> None:
    stranger = {f"other-0/{name.partition('/')[2]}": clean[name] for name in (LOG_NAME, METADATA)}
    found = findings(in_memory(clean | stranger))
    assert any(
        f.kind == "unknown-partition" and "other-0" in f.reason and f.severity == "warning"
        for f in found
    )


def test_a_partition_that_the_metadata_log_has_lost(clean: Contents) -> None:
    lost = {
        f"other-0/{file_name(0, LOG)}": clean[LOG_NAME],
        "other-0/partition.metadata": b"version: 0\ntopic_id: nRMOekHIQQeeynIFtdFb-Q",
    }
    files = in_memory(clean | lost)

    assert "unknown-partition" in {found.kind for found in errors(files)}
    with pytest.raises(DataDirectoryError, match="other-0"):
        opened(files)


def test_an_id_with_a_flipped_bit_is_damage_and_not_another_topics(clean: Contents) -> None:
    spoilt = bytearray(clean[METADATA])
    spoilt[30] ^= 1
    files = in_memory(clean | {METADATA: bytes(spoilt)})

    assert kinds(files) == {"topic-id"}
    assert_repaired(files, ALL)
    assert files.read_bytes(f"{TOP}/{METADATA}") == clean[METADATA]


def test_d3_a_partition_of_another_topic_of_that_name(clean: Contents) -> None:
    files = in_memory(clean | {METADATA: b"version: 0\ntopic_id: nRMOekHIQQeeynIFtdFb-Q"})

    assert kinds(files) == {"topic-id"}
    repaired(files)
    assert errors(files) == []
    (stray,) = [name for name in files.list_dir(TOP) if name.endswith("-stray")]
    assert files.read_bytes(f"{TOP}/{stray}/{file_name(0, LOG)}") == clean[LOG_NAME]


@pytest.mark.parametrize("data", [None, b"", b"version: 0\n", b"version: 0\ntopic_id: zzz"])
def test_d3_and_d4_partition_metadata_missing_or_malformed(
    clean: Contents, data: bytes | None
) -> None:
    contents = clean | {METADATA: data or b""}
    if data is None:
        del contents[METADATA]
    files = in_memory(contents)

    assert kinds(files) == {"partition-metadata"}
    assert_repaired(files, ALL)
    assert files.read_bytes(f"{TOP}/{METADATA}") == clean[METADATA]


# The files that are ours


def test_a_marker_without_the_file_that_backs_it(clean: Contents) -> None:
    files = in_memory({name: data for name, data in clean.items() if name != ".pystate.json"})

    assert findings(files) == []  # as Apache Kafka leaves it: a start reads all logs


def test_what_our_stop_noted_is_passed_over_once_another_broker_has_run(clean: Contents) -> None:
    """As Apache Kafka leaves it after a clean stop: its own marker, our notes from before it."""
    another = build_batch([(1009, None, b"theirs", ())], base_offset=20, leader_epoch=5)
    data = json.loads(clean[QUORUM])
    del data["triglotSince"]
    files = in_memory(
        clean
        | {
            LOG_NAME: clean[LOG_NAME] + another,
            QUORUM: json.dumps(data).encode(),
            POINTS: b"0\n1\norders 0 21\n",
            WATERMARKS: b"0\n1\norders 0 21\n",
        }
    )

    assert findings(files) == []
    assert [found.file for found in notes(files)] == [".pystate.json"]


def test_a_marker_that_somebody_copied(clean: Contents, crashed: Contents) -> None:
    files = in_memory(crashed | {name: clean[name] for name in (MARKER, ".pystate.json")})

    found = findings(files)
    assert any(f.file == MARKER and "a lie" in f.reason for f in found)
    assert_repaired(files, ALL)
    assert not files.exists(f"{TOP}/{MARKER}")
    assert not files.exists(f"{TOP}/.pystate.json"), "a start would believe it"


def test_batches_of_an_epoch_that_the_metadata_log_does_not_know(clean: Contents) -> None:
    data = bytearray(clean[LOG_NAME])
    for position, _, _ in walk(bytes(data)):
        data[position + 15] = 9
    files = in_memory(clean | {LOG_NAME: bytes(data)})

    assert "epochs" in kinds(files)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("meta.properties", "meta.properties"),
        ("__cluster_metadata-0", "__cluster_metadata-0/00000000000000000000.log"),
    ],
)
def test_what_only_a_person_can_restore_is_left_and_named(
    clean: Contents, name: str, file: str
) -> None:
    damaged = b"{" + clean[file][2:]
    files = in_memory(clean | {file: damaged})

    assert any(f.file == name and f.severity == "error" for f in findings(files))
    assert any(change.left and change.file == name for change in repaired(files))
    assert files.read_bytes(f"{TOP}/{file}") == damaged


def test_a_leader_epoch_that_stands_out_is_written_again(clean: Contents) -> None:
    data = bytearray(clean[LOG_NAME])
    position = len(entries_of(clean)[FOLDER][0])
    data[position + 12] = 0x40
    files = in_memory(clean | {LOG_NAME: bytes(data)})

    (found,) = findings(files)
    assert (found.kind, found.position) == ("epoch", position)
    assert_repaired(files, ALL)
    assert files.read_bytes(LOG_0) == clean[LOG_NAME]


def test_a_base_offset_that_stands_out_costs_its_own_batch_only(clean: Contents) -> None:
    data = bytearray(clean[LOG_NAME])
    position = len(entries_of(clean)[FOLDER][0])
    data[position + 4] = 0x10  # the second batch's offset is now far above all others'
    files = in_memory(clean | {LOG_NAME: bytes(data)})

    assert [f.position for f in findings(files) if f.kind == "offset-order"] == [position]
    assert_repaired(files, [offset for offset in ALL if offset != 2])
