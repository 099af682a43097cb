"""Opening a partition after a clean stop, after a crash, and after worse.

The names of the rows (S1, ...) are those of the compatibility table that the situations come from:
each was tried on Apache Kafka 3.9, and "as Kafka" or "unlike Kafka" says how ours compares.
"""

from __future__ import annotations

import pytest

from protocol.records.errors import CorruptBatch
from storage.clean_state import CleanState
from storage.epochs import LeaderEpochs
from storage.layout import file_name
from storage.log import Log
from storage.recovery import LastKnown, open_log
from storage.reports import RecoveryReport
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    Vector,
    append,
    batch,
    batches_in,
    decoded,
    everything,
    file_of,
    new_log,
    opened,
    produce,
    readable,
    taken,
    vectors,
)
from tests.support.memory_filesystem import MemoryFilesystem

TEN_BATCHES = [(2 * n, 2 * n + 1) for n in range(10)]
LOG_PATH = f"{FOLDER}/{file_name(0, '.log')}"
INDEX_PATH = f"{FOLDER}/{file_name(0, '.index')}"
SETTINGS = Settings(index_interval_bytes=150)


def ten_batches() -> tuple[MemoryFilesystem, CleanState]:
    """Ten batches of two records, offsets 0..19, stopped in good order; leader epoch 5."""
    files = MemoryFilesystem()
    log = opened(files, SETTINGS, leader_epoch=5)
    for number in range(10):
        append(log, batch(b"a%d" % number, b"b%d" % number, timestamp_ms=1000 + number))
    state = log.close(clean=True)
    assert state is not None
    files.sync_all()
    return files, state


def reopened(
    files: MemoryFilesystem, known: LastKnown | None = None
) -> tuple[Log, list[RecoveryReport]]:
    return open_log(
        files, FOLDER, SETTINGS, known=known or LastKnown(), leader_epoch=5, now_ms=NOW_MS
    )


def flip(files: MemoryFilesystem, offset: int) -> int:
    """Flip a bit in the payload of the batch at an offset; returns the batch's position."""
    data = bytearray(file_of(files, ".log"))
    size = len(data) // 10
    position = offset // 2 * size
    data[position + 70] ^= 1
    files.write_bytes(LOG_PATH, bytes(data))
    return position


def test_after_a_clean_stop_no_log_file_is_read() -> None:
    files, state = ten_batches()
    files.reads.clear()

    log, reports = reopened(files, LastKnown(clean=state))

    assert reports == []
    assert log.next_offset == log.recovery_point == 20
    assert {path.rpartition("/")[2] for path, _, _ in files.reads} == {
        "leader-epoch-checkpoint", "00000000000000000020.snapshot",
    }  # fmt: skip
    assert batches_in(everything(log)) == TEN_BATCHES


def test_an_untouched_log_is_closed_without_a_write() -> None:
    files, state = ten_batches()
    log, _ = reopened(files, LastKnown(clean=state))
    everything(log)
    before = len(files.calls)

    assert log.close(clean=True) is state

    assert files.calls[before:] == []


@pytest.mark.parametrize("tail", [bytes(5000), b"\x07garbage" * 20, b"\0"])
@pytest.mark.parametrize("point", [0, 8, 20])
def test_s1_a_tail_that_is_no_batch_is_cut(tail: bytes, point: int) -> None:
    files, _ = ten_batches()
    whole = file_of(files, ".log")
    files.write_bytes(LOG_PATH, whole + tail)

    log, reports = reopened(files, LastKnown(recovery_point=point))

    assert [(r.bytes_cut, r.position, r.next_offset) for r in reports] == [
        (len(tail), len(whole), 20)
    ]
    assert file_of(files, ".log") == whole
    assert batches_in(everything(log)) == TEN_BATCHES
    assert produce(log, b"next") == 20


def test_s2_a_stale_clean_marker_does_not_hide_a_torn_tail() -> None:
    """Unlike Kafka, which does not start."""
    files, state = ten_batches()
    files.write_bytes(LOG_PATH, file_of(files, ".log") + bytes(100))

    log, reports = reopened(files, LastKnown(clean=state, recovery_point=20))

    assert [report.bytes_cut for report in reports] == [0, 100]
    assert "clean stop, but the file has" in reports[0].reason
    assert batches_in(everything(log)) == TEN_BATCHES


