"""The disk refuses: nothing half-written stays, and the log goes on when there is room again."""

from __future__ import annotations

import errno
import random

import pytest

from protocol.errors import ErrorCode
from storage import log as log_module
from storage.errors import LogFailed, StorageError
from storage.log import Log
from storage.recovery import open_log
from storage.segment import Segment
from storage.syncing import NotPut
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    append,
    batch,
    batches_in,
    everything,
    file_of,
    header_of,
    new_log,
    opened,
    produce,
)
from tests.support.memory_filesystem import MemoryFilesystem


def fail_next(files: MemoryFilesystem, *codes: int) -> None:
    """The next calls that change something fail, one after the other."""
    files.faults = {len(files.calls) + number: code for number, code in enumerate(codes)}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_that_fails_leaves_the_log_as_it_was(code: int) -> None:
    files, log = new_log(Settings(index_interval_bytes=100))
    append(log, batch(b"kept" * 30, timestamp_ms=50, producer=(1, 0, 0)))
    log.write()
    before = file_of(files, ".log")
    for number in range(1, 5):
        append(log, batch(b"lost" * 30, timestamp_ms=900, producer=(1, 0, number)))
    append(log, batch(b"lost", producer=(2, 0, 0)))
    fail_next(files, code)

    with pytest.raises(StorageError, match="orders-0, offset 1") as raised:
        log.write()

    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert file_of(files, ".log") == before
    assert (log.next_offset, log.written_offset, log.failed) == (1, 1, None)
    assert log.max_timestamp() == (50, 0, 0)
    assert 2 not in log.producers
    assert log.producers.check(header_of(batch(b"again", producer=(1, 0, 1)))) is None
    assert produce(log, b"next" * 30, timestamp_ms=60) == 1
    assert produce(log, b"next" * 30, timestamp_ms=61) == 2
    log.close(clean=True)
    assert file_of(files, ".index").hex() == expected_index(files)


def expected_index(files: MemoryFilesystem) -> str:
    """What the log file alone says the index should be."""
    segment = Segment(files, FOLDER, 0, interval_bytes=100)
    assert segment.file.size() == segment.written_size
    segment.rebuild()
    assert segment.times.encode() == file_of(files, ".timeindex")
    return segment.offsets.encode().hex()


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_broken_disk_stops_the_log_with_nothing_half_written(code: int) -> None:
    files, log = new_log()
    produce(log, b"kept")
    before = file_of(files, ".log")
    append(log, batch(b"lost"))
    fail_next(files, code)

    with pytest.raises(LogFailed, match="orders-0, offset 1"):
        log.write()

    assert file_of(files, ".log") == before
    assert log.failed is not None
    with pytest.raises(LogFailed):
        append(log, batch(b"refused"))
    assert batches_in(everything(log)) == [(0, 0)]


def test_a_write_that_cannot_be_undone_stops_the_log_but_not_its_readers() -> None:
    files, log = new_log()
    produce(log, b"kept")
    append(log, batch(b"lost"))
    fail_next(files, errno.ENOSPC, errno.EIO)

    with pytest.raises(LogFailed):
        log.write()

    assert log.failed is not None
    with pytest.raises(LogFailed):
        append(log, batch(b"refused"))
    assert batches_in(everything(log)) == [(0, 0)]
    assert log.close(clean=True) is None
    log = opened_after_cut(files)
    assert batches_in(everything(log)) == [(0, 0)]


def opened_after_cut(files: MemoryFilesystem) -> Log:
    log, reports = open_log(files, FOLDER, Settings(), now_ms=NOW_MS)
    assert len(reports) == 1
    assert reports[0].bytes_cut > 0
    return log


def test_a_failed_early_write_is_told_to_all_who_were_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_module, "QUEUE_BATCHES_MAX", 3)
    files, log = new_log()
    produce(log, b"kept")
    for _ in range(3):
        append(log, batch(b"queued"))
    fail_next(files, errno.ENOSPC)

    with pytest.raises(StorageError):
        append(log, batch(b"one too many"))
    with pytest.raises(StorageError):
        append(log, batch(b"still the same round"))
    with pytest.raises(StorageError):
        log.write()

    log.write()
    assert log.next_offset == 1
    assert produce(log, b"a new round") == 1


@pytest.mark.parametrize("failing", range(7))
def test_a_roll_that_fails_leaves_the_old_segment_in_use(failing: int) -> None:
    files, log = new_log(Settings(segment_bytes=300))
    for _ in range(2):
        produce(log, bytes(60))
    files.faults = {len(files.calls) + failing: errno.ENOSPC}

    outcomes = []
    for _ in range(2):
        try:
            append(log, batch(bytes(60)))
            log.write()
            outcomes.append(True)
        except StorageError:
            outcomes.append(False)

    assert outcomes[1], "the disk has room again"
    count = 2 + sum(outcomes)
    assert batches_in(everything(log)) == [(n, n) for n in range(count)]
    assert len(log.segments) == 2
    log.sync()
    assert log.close(clean=True) is not None
    assert batches_in(everything(opened(files))) == [(n, n) for n in range(count)]


def test_a_sync_that_fails_stops_the_log() -> None:
    files, log = new_log()
    produce(log, b"a")
    log.sync()
    produce(log, b"b")
    fail_next(files, errno.EIO)

    with pytest.raises(LogFailed, match="sync failed"):
        log.sync()

    assert log.recovery_point == 1
    assert log.failed is not None


def test_a_full_disk_does_not_stop_a_log_whose_epochs_could_not_be_stored() -> None:
    files, log = new_log()
    produce(log, b"a")
    steps, _ = log.unsynced()
    fail_next(files, *[errno.ENOSPC] * 3)

    error: OSError | None = None
    for step in steps:
        try:
            step.sync()
        except NotPut as refused:
            error = refused
            break
        except OSError:
            continue
    assert error is not None
    answer = log.sync_failed(error)

    assert answer.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failed is None
    assert log.recovery_point == 0
    files.faults.clear()
    log.sync()
    assert log.recovery_point == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_disk_that_is_full_now_and_then_loses_nothing_it_took(seed: int) -> None:
    rng = random.Random(seed)
    files, log = new_log(Settings(segment_bytes=2000, index_interval_bytes=300))
    taken: list[int] = []
    for number in range(300):
        files.capacity = None if rng.random() < 0.5 else files_size(files) + rng.randrange(400)
        queued: list[int] = []
        try:
            while len(queued) < 3 and rng.random() < 0.8:
                queued += [append(log, batch(b"%d" % number, bytes(rng.randrange(200))))]
            log.write()
        except StorageError:
            queued = [offset for offset in queued if offset < log.written_offset]
            try:
                log.write()
            except StorageError:
                assert log.failed is None
        taken += queued

    files.capacity = None
    bases = [base for base, _ in batches_in(everything(log))]
    assert set(taken) <= set(bases)
    assert bases == sorted(set(bases))
    assert log.close(clean=True) is not None
    assert [base for base, _ in batches_in(everything(opened(files)))] == bases


def files_size(files: MemoryFilesystem) -> int:
    files.capacity = 1 << 40
    room = files.room()
    assert room is not None
    return (1 << 40) - room
