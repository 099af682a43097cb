"""Index files at the full size at which Apache Kafka makes them, left there when it was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from storage.preallocated import read_entries
from storage.recovery import LastKnown
from storage.time_index import ENTRY_SIZE as TIME_INDEX_ENTRY_SIZE
from tests.storage.logs import FOLDER, Settings, file_of, new_log, opened, produce
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from storage.log import Log

FULL_BYTES = 10 << 20
SIZES = {".index": INDEX_ENTRY_SIZE, ".timeindex": TIME_INDEX_ENTRY_SIZE}
PATH = "/file"
SETTINGS = Settings(index_interval_bytes=100)


def left_by_a_killed_kafka(count: int) -> tuple[MemoryFilesystem, Log]:
    """A log of so many batches, each with an index entry but for the first ones."""
    files, log = new_log(SETTINGS)
    for number in range(count):
        produce(log, bytes(90), timestamp_ms=1000 + number)
    log.sync()
    for step in log.active.store_indexes():
        step.sync()
    for suffix, entry_size in SIZES.items():
        content = file_of(files, suffix)
        zeros = bytes(FULL_BYTES // entry_size * entry_size - len(content))
        files.write_bytes(f"{FOLDER}/{0:020d}{suffix}", content + zeros)
    return files, log


@pytest.mark.parametrize("point", [0, 30, 60])
def test_a_start_reads_no_zeros_and_cuts_the_files(point: int) -> None:
    files, before = left_by_a_killed_kafka(60)
    files.reads.clear()

    log = opened(files, SETTINGS, known=LastKnown(recovery_point=point))

    read = sum(size for path, _, size in files.reads if path.endswith(tuple(SIZES)))
    assert 0 < read < 4096
    assert log.next_offset == 60
    assert log.active.offsets.encode() == before.active.offsets.encode()
    for suffix in SIZES:
        assert len(file_of(files, suffix)) < 60 * 12
    assert log.offset_for_timestamp(1042) == (1042, 42, 0)


def test_what_zeros_hide_below_the_recovery_point_is_found_in_the_log() -> None:
    """No crash does that. The numbers after the hole may be right or not."""
    files, _ = left_by_a_killed_kafka(60)
    for suffix, entry_size in SIZES.items():
        data = bytearray(file_of(files, suffix))
        data[10 * entry_size : 20 * entry_size] = bytes(10 * entry_size)
        files.write_bytes(f"{FOLDER}/{0:020d}{suffix}", bytes(data))

    log = opened(files, SETTINGS, known=LastKnown(recovery_point=60))

    assert log.next_offset == 60
    for number in range(60):
        assert log.offset_for_timestamp(1000 + number) == (1000 + number, number, 0)


@pytest.mark.parametrize("entry_size", [8, 12])
def test_the_end_of_the_content_is_found_wherever_it_is(entry_size: int) -> None:
    files = MemoryFilesystem()
    for count in range(20):
        content = b"".join(number.to_bytes(entry_size, "big") for number in range(1, count + 1))
        for zeros in range(20):
            files.write_bytes(PATH, content + bytes(zeros * entry_size))
            assert read_entries(files, PATH, entry_size) == content
    files.write_bytes(PATH, bytes(100) + b"x")
    assert read_entries(files, PATH, entry_size) == bytes(100) + b"x", "not ours to judge"
