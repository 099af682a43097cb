"""The indexes of active segments give back their memory, and are as good as before."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import pytest

from storage import index_columns, open_segments, segment
from storage.errors import StorageError
from storage.layout import INDEX, TIME_INDEX, file_name
from storage.open_segments import OpenSegments
from storage.recovery import LastKnown, open_log
from storage.segment import Segment
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    append,
    batch,
    batches_in,
    everything,
    file_of,
    new_log,
    opened,
    produce,
    taken,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.log import Log
    from tests.support.memory_filesystem import MemoryFilesystem

ENTRIES = 300
EVERY = Settings(index_interval_bytes=0)
INDEX_FILE = f"{FOLDER}/{file_name(0, INDEX)}"
TIME_INDEX_FILE = f"{FOLDER}/{file_name(0, TIME_INDEX)}"


@pytest.fixture(autouse=True)
def opened_segments(monkeypatch: pytest.MonkeyPatch) -> OpenSegments[Segment]:
    """Small pages, and nothing counted yet."""
    fresh: OpenSegments[Segment] = OpenSegments()
    for module in ("segment", "segments"):
        monkeypatch.setattr(f"storage.{module}.OPEN", fresh)
    monkeypatch.setattr(index_columns, "PAGE_ENTRIES", 8)
    monkeypatch.setattr(index_columns, "PAGES_MAX", 5)
    monkeypatch.setattr(index_columns, "KEPT_ENTRIES", 3)
    monkeypatch.setattr(segment, "COUNTED_ENTRIES", 4)
    return fresh


def fill(log: Log, batches: int = ENTRIES + 1) -> None:
    """Each batch but the first of a segment gets an entry in both indexes."""
    for number in range(batches):
        append(log, batch(bytes(log.next_offset % 50), timestamp_ms=1000 + log.next_offset * 2))
        if number % 7 == 0:
            log.write()
    log.write()


def given_back() -> tuple[MemoryFilesystem, Log]:
    files, log = new_log(EVERY)
    fill(log)
    assert log.active.give_back()
    assert log.active.offsets.in_memory == log.active.times.in_memory == 3
    return files, log


def expect_all_found(log: Log, rng: random.Random) -> None:
    """By offset, by position and by time, at random, as in a log that has its index in memory."""
    _, whole = new_log(EVERY)
    fill(whole, log.next_offset)
    assert everything(log) == everything(whole)
    for _ in range(300):
        offset, size = rng.randrange(log.next_offset), rng.randrange(1, 3000)
        piece, wanted = log.read(offset, size), whole.read(offset, size)
        assert piece is not None
        assert wanted is not None
        assert (piece.position, piece.size) == (wanted.position, wanted.size)
        timestamp_ms = 1000 + rng.randrange(2 * log.next_offset)
        assert log.offset_for_timestamp(timestamp_ms) == whole.offset_for_timestamp(timestamp_ms)
    found, index = log.active, whole.active
    for _ in range(300):
        relative, position = rng.randrange(-1, ENTRIES + 3), rng.randrange(-1, found.size + 3)
        for name in ("boundary", "offset_from", "count_positions_below"):
            wanted_number = getattr(index.offsets, name)(position)
            assert getattr(found.offsets, name)(position) == wanted_number, name
        assert found.offsets.floor(relative) == index.offsets.floor(relative)
        assert found.times.count_below(relative) == index.times.count_below(relative)
        assert found.times.offset_of(position) == index.times.offset_of(position)
        assert list(found.times.floors(position, 4)) == list(index.times.floors(position, 4))
    assert found.offsets.encode() == index.offsets.encode()
    assert found.times.encode() == index.times.encode()


def test_what_was_given_back_is_found_in_the_files() -> None:
    _, log = given_back()

    expect_all_found(log, random.Random(1))

    assert log.active.offsets.in_memory == 3
    assert len(index_columns.PAGES) <= 5


def test_appends_go_on_behind_it() -> None:
    files, log = given_back()
    fill(log, 40)
    expect_all_found(log, random.Random(2))
    assert log.active.give_back()
    fill(log, 40)

    expect_all_found(log, random.Random(3))

    log.close(clean=True)
    assert file_of(files, ".index") == log.active.offsets.encode()
    assert file_of(files, ".timeindex") == log.active.times.encode()


def test_active_segments_together_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, opened_segments: OpenSegments[Segment]
) -> None:
    monkeypatch.setattr(open_segments, "INDEX_BYTES_MAX", 2000)
    files, first = new_log(EVERY)
    logs = [first, *(opened(files, EVERY, folder=f"/data/orders-{n}") for n in range(1, 10))]

    for _ in range(60):
        for log in logs:
            fill(log, 5)

    assert opened_segments.index_bytes <= 2000
    entries = sum(log.active.index_bytes() for log in logs)
    assert entries <= 2000 + len(logs) * 20 * (4 + 3)
    expect_all_found(logs[3], random.Random(4))


def test_those_that_were_not_used_for_longest_go_first_sealed_or_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, sealing = new_log(EVERY)
    fill(sealing, 20)
    sealing.roll(now_ms=NOW_MS)
    busy = opened(files, EVERY, folder="/data/orders-1")
    monkeypatch.setattr(open_segments, "INDEX_BYTES_MAX", 20 * 40)

    fill(busy, 30)

    assert not sealing.segments[0].loaded
    assert busy.active.offsets.in_memory == 29
    assert everything(sealing)
    assert busy.active.offsets.in_memory == 3


def test_while_appends_are_queued_everything_stays_and_can_be_taken_back() -> None:
    files, log = given_back()
    before = log.active.offsets.encode(), log.active.times.encode()
    for _ in range(5):
        append(log, batch(b"queued", timestamp_ms=10**6 + log.next_offset))
    assert not log.active.give_back()
    assert log.active.offsets.in_memory == 8
    files.faults[files.count] = errno.ENOSPC

    with pytest.raises(StorageError):
        log.write()

    assert (log.active.offsets.encode(), log.active.times.encode()) == before
    expect_all_found(log, random.Random(5))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("failing", [0, 1])
def test_what_a_disk_refuses_stays_in_memory_until_it_takes_it(code: int, failing: int) -> None:
    files, log = new_log(EVERY)
    fill(log)
    files.faults[files.count + failing] = code

    assert not log.active.give_back()

    assert log.active.offsets.in_memory == ENTRIES
    expect_all_found(log, random.Random(6))
    assert log.active.give_back()
    expect_all_found(log, random.Random(7))
    assert log.failed is None


def test_a_full_disk_is_not_tried_again_and_again(
    monkeypatch: pytest.MonkeyPatch, opened_segments: OpenSegments[Segment]
) -> None:
    monkeypatch.setattr(open_segments, "INDEX_BYTES_MAX", 10)
    monkeypatch.setattr(open_segments, "REFUSED_MAX", 2)
    tried = []
    monkeypatch.setattr(Segment, "give_back", lambda segment: tried.append(segment))
    files, first = new_log(EVERY)
    logs = [first, *(opened(files, EVERY, folder=f"/data/orders-{n}") for n in range(1, 6))]
    for log in logs:
        fill(log, 5)
    tried.clear()

    opened_segments.count(first.active)

    assert len(tried) == 2


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "zeros amid": lambda data: data[:400] + bytes(200) + data[600:],
    "cut": lambda data: data[:804],
    "empty": lambda data: b"",
    "noise": lambda data: random.Random(1).randbytes(len(data)),
}


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_lost_what_it_was_given_is_made_again(damage: str, suffix: str) -> None:
    files, log = given_back()
    path = f"{FOLDER}/{file_name(0, suffix)}"
    right = files.read_bytes(path)
    files.open_file(path).truncate(0)
    files.open_file(path).write_at([DAMAGES[damage](right)], 0)

    expect_all_found(log, random.Random(8))

    log.close(clean=True)
    assert files.read_bytes(path) == right


def test_a_file_that_was_removed_is_made_again() -> None:
    files, log = given_back()
    files.remove(INDEX_FILE)
    files.remove(TIME_INDEX_FILE)

    expect_all_found(log, random.Random(9))

    assert file_of(files, ".index") == log.active.offsets.encode()


def test_an_entry_that_rises_and_is_wrong_misleads_no_reader() -> None:
    files, log = given_back()
    data = bytearray(files.read_bytes(INDEX_FILE))
    for number in range(40, 200, 9):
        data[8 * number + 7] ^= 1  # its position, by one
    files.open_file(INDEX_FILE).write_at([bytes(data)], 0)

    for offset in range(log.next_offset):
        piece = log.read(offset, 900)
        assert batches_in(taken(piece))[0][0] == offset


def test_a_reader_that_follows_the_end_needs_no_index_file() -> None:
    files, log = given_back()
    for _ in range(20):
        offset = log.next_offset
        fill(log, 3)
        files.reads.clear()
        assert taken(log.read(offset, 1 << 20))
        assert taken(log.read(offset, 200))
        assert not [path for path, _, _ in files.reads if not path.endswith(".log")]
        assert log.active.give_back()


def test_of_a_large_index_only_the_end_is_read_after_a_clean_stop() -> None:
    files, log = new_log(EVERY)
    fill(log)
    state = log.close(clean=True)
    files.reads.clear()

    again = opened(files, EVERY, known=LastKnown(recovery_point=ENTRIES + 1, clean=state))
    produce(again, bytes((ENTRIES + 1) % 50), timestamp_ms=1000 + 2 * (ENTRIES + 1))

    assert sum(size for path, _, size in files.reads if path == INDEX_FILE) < 200
    assert again.active.offsets.in_memory == 4
    assert again.active.offsets.encode()[: 8 * ENTRIES] == file_of(files, ".index")
    assert taken(again.read(57, 1))


@pytest.mark.parametrize("tail", [b"", bytes(8 * 40), bytes(8 * 20) + b"\xff" * 8 * 3, b"odd"])
@pytest.mark.parametrize("point", [0, 5, 150, ENTRIES, ENTRIES + 1])
def test_after_a_crash_what_lies_below_the_recovery_point_is_taken_and_nothing_else(
    point: int, tail: bytes
) -> None:
    files, log = new_log(EVERY)
    fill(log)
    log.sync()
    indexes = log.active.offsets.encode(), log.active.times.encode()
    files.write_bytes(INDEX_FILE, indexes[0][: 8 * (point + 10)] + tail)
    files.write_bytes(TIME_INDEX_FILE, indexes[1][: 12 * (point + 10)] + tail)

    again, _ = open_log(
        files, FOLDER, EVERY, known=LastKnown(recovery_point=point, synced=point), now_ms=NOW_MS
    )

    assert again.active.offsets.encode() == indexes[0]
    assert file_of(files, ".index") == indexes[0]
    expect_all_found(again, random.Random(point))
