"""A log that is cut back while it is open is the log that never had what was cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.errors import OffsetOutOfRange
from storage.truncation import truncated
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    append,
    batch,
    everything,
    new_log,
    opened,
    produce,
    values_in,
)

if TYPE_CHECKING:
    from storage.log import Log
    from tests.support.memory_filesystem import MemoryFilesystem

COUNT = 12
SMALL = {"segment_bytes": 500, "index_interval_bytes": 100}


def filled(count: int) -> tuple[MemoryFilesystem, Log]:
    """So many batches of two records each, of an idempotent producer, in several segments and
    epochs; every third is of a transaction that is aborted (an offset more)."""
    files, log = new_log(Settings(**SMALL))
    for number in range(count):
        log.set_leader_epoch(number // 4)
        in_transaction = number % 3 == 2
        producer = (8, 0, 2 * (number // 3)) if in_transaction else (7, 0, 2 * number)
        raw = batch(
            b"%d" % number,
            b"and on",
            timestamp_ms=1000 + number,
            producer=producer if in_transaction else (-1, -1, -1),
            transactional=in_transaction,
        )
        append(log, raw)
        if in_transaction:
            log.append_marker(8, 0, commit=False, coordinator_epoch=0, now_ms=2000 + number)
        log.write()
    return files, log


def state_of(log: Log) -> tuple[object, ...]:
    """What a client, a producer or a follower can learn of a log."""
    end = log.written_offset
    return (
        everything(log),
        (log.start_offset, end, log.last_stable_offset),
        [log.end_offset_for(epoch) for epoch in range(3)],
        log.producers.encode(),
        log.aborted_transactions(0, end),
        [log.offset_for_timestamp(1000 + number) for number in range(COUNT)],
        [segment.base_offset for segment in log.segments],
    )


@pytest.mark.parametrize("kept", range(1, COUNT))
def test_what_is_left_is_as_if_the_rest_had_never_been(kept: int) -> None:
    _, shorter = filled(kept)
    _, whole = filled(COUNT)
    assert len(whole.segments) > 2

    cut = truncated(whole, shorter.written_offset, leader_epoch=2, now_ms=NOW_MS)

    shorter.set_leader_epoch(2)
    expected, found = state_of(shorter), state_of(cut)
    assert found[:-1] == expected[:-1]
    assert cut.recovery_point == cut.written_offset, "and it is on the disk"
    cut.set_leader_epoch(3)
    shorter.set_leader_epoch(3)
    produce(cut, b"new")
    produce(shorter, b"new")
    assert state_of(cut)[:-1] == state_of(shorter)[:-1]
    assert cut.end_offset_for(2) == shorter.end_offset_for(2)


def test_it_is_so_after_a_crash_too() -> None:
    files, whole = filled(COUNT)
    cut = truncated(whole, 9, leader_epoch=5, now_ms=NOW_MS)
    produce(cut, b"new")
    cut.sync()
    before = state_of(cut)

    again = opened(files, Settings(**SMALL), leader_epoch=5)

    assert state_of(again) == before


def test_a_batch_goes_whole() -> None:
    _, log = new_log()
    produce(log, b"a", b"b")
    produce(log, b"c", b"d")

    cut = truncated(log, 3, leader_epoch=1, now_ms=NOW_MS)

    assert cut.written_offset == 2
    assert values_in(everything(cut)) == [b"a", b"b"]
    assert cut.end_offset_for(0) == (0, 2), "which is how a client notices (KIP-320)"


def test_all_of_it_may_go() -> None:
    files, log = new_log()
    produce(log, b"a")
    cut = truncated(log, 0, leader_epoch=1, now_ms=NOW_MS)
    assert (cut.start_offset, cut.written_offset) == (0, 0)
    assert produce(cut, b"b") == 0
    assert values_in(everything(cut)) == [b"b"]
    assert files.exists(f"{FOLDER}/{0:020d}.log")


@pytest.mark.parametrize("offset", [-1, 1, 4, 100])
def test_an_offset_that_is_not_in_it_is_refused_and_changes_nothing(offset: int) -> None:
    _, log = new_log()
    produce(log, b"a", b"b")
    produce(log, b"c", b"d")
    log.delete_records(2)
    with pytest.raises(OffsetOutOfRange, match=r"is outside 2\.\.4"):
        truncated(log, offset, leader_epoch=1, now_ms=NOW_MS)
    assert produce(log, b"e") == 4
