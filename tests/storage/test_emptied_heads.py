"""Compaction empties the segment in which a log starts, while those before it are removed."""

from __future__ import annotations

import random

import pytest

from storage.cleaning.cleaning import CleanedGroup
from storage.data_dir import DataDirectory
from storage.layout import LOG, REPLACEMENT, file_name
from storage.recovery import LastKnown
from storage.replacing import Replacing
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    drop_below_start,
    new_log,
    opened,
    produce,
)
from tests.support.checkpoints import write_checkpoints
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.record_deletion import delete_records
from tests.support.topic_store import open_topics

PATH = "/data"


def test_a_segment_that_becomes_the_first_one_meanwhile_is_not_replaced_by_nothing() -> None:
    """The log would begin with a later segment, and after a restart only there: a consumer that
    stands in between would be told that its offset is out of range."""
    files, log = new_log()
    for value in (b"a", b"b", b"c"):
        produce(log, value)
        produce(log, value)
        log.roll(now_ms=NOW_MS)
    log.sync()

    # Given an empty group in the place of the second segment, decided for
    group = CleanedGroup(2, [2], empty=True, size=0, modified_ms=NOW_MS)
    replacing = Replacing(log, group)
    assert replacing.is_possible()
    replacing.commit()

    # When DeleteRecords removes the first segment before they are swapped
    log.delete_records(3)
    assert drop_below_start(log) == 1

    # Then they are not, and the log starts at the same offset when it is opened again
    assert not replacing.is_possible()
    replacing.retract()
    assert files.exists(f"{FOLDER}/{file_name(2, LOG)}")
    files.kill()
    known = LastKnown(recovery_point=log.recovery_point, start_offset=3)
    assert opened(files, known=known).start_offset == 3

    # And one that is made now leaves a segment without records
    again = Replacing(log, group)
    again.commit()
    again.swap()
    again.finish()
    assert log.segments.base_offsets[0] == 2


@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize(("sources", "new_start"), [([2], 3), ([2], 4), ([2, 4], 5), ([2, 4], 4)])
def test_a_log_starts_where_it_was_told_to_wherever_the_power_fails(
    sources: list[int], new_start: int, is_swapped: bool
) -> None:
    """The next start finishes what was decided. It must not empty what has become the head, nor
    bring back what was deleted after the swap."""
    files = MemoryFilesystem()
    directory = opened_directory(files)
    log = directory.logs["a", 0]
    for value in (b"a", b"b", b"c", b"d"):
        produce(log, value)
        produce(log, value)
        log.roll(now_ms=NOW_MS)
    write_checkpoints(directory)
    for step in directory.checkpoints.gaps(log, log.active.base_offset):
        step.sync()
    files.sync_all()
    group = CleanedGroup(2, sources, empty=True, size=0, modified_ms=NOW_MS)

    def left() -> tuple[int, list[MemoryFilesystem]]:
        cuts = (files.power_cut(random.Random(f"{len(files.calls)} {n}")) for n in range(2))
        return log.start_offset, list(cuts)

    def replace_while_records_are_deleted() -> None:
        replacing = Replacing(log, group)
        replacing.commit()
        if is_swapped:
            replacing.swap()
        delete_records(directory, "a", 0, new_start)
        write_checkpoints(directory)  # it need not tell of the new start any more
        if is_swapped:
            replacing.finish()
        else:
            replacing.retract()

    for told, found in files.at_every_call(replace_while_records_are_deleted, left):
        for disk in found:
            again = opened_directory(disk).logs["a", 0]
            assert again.start_offset in (told, new_start)
            assert again.next_offset == log.next_offset
            assert not disk.exists(f"{again.folder}/{REPLACEMENT}")


def opened_directory(files: MemoryFilesystem) -> DataDirectory:
    """A directory with the topic `a`, which is created if it is not there."""
    directory = DataDirectory.take(
        files, PATH, node_id=1, new_uuid=lambda: random.Random(1).randbytes(16)
    )
    topics = open_topics(files, PATH)
    topics.begin_epoch()
    directory.open_logs(topics, lambda _: Settings(), now_ms=NOW_MS)
    if topics.get("a") is None:
        stored = topics.create("a", bytes(range(16)), 1, {})
        directory.create_partition(stored, 0, Settings(), now_ms=NOW_MS)
    return directory
