"""The power fails, or the disk does, at every call that writes or removes a snapshot.

Then there is what was there before, or a new snapshot that is whole. Nothing else has the name of
one.
"""

from __future__ import annotations

import errno
import os
import random
from typing import TYPE_CHECKING

import pytest

from storage.metadata import snapshot_writing
from storage.metadata.snapshots import SnapshotId, Snapshots
from tests.storage.metadata.snapshot_files import ENTRIES, FOLDER, entries_of, memory, write
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW = SnapshotId(100, 1), SnapshotId(200, 2)
OLD_ENTRIES = ENTRIES[:1]
NEW_ENTRIES: list[tuple[bytes | None, bytes]] = [(None, b"%d" % n * 40) for n in range(60)]
SEEDS = range(12)


@pytest.fixture(autouse=True)
def _sync_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_writing, "SYNC_BYTES", 1500)


def with_old() -> MemoryFilesystem:
    files = memory()
    write(files, OLD, OLD_ENTRIES)
    files.sync_all()
    files.count = 0
    files.calls.clear()
    return files


def write_new(files: MemoryFilesystem) -> None:
    write(files, NEW, *(NEW_ENTRIES[at : at + 10] for at in range(0, len(NEW_ENTRIES), 10)))


def calls_of(work: Callable[[MemoryFilesystem], None], files: MemoryFilesystem) -> list[str]:
    work(files)
    return files.calls


def found(files: MemoryFilesystem) -> list[SnapshotId]:
    """The snapshots that a start finds, all of them whole, when it has tidied up."""
    snapshots = Snapshots(files, FOLDER)
    snapshots.tidy()
    assert files.list_dir(FOLDER) == [snapshot_id.file_name for snapshot_id in snapshots.ids]
    for snapshot_id in snapshots.ids:
        expected = OLD_ENTRIES if snapshot_id == OLD else NEW_ENTRIES
        assert entries_of(files, snapshots.path(snapshot_id)) == expected
    return snapshots.ids


def test_a_power_cut_amid_writing_leaves_the_old_or_a_whole_new_snapshot() -> None:
    calls = calls_of(write_new, with_old())
    assert [call.split()[0] for call in calls].count("sync") >= 4
    outcomes = set()
    for cut_at in range(len(calls) + 1):
        for seed in SEEDS:
            for in_order in (True, False):
                where = f"cut at {cut_at} ({calls[cut_at : cut_at + 1]}), seed {seed}"
                files = with_old()
                files.cut_at = cut_at
                finished = cut_at == len(calls)
                if finished:
                    write_new(files)
                else:
                    with pytest.raises(PowerCut):
                        write_new(files)
                after = files.power_cut(random.Random(seed), names_in_order=in_order)
                ids = found(after)
                assert ids in ([OLD], [OLD, NEW]), where
                assert NEW in ids or not finished, where
                outcomes.add(len(ids))
    assert outcomes == {1, 2}


def test_a_power_cut_amid_removing_leaves_the_newer_snapshot_and_perhaps_the_older() -> None:
    def remove(files: MemoryFilesystem) -> None:
        snapshots = Snapshots(files, FOLDER)
        snapshots.remove_removed(snapshots.remove(OLD))

    def with_both() -> MemoryFilesystem:
        files = with_old()
        write_new(files)
        files.sync_all()
        files.count = 0
        files.calls.clear()
        return files

    calls = calls_of(remove, with_both())
    assert [call.split()[0] for call in calls] == ["rename", "sync", "remove"]
    for cut_at in range(len(calls)):
        for seed in SEEDS:
            files = with_both()
            files.cut_at = cut_at
            with pytest.raises(PowerCut):
                remove(files)
            ids = found(files.power_cut(random.Random(seed)))
            assert ids in ([OLD, NEW], [NEW]), f"cut at {cut_at}, seed {seed}"
            assert OLD not in ids or cut_at < 2, f"cut at {cut_at}, seed {seed}"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_while_one_is_written_leaves_no_trace_of_it(code: int) -> None:
    calls = calls_of(write_new, with_old())
    for number, call in enumerate(calls):
        files = with_old()
        files.faults = {number: code}
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            write_new(files)
        assert caught.value.errno == code, call
        left = files.list_dir(FOLDER)
        if number == len(calls) - 1:
            assert found(files) == [OLD, NEW], "published, and perhaps not for ever"
        else:
            assert left == [OLD.file_name], call


def test_what_a_failing_disk_does_not_let_go_the_next_start_removes() -> None:
    calls = calls_of(write_new, with_old())
    files = with_old()
    failing = next(n for n, call in enumerate(calls) if call.startswith("sync"))
    files.faults = {failing: errno.EIO, failing + 1: errno.EIO}
    with pytest.raises(OSError, match="Input/output"):
        write_new(files)
    assert len(files.list_dir(FOLDER)) == 2
    assert found(files) == [OLD]
