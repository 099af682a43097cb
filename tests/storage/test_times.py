"""From a time to an offset, in every format, and from files' times to offsets (ListOffsets)."""

from __future__ import annotations

import random

import pytest

from protocol.errors import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.errors import CorruptBatch, InvalidRecord
from storage.log import Log
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    append,
    batch,
    drop_below_start,
    everything,
    header_of,
    new_log,
    opened,
    produce,
)
from tests.storage.message_sets import messages, produce_messages, records_in

GZIP, SNAPPY, LZ4 = 1, 2, 3
EVERY_FORM = [(2, 0), (2, GZIP), (1, 0), (1, GZIP), (1, SNAPPY), (1, LZ4)]


def put(log: Log, *times: int, magic: int, codec: int) -> int:
    """Append one set with these timestamps; returns its first offset."""
    if magic < 2:
        return produce_messages(log, *times, magic=magic, codec=codec)
    raw = build_batch([(time, None, b"v", ()) for time in times], codec=codec)
    offset = append(log, bytearray(raw))
    log.write()
    return offset


@pytest.mark.parametrize(("magic", "codec"), EVERY_FORM)
def test_a_time_between_two_records_of_a_set_finds_the_later_record(magic: int, codec: int) -> None:
    """Case 34 of the tricky ones: neither the first nor the last offset of the set."""
    _, log = new_log()
    put(log, 50, 60, magic=magic, codec=codec)
    put(log, 100, 300, 200, 400, magic=magic, codec=codec)
    epoch = 0 if magic == 2 else -1

    assert log.offset_for_timestamp(150) == (300, 3, epoch)
    assert log.offset_for_timestamp(301) == (400, 5, epoch)
    assert log.offset_for_timestamp(60) == (60, 1, epoch)
    assert log.offset_for_timestamp(401) is None


@pytest.mark.parametrize(("magic", "codec"), EVERY_FORM)
def test_of_equal_largest_timestamps_the_earlier_record_is_named(magic: int, codec: int) -> None:
    """Case 35, in two sets and inside one."""
    _, log = new_log()
    put(log, 10, 90, 20, 90, magic=magic, codec=codec)
    put(log, 90, 80, magic=magic, codec=codec)

    assert log.max_timestamp() == (90, 1, 0 if magic == 2 else -1)


@pytest.mark.parametrize("codec", [0, GZIP])
def test_messages_stamped_by_the_broker_have_the_time_of_the_append(codec: int) -> None:
    _, log = new_log()
    log.append_messages(messages(5, 6, 7, codec=codec, append_time_ms=1000))
    log.append_messages(messages(8, 9, codec=codec, append_time_ms=2000))
    log.write()

    assert log.offset_for_timestamp(1) == (1000, 0, -1)
    assert log.offset_for_timestamp(1001) == (2000, 3, -1)
    assert log.max_timestamp() == (2000, 3, -1)


@pytest.mark.parametrize("codec", [0, GZIP])
def test_format_0_is_never_the_answer(codec: int) -> None:
    _, log = new_log()
    produce_messages(log, -1, -1, magic=0, codec=codec)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None
    produce(log, b"x", timestamp_ms=0)
    produce_messages(log, -1, -1, magic=0, codec=codec)

    assert log.offset_for_timestamp(0) == log.max_timestamp() == (0, 2, 0)


@pytest.mark.parametrize(("magic", "codec"), EVERY_FORM)
def test_what_lies_below_a_log_start_inside_a_set_does_not_count(magic: int, codec: int) -> None:
    _, log = new_log()
    put(log, 900, 100, 300, magic=magic, codec=codec)
    put(log, 200, magic=magic, codec=codec)
    epoch = 0 if magic == 2 else -1

    log.delete_records(1)

    assert log.offset_for_timestamp(0) == (100, 1, epoch)
    assert log.offset_for_timestamp(301) is None
    assert log.max_timestamp() == (300, 2, epoch)


@pytest.mark.parametrize("magic", [1, 2])
def test_a_set_that_expands_too_far_is_not_looked_into(magic: int) -> None:
    _, log = new_log()
    put(log, *range(2000), magic=magic, codec=GZIP)

    with pytest.raises(InvalidRecord) as caught:
        log.offset_for_timestamp(5, limit=1000)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(InvalidRecord, match="expands beyond 1000 bytes"):
        log.max_timestamp(limit=1000)


def test_a_wrapper_whose_content_is_damaged_is_told() -> None:
    files, log = new_log()
    produce_messages(log, 10, 20, codec=GZIP)
    data = bytearray(files.read_bytes(f"{FOLDER}/{0:020d}.log"))
    data[-1] ^= 1
    files.write_bytes(f"{FOLDER}/{0:020d}.log", bytes(data))
    log.active.unload()

    with pytest.raises(CorruptBatch):
        log.offset_for_timestamp(15)


