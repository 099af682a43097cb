"""Tails that recovery cuts off a log are kept beside it, within bounds."""

from __future__ import annotations

from storage.layout import file_name
from storage.recovery import LastKnown
from tests.storage.logs import FOLDER, batches_in, everything, file_of
from tests.storage.test_recovery import LOG_PATH, TEN_BATCHES, reopened, ten_batches


def test_what_a_crash_left_unwritten_ends_the_log_and_is_kept_beside_it() -> None:
    files, _ = ten_batches()
    data = bytearray(file_of(files, ".log"))
    size = len(data) // 10
    data[5 * size + 20 : 5 * size + 60] = bytes(40)
    files.write_bytes(LOG_PATH, bytes(data))

    log, reports = reopened(files, LastKnown(recovery_point=10, high_watermark=20))

    assert [(r.bytes_cut, r.position, r.next_offset, r.offsets_lost) for r in reports] == [
        (5 * size, 5 * size, 10, 10)
    ]
    assert batches_in(everything(log)) == TEN_BATCHES[:5]
    kept = reports[0].kept_as
    assert kept == f"{file_name(0, '.log')}.cut-10"
    assert files.read_bytes(f"{FOLDER}/{kept}") == data[5 * size :]


def test_a_disk_that_has_no_room_to_keep_what_is_cut_lets_the_log_start() -> None:
    files, _ = ten_batches()
    data = bytearray(file_of(files, ".log"))
    size = len(data) // 10
    data[5 * size + 20 : 5 * size + 60] = bytes(40)
    files.write_bytes(LOG_PATH, bytes(data))
    files.capacity = files.used_bytes()

    log, reports = reopened(files, LastKnown(recovery_point=10))

    assert log.next_offset == 10
    assert reports[0].kept_as == ""
    assert "not kept" in reports[0].reason
    assert not [name for name in files.list_dir(FOLDER) if ".cut-" in name]


def test_the_newest_few_of_what_was_cut_are_kept() -> None:
    files, _ = ten_batches()
    whole = file_of(files, ".log")
    for number in range(7):
        files.mtime_ms += 1000
        files.write_bytes(LOG_PATH, whole + b"torn %d" % number)
        _, reports = reopened(files)
        assert reports[0].kept_as

    kept = [name for name in files.list_dir(FOLDER) if ".cut-" in name]
    assert sorted(files.read_bytes(f"{FOLDER}/{name}") for name in kept) == [
        b"torn %d" % number for number in range(3, 7)
    ]