def test_s3_a_flipped_bit_above_the_recovery_point_costs_its_batch() -> None:
    """Unlike Kafka, which cuts everything after it. No crash turns one bit."""
    files, _ = ten_batches()
    position = flip(files, 10)

    log, reports = reopened(files, LastKnown(recovery_point=10, high_watermark=20))

    assert [(r.bytes_cut, r.position, r.next_offset, r.offsets_lost) for r in reports] == [
        (0, position, 20, 2)
    ]
    assert "checksum" in reports[0].reason
    assert batches_in(readable(log)) == TEN_BATCHES[:5] + TEN_BATCHES[6:]
    assert log.failed is None
    assert produce(log, b"next") == 20


def test_s3_damage_below_the_recovery_point_costs_its_batch() -> None:
    """Unlike Kafka, which cuts everything after it, acknowledged or not."""
    files, _ = ten_batches()
    data = bytearray(file_of(files, ".log"))
    size = len(data) // 10
    data[5 * size + 16] = 9  # the magic of the batch at offset 10
    files.write_bytes(LOG_PATH, bytes(data))
    files.remove(INDEX_PATH)

    log, reports = reopened(files, LastKnown(recovery_point=20))

    assert file_of(files, ".log") == bytes(data)
    assert [(r.bytes_cut, r.position, r.offsets_lost) for r in reports] == [(0, 5 * size, 2)]
    assert log.failed is None
    assert batches_in(readable(log)) == TEN_BATCHES[:5] + TEN_BATCHES[6:]
    assert produce(log, b"next") == 20
    assert log.close(clean=True) is not None


@pytest.mark.parametrize("point", [0, 20])
def test_s3_a_synced_end_that_is_damaged_is_not_cut_and_its_offsets_are_not_given_again(
    point: int,
) -> None:
    files, _ = ten_batches()
    data = bytearray(file_of(files, ".log"))
    size = len(data) // 10
    data[9 * size : 10 * size] = bytes(size)
    files.write_bytes(LOG_PATH, bytes(data))

    log, _ = reopened(files, LastKnown(recovery_point=point, synced=20, gaps_below=0))

    assert file_of(files, ".log") == bytes(data)
    assert log.failed is None
    assert batches_in(readable(log)) == TEN_BATCHES[:9]
    with pytest.raises(CorruptBatch):
        log.read(18, 1)
    assert produce(log, b"next") == 20
    log.sync()
    log.close(clean=False)
    again, _ = reopened(files, LastKnown(recovery_point=point, synced=21, gaps_below=0))
    assert batches_in(readable(again)) == [*TEN_BATCHES[:9], (20, 20)]


def test_s4_s5_a_flipped_bit_below_the_recovery_point_is_served_as_it_is() -> None:
    """As Kafka: the client sees the checksum fail."""
    files, state = ten_batches()
    flip(files, 10)

    for known in (LastKnown(clean=state), LastKnown(recovery_point=20)):
        log, reports = reopened(files, known)
        assert reports == []
        assert batches_in(everything(log)) == TEN_BATCHES


