"""A segment file that somebody removed: what is read beside it, and never past it unnoticed."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from storage.errors import RecordsMissing
from storage.inspection.directory_check import check
from storage.inspection.repair import repair
from storage.layout import LOG, SEGMENT_SUFFIXES, TAKEN_OVER, file_name
from tests.storage.logs import batches_in, taken
from tests.storage.test_data_dir import SIX, Start, used
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from storage.log import Log

BASES = [0, 4, 8]
"""Of the three segments of the directory that `used` gives."""
STOPS = pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
QUORUM_STATE = "/data/__cluster_metadata-0/quorum-state"


def without(base: int, *suffixes: str, clean: bool = True) -> MemoryFilesystem:
    files, _ = used()
    if not clean:
        files.remove("/data/.kafka_cleanshutdown")
    for suffix in suffixes:
        files.remove(f"/data/orders-0/{file_name(base, suffix)}")
    return files


def opened(files: MemoryFilesystem) -> Log:
    return Start(files).directory.logs["orders", 0]


def read(log: Log, offset: int) -> list[tuple[int, int]]:
    return batches_in(taken(log.read(offset, 10_000)))


@STOPS
@pytest.mark.parametrize("suffixes", [(LOG,), SEGMENT_SUFFIXES[:3]], ids=["log", "all files"])
def test_offsets_of_a_missing_segment_are_an_error_and_the_others_are_read(
    clean: bool, suffixes: tuple[str, ...]
) -> None:
    log = opened(without(4, *suffixes, clean=clean))

    assert log.segments.base_offsets == [0, 8]
    assert read(log, 0) == SIX[:2]
    for offset in range(4, 8):
        with pytest.raises(RecordsMissing, match=file_name(8, LOG)):
            log.read(offset, 10_000)
        with pytest.raises(RecordsMissing):
            log.read_entries(offset, 10_000)
    assert read(log, 8) == SIX[4:]
    assert log.next_offset == 12


def test_it_stays_an_error_after_more_starts() -> None:
    files = without(4, LOG)
    for _ in range(3):
        start = Start(files)
        with pytest.raises(RecordsMissing):
            start.directory.logs["orders", 0].read(5, 100)
        start.fill(count=2)
        start.directory.close()


def test_the_end_of_a_segment_that_is_missing_is_an_error_too() -> None:
    files, _ = used()
    path = f"/data/orders-0/{file_name(4, LOG)}"
    data = files.read_bytes(path)
    files.write_bytes(path, data[: len(data) // 2])
    files.remove(f"/data/orders-0/{file_name(4, '.index')}")

    log = opened(files)

    assert read(log, 4) == SIX[2:3]
    with pytest.raises(RecordsMissing):
        log.read(6, 100)


def test_a_gap_below_what_compaction_noted_is_passed_over() -> None:
    files = without(4, LOG)
    files.write_bytes("/data/cleaner-offset-checkpoint", b"0\n1\norders 0 8\n")

    assert read(opened(files), 4) == SIX[4:]
    files.locked.clear()
    files.remove("/data/cleaner-offset-checkpoint")  # as for a topic that is no longer compacted
    assert read(opened(files), 4) == SIX[4:]


def test_a_gap_in_what_another_broker_wrote_is_passed_over() -> None:
    """Nobody knows what that one has compacted, and when."""
    files = without(4, LOG)
    state = json.loads(files.read_bytes(QUORUM_STATE))
    del state["triglotSince"]
    files.write_bytes(QUORUM_STATE, json.dumps(state).encode())

    assert read(opened(files), 4) == SIX[4:]


@STOPS
def test_a_check_calls_it_an_error_and_a_repair_lets_readers_go_past_it(clean: bool) -> None:
    files = without(4, *SEGMENT_SUFFIXES[:3], clean=clean)
    (gap,) = [found for found in check(files, "/data") if found.kind == "gap"]
    assert gap.severity == "error"
    assert "offsets 4..7 are missing" in gap.reason

    changes = [change.file for change in repair(files, "/data", apply=True)]

    assert TAKEN_OVER in changes
    assert [found.severity for found in check(files, "/data") if found.kind == "gap"] == ["warning"]
    assert list(repair(files, "/data", apply=True)) == []
    for _ in range(2):
        start = Start(files)
        log = start.directory.logs["orders", 0]
        assert read(log, 4) == SIX[4:]
        start.directory.close()


def test_segments_that_follow_each_other_are_read_across() -> None:
    files, _ = used()
    log = opened(files)

    for base, next_base in pairwise([*BASES, 12]):
        assert read(log, base) == SIX[base // 2 : next_base // 2]
        assert read(log, next_base - 1)[0][1] == next_base - 1


def test_an_empty_active_segment_behind_the_missing_one_hides_nothing() -> None:
    files, _ = used()
    start = Start(files)
    start.directory.logs["orders", 0].roll(now_ms=0)
    start.directory.close()
    files.remove(f"/data/orders-0/{file_name(8, LOG)}")

    log = opened(files)

    assert log.next_offset == 12
    with pytest.raises(RecordsMissing):
        log.read(9, 100)
