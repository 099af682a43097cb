"""Appending sets of several entries: all or nothing, in any format, with Apache Kafka's indexes."""

from __future__ import annotations

import errno
import struct

import pytest

from protocol.records.legacy import MessageSet
from protocol.records.walk import walk
from storage import log as log_module
from storage.errors import BatchTooLarge, StorageError
from storage.log import Log
from storage.recovery import LastKnown
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    Vector,
    append,
    batch,
    batches_in,
    decoded,
    everything,
    file_of,
    header_of,
    new_log,
    opened,
    produce,
    taken,
    vectors,
)
from tests.storage.message_sets import message_set, messages, produce_messages, records_in
from tests.support.memory_filesystem import MemoryFilesystem


def append_set(log: Log, raw: bytes) -> int:
    """Append what a producer's set of any format became; all its offsets are given anew."""
    parts = [raw[position : position + size] for position, size, _ in walk(raw)]
    if raw[16] < 2:
        made = message_set(raw)
        if not made.compressed:
            made.place(1_000_000)
        return log.append_messages(made, now_ms=NOW_MS)
    views = [(memoryview(bytearray(8) + part[8:]), header_of(part)) for part in parts]
    return log.append_batches(views, now_ms=NOW_MS)


def index_of_first_entries(index: bytes, log: bytes, base_offset: int) -> bytes:
    """Kafka's index, with the last offset of the first entry of a set in place of the set's last:
    Kafka's own `DumpLogSegments` takes what Kafka writes there for a fault (storage.md 4.2)."""
    last_offsets = {}
    for position, _, magic in walk(log):
        delta = int.from_bytes(log[position + 23 : position + 27], "big") if magic == 2 else 0
        last_offsets[position] = int.from_bytes(log[position : position + 8], "big") + delta
    return b"".join(
        struct.pack(">ii", last_offsets[position] - base_offset, position)
        for _, position in struct.iter_unpack(">ii", index)
    )


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: str(v["id"]))
def test_sets_of_every_format_become_the_files_kafka_wrote(vector: Vector) -> None:
    files, base = MemoryFilesystem(), vector["base_offset"]
    settings = Settings(index_interval_bytes=vector["index_interval_bytes"])
    log = opened(files, settings, known=LastKnown(start_offset=base))

    for given in vector["appends"]:
        offset = append_set(log, decoded(given["records"]))
        log.write()
        assert log.next_offset == given["largest_offset"] + 1
        assert offset <= given["largest_offset"]
    log.close(clean=True)

    expect = vector["expect"]
    assert file_of(files, ".log", base) == decoded(expect["log"])
    index = index_of_first_entries(decoded(expect["index"]), decoded(expect["log"]), base)
    assert file_of(files, ".index", base) == index
    assert file_of(files, ".timeindex", base) == decoded(expect["timeindex"])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (messages(7, 9, 9, 8), (9, 1)),
        (messages(7, 9, 9, 8, append_time_ms=50), (50, 0)),
        (messages(7, 9, 9, 8, codec=1), (9, 3)),
        (messages(7, 9, 9, 8, codec=1, append_time_ms=50), (50, 3)),
        (messages(7, 9, 9, 8, magic=0), (-1, -1)),
    ],
    ids=["plain", "plain-stamped", "wrapper", "wrapper-stamped", "format-0"],
)
def test_the_time_index_names_the_offset_that_kafka_names(
    made: MessageSet, expected: tuple[int, int]
) -> None:
    files, log = new_log()

    log.append_messages(made)
    log.close(clean=True)

    entry = file_of(files, ".timeindex")
    wanted = b"" if expected == (-1, -1) else b"%b%b" % (
        expected[0].to_bytes(8, "big"), expected[1].to_bytes(4, "big"),
    )  # fmt: skip
    assert entry == wanted


