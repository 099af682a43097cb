"""Recovery of logs that hold messages of formats 0 and 1, alone or mixed with batches.

The index that recovery builds has one step per entry, as Apache Kafka's has after a recovery. It is
the appended one wherever each append was one entry; the file cannot tell what was appended as one.
"""

from __future__ import annotations

import pytest

from protocol.records.errors import CorruptBatch
from protocol.records.walk import walk
from storage.log import Log
from storage.offset_index import OffsetIndex
from storage.recovery import LastKnown, open_log
from storage.reports import RecoveryReport
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
    new_log,
    opened,
    produce,
    taken,
    vectors,
)
from tests.storage.message_sets import messages, produce_messages, records_in
from tests.support.memory_filesystem import MemoryFilesystem

GZIP = 1
LOG_PATH = f"{FOLDER}/{0:020d}.log"
SETTINGS = Settings(index_interval_bytes=150)


def mixed_log(*, apart: bool = False) -> tuple[MemoryFilesystem, Log]:
    """20 rounds of seven records in five forms; `apart`: each plain message is a set of its own."""
    files = MemoryFilesystem()
    log = opened(files, SETTINGS)
    for time in range(1000, 1200, 10):
        for magic in (0, 1):
            if apart:
                produce_messages(log, time, magic=magic)
                produce_messages(log, time + 5, magic=magic)
            else:
                produce_messages(log, time, time + 5, magic=magic)
        produce_messages(log, time + 1, time + 2, codec=GZIP)
        produce(log, b"x", timestamp_ms=time + 3)
    return files, log


def recovered(
    files: MemoryFilesystem, *, point: int = 0, settings: Settings = SETTINGS
) -> tuple[Log, list[RecoveryReport]]:
    """The log after the process was killed: with what is in its files, and no clean state."""
    return open_log(files, FOLDER, settings, known=LastKnown(recovery_point=point), now_ms=NOW_MS)


def seen(log: Log) -> list[tuple[int, int, bytes | None]]:
    return [(r.offset, r.timestamp_ms, r.value) for r in records_in(everything(log))]


@pytest.mark.parametrize("point", [0, 1, 70, 139, 140])
def test_a_log_of_all_formats_comes_back_whole_after_a_kill(point: int) -> None:
    files, log = mixed_log()
    for step in log.active.store_indexes():
        step.sync()
    before, times = seen(log), [log.offset_for_timestamp(time) for time in range(990, 1210, 7)]
    latest = log.max_timestamp()

    log, reports = recovered(files, point=point)

    assert reports == []
    assert (log.next_offset, seen(log)) == (140, before)
    assert [log.offset_for_timestamp(time) for time in range(990, 1210, 7)] == times
    assert log.max_timestamp() == latest
    for offset in range(140):
        assert offset in [r.offset for r in records_in(taken(log.read(offset, 1)))]
    assert produce_messages(log, 2000, 2001, codec=GZIP) == 140


def test_recovery_builds_the_index_that_appending_entry_by_entry_would_have_built() -> None:
    files, _ = mixed_log()
    other, log = mixed_log(apart=True)
    log.close(clean=True)
    assert file_of(files, ".log") == file_of(other, ".log")

    log, _ = recovered(files)
    log.close(clean=True)

    for suffix in (".index", ".timeindex"):
        assert file_of(files, suffix) == file_of(other, suffix)


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: str(v["id"]))
def test_what_kafka_wrote_is_found_at_the_same_times_when_its_indexes_are_gone(
    vector: Vector,
) -> None:
    files, expect = MemoryFilesystem(), vector["expect"]
    data = decoded(expect["log"])
    files.write_bytes(f"{FOLDER}/{vector['base_offset']:020d}.log", data)

    log, reports = recovered(
        files, settings=Settings(index_interval_bytes=vector["index_interval_bytes"])
    )

    assert reports == []
    assert log.next_offset == vector["appends"][-1]["largest_offset"] + 1
    for wanted in expect["first_offset_at_or_after"]:
        found = log.offset_for_timestamp(wanted["ts"])
        expected = None if wanted["offset"] is None else (wanted["timestamp"], wanted["offset"])
        assert (found[:2] if found else None) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_a_cut_set_of_plain_messages_keeps_its_whole_ones(magic: int) -> None:
    files, log = new_log(SETTINGS)
    produce(log, b"x")
    produce_messages(log, 1, 2, 3, magic=magic)
    data = file_of(files, ".log")
    ends = [position + size for position, size, _ in walk(data)]

    for size in range(ends[0], len(data)):
        files.write_bytes(LOG_PATH, data[:size])
        log, reports = recovered(files)
        whole = sum(end <= size for end in ends)
        assert (log.next_offset, len(file_of(files, ".log"))) == (whole, ends[whole - 1])
        assert [report.bytes_cut for report in reports] == (
            [size - ends[whole - 1]] if size not in ends else []
        )


