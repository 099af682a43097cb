"""One bit is flipped in a log with holes; nobody reads a record under another offset."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest

from protocol.records.batch import Batch
from protocol.records.errors import CorruptBatch
from protocol.records.walk import walk
from storage.layout import INDEX, LOG, TIME_INDEX, file_name
from storage.recovery import LastKnown, open_log
from tests.storage.cleaning.partition import FOLDER, NOW_MS, Partition, batch, rules
from tests.storage.flipped import Stored, consumed, wanted
from tests.storage.logs import Settings, new_log
from tests.storage.message_sets import message_set
from tests.support.old_sets import GZIP, messages, wrapper

if TYPE_CHECKING:
    from storage.log import Log
    from tests.support.memory_filesystem import MemoryFilesystem

Found = dict[int, tuple[int, bytes]]
LAST_SEGMENT = 40
"""Batches in the segment that is not cleaned."""
INTERVAL_BYTES = 4096
"""More than all that is left, so that nothing is in an index for its place alone."""


class Compacted(NamedTuple):
    """A log of which compaction has left `batches`; the last segment is as it was."""

    files: MemoryFilesystem
    batches: list[Stored]
    end: int

    def flipped(self, path: str, at: int, bit: int) -> Compacted:
        files, data = self.files.copy(), bytearray(self.files.read_bytes(path))
        data[at] ^= 1 << bit
        files.write_bytes(path, bytes(data))
        return self._replace(files=files)

    def opened(self) -> Log:
        known = LastKnown(recovery_point=self.end, synced=self.end)
        log, _ = open_log(
            self.files,
            FOLDER,
            Settings(index_interval_bytes=INTERVAL_BYTES),
            known=known,
            leader_epoch=1,
            now_ms=NOW_MS,
        )
        return log


def compacted(seed: int, *, times_rise: bool = True, index_bytes: int = 10 << 20) -> Compacted:
    """Batches of one to three records with few keys, cleaned."""
    rng, partition, offset = random.Random(seed), Partition(), 0
    for _ in range(3):
        entries = []
        for _ in range(LAST_SEGMENT):
            count = rng.choice((1, 1, 3))
            rows = [(b"k%d" % rng.randrange(40), rng.randbytes(9)) for _ in range(count)]
            time_ms = 1000 + (10 * offset if times_rise else -offset)
            entries.append(batch(offset, *rows, timestamp_ms=time_ms))
            offset += len(rows)
        partition.segment(*entries)
    last = partition.bases[-1]
    how = rules(index_interval_bytes=INTERVAL_BYTES, segment_index_bytes=index_bytes)
    partition.clean(partition.plan(how, end=last))
    partition.files.sync_all()
    batches = []
    for base in partition.bases:
        path = f"{FOLDER}/{file_name(base, LOG)}"
        data = partition.file(base)
        for position, size, _ in walk(data):
            raw = data[position : position + size]
            found = Batch(memoryview(bytearray(raw)))
            batches.append(Stored(path, position, found.base_offset, found.last_offset, raw))
    return Compacted(partition.files, batches, offset)


def between_holes(case: Compacted) -> list[Stored]:
    """The batches with a hole before and one behind."""
    around = zip(case.batches, case.batches[1:], case.batches[2:], strict=False)
    return [
        one
        for before, one, after in around
        if before.last + 1 < one.base and one.last + 1 < after.base
    ]


def readers_find(case: Compacted, whole: Found, lost: set[int], why: object) -> None:
    found = consumed(case.opened(), max_bytes=1 << 20, jump=False)
    assert not {o: r for o, r in found.items() if whole.get(o) != r}, why
    assert whole.keys() - found.keys() <= lost, why


@pytest.mark.parametrize("times_rise", [True, False])
def test_a_flipped_base_offset_beside_holes_costs_its_batch_and_nothing_else(
    times_rise: bool,
) -> None:
    case = compacted(1, times_rise=times_rise)
    whole = wanted(case.batches)
    assert len(between_holes(case)) >= 10
    for one in case.batches[:-LAST_SEGMENT]:
        for bit in (*range(16), 17, 30, 31, 47, 62, 63):
            spoilt = case.flipped(one.path, one.position + 7 - bit // 8, bit % 8)
            readers_find(spoilt, whole, set(range(one.base, one.last + 1)), (one, bit))


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_a_flipped_bit_in_an_index_costs_nothing_where_timestamps_rise(suffix: str) -> None:
    case, rng = compacted(1), random.Random(1)
    whole = wanted(case.batches)
    path = case.batches[0].path.removesuffix(LOG) + suffix
    for at in range(case.files.size_of(path)):
        bit = rng.randrange(8)
        readers_find(case.flipped(path, at, bit), whole, set(), (at, bit))


def test_a_flipped_bit_in_an_index_shows_nothing_wrong_where_timestamps_do_not_rise() -> None:
    """Log and index contradict each other and nothing else knows: the batch is not served."""
    case = compacted(1, times_rise=False)
    whole = wanted(case.batches)
    path = case.batches[0].path.removesuffix(LOG) + INDEX
    for at in range(case.files.size_of(path)):
        readers_find(case.flipped(path, at, at % 8), whole, set(whole), at)


def test_batches_beside_holes_take_a_quarter_of_an_index_at_the_most() -> None:
    case = compacted(1, index_bytes=128)

    path = case.batches[0].path.removesuffix(LOG) + INDEX
    assert case.files.size_of(path) == 32
    assert consumed(case.opened(), max_bytes=1 << 20, jump=True) == wanted(case.batches)


def test_a_compressed_message_is_known_by_what_is_inside_the_next() -> None:
    settings = Settings(index_interval_bytes=INTERVAL_BYTES)
    files, log = new_log(settings)
    for size in (1, 3, 2, 1, 1, 4, 1, 2):
        inside = messages(*[b"%d" % size] * size, magic=1)
        raw = bytearray(wrapper(inside, magic=1, codec=GZIP, offset=size - 1))
        log.append_messages(message_set(raw), now_ms=NOW_MS)
        log.write()
    end, path = log.next_offset, log.active.path()
    clean, whole = log.close(clean=True), files.read_bytes(path)
    entries = [(position, size) for position, size, _ in walk(whole)]

    for position, _ in entries:
        for bit in range(24):
            copy, spoilt = files.copy(), bytearray(whole)
            spoilt[position + 7 - bit // 8] ^= 1 << bit % 8
            copy.write_bytes(path, bytes(spoilt))
            known = LastKnown(clean=clean, recovery_point=end)
            log, _ = open_log(copy, log.folder, settings, known=known, now_ms=NOW_MS)
            for offset in range(end):
                with suppress(CorruptBatch):
                    piece = log.read(offset, 1)
                    assert piece is not None
                    assert piece.read() in whole, (position, bit, offset)
