"""Files that may be believed: recovery points, indexes, remembered places, rounds of syncing."""

from __future__ import annotations

import errno
import random

import pytest

from storage import closing
from storage.closing import store_for_recovery
from storage.epochs import LeaderEpochs
from storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from storage.recovery import LastKnown, open_log
from storage.segment import Segment
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    append,
    batch,
    batches_in,
    drop_below_start,
    everything,
    file_of,
    header_of,
    new_log,
    opened,
    produce,
    taken,
    values_in,
)

TIME_INDEX_PATH = f"{FOLDER}/{0:020d}.timeindex"


def test_a_checkpoint_notes_no_point_whose_index_entries_are_not_on_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "INDEX_LAG_ENTRIES", 3)
    files, log = new_log(Settings(index_interval_bytes=100))
    for _ in range(3):
        produce(log, bytes(90))
    log.sync()
    assert store_for_recovery(log) == [], "the files lag by two entries only"
    for _ in range(3):
        produce(log, bytes(90))
    log.sync()
    assert (log.recovery_point, log.covered_point) == (6, 0)

    (cover,) = store_for_recovery(log)
    produce(log, b"more")
    log.sync()
    files.faults = {len(files.calls): errno.EIO}
    with pytest.raises(OSError, match="Input/output"):
        cover.sync()
    assert log.covered_point == 0
    before = len(files.calls)
    cover.sync()

    assert log.covered_point == 6, "not 7: its entries may not have been stored"
    assert f"sync {FOLDER}/{0:020d}.index" in files.calls[before:]
    assert len(file_of(files, ".index")) == 8 * 5, "of the six batches that were there"


def test_what_a_start_after_a_crash_has_read_need_not_be_read_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "INDEX_LAG_ENTRIES", 3)
    files, log = new_log(Settings(index_interval_bytes=100))
    for _ in range(6):
        produce(log, bytes(90))
    log = opened(files, Settings(index_interval_bytes=100))
    assert (log.recovery_point, log.covered_point) == (0, 0)
    assert store_for_recovery(log) == [], "nothing is known to be on the disk"

    log.sync()

    assert (log.recovery_point, log.covered_point) == (6, 6), "recovery completed the index files"
    assert store_for_recovery(log) == []


def test_a_checkpoint_notes_no_point_while_a_sealed_segments_indexes_are_owed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "INDEX_LAG_ENTRIES", 1)
    _, log = new_log(Settings(index_interval_bytes=0))
    produce(log, b"a")
    produce(log, b"b")
    log.sync()
    log.roll(now_ms=NOW_MS)
    produce(log, b"c")
    produce(log, b"d")

    assert log.recovery_point == 2
    assert store_for_recovery(log) == [], "the roll's index files are on no disk yet"
    log.sync()
    assert store_for_recovery(log) != []


def test_a_snapshot_of_batches_that_were_lost_never_comes_back() -> None:
    files, log = new_log()
    append(log, batch(b"a", producer=(7, 0, 0)))
    log.sync()
    files.write_bytes(f"{FOLDER}/{5:020d}.snapshot", log.producers.encode())

    opened(files)

    for seed in range(20):
        names = files.power_cut(random.Random(seed)).list_dir(FOLDER)
        assert f"{5:020d}.snapshot" not in names, f"seed {seed}"


def test_a_round_of_syncing_that_began_before_a_roll_does_not_cover_it() -> None:
    _, log = new_log()
    produce(log, b"a")
    steps, up_to = log.unsynced()
    log.roll(now_ms=NOW_MS)
    for step in steps:
        step.sync()
    log.synced(up_to)
    assert (log.recovery_point, log.covered_point) == (1, 0)

    produce(log, b"b")
    log.sync()

    assert (log.recovery_point, log.covered_point) == (2, 1)


def test_of_two_rounds_for_one_offset_the_later_is_not_confirmed_by_the_earlier() -> None:
    _, log = new_log()
    produce(log, b"a")
    log.unsynced()
    log.roll(now_ms=NOW_MS)
    owed, up_to = log.unsynced()

    log.synced(up_to)

    still_owed, _ = log.unsynced()
    assert len(still_owed) > 4
    assert set(map(id, still_owed)) <= set(map(id, owed))