@pytest.mark.parametrize(("magic", "codec"), EVERY_FORM)
def test_a_timestamp_that_a_checksum_denies_does_not_hide_a_later_record(
    magic: int, codec: int
) -> None:
    files, log = new_log()
    for time in (100, 110, 120):
        put(log, time, magic=magic, codec=codec)
    log.sync()
    entries = list(log.segments[0].verified.entries_from(0))
    path = f"{FOLDER}/{0:020d}.log"
    data = bytearray(files.read_bytes(path))
    at = entries[1].position + (35 if magic == 2 else 18)  # of its (largest) timestamp
    data[at + 6] ^= 1
    files.write_bytes(path, bytes(data))
    log.active.unload()

    assert log.offset_for_timestamp(115) == (120, 2, 0 if magic == 2 else -1)


@pytest.mark.parametrize("seed", range(30))
def test_times_agree_with_a_walk_over_all_records(seed: int) -> None:
    rng = random.Random(seed)
    settings = Settings(
        segment_bytes=rng.choice((600, 3000)), index_interval_bytes=rng.choice((0, 150, 4096))
    )
    files, log = new_log(settings)
    for _ in range(rng.randrange(3, 25)):
        times = [rng.choice((-1, rng.randrange(100))) for _ in range(rng.randrange(1, 6))]
        magic, codec = rng.choice((*EVERY_FORM, (0, 0), (0, GZIP)))
        put(log, *times, magic=magic, codec=codec)
        if rng.random() < 0.1:
            log.close(clean=True)
            log = opened(files, settings)
    if rng.random() < 0.5:
        log.delete_records(rng.randrange(log.next_offset))
    model = [
        (record.timestamp_ms, record.offset)
        for record in records_in(everything(log))
        if record.offset >= log.start_offset and record.timestamp_ms >= 0
    ]

    for wanted in range(0, 101, 7):
        found = log.offset_for_timestamp(wanted)
        first = next((entry for entry in model if entry[0] >= wanted), None)
        assert (found[:2] if found else None) == first, f"seed {seed}, time {wanted}"
    latest = log.max_timestamp()
    best = max(model, key=lambda entry: (entry[0], -entry[1]), default=None)
    assert (latest[:2] if latest else None) == best, f"seed {seed}"


# ListOffsets v0: by the modification times of the files


def segments_written_at(*times: int) -> Log:
    """A log with a segment of two records for each time (ms) at which its file was written."""
    files, log = new_log()
    for number, time in enumerate(times):
        files.mtime_ms = time
        if number:
            log.roll(now_ms=time)
        files.mtime_ms = time
        produce(log, b"a", b"b")
    return log


@pytest.mark.parametrize(
    ("timestamp_ms", "max_count", "expected"),
    [
        (-1, 1, [6]),
        (-1, 10, [6, 4, 2, 0]),
        (-1, 3, [6, 4, 2]),
        (-2, 1, [0]),
        (-2, 10, [0]),
        (-1, 0, []),
        (-1, -5, []),
        (99, 10, []),
        (100, 10, [0]),
        (250, 10, [2, 0]),
        (250, 1, [2]),
        (300, 10, [4, 2, 0]),
        (NOW_MS - 1, 10, [4, 2, 0]),
        (NOW_MS, 10, [6, 4, 2, 0]),
    ],
)
def test_offsets_before_a_time_are_those_at_which_segments_begin(
    timestamp_ms: int, max_count: int, expected: list[int]
) -> None:
    log = segments_written_at(100, 200, 300)

    assert log.offsets_before(timestamp_ms, max_count, now_ms=NOW_MS) == expected


def test_a_segment_begins_for_a_reader_where_the_log_starts() -> None:
    log = segments_written_at(100, 200, 300)

    log.delete_records(3)

    assert log.offsets_before(-1, 10, now_ms=NOW_MS) == [6, 4, 3, 3]
    drop_below_start(log)
    assert log.offsets_before(-1, 10, now_ms=NOW_MS) == [6, 4, 3]
    assert log.offsets_before(-2, 1, now_ms=NOW_MS) == [3]


def test_an_empty_last_segment_has_no_end_of_its_own() -> None:
    _, log = new_log()
    assert log.offsets_before(-1, 10, now_ms=NOW_MS) == [0]
    produce(log, b"a")
    log.roll(now_ms=NOW_MS)

    assert log.offsets_before(-1, 10, now_ms=NOW_MS) == [1, 0]


def test_what_is_only_queued_is_no_end_to_read_to() -> None:
    _, log = new_log()
    produce(log, b"a")
    append(log, batch(b"b"))
    raw = batch(b"c")
    log.append_batches([(memoryview(raw), header_of(raw))])

    assert log.offsets_before(-1, 1, now_ms=NOW_MS) == [1]