def test_a_set_gets_one_index_entry_that_names_its_first_message_or_batch() -> None:
    _, log = new_log(Settings(index_interval_bytes=100))
    produce_messages(log, *range(50))
    first_size = log.active.size

    produce_messages(log, *range(50, 100))
    log.append_batches([(memoryview(raw), header_of(raw)) for raw in (batch(b"a"), batch(b"b"))])
    log.write()

    offsets = log.active.offsets
    assert [offsets.floor(n) for n in (49, 50, 99, 100, 101)] == [
        0, first_size, first_size, 2 * first_size, 2 * first_size,
    ]  # fmt: skip
    assert (log.next_offset, len(offsets)) == (102, 2)
    for offset in range(100):
        assert batches_in(taken(log.read(offset, 1))) == [(offset, offset)]


def test_several_batches_get_offsets_that_follow_each_other_and_their_producers_state() -> None:
    files = MemoryFilesystem()
    log = opened(files, leader_epoch=3)
    produce(log, b"before")
    parts = [
        batch(b"a", b"b", producer=(7, 0, 0)),
        batch(b"c", timestamp_ms=4000, producer=(7, 0, 2)),
        batch(b"d", timestamp_ms=4000, producer=(7, 0, 3)),
    ]

    offset = log.append_batches([(memoryview(raw), header_of(raw)) for raw in parts])
    log.write()

    assert offset == 1
    assert batches_in(everything(log)) == [(0, 0), (1, 2), (3, 3), (4, 4)]
    assert [raw[12:16] for raw in parts] == [(3).to_bytes(4, "big")] * 3
    repeated = log.producers.check(header_of(batch(b"d", producer=(7, 0, 3))))
    assert repeated is not None
    assert repeated.base_offset == 4
    assert (log.active.max_timestamp, log.active.max_timestamp_offset) == (4000, 3)


def test_a_set_that_does_not_fit_begins_a_segment_and_is_never_torn_apart() -> None:
    size = len(batch(b"x"))
    _, log = new_log(Settings(segment_bytes=3 * size))
    produce(log, b"x")
    produce(log, b"x")

    log.append_batches([(memoryview(raw), header_of(raw)) for raw in (batch(b"x"), batch(b"x"))])
    log.append_messages(messages(1, 2, 3))
    log.write()

    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert [segment.written_size // size for segment in log.segments] == [2, 2, 1]


def test_a_change_of_the_topics_format_begins_a_segment_and_nothing_else_does() -> None:
    _, log = new_log(Settings(record_format=1))
    produce_messages(log, 1, 2)
    produce(log, b"x")  # of another format, but the topic's is the same

    log.configure(Settings(record_format=2))
    produce(log, b"x")
    produce(log, b"x")
    log.configure(Settings(record_format=0))
    log.configure(Settings(record_format=2))
    produce(log, b"x")

    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_format_that_was_changed_while_the_log_was_closed_begins_a_segment() -> None:
    files, log = new_log(Settings(record_format=1))
    produce_messages(log, 1, 2)
    log.close(clean=True)

    same = opened(files, Settings(record_format=1))
    produce_messages(same, 3)
    same.close(clean=True)
    other = opened(files, Settings(record_format=2))
    produce(other, b"x")
    produce(other, b"x")

    assert [segment.base_offset for segment in other.segments] == [0, 3]


def test_a_batch_after_a_set_is_held_to_the_segments_limit() -> None:
    size = len(batch(b"x"))
    _, log = new_log(Settings(segment_bytes=4 * size))
    produce(log, b"x")
    log.append_batches([(memoryview(raw), header_of(raw)) for raw in (batch(b"x"), batch(b"x"))])

    append(log, batch(b"x"))
    append(log, batch(b"x"))
    log.write()

    assert [segment.base_offset for segment in log.segments] == [0, 4]


def test_a_set_larger_than_a_segment_is_refused_untouched() -> None:
    _, log = new_log(Settings(segment_bytes=1000))
    produce(log, b"x")
    parts = [batch(bytes(300)) for _ in range(3)]
    made = messages(*range(40))
    before = bytes(made.view)

    with pytest.raises(BatchTooLarge):
        log.append_batches([(memoryview(raw), header_of(raw)) for raw in parts])
    with pytest.raises(BatchTooLarge):
        log.append_messages(made)
    log.write()

    assert bytes(made.view) == before
    assert all(raw[:8] == bytes(8) for raw in parts)
    assert (log.next_offset, len(everything(log))) == (1, len(batch(b"x")))


def test_a_roll_that_fails_refuses_all_of_a_set() -> None:
    files, log = new_log(Settings(segment_bytes=300))
    produce(log, bytes(200))
    files.faults = dict.fromkeys(range(len(files.calls), len(files.calls) + 40), errno.ENOSPC)

    with pytest.raises(StorageError):
        log.append_messages(messages(1, 2, 3, 4, 5))
    with pytest.raises(StorageError):
        log.append_batches([(memoryview(raw), header_of(raw)) for raw in (batch(), batch())])
    files.faults = {}
    log.write()

    assert (log.next_offset, log.written_offset, len(log.segments)) == (1, 1, 1)
    assert produce_messages(log, 1, 2) == 1
    assert [record.offset for record in records_in(everything(log))] == [0, 1, 2]


def test_a_write_that_fails_takes_sets_back_like_single_batches() -> None:
    files, log = new_log(Settings(index_interval_bytes=50))
    produce_messages(log, 10, 20)
    state = log.active.mark()
    size = log.active.size
    files.faults = {len(files.calls): errno.EIO}

    append(log, batch(b"a", timestamp_ms=99, producer=(7, 0, 0)))
    log.append_messages(messages(70, 80, codec=1))
    raw = batch(b"b", producer=(7, 0, 1))
    log.append_batches([(memoryview(raw), header_of(raw))])
    with pytest.raises(StorageError):
        log.write()

    assert (log.next_offset, log.active.size) == (2, size)
    for name in state.__slots__:
        assert getattr(log.active.mark(), name) == getattr(state, name)
    assert log.producers.check(header_of(batch(b"a", producer=(7, 0, 0)))) is None
    assert len(file_of(files, ".log")) == size
    assert log.max_timestamp() == (20, 1, -1)


def test_a_full_queue_is_written_before_a_set_and_not_amid_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_module, "QUEUE_BATCHES_MAX", 3)
    _, log = new_log()
    append(log, batch(b"1"))
    append(log, batch(b"2"))

    parts = [batch(b"%d" % number) for number in range(3, 8)]
    log.append_batches([(memoryview(raw), header_of(raw)) for raw in parts])
    queued = log.written_offset
    log.append_messages(messages(5, 6))
    early = log.written_offset
    log.write()

    assert (queued, early, log.written_offset) == (0, 7, 9)


