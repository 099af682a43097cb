"""Appending, rolling, reading and syncing one log."""

from __future__ import annotations

import random

import pytest

from storage import log as log_module
from storage import open_segments
from storage.disk import DiskFilesystem
from storage.epochs import LeaderEpochs
from storage.errors import BatchTooLarge, OffsetOutOfRange
from storage.segment import OPEN
from storage.segments import PLACES_MAX
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
from tests.support.memory_filesystem import MemoryFilesystem


def test_a_batch_gets_its_offset_and_epoch_in_the_memory_it_came_in() -> None:
    files = MemoryFilesystem()
    log = opened(files, leader_epoch=7)
    produce(log, b"a", b"b")
    received = batch(b"c", b"d", b"e")
    before = bytes(received)

    offset = log.append(memoryview(received), header_of(received))
    log.write()

    assert offset == 2
    assert received[0:8] == (2).to_bytes(8, "big")
    assert received[12:16] == (7).to_bytes(4, "big")
    assert received[16:] == before[16:], "nothing under the checksum is touched"
    assert log.next_offset == log.written_offset == 5
    assert file_of(files, ".log").endswith(received)


def test_what_is_queued_cannot_be_read_before_it_is_written() -> None:
    _, log = new_log()
    append(log, batch(b"a"))

    assert (log.next_offset, log.written_offset) == (1, 0)
    assert log.read(0, 1000) is None
    log.write()
    assert values_in(taken(log.read(0, 1000))) == [b"a"]


def test_bytes_after_the_batch_in_its_view_are_left_out() -> None:
    files, log = new_log()
    raw = batch(b"a")

    log.append(memoryview(raw + b"the tail of the request"), header_of(raw))
    log.write()

    assert len(file_of(files, ".log")) == len(raw)


def test_one_write_puts_all_queued_batches_into_the_file() -> None:
    files, log = new_log()
    append(log, batch(b"0"))
    log.write()
    before = len(files.calls)

    for number in range(1, 100):
        append(log, batch(b"%d" % number))
    log.write()

    assert [call.split()[0] for call in files.calls[before:]] == ["write"]
    assert batches_in(everything(log)) == [(n, n) for n in range(100)]


def test_a_full_queue_is_written_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "QUEUE_BATCHES_MAX", 10)
    monkeypatch.setattr(log_module, "QUEUE_BYTES_MAX", 5000)
    _, log = new_log()

    for _ in range(25):
        append(log, batch(b"x"))
    many = log.written_offset
    log.write()
    for _ in range(6):
        append(log, batch(bytes(2000)))

    assert many == 20
    assert log.written_offset == 29


def test_a_reader_at_the_end_gets_nothing_and_beyond_it_an_error() -> None:
    _, log = new_log()
    produce(log, b"a", b"b")

    assert log.read(2, 100) is None
    with pytest.raises(OffsetOutOfRange, match=r"offset 3 is outside 0\.\.2"):
        log.read(3, 100)
    with pytest.raises(OffsetOutOfRange):
        log.read(-1, 100)


def test_an_offset_inside_a_batch_gets_the_whole_batch() -> None:
    _, log = new_log()
    produce(log, b"a", b"b", b"c")
    produce(log, b"d")

    assert batches_in(taken(log.read(1, 10_000))) == [(0, 2), (3, 3)]


def test_a_first_batch_that_is_too_large_comes_alone_or_not_at_all() -> None:
    _, log = new_log()
    produce(log, bytes(500))
    produce(log, b"b")

    assert batches_in(taken(log.read(0, 100))) == [(0, 0)]
    assert log.read(0, 100, at_least_one=False) is None
    assert batches_in(taken(log.read(0, 600, at_least_one=False))) == [(0, 0)]


