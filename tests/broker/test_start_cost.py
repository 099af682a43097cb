"""A start syncs no more often than it must: each sync is a tenth of a millisecond to some ten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.disk import DiskFile, DiskFilesystem
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from pathlib import Path

NEW_DIRECTORY_SYNCS = 21
"""Identity, metadata log with its first epoch, checkpoints, and the folders of each."""
CLEAN_START_SYNCS = 13


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what has been synced."""
    paths: list[str] = []
    sync, sync_dir = DiskFile.sync, DiskFilesystem.sync_dir

    def counted_sync(file: DiskFile) -> None:
        paths.append(file.path)
        sync(file)

    def counted_sync_dir(files: DiskFilesystem, path: str) -> None:
        paths.append(path)
        sync_dir(files, path)

    monkeypatch.setattr(DiskFile, "sync", counted_sync)
    monkeypatch.setattr(DiskFilesystem, "sync_dir", counted_sync_dir)
    return paths


def test_a_start_syncs_no_more_often_than_it_did(tmp_path: Path, synced: list[str]) -> None:
    for limit in (NEW_DIRECTORY_SYNCS, CLEAN_START_SYNCS, CLEAN_START_SYNCS):
        synced.clear()
        with InProcessBroker(tmp_path / "data"):
            at_start = list(synced)
        assert 0 < len(at_start) <= limit, at_start
