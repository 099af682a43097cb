"""Free space as the operating system tells it, and the reserve that is made of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from storage.disk import DiskFilesystem
from storage.errors import StorageError, is_disk_full
from storage.linux_files import SPARE_NAMES, LinuxFilesystem
from tests.storage.logs import Settings, everything, opened, produce


def test_a_reserve_takes_its_room_at_once(tmp_path: Path) -> None:
    path = tmp_path / "reserve"

    DiskFilesystem().reserve(str(path), 1 << 20)

    status = path.stat()
    assert status.st_size == 1 << 20
    assert status.st_blocks * 512 >= 1 << 20, "a sparse file would keep nothing free"


def test_what_is_free_is_what_a_program_without_rights_may_write(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)

    free = DiskFilesystem().free_bytes(str(tmp_path))

    assert abs(free - status.f_bavail * status.f_frsize) < 1 << 30, "others write here too"


@pytest.mark.parametrize(
    ("names", "spare", "free"),
    [(1000, SPARE_NAMES, 4096 * 7), (1000, SPARE_NAMES - 1, 0), (0, 0, 4096 * 7)],
)
def test_a_file_system_without_room_for_names_is_full(
    monkeypatch: pytest.MonkeyPatch, names: int, spare: int, free: int
) -> None:
    frsize, bavail = 4096, 7
    status = os.statvfs_result((frsize, frsize, 0, 0, bavail, names, 0, spare, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: status)

    assert LinuxFilesystem().free_bytes("/data") == free


def test_a_full_disk_is_recognised_behind_the_error_that_clients_are_told() -> None:
    def caused(cause: Exception) -> Exception:
        try:
            raise StorageError("refused") from cause
        except StorageError as error:
            return error

    assert is_disk_full(OSError(errno.EDQUOT, "quota"))
    assert is_disk_full(caused(OSError(errno.ENOSPC, "full")))
    assert not is_disk_full(caused(OSError(errno.EIO, "broken")))
    assert not is_disk_full(caused(ValueError("28")))
    assert not is_disk_full(None)


def test_a_log_that_was_closed_keeps_no_file_open_and_so_no_room(tmp_path: Path) -> None:
    log = opened(DiskFilesystem(), Settings(segment_bytes=200), folder=str(tmp_path / "orders-0"))
    for _ in range(5):
        produce(log, bytes(90))
        log.sync()
    assert len(log.segments) > 2
    assert len(everything(log)) > 500
    assert len(held_open(tmp_path)) > 2

    log.close(clean=False)

    assert held_open(tmp_path) == []


def held_open(folder: Path) -> list[str]:
    """The files below this folder that the process has open."""
    links = Path("/proc/self/fd").iterdir()
    names = [str(link.readlink()) for link in links if link.is_symlink()]
    return [name for name in names if name.startswith(f"{folder}/")]
