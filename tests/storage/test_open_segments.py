"""Files are closed and opened again as their number wants it; nobody who uses the logs notices."""

from __future__ import annotations

import errno
import os
import random
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.disk import DiskFile, DiskFilesystem
from storage.errors import LogFailed, StorageError
from storage.filesystem import SpareDescriptors
from storage.open_segments import OpenSegments
from storage.recovery import open_log
from tests.storage.logs import NOW_MS, Settings, append, batch, everything, opened, produce, taken
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.log import Log
    from storage.segment import Segment

FILES_MAX = 3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> OpenSegments[Segment]:
    """Three files of logs may be open."""
    fresh: OpenSegments[Segment] = OpenSegments()
    fresh.files_max = FILES_MAX
    for module in ("segment", "segments"):
        monkeypatch.setattr(f"storage.{module}.OPEN", fresh)
    return fresh


@pytest.fixture
def logs(tmp_path: Path, few: OpenSegments[Segment]) -> list[Log]:
    """Twenty logs on a disk, of two segments each."""
    files = DiskFilesystem()
    size = len(batch(bytes(80)))
    return [
        opened(files, Settings(segment_bytes=2 * size), folder=f"{tmp_path}/orders-{number}")
        for number in range(20)
    ]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_active_segments_are_closed_and_opened_again_when_needed(
    logs: list[Log], few: OpenSegments[Segment]
) -> None:
    before = descriptors()

    for _ in range(3):
        for log in logs:
            append(log, batch(bytes(80)))
        for log in logs:
            log.write()

    assert all(len(everything(log)) == 3 * len(batch(bytes(80))) for log in logs)
    assert len(few) <= FILES_MAX
    assert descriptors() - before <= FILES_MAX


def test_what_waits_for_a_sync_holds_no_file_open(logs: list[Log]) -> None:
    before = descriptors()
    for _ in range(3):
        for log in logs:
            append(log, batch(bytes(80)))
            log.write()
    waiting = [(log, *log.unsynced()) for log in logs]
    assert all(len(log.segments) == 2 and len(steps) > 3 for log, steps, _ in waiting)
    assert descriptors() - before <= FILES_MAX

    for log, steps, up_to in waiting:
        for step in steps:
            step.sync()
        log.synced(up_to)

    assert [log.recovery_point for log in logs] == [3] * len(logs)


def test_a_file_that_was_closed_before_its_sync_is_synced_all_the_same(
    few: OpenSegments[Segment],
) -> None:
    files = MemoryFilesystem()
    logs = [opened(files, folder=f"/data/orders-{number}") for number in range(10)]
    for log in logs:
        produce(log, b"kept")
    for log in logs:
        log.sync()
    files.sync_dir("/data")

    after = files.power_cut(random.Random(1))

    for number in range(10):
        log, _ = open_log(
            after, f"/data/orders-{number}", Settings(), known=None, leader_epoch=0, now_ms=NOW_MS
        )
        assert log.next_offset == 1


def test_a_slice_outlives_the_closing_of_its_file(logs: list[Log]) -> None:
    for log in logs:
        produce(log, bytes(80))

    slices = [log.read(0, 1000) for log in logs]

    assert [len(taken(piece)) for piece in slices] == [len(batch(bytes(80)))] * len(logs)


@pytest.fixture
def spares(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpareDescriptors]:
    """Three descriptors are held, and the process may have no other."""
    fresh = SpareDescriptors()
    monkeypatch.setattr("storage.filesystem.SPARES", fresh)
    monkeypatch.setattr("storage.open_segments.SPARES", fresh)
    fresh.hold(3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    taken = [os.dup(0) for _ in range(highest)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, hard))
    yield fresh
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for descriptor in taken:
        os.close(descriptor)
    fresh.hold(0)


def test_without_a_descriptor_a_spare_one_is_given_up_and_taken_back_for_another_file(
    tmp_path: Path, few: OpenSegments[Segment], spares: SpareDescriptors
) -> None:
    logs = [opened(DiskFilesystem(), folder=f"{tmp_path}/orders-{n}") for n in range(5)]

    for log in logs:
        produce(log, b"v")
        log.sync()

    assert [log.recovery_point for log in logs] == [1] * 5
    for log in logs:
        log.close(clean=False)
    assert spares.refill()


def test_the_last_spare_is_for_what_tells_of_it(spares: SpareDescriptors) -> None:
    path = Path(__file__)
    files = DiskFilesystem()
    held: list[DiskFile] = []
    with pytest.raises(OSError, match="Too many open files"):
        held.extend(files.open_to_read(str(path)) for _ in range(10))

    with spares.lent():
        assert path.read_bytes()

    del held[:]
    assert spares.refill()


def test_a_sync_that_finds_no_descriptor_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(DiskFilesystem(), folder=f"{tmp_path}/orders-0")
    produce(log, b"v")

    def refuse(files: DiskFilesystem, path: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    with monkeypatch.context() as short:
        short.setattr(DiskFilesystem, "sync_dir", refuse)
        with pytest.raises(StorageError, match="Too many open files"):
            log.sync()
    assert log.failed is None

    log.sync()

    assert log.recovery_point == 1


def test_a_sync_that_fails_after_its_file_was_opened_again_stops_the_log(
    logs: list[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    for log in logs:
        produce(log, b"v")
        log.sync()
        produce(log, b"v")
    first = logs[0]

    def fail(file: DiskFile) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)

    monkeypatch.setattr(DiskFile, "sync", fail)
    with pytest.raises(LogFailed, match="sync failed"):
        first.sync()

    assert first.failed is not None
