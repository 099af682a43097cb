"""The map of keys is exact, keeps within its bound, and says when it is full."""

from __future__ import annotations

import random

import pytest

from protocol.records.builder import build_batch
from protocol.records.compact import Keys, keys_in_batch
from protocol.records.key_loops import SLOT_SIZE
from protocol.records.layout import HEADER_SIZE
from storage.cleaning.offset_map import LOAD, OffsetMap

ALL = (0, 2**62)


def run_of(*keys: bytes | None, base_offset: int = 0) -> Keys:
    records = build_batch([(0, key, b"", ()) for key in keys])[HEADER_SIZE:]
    return keys_in_batch(records, len(keys), base_offset)


@pytest.mark.parametrize("max_bytes", [0, 100, 5_000, 4 << 20, 5 << 20])
def test_it_knows_what_a_dict_knows(max_bytes: int) -> None:
    rng = random.Random(max_bytes)
    keys = [rng.randbytes(rng.choice((0, 1, 2, 16, 300))) for _ in range(4000)]
    found, wanted = OffsetMap(max_bytes), dict[bytes, int]()
    for offset in range(0, 20_000, 5):
        more = [rng.choice(keys) for _ in range(5)]
        taken = found.add(run_of(*more, base_offset=offset), *ALL)
        wanted.update(zip(more[:taken], range(offset, offset + 5), strict=False))
        if taken < 5:
            assert more[taken] not in wanted
            break
    else:
        assert max_bytes > 100_000
    assert len(found) == len(wanted)
    assert [*found.newest(run_of(*keys))] == [wanted.get(key, -1) for key in keys]
    assert found.byte_size <= max(max_bytes, 3 * SLOT_SIZE)


def test_it_takes_no_records_without_a_key_and_none_outside_of_the_range() -> None:
    found = OffsetMap(1 << 20)
    run = run_of(b"a", None, b"b", b"c", b"d", base_offset=10)
    assert found.add(run, 12, 14) == 5
    assert len(found) == 2
    assert [*found.newest(run)] == [-1, -1, 12, 13, -1]


def test_a_full_map_still_takes_newer_offsets_of_keys_that_it_has() -> None:
    small = OffsetMap(SLOT_SIZE * 7)
    assert small.add(run_of(*(b"%d" % n for n in range(9))), *ALL) == 6
    assert small.add(run_of(b"0", b"5", b"9", base_offset=10), *ALL) == 2
    assert [*small.newest(run_of(b"0", b"5", b"9"))] == [10, 11, -1]


def test_it_fills_nearly_all_of_its_bound_and_never_takes_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = 5 << 20
    full, peaks, grow = OffsetMap(bound), [0], OffsetMap._grow

    def measured(growing: OffsetMap, index: int) -> None:
        old = len(growing._tables[index])
        grow(growing, index)
        peaks.append(growing.byte_size + old)

    monkeypatch.setattr(OffsetMap, "_grow", measured)
    wanted, taken = bound // SLOT_SIZE, 0
    for offset in range(0, wanted, 1000):
        keys = [b"%d" % n for n in range(offset, min(offset + 1000, wanted))]
        more = full.add(run_of(*keys, base_offset=offset), *ALL)
        taken += more
        if more < len(keys):
            break
    assert 0.97 * bound < max(peaks) <= bound
    assert taken == len(full) > 0.93 * LOAD * wanted


def test_it_begins_small() -> None:
    assert OffsetMap(128 << 20).byte_size < 200_000