def test_batches_at_or_above_the_end_offset_are_left_out() -> None:
    _, log = new_log()
    for _ in range(4):
        produce(log, b"a", b"b")

    assert batches_in(taken(log.read(0, 10_000, end_offset=4))) == [(0, 1), (2, 3)]
    assert batches_in(taken(log.read(0, 10_000, end_offset=5))) == [(0, 1), (2, 3)]
    assert log.read(4, 10_000, end_offset=4) is None
    assert batches_in(taken(log.read(0, 10_000, end_offset=100))) == [
        (0, 1), (2, 3), (4, 5), (6, 7),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(25))
def test_reads_agree_with_a_list(seed: int) -> None:
    rng = random.Random(seed)
    interval = rng.choice((50, 400, 4096))
    settings = Settings(
        segment_bytes=rng.choice((700, 3000, 20_000)), index_interval_bytes=interval
    )
    files, log = new_log(settings)
    model: list[tuple[int, int, int]] = []
    for number in range(rng.randrange(20, 200)):
        raw = batch(*[bytes(rng.randrange(60)) for _ in range(rng.randrange(1, 5))])
        base = append(log, raw, now_ms=NOW_MS)
        model.append((base, log.next_offset - 1, len(raw)))
        if rng.random() < 0.4:
            log.write()
        if number == 60 and rng.random() < 0.5:
            assert log.close(clean=True) is not None
            log = opened(files, settings)
    log.write()
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases))
    assert batches_in(everything(log)) == [entry[:2] for entry in model]

    for _ in range(300):
        offset = rng.randrange(log.next_offset)
        max_bytes = rng.choice((1, rng.randrange(1, 2000), rng.randrange(1, 20_000)))
        got = batches_in(taken(log.read(offset, max_bytes)))

        first = next(i for i, entry in enumerate(model) if entry[1] >= offset)
        wanted = model[first : first + len(got)]
        assert got == [entry[:2] for entry in wanted]
        size = sum(entry[2] for entry in wanted)
        assert size <= max_bytes or len(got) == 1
        # Nothing that fits is left out, but for what one index interval and a sixteenth allow.
        after = model[first + len(got)] if first + len(got) < len(model) else None
        if after is not None and after[0] not in bases:
            spared = max(interval + 400, max_bytes // 16) + after[2]
            assert size + spared >= max_bytes


def test_a_consumer_that_reads_in_sequence_searches_no_index() -> None:
    files, log = new_log(Settings(index_interval_bytes=500))
    for _ in range(200):
        append(log, batch(bytes(100)))
    log.write()

    offset, reads = 0, []
    while offset < log.next_offset:
        files.reads.clear()
        offset = batches_in(taken(log.read(offset, 2500)))[-1][1] + 1
        reads.append(len(files.reads) - 1)

    assert max(reads[1:]) <= 1, "one look at the batch where the slice ends"


def test_remembered_places_are_bounded() -> None:
    _, log = new_log()
    for _ in range(PLACES_MAX * 3):
        append(log, batch(b"x"))
    log.write()

    for offset in range(log.next_offset):
        taken(log.read(offset, 1))

    assert len(log.segments.places) <= PLACES_MAX


def test_few_sealed_segments_are_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_segments, "OPEN_MAX", 4)
    files = MemoryFilesystem()
    logs = [
        opened(files, Settings(segment_bytes=200), folder=f"/data/orders-{number}")
        for number in range(2)
    ]
    for log in logs:
        for _ in range(40):
            append(log, batch(bytes(80)))
        log.write()
        assert len(log.segments) == 40

    for log in logs:
        everything(log)

    assert sum(segment.loaded for log in logs for segment in log.segments) <= 4 + len(logs)


def test_indexes_of_sealed_segments_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_segments, "INDEX_BYTES_MAX", 1000)
    _, log = new_log(Settings(segment_bytes=2000, index_interval_bytes=0))
    for _ in range(400):
        append(log, batch(bytes(80)))
    log.write()

    everything(log)

    loaded = [segment for segment in log.segments if segment.loaded and segment is not log.active]
    assert 1 < len(loaded) < len(log.segments) / 2
    assert OPEN.index_bytes <= 1000


