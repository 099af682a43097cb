"""The power goes off at every call of a repair: a second repair finishes, and nothing is gone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from storage.layout import LOG, file_name
from tests.storage.inspection.directories import (
    TOP,
    contents_in,
    entries_of,
    errors,
    in_memory,
    opened,
    repaired,
    ten_batches,
)
from tests.storage.logs import readable
from tests.support.memory_filesystem import PowerCut

if TYPE_CHECKING:
    from tests.storage.inspection.directories import Contents

FOLDER = "orders-0"
FIRST = f"{FOLDER}/{file_name(0, LOG)}"


def spoilt_in_many_places() -> Contents:
    """Two segments: a batch damaged in the first, a torn end in the second; a lying marker, a
    wrong epoch file, a malformed checkpoint, a snapshot that is none."""
    contents = ten_batches(clean=True, segment_bytes=600, producer=True)
    logs = sorted(name for name in contents if name.startswith(FOLDER) and name.endswith(LOG))
    assert len(logs) > 1
    first = bytearray(contents[logs[0]])
    first[len(entries_of({logs[0]: contents[logs[0]]})[FOLDER][0]) + 80] ^= 4
    snapshot = f"{FOLDER}/{file_name(20, '.snapshot')}"
    return contents | {
        logs[0]: bytes(first),
        logs[-1]: contents[logs[-1]] + b"torn",
        f"{FOLDER}/leader-epoch-checkpoint": b"0\n1\n9 4\n",
        "recovery-point-offset-checkpoint": b"0\n1\n",
        snapshot: contents[snapshot][:-3],
    }


def pieces_of(contents: Contents) -> bytes:
    """All bytes in logs and in what was put aside of them."""
    return b"".join(data for name, data in contents.items() if LOG in name)


def lost_pieces(before: Contents, after: Contents) -> list[bytes]:
    """Entries that are neither in a log nor in anything put aside, whole or damaged."""
    kept = pieces_of(after)
    wanted = [entry for entries in entries_of(before).values() for entry in entries]
    return [entry for entry in (*wanted, b"torn") if entry not in kept]


@pytest.mark.parametrize("part", range(4))
def test_a_repair_that_is_cut_off_anywhere_is_finished_by_the_next(part: int) -> None:
    contents = spoilt_in_many_places()
    rehearsal = in_memory(contents)
    rehearsal.calls.clear()
    changes = repaired(rehearsal)
    calls = len(rehearsal.calls)
    assert calls > 30
    assert len(changes) > 6
    whole = entries_of(contents_in(rehearsal))[FOLDER]
    assert len(whole) == 9

    for cut_at in range(part, calls, 4):
        files = in_memory(contents)
        files.calls.clear()
        files.cut_at = cut_at
        with pytest.raises(PowerCut):
            repaired(files)
        found = files.power_cut(random.Random(cut_at))

        assert lost_pieces(contents, contents_in(found)) == [], cut_at
        repaired(found)
        assert errors(found) == [], cut_at
        assert repaired(found) == [], cut_at
        assert lost_pieces(contents, contents_in(found)) == [], cut_at
        assert entries_of(contents_in(found))[FOLDER] == whole, cut_at


@pytest.mark.parametrize("part", range(4))
def test_a_broker_that_starts_after_a_cut_off_repair_serves_no_wrong_byte(part: int) -> None:
    contents = spoilt_in_many_places()
    rehearsal = in_memory(contents)
    rehearsal.calls.clear()
    repaired(rehearsal)
    whole = entries_of(contents_in(rehearsal))[FOLDER]

    for cut_at in range(part, len(rehearsal.calls), 4):
        files = in_memory(contents)
        files.calls.clear()
        files.cut_at = cut_at
        with pytest.raises(PowerCut):
            repaired(files)
        directory, _ = opened(files.power_cut(random.Random(cut_at)))
        data = readable(directory.logs["orders", 0])
        assert data == b"".join(whole), cut_at


def test_without_apply_nothing_is_changed() -> None:
    from storage.inspection.repair import repair

    files = in_memory(spoilt_in_many_places())
    before = contents_in(files)
    files.calls.clear()

    planned = [(c.partition, c.file) for c in repair(files, TOP, apply=False)]

    assert files.calls == []
    assert contents_in(files) == before
    assert planned == [(c.partition, c.file) for c in repaired(files)]