@pytest.mark.parametrize(
    "index", [b"\x55" * 24, b"\x00\x00\x00\x05garb", b"1234567", b"", None, bytes(8 * 100)]
)
@pytest.mark.parametrize("clean", [True, False])
def test_s6_to_s10_an_index_that_is_not_this_logs_is_built_again(
    index: bytes | None, clean: bool
) -> None:
    """Unlike Kafka, which serves nothing at all behind garbage."""
    files, state = ten_batches()
    right = file_of(files, ".index")
    if index is None:
        files.remove(INDEX_PATH)
    else:
        files.write_bytes(INDEX_PATH, index)
        if clean:
            state.index_size = len(index)  # a marker that vouches for it

    known = LastKnown(clean=state if clean else None, recovery_point=20)
    log, reports = reopened(files, known)

    assert all(report.bytes_cut == 0 for report in reports)
    for offset in range(20):
        assert batches_in(taken(log.read(offset, 1))) == [TEN_BATCHES[offset // 2]]
    produce(log, b"more")
    log.close(clean=True)
    if index is None or index.strip(b"\0"):  # an empty one is legal: the search gets longer
        assert file_of(files, ".index")[: len(right)] == right


def test_s9_a_time_index_that_is_missing_is_built_again() -> None:
    """Unlike Kafka, whose searches by time get weaker."""
    files, state = ten_batches()
    path = f"{FOLDER}/{file_name(0, '.timeindex')}"
    right = files.read_bytes(path)
    files.remove(path)

    log, _ = reopened(files, LastKnown(clean=state, recovery_point=20))

    assert log.offset_for_timestamp(1004) == (1004, 8, 5)
    log.close(clean=True)
    produce(reopened(files)[0], b"x")
    assert files.read_bytes(path)[: len(right) - 12] == right[: len(right) - 12]


def test_s10_indexes_that_end_in_zeros_are_those_of_a_crashed_kafka() -> None:
    files, _ = ten_batches()
    for suffix in (".index", ".timeindex"):
        path = f"{FOLDER}/{file_name(0, suffix)}"
        files.write_bytes(path, files.read_bytes(path) + bytes(12_000))

    log, reports = reopened(files, LastKnown(recovery_point=14))
    produce(log, b"more")
    log.close(clean=True)

    assert reports == []
    assert len(file_of(files, ".index")) < 200


def test_s11_a_gap_between_two_segments_is_skipped() -> None:
    files, _ = ten_batches()
    later = MemoryFilesystem()
    other, _ = open_log_at(later, 100)
    other.set_leader_epoch(5)
    produce(other, b"z")
    files.write_bytes(f"{FOLDER}/{file_name(100, '.log')}", file_of(later, ".log", 100))
    files.remove(f"{FOLDER}/{file_name(20, '.snapshot')}")

    log, reports = reopened(files)

    assert reports == []
    assert batches_in(everything(log)) == [*TEN_BATCHES, (100, 100)]
    assert batches_in(taken(log.read(50, 1))) == [(100, 100)]


def open_log_at(files: MemoryFilesystem, offset: int) -> tuple[Log, list[RecoveryReport]]:
    files.make_dir(FOLDER)
    return open_log(files, FOLDER, SETTINGS, known=LastKnown(start_offset=offset))


def test_a_gap_that_compaction_did_not_make_ends_the_log() -> None:
    files, _ = ten_batches()
    later = MemoryFilesystem()
    other, _ = open_log_at(later, 100)
    other.set_leader_epoch(5)
    produce(other, b"z")
    files.write_bytes(f"{FOLDER}/{file_name(100, '.log')}", file_of(later, ".log", 100))

    log, reports = reopened(files, LastKnown(recovery_point=20, gaps_below=20))

    assert [report.reason for report in reports] == ["follows a cut: offsets 20..99 are missing"]
    assert batches_in(everything(log)) == TEN_BATCHES
    assert produce(log, b"next") == 20


def test_s12_a_segment_that_repeats_the_one_before_it_is_put_aside() -> None:
    """Unlike Kafka, which does not start."""
    files, _ = ten_batches()
    data = file_of(files, ".log")
    files.write_bytes(f"{FOLDER}/{file_name(10, '.log')}", data[len(data) * 3 // 10 :])

    log, reports = reopened(files)

    assert batches_in(everything(log)) == TEN_BATCHES
    assert [report.bytes_cut for report in reports] == [0]
    assert f"{file_name(10, '.log')}.damaged" in files.list_dir(FOLDER)


@pytest.mark.parametrize("point", [0, 20])
def test_s13_repeated_batches_are_not_served(point: int) -> None:
    """Unlike Kafka, which serves duplicates. Above the recovery point they end the log."""
    files, _ = ten_batches()
    data = file_of(files, ".log")
    size = len(data) // 10
    repeated = data[: 5 * size] + data[2 * size :]
    files.write_bytes(LOG_PATH, repeated)
    files.remove(INDEX_PATH)

    log, reports = reopened(files, LastKnown(recovery_point=point))

    assert batches_in(readable(log)) == (TEN_BATCHES[:5] if point == 0 else TEN_BATCHES)
    assert "offset 4 follows offset 9" in reports[0].reason
    assert log.failed is None
    assert len(file_of(files, ".log")) == (5 * size if point == 0 else len(repeated))


def test_an_empty_segment_that_a_failed_roll_left_behind_is_removed_without_a_word() -> None:
    files, _ = ten_batches()
    for suffix in (".index", ".timeindex", ".log"):
        files.write_bytes(f"{FOLDER}/{file_name(10, suffix)}", b"")

    log, reports = reopened(files)

    assert reports == []
    assert (log.next_offset, log.segments.base_offsets) == (20, [0])
    assert not [name for name in files.list_dir(FOLDER) if name.startswith(file_name(10, ""))]


def test_s14_empty_segments_are_legal() -> None:
    files, _ = ten_batches()
    files.write_bytes(f"{FOLDER}/{file_name(20, '.log')}", b"")

    log, reports = reopened(files)

    assert reports == []
    assert log.next_offset == 20
    assert batches_in(everything(log)) == TEN_BATCHES


@pytest.mark.parametrize("vector", [v for v in vectors() if "mixed" in v["id"]])
def test_s15_a_log_of_all_three_formats_is_served_and_left_as_it_is(vector: Vector) -> None:
    files = MemoryFilesystem()
    data = decoded(vector["expect"]["log"])
    files.write_bytes(f"{FOLDER}/{file_name(vector['base_offset'], '.log')}", data)

    log, reports = reopened(files)

    assert reports == []
    assert everything(log, max_bytes=300) == data
    assert produce(log, b"new") == log.next_offset - 1
    assert file_of(files, ".log", vector["base_offset"])[: len(data)] == data


def test_s16_unfinished_and_deleted_files_are_removed() -> None:
    files, _ = ten_batches()
    for name in ("00000000000000000000.log.cleaned", "00000000000000000007.index.deleted"):
        files.write_bytes(f"{FOLDER}/{name}", b"rest")

    log, _ = reopened(files)

    assert not [name for name in files.list_dir(FOLDER) if name.endswith(("cleaned", "deleted"))]
    assert batches_in(everything(log)) == TEN_BATCHES


def replacement(files: MemoryFilesystem) -> bytes:
    """The batches that hold 8..9 and 18..19: what a compaction of the ten might leave."""
    data = file_of(files, ".log")
    size = len(data) // 10
    return data[4 * size : 5 * size] + data[9 * size :]


def test_s17_a_complete_replacement_takes_the_place_of_the_old_files() -> None:
    files, _ = ten_batches()
    files.write_bytes(f"{LOG_PATH}.swap", replacement(files))

    log, reports = reopened(files)

    assert reports == []
    assert batches_in(everything(log)) == [(8, 9), (18, 19)]
    assert batches_in(taken(log.read(0, 1))) == [(8, 9)]


def test_s18_a_replacement_with_unfinished_parts_is_removed() -> None:
    files, _ = ten_batches()
    files.write_bytes(f"{LOG_PATH}.cleaned", b"unfinished")
    files.write_bytes(f"{FOLDER}/{file_name(8, '.log')}.swap", replacement(files))

    log, _ = reopened(files)

    assert batches_in(everything(log)) == TEN_BATCHES
    assert not [name for name in files.list_dir(FOLDER) if name.endswith(("swap", "cleaned"))]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"0\n2\n5 0\n9 99\n", [(5, 0)]),  # above the metadata's epoch
        (b"0\n1\n9 4\n", [(5, 0)]),  # wrong: taken from the batches
        (b"0\n1\n5 zero\n", [(5, 0)]),  # malformed
        (None, [(5, 0)]),  # missing
        (b"", [(5, 0)]),  # empty
    ],
)
def test_p4_p5_epochs_that_are_wrong_or_missing_are_taken_from_the_batches(
    content: bytes | None, expected: list[tuple[int, int]]
) -> None:
    files, state = ten_batches()
    path = f"{FOLDER}/leader-epoch-checkpoint"
    files.remove(path)
    if content is not None:
        files.write_bytes(path, content)

    log, _ = reopened(files, LastKnown(clean=state))

    assert log.epochs.entries() == expected
    produce(log, b"x")
    log.sync()
    assert LeaderEpochs.decode(files.read_bytes(path), path).entries() == [(5, 0)]


def test_only_what_lies_above_the_recovery_point_is_read() -> None:
    settings = Settings(index_interval_bytes=1000)
    files, log = new_log(settings)
    for _ in range(400):
        append(log, batch(bytes(300)))
    log.sync()
    for file in log.active.store_indexes():
        file.sync()
    for _ in range(10):
        append(log, batch(bytes(300)))
    log.sync()
    size = log.active.size
    files.write_bytes(f"{FOLDER}/{file_name(400, '.snapshot')}", log.producers.encode())
    files.reads.clear()

    log = opened(files, settings, known=LastKnown(recovery_point=400))

    assert log.next_offset == 410
    read = sum(amount for path, _, amount in files.reads if path.endswith(".log"))
    assert read < size // 10


def test_a_recovery_point_above_the_end_is_told() -> None:
    files, _ = ten_batches()

    log, reports = reopened(files, LastKnown(recovery_point=500))

    assert [report.reason for report in reports] == [
        "the recovery point 500 is above the log's end"
    ]
    assert log.recovery_point == log.next_offset == 20


def test_a_reader_that_meets_damage_is_told_and_may_go_past_it() -> None:
    files, state = ten_batches()
    data = bytearray(file_of(files, ".log"))
    size = len(data) // 10
    data[5 * size + 16] = 9
    files.write_bytes(LOG_PATH, bytes(data))
    files.write_bytes(INDEX_PATH, b"")
    state.index_size = 0
    log, _ = reopened(files, LastKnown(clean=state))

    assert batches_in(taken(log.read(9, 1))) == [(8, 9)]
    for offset in (10, 11):
        with pytest.raises(CorruptBatch, match="magic 9"):
            log.read(offset, 1)
    assert batches_in(taken(log.read(15, 1))) == [(14, 15)]