def test_a_segment_is_full_when_the_next_batch_would_not_fit() -> None:
    size = len(batch(bytes(100)))
    files, log = new_log(Settings(segment_bytes=3 * size))

    for _ in range(7):
        produce(log, bytes(100))

    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert len(file_of(files, ".log", 3)) == 3 * size
    assert batches_in(everything(log)) == [(n, n) for n in range(7)]
    with pytest.raises(BatchTooLarge):
        append(log, batch(bytes(4 * size)))
    assert produce(log, b"goes on") == 7


def test_a_segment_ages_by_its_records_and_not_by_the_clock() -> None:
    _, log = new_log(Settings(segment_ms=1000))

    produce(log, b"a", timestamp_ms=5000)
    append(log, batch(b"b", timestamp_ms=6000), now_ms=NOW_MS + 10**9)
    append(log, batch(b"old", timestamp_ms=1), now_ms=NOW_MS + 10**9)
    append(log, batch(b"c", timestamp_ms=6001))
    log.write()

    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_segment_without_timestamps_ages_by_the_clock() -> None:
    _, log = new_log(Settings(segment_ms=1000))

    append(log, batch(b"a", timestamp_ms=-1), now_ms=NOW_MS)
    append(log, batch(b"b", timestamp_ms=-1), now_ms=NOW_MS + 1000)
    append(log, batch(b"c", timestamp_ms=-1), now_ms=NOW_MS + 1001)
    log.write()

    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_ends_when_its_index_is_full() -> None:
    settings = Settings(index_interval_bytes=0, segment_index_bytes=5 * 8)
    files, log = new_log(settings)

    for number in range(20):
        produce(log, b"x", timestamp_ms=number)

    assert len(log.segments) > 1
    for segment in log.segments:
        assert len(segment.offsets) <= 5
    assert len(file_of(files, ".timeindex")) <= 5 * 12


def test_a_segment_ends_before_offsets_that_its_index_could_not_hold() -> None:
    _, log = new_log(Settings(index_interval_bytes=0))
    raw = batch(b"x")
    raw[23:27] = (2**31 - 2).to_bytes(4, "big")  # last offset delta, as if it held so many

    offsets = []
    for _ in range(3):
        copy = bytearray(raw)
        offsets.append(log.append(memoryview(copy), header_of(copy)))
    log.write()

    assert offsets == [0, 2**31 - 1, 2 * (2**31 - 1)]
    assert [segment.base_offset for segment in log.segments] == offsets


def test_a_slice_outlives_its_segment(tmp_path: object) -> None:
    files = DiskFilesystem()
    log = opened(files, Settings(segment_bytes=200), folder=f"{tmp_path}/orders-0")
    for _ in range(5):
        append(log, batch(bytes(80)))
    log.write()
    piece = log.read(0, 1000)
    assert piece is not None
    expected = piece.read()

    log.delete_records(4)
    assert drop_below_start(log) == 4
    log.close(clean=False)

    assert piece.read() == expected
    descriptor = piece.file.fileno()
    piece.release()
    with pytest.raises(ValueError, match="released"):
        piece.read()
    assert descriptor >= 0


def test_below_a_raised_log_start_nothing_is_read() -> None:
    files, log = new_log(Settings(segment_bytes=200))
    for _ in range(5):
        produce(log, bytes(80))

    assert log.delete_records(3) == 3
    assert log.delete_records(1) == 3, "it never goes back"
    assert drop_below_start(log) == 3
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 100)
    assert batches_in(everything(log)) == [(3, 3), (4, 4)]
    assert log.delete_records(-1) == 5
    with pytest.raises(OffsetOutOfRange):
        log.delete_records(6)
    assert sorted(n for n in files.list_dir(FOLDER) if n.endswith(".log")) == [
        f"{3:020d}.log", f"{4:020d}.log",
    ]  # fmt: skip


def test_a_log_start_inside_a_batch_serves_the_whole_batch() -> None:
    _, log = new_log()
    produce(log, b"a", b"b", b"c")

    log.delete_records(1)

    assert batches_in(taken(log.read(1, 100))) == [(0, 2)]