def test_a_segment_of_format_0_ages_by_the_clock() -> None:
    _, log = new_log(Settings(segment_ms=1000))

    for later in (0, 1000, 1001):
        log.append_messages(messages(-1, -1, magic=0), now_ms=NOW_MS + later)
    log.write()

    assert [segment.base_offset for segment in log.segments] == [0, 4]


def test_formats_live_side_by_side_in_one_segment() -> None:
    files, log = new_log()
    produce_messages(log, -1, -1, magic=0)
    produce_messages(log, -1, -1, magic=0, codec=1)
    produce_messages(log, 30, 40)
    produce(log, b"a", b"b", timestamp_ms=50)
    produce_messages(log, 60, 70, codec=2)
    assert log.close(clean=True) is not None

    log = opened(files)

    found = records_in(everything(log))
    assert [(record.offset, record.timestamp_ms) for record in found] == [
        (0, -1), (1, -1), (2, -1), (3, -1), (4, 30), (5, 40), (6, 50), (7, 50), (8, 60), (9, 70),
    ]  # fmt: skip
    assert [name for name in files.list_dir(FOLDER) if name.endswith(".log")] == [f"{0:020d}.log"]


def test_a_read_in_a_long_run_of_small_messages_is_filled_though_no_index_entry_helps() -> None:
    files, log = new_log()
    produce_messages(log, *range(20_000))
    size = log.active.size
    wanted = size // 2

    offset, slices = 0, []
    while offset < log.next_offset:
        files.reads.clear()
        got = taken(log.read(offset, wanted))
        slices.append(len(got))
        offset = batches_in(got)[-1][1] + 1

    assert sum(slices) == size
    assert len(slices) <= 3
    assert all(wanted - wanted // 16 - 100 <= length <= wanted for length in slices[:2])
