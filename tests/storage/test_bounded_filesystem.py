"""A folder with a bound is a disk of that size."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from storage.bounded_filesystem import BoundedFilesystem
from storage.disk import DiskFilesystem

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def test_a_write_that_has_no_room_fails_and_a_removal_makes_room(tmp_path: Path) -> None:
    files = BoundedFilesystem(str(tmp_path), 4 * MIB)
    files.make_dir(f"{tmp_path}/orders-0")
    first = files.open_file(f"{tmp_path}/orders-0/first", create=True)
    for number in range(3):
        first.write_at([bytes(MIB)], number * MIB)
    second = files.open_file(f"{tmp_path}/second", create=True)
    with pytest.raises(OSError, match="second") as full:
        second.write_at([bytes(MIB), bytes(MIB)], 0)
    assert full.value.errno == errno.ENOSPC
    assert second.size() == 0
    first.close()
    files.remove(f"{tmp_path}/orders-0/first")
    second.write_at([bytes(MIB), bytes(MIB)], 0)
    assert second.pread(10, 0) == bytes(10)


def test_what_is_written_again_in_place_takes_no_more_room(tmp_path: Path) -> None:
    files = BoundedFilesystem(str(tmp_path), 4 * MIB)
    file = files.open_file(f"{tmp_path}/one", create=True)
    for _ in range(20):
        file.write_at([bytes(MIB)], 0)
    assert file.size() == MIB


def test_the_room_that_is_left_is_that_of_the_bound(tmp_path: Path) -> None:
    files = BoundedFilesystem(str(tmp_path), 4 * MIB)
    assert files.total_bytes(str(tmp_path)) == files.free_bytes(str(tmp_path)) == 4 * MIB
    other = DiskFilesystem().open_file(f"{tmp_path}/of-another-process", create=True)
    other.write_at([bytes(MIB)], 0)
    other.sync()
    assert 2 * MIB < files.free_bytes(str(tmp_path)) <= 3 * MIB


def test_a_reserve_has_its_room_in_the_bound(tmp_path: Path) -> None:
    files = BoundedFilesystem(str(tmp_path), 4 * MIB)
    files.reserve(f"{tmp_path}/reserve", 3 * MIB)
    with pytest.raises(OSError, match="another"):
        files.reserve(f"{tmp_path}/another", 2 * MIB)
