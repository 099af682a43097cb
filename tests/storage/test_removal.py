"""Segments below the log start go in an order that no crash turns against us."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from storage.checkpoints import encode_offsets
from tests.storage.test_data_dir import SIX, Start, offsets, used
from tests.support.checkpoints import write_checkpoints
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut

LOG_STARTS = "/data/log-start-offset-checkpoint"
KEY = ("orders", 0)
NEW_START = 9
"""Inside the fifth of six batches; two fit a segment."""


def drop(start: Start, told: list[str]) -> None:
    """What the broker does, step by step, with the other duties in between."""
    log = start.directory.logs[KEY]
    log.delete_records(NEW_START)
    start.directory.starts.checkpoint().sync()
    told.append("dropped")
    removal = start.directory.starts.take_out(KEY)
    assert removal is not None
    write_checkpoints(start.directory)
    removal.set_aside()
    write_checkpoints(start.directory)
    start.directory.starts.has_left(removal)
    write_checkpoints(start.directory)
    removal.remove()
    start.fill(count=1)
    told.append("filled")


def many() -> MemoryFilesystem:
    files, _ = used()
    return files


def test_the_files_get_their_last_names_before_they_go() -> None:
    files = many()
    start = Start(files)
    before = len(files.calls)

    drop(start, [])

    calls = files.calls[before:]
    renamed = [call for call in calls if call.startswith("rename") and ".deleted" in call]
    removed = [call for call in calls if call.startswith("remove") and ".deleted" in call]
    assert len(renamed) == len(removed) > 3
    assert calls.index("sync /data") < calls.index(renamed[0]), "the checkpoint is there first"
    assert calls.index("sync /data/orders-0") > calls.index(renamed[-1])
    assert calls.index(removed[0]) > calls.index("sync /data/orders-0")
    assert start.directory.logs[KEY].segments.base_offsets[0] <= NEW_START


def test_the_checkpoint_tells_of_a_log_start_until_the_files_are_set_aside() -> None:
    files = many()
    start = Start(files)
    directory, log = start.directory, start.directory.logs[KEY]
    log.delete_records(log.segments[1].base_offset)
    told = encode_offsets({KEY: log.start_offset})

    def stored() -> bytes:
        directory.starts.checkpoint().sync()
        return files.read_bytes(LOG_STARTS)

    assert stored() == told
    removal = directory.starts.take_out(KEY)
    assert removal is not None
    assert stored() == told
    removal.set_aside()
    directory.starts.has_left(removal)
    assert stored() == encode_offsets({})


@pytest.mark.parametrize("in_order", [True, False], ids=["journal", "any order"])
def test_a_crash_at_any_call_brings_nothing_back_and_takes_nothing_more(in_order: bool) -> None:
    files = many()
    before = Start(files).files.count
    probe = many()
    drop(Start(probe), [])
    for cut_at in range(before, probe.count + 1):
        for seed in range(3):
            rng = random.Random(1000 * cut_at + seed)
            files, told = many(), list[str]()
            start = Start(files)
            files.cut_at = cut_at
            with suppress(PowerCut):
                drop(start, told)
            start = Start(files.power_cut(rng, names_in_order=in_order))
            log = start.directory.logs[KEY]
            where = (cut_at, seed, told)
            if "dropped" in told:
                assert log.start_offset == NEW_START, where
            else:
                assert log.start_offset in (0, NEW_START), where
            there = offsets(start)
            kept = [one for one in SIX if one[1] >= log.start_offset]
            assert there[: len(kept)] == kept, where
            if "filled" in told:
                assert there[-1] == (12, 13), where


def test_a_start_forgets_the_segments_that_were_left_below_the_log_start() -> None:
    files = many()
    start = Start(files)
    log = start.directory.logs[KEY]
    log.delete_records(NEW_START)
    start.directory.starts.checkpoint().sync()
    start = Start(files.power_cut(random.Random(1)))
    log = start.directory.logs[KEY]
    assert log.segments[0].base_offset == 0

    removal = start.directory.starts.take_out(KEY)

    assert removal is not None
    assert removal.count == log.segments[0].base_offset // 4
    assert offsets(start) == SIX[4:]