def test_a_sync_covers_the_segments_rolled_since_the_last_one() -> None:
    files, log = new_log(Settings(segment_bytes=200))
    for _ in range(4):
        append(log, batch(bytes(80)))
    log.write()
    assert log.recovery_point == 0

    steps, up_to = log.unsynced()
    append(log, batch(bytes(80)))  # and the log goes on while the worker syncs
    log.write()
    before = len(files.calls)
    for step in steps:
        step.sync()
    log.synced(up_to)

    synced = {call.split("/")[-1] for call in files.calls[before:] if call.startswith("sync")}
    assert {f"{base:020d}.log" for base in range(4)} <= synced
    assert {f"{base:020d}.index" for base in range(3)} <= synced
    assert log.recovery_point == up_to == 4
    steps, up_to = log.unsynced()
    assert up_to == 5
    for step in steps:
        step.sync()
    log.synced(up_to)
    assert log.unsynced() == ([], 5)


def test_a_sync_that_was_never_confirmed_is_owed_again() -> None:
    _, log = new_log(Settings(segment_bytes=200))
    for _ in range(3):
        produce(log, bytes(80))
    lost, _ = log.unsynced()

    again, up_to = log.unsynced()
    log.synced(up_to - 1)  # no round was for this offset

    assert len(again) == len(lost)
    assert log.recovery_point == 0


def test_a_roll_between_two_rounds_for_the_same_offset_stays_owed() -> None:
    _, log = new_log()
    produce(log, b"a")
    steps, up_to = log.unsynced()
    log.roll(now_ms=NOW_MS)
    for step in steps:
        step.sync()
    log.synced(up_to)

    owed, _ = log.unsynced()

    assert log.recovery_point == 1
    assert len(owed) >= 5, "old segment, two indexes, snapshot and folder"


def test_the_epoch_of_new_batches_is_known_before_they_are_on_disk() -> None:
    files = MemoryFilesystem()
    log = opened(files, leader_epoch=3)
    produce(log, b"a")
    assert log.end_offset_for(3) == (3, 1)
    log.sync()
    log.set_leader_epoch(5)
    assert log.end_offset_for(5) == (5, 1)
    assert log.end_offset_for(4) == (3, 1)
    produce(log, b"b")
    log.sync()

    stored = LeaderEpochs.decode(files.read_bytes(f"{FOLDER}/leader-epoch-checkpoint"), FOLDER)
    assert stored.entries() == [(3, 0), (5, 1)]
    assert log.end_offset_for(3) == (3, 1)
    assert log.end_offset_for(5) == (5, 2)
    assert log.end_offset_for(6) == (-1, -1)


def test_the_largest_timestamp_and_the_first_at_or_after_a_time_are_found_across_segments() -> None:
    _, log = new_log(Settings(segment_bytes=300, index_interval_bytes=100))
    times = [50, 40, 90, 60, 90, 70, 95, 80, 95, 10]
    for time in times:
        produce(log, bytes(60), timestamp_ms=time)
    assert len(log.segments) > 2

    assert log.max_timestamp() == (95, 6, 0)
    for wanted in (0, 41, 51, 61, 91, 95):
        offset = next(i for i, time in enumerate(times) if time >= wanted)
        assert log.offset_for_timestamp(wanted) == (times[offset], offset, 0)
    assert log.offset_for_timestamp(96) is None
    log.delete_records(7)
    assert log.offset_for_timestamp(0) == (80, 7, 0)
    assert log.max_timestamp() == (95, 8, 0)


def test_a_time_inside_a_batch_finds_the_record() -> None:
    _, log = new_log()
    raw = bytearray(batch_of_times(100, 300, 200))
    append(log, raw)
    log.write()

    assert log.offset_for_timestamp(150) == (300, 1, 0)
    assert log.offset_for_timestamp(100) == (100, 0, 0)
    assert log.max_timestamp() == (300, 1, 0)


def batch_of_times(*times: int) -> bytes:
    from protocol.records.builder import build_batch

    return build_batch([(time, None, b"v", ()) for time in times])