@pytest.mark.parametrize("magic", [0, 1])
def test_a_cut_wrapper_goes_as_a_whole(magic: int) -> None:
    files, log = new_log(SETTINGS)
    produce(log, b"x")
    size = log.active.size
    produce_messages(log, 1, 2, 3, magic=magic, codec=GZIP)
    data = file_of(files, ".log")

    for kept in range(size + 1, len(data)):
        files.write_bytes(LOG_PATH, data[:kept])
        log, reports = recovered(files)
        assert (log.next_offset, [r.bytes_cut for r in reports]) == (1, [kept - size])
    assert produce_messages(log, 4, 5, magic=magic, codec=GZIP) == 1
    assert [offset for offset, _, _ in seen(log)] == [0, 1, 2]


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (1, 0), (0, GZIP), (1, GZIP)])
def test_a_flipped_bit_in_a_message_costs_the_message(magic: int, codec: int) -> None:
    files, log = new_log(SETTINGS)
    produce_messages(log, 1, 2, magic=magic, codec=codec)
    size = log.active.size
    produce_messages(log, 3, magic=magic, codec=codec)
    produce(log, b"after")
    data = bytearray(file_of(files, ".log"))
    data[size + 17] ^= 0x80  # a bit of the attributes that means nothing: only the sum tells
    files.write_bytes(LOG_PATH, bytes(data))

    log, reports = recovered(files)

    assert (log.next_offset, len(file_of(files, ".log"))) == (4, len(data))
    assert "checksum" in reports[0].reason
    with pytest.raises(CorruptBatch):
        log.read(2, 1)
    assert batches_in(taken(log.read(3, 1))) == [(3, 3)]


@pytest.mark.parametrize("point", [50, 101])
def test_a_recovery_point_in_or_after_a_long_set_gives_a_rising_index(point: int) -> None:
    files, log = new_log(SETTINGS)
    produce(log, bytes(200))
    produce_messages(log, *range(100))
    for step in log.active.store_indexes():
        step.sync()

    log, reports = recovered(files, point=point)

    assert (reports, log.next_offset) == ([], 101)
    index = OffsetIndex.decode(log.active.offsets.encode(), log.active.size)
    assert index is not None, "its entries rise"
    assert len(index) >= 1
    for offset in range(101):
        assert [r.offset for r in records_in(taken(log.read(offset, 1)))] == [offset]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_only_what_lies_above_the_recovery_point_is_read_in_every_format(magic: int) -> None:
    """Format 0 has no time index to vouch for its offset index, and needs none."""
    settings = Settings(index_interval_bytes=1000)
    files, log = new_log(settings)
    for _ in range(400):
        if magic == 2:
            append(log, batch(bytes(300)))
        else:
            log.append_messages(messages(7, magic=magic, value=bytes(300)))
    log.sync()
    for file in log.active.store_indexes():
        file.sync()
    size = log.active.size
    files.write_bytes(f"{FOLDER}/{400:020d}.snapshot", log.producers.encode())
    files.reads.clear()

    log, _ = recovered(files, point=400, settings=settings)

    assert log.next_offset == 400
    assert log.active.max_timestamp == (-1, 7, 1000)[magic]
    read = sum(amount for path, _, amount in files.reads if path.endswith(".log"))
    assert read < size // 10


def test_a_lost_time_index_is_built_again_though_the_offset_index_is_there() -> None:
    files, log = new_log(SETTINGS)
    produce_messages(log, -1, magic=0)
    produce_messages(log, 9000)
    for time in range(100, 200, 10):
        produce_messages(log, time, time + 1)
    for step in log.active.store_indexes():
        step.sync()
    files.remove(f"{FOLDER}/{0:020d}.timeindex")

    log, _ = recovered(files, point=log.next_offset)

    assert log.active.max_timestamp == 9000
    assert log.offset_for_timestamp(8000) == (9000, 1, -1)
