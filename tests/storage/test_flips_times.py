"""One bit is flipped where a time index ends; searches by time find what they found before."""

from __future__ import annotations

import pytest

from storage.layout import TIME_INDEX, file_name
from tests.storage.flipped import filled
from tests.storage.logs import FOLDER

CASE = filled(clean=True, batches=30)
FIRST_MS = 1000


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_the_last_entry_of_a_time_index_moves_no_search(bit: int) -> None:
    whole = [CASE.opened()[0].offset_for_timestamp(FIRST_MS + number) for number in range(31)]
    paths = [f"{FOLDER}/{name}" for name in CASE.files.list_dir(FOLDER)]
    for path in sorted(path for path in paths if path.endswith(TIME_INDEX)):
        size = CASE.files.size_of(path)
        for at in range(size - 12, size):
            log, _ = CASE.flipped(path, at, bit).opened()
            for number, wanted in enumerate(whole):
                found = log.offset_for_timestamp(FIRST_MS + number)
                assert found == wanted, (path, at, number)
            log, _ = CASE.flipped(path, at, bit).opened()
            assert log.max_timestamp() == whole[29], (path, at)


def test_the_offset_index_stays_when_a_time_index_ends_with_a_wrong_timestamp() -> None:
    path = f"{FOLDER}/{file_name(0, TIME_INDEX)}"
    log, _ = CASE.flipped(path, CASE.files.size_of(path) - 5, 3).opened()
    whole, _ = CASE.opened()
    for one in (log, whole):
        one.segments[0].load()

    assert log.segments[0].offsets.encode() == whole.segments[0].offsets.encode()
    assert log.segments[0].times.encode() == whole.segments[0].times.encode()