def test_the_indexes_of_a_segment_that_ends_at_the_recovery_point_are_checked() -> None:
    """It may have been sealed after the point was reached."""
    files, log = new_log(Settings(index_interval_bytes=0))
    for time in (100, 200, 300):
        produce(log, b"a", timestamp_ms=time)
    log.sync()
    log.roll(now_ms=NOW_MS)
    entries = file_of(files, ".timeindex")
    files.write_bytes(TIME_INDEX_PATH, entries[:-12] + (250).to_bytes(8, "big") + entries[-4:])

    log = opened(files, Settings(index_interval_bytes=150), known=LastKnown(recovery_point=3))

    assert log.offset_for_timestamp(260) == (300, 2, 0)


def test_what_a_failed_sync_left_in_the_cache_is_not_served_after_a_restart() -> None:
    """The kernel calls it clean, so the next sync would not store it either."""
    files, log = new_log()
    files.sync_all()
    produce(log, b"kept")
    log.sync()
    produce(log, b"lost")
    steps, _ = log.unsynced()
    files.faults = {len(files.calls): errno.EIO}
    with pytest.raises(OSError, match="Input/output"):
        steps[-1].sync()
    files.kill()

    log, reports = open_log(files, FOLDER, Settings(), known=LastKnown(recovery_point=1))
    produce(log, b"later")
    log.sync()

    assert [(report.bytes_cut > 0, report.next_offset) for report in reports] == [(True, 1)]
    log, _ = open_log(files.power_cut(random.Random(1)), FOLDER, Settings())
    assert values_in(everything(log)) == [b"kept", b"later"]


def test_a_torn_entry_of_the_time_index_is_not_believed_though_it_seems_to_be_an_old_one() -> None:
    """The last bytes of an entry are its offset; as zeros they name the segment's first record."""
    files, log = new_log(Settings(index_interval_bytes=100))
    for time in (300, 200, 100, 900):
        append(log, batch(bytes(90), timestamp_ms=time))
    log.close(clean=True)
    torn = file_of(files, ".timeindex")[12:]
    assert torn[:8] == (900).to_bytes(8, "big")
    files.write_bytes(TIME_INDEX_PATH, torn[:8] + bytes(4))

    settings = Settings(index_interval_bytes=100)
    log = opened(files, settings, known=LastKnown(recovery_point=3))
    log.close(clean=True)

    written = file_of(files, ".timeindex")
    assert [written[at : at + 12] for at in (0, 12)] == [
        (300).to_bytes(8, "big") + bytes(4),
        (900).to_bytes(8, "big") + (3).to_bytes(4, "big"),
    ]


