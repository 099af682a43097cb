"""The disk of the power cuts keeps what was synced, and need not keep anything else."""

from __future__ import annotations

import os
import pickle
import random
from typing import TYPE_CHECKING

import pytest

from tests.power.machine import Mount, missing
from tests.power.mounted_disk import KINDS
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REASON = missing()
pytestmark = [pytest.mark.long, pytest.mark.skipif(REASON is not None, reason=str(REASON))]

CUTS = 40


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def mount(tmp_path: Path, state: Path) -> Iterator[Mount]:
    mounted = Mount(state, tmp_path / "disk")
    yield mounted
    mounted.give_up()


def survivors(state: Path) -> Iterator[MemoryFilesystem]:
    """What power cuts leave of a state."""
    for seed in range(CUTS):
        files = MemoryFilesystem(pickle.loads(state.read_bytes()))
        yield files.power_cut(random.Random(seed))


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_what_was_synced_is_there_and_what_was_not_may_be_gone(
    mount: Mount, state: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    with (disk / "kept").open("wb") as file:
        file.write(b"synced")
        file.flush()
        os.fsync(file.fileno())
        sync_folder(disk)
        (disk / "named").write_bytes(b"")
        file.write(b" and not synced")
        file.flush()
    mount.cut("now", 0, within_s=5)
    mount.unmount()

    left = list(survivors(state))

    assert all(files.read_bytes("/kept").startswith(b"synced") for files in left)
    assert {files.size_of("/kept") for files in left} >= {6, 21}
    assert {files.exists("/named") for files in left} == {True, False}


def test_a_rename_is_whole_and_its_folder_tells_whether_it_was(
    mount: Mount, state: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    (disk / "before").write_bytes(b"")
    sync_folder(disk)
    (disk / "before").rename(disk / "after")
    mount.cut("now", 0, within_s=5)
    mount.unmount()

    found = [tuple(files.list_dir("/")) for files in survivors(state)]

    assert set(found) == {("before",), ("after",)}


def change_everything(disk: Path) -> None:
    """Make every kind of call that changes something."""
    new, renamed = disk / "new", disk / "renamed"
    new.write_bytes(b"new")
    new.rename(renamed)
    os.truncate(renamed, 1)
    renamed.unlink()


@pytest.mark.parametrize("kind", ["write", "create", "rename", "remove", "truncate"])
def test_from_the_cut_on_nothing_changes(mount: Mount, kind: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "old").write_bytes(b"old")
    assert kind in KINDS
    mount.arm(kind, 1)

    with pytest.raises(OSError, match="Input/output error"):
        change_everything(disk)

    mount.cut(kind, 1, within_s=5)
    with pytest.raises(OSError, match="Input/output error"):
        (disk / "more").write_bytes(b"")
    assert (disk / "old").read_bytes() == b"old"
