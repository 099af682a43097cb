"""Files of brokers of tests: everything as on a disk, without waiting for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from storage.bounded_filesystem import BoundedFilesystem
from storage.disk import DiskFilesystem
from storage.filesystem import parent_of
from storage.unsynced_filesystem import UnsyncedFilesystem

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("is_bounded", [False, True])
def test_nothing_is_synced_nor_read_from_the_disk_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_bounded: bool
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(os, "fdatasync", synced.append, raising=False)
    monkeypatch.setattr(os, "posix_fadvise", lambda *asked: synced.append(-1), raising=False)
    files = BoundedFilesystem(str(tmp_path), 1 << 20) if is_bounded else UnsyncedFilesystem()
    path = f"{tmp_path}/one"

    files.write_atomic(path, b"content")
    file = files.open_file(path)
    file.write_at([b"C"], 0)
    file.sync()
    file.reread(0)
    files.sync_dir(parent_of(path))
    file.close()

    assert synced == []
    assert DiskFilesystem().read_bytes(path) == b"Content"