def test_index_entries_of_batches_that_were_cut_are_gone_from_the_file() -> None:
    files, log = new_log(Settings(index_interval_bytes=100))
    for number in range(20):
        append(log, batch(bytes(90), timestamp_ms=number))
    log.close(clean=True)
    data = bytearray(file_of(files, ".log"))
    data[len(data) // 2 + 20 : len(data) // 2 + 60] = bytes(40)  # what a crash has not written
    files.write_bytes(f"{FOLDER}/{0:020d}.log", bytes(data))
    whole = len(file_of(files, ".index"))

    log, reports = open_log(
        files, FOLDER, Settings(index_interval_bytes=100), known=LastKnown(recovery_point=3)
    )

    assert len(reports) == 1
    segment = Segment(files, FOLDER, 0, interval_bytes=100)
    assert segment.file.size() == segment.written_size
    segment.rebuild()
    assert file_of(files, ".index") == segment.offsets.encode()
    assert file_of(files, ".timeindex") == segment.times.encode()
    assert len(file_of(files, ".index")) < whole
    assert log.next_offset == 10


def test_a_sync_is_not_held_up_by_a_segment_that_was_deleted_meanwhile() -> None:
    _, log = new_log(Settings(segment_bytes=200))
    for _ in range(4):
        produce(log, bytes(80))
    steps, up_to = log.unsynced()
    log.delete_records(3)
    assert drop_below_start(log) == 3

    for step in steps:
        step.sync()
    log.synced(up_to)

    assert log.recovery_point == 4


def test_an_empty_time_index_of_records_with_timestamps_is_built_again() -> None:
    files, log = new_log(Settings(segment_bytes=200))
    for time in (5, 9, 7):
        append(log, batch(bytes(80), timestamp_ms=time))
    state = log.close(clean=True)
    for base in range(3):
        files.write_bytes(f"{FOLDER}/{base:020d}.timeindex", b"")
    assert state is not None
    state.time_index_size = 0

    log = opened(files, known=LastKnown(clean=state))

    assert log.max_timestamp() == (9, 1, 0)
    assert log.offset_for_timestamp(6) == (9, 1, 0)


def test_epochs_found_in_batches_are_stored_with_the_next_sync() -> None:
    files, log = new_log()
    produce(log, b"a")
    files.remove(f"{FOLDER}/leader-epoch-checkpoint")

    log = opened(files)
    log.sync()

    stored = LeaderEpochs.decode(files.read_bytes(f"{FOLDER}/leader-epoch-checkpoint"), FOLDER)
    assert stored.entries() == [(0, 0)]


def test_a_consumer_at_the_end_finds_the_next_batch_without_a_search() -> None:
    files, log = new_log(Settings(index_interval_bytes=0))
    for _ in range(10):
        produce(log, b"a")
    taken(log.read(5, 10_000))
    assert log.read(10, 10_000) is None
    produce(log, b"b")
    files.reads.clear()

    piece = log.read(10, 10_000)

    assert files.reads == []
    assert batches_in(taken(piece)) == [(10, 10)]


def test_a_consumer_at_the_end_follows_into_the_next_segment() -> None:
    _, log = new_log()
    produce(log, b"a")
    taken(log.read(0, 10_000))
    log.roll(now_ms=NOW_MS)
    produce(log, b"b")

    assert batches_in(taken(log.read(1, 10_000))) == [(1, 1)]


def test_a_search_by_time_does_not_find_deleted_records_of_a_batch() -> None:
    _, log = new_log()
    produce(log, b"a", b"b", b"c", timestamp_ms=40)

    log.delete_records(1)

    assert log.offset_for_timestamp(0) == (40, 1, 0)
    assert batches_in(everything(log)) == [(0, 2)]


def test_a_snapshot_that_outlived_its_segment_is_not_believed() -> None:
    """The marker that ended its transaction has gone with the batches below the log start."""
    files, log = new_log(Settings(segment_bytes=300))
    append(log, batch(bytes(80), producer=(7, 0, 0), transactional=True))
    log.roll(now_ms=NOW_MS)
    stale = log.producers.encode()
    log.append_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
    for _ in range(4):
        produce(log, bytes(80))
    log.close(clean=True)
    first = log.segments.base_offsets[2]
    for name in files.list_dir(FOLDER):
        if name[:20].isdigit() and (int(name[:20]) < first or name.endswith(".snapshot")):
            files.remove(f"{FOLDER}/{name}")
    files.write_bytes(f"{FOLDER}/{1:020d}.snapshot", stale)

    log = opened(files)

    assert log.start_offset == first > 1
    assert log.last_stable_offset == log.written_offset
    assert log.producers.check(header_of(batch(b"x", producer=(7, 0, 5)))) is None


@pytest.mark.parametrize("field", ["offset", "position"])
def test_an_index_entry_that_leads_past_what_is_looked_for_is_not_believed(field: str) -> None:
    settings = Settings(index_interval_bytes=300)
    files, log = new_log(settings)
    for number in range(40):
        produce(log, b"%02d" % number * 30)
    log.roll(now_ms=NOW_MS)
    produce(log, b"in the next segment")
    whole = everything(log)
    log.close(clean=True)
    path = f"{FOLDER}/{0:020d}.index"
    right = files.read_bytes(path)
    entry = len(right) // INDEX_ENTRY_SIZE // 2 * INDEX_ENTRY_SIZE
    lying = bytearray(right)
    lying[entry + (3 if field == "offset" else 7)] -= 1
    files.write_bytes(path, bytes(lying))

    log = opened(files, settings, known=LastKnown(recovery_point=41, high_watermark=41))

    for offset in range(41):
        log.segments.places.clear()  # a reader that comes from nowhere
        assert batches_in(taken(log.read(offset, 1))) == [(offset, offset)]
    assert everything(log) == whole
    assert files.size_of(path) == len(right)
