"""Through a log file from end to end, whatever it holds."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from protocol.records.layout import INT32, INT64
from storage.inspection import log_walk
from storage.inspection.log_walk import Damage, LogWalk
from storage.scan import Entry
from tests.storage.logs import batch
from tests.storage.message_sets import messages
from tests.support.memory_filesystem import MemoryFilesystem


def placed(*sizes: int) -> list[bytes]:
    """Batches of one record each with values of these sizes, offsets from 0."""
    found = []
    for offset, size in enumerate(sizes):
        raw = batch(random.Random(offset).randbytes(size))
        INT64.pack_into(raw, 0, offset)
        found.append(bytes(raw))
    return found


def walked(data: bytes, **bounds: int) -> list[Entry | Damage]:
    files = MemoryFilesystem()
    files.make_dir("/x")
    files.write_bytes("/x/log", data)
    return list(LogWalk(files.open_to_read("/x/log"), len(data), **bounds))  # type: ignore[arg-type]


def shape(found: list[Entry | Damage]) -> list[int | str]:
    return [item.kind if isinstance(item, Damage) else item.last_offset for item in found]


def test_every_entry_of_a_whole_file_is_seen() -> None:
    parts = placed(10, 2000, 1, 0)
    assert shape(walked(b"".join(parts))) == [0, 1, 2, 3]


@pytest.mark.parametrize("piece", [64, 100, 1000, 1 << 22])
def test_the_size_of_the_pieces_makes_no_difference(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_walk, "PIECE_BYTES", piece)
    parts = placed(*(random.Random(1).choices(range(300), k=60)))
    data = bytearray(b"".join(parts))
    at = sum(map(len, parts[:20]))
    data[at + 63] ^= 1  # the records of batch 20
    at = sum(map(len, parts[:30]))
    data[at + 9] ^= 1  # the length of batch 30
    found = shape(walked(bytes(data)))
    assert found == [*range(20), "checksum", *range(21, 30), "no-entry", *range(31, 60)]


def test_a_length_that_leads_beyond_the_file_costs_one_entry() -> None:
    parts = placed(50, 50, 50)
    broken = bytearray(parts[1])
    INT32.pack_into(broken, 8, 2**31 - 1)
    found = walked(parts[0] + bytes(broken) + parts[2])
    assert shape(found) == [0, "no-entry", 2]
    damage = found[1]
    assert isinstance(damage, Damage)
    assert (damage.position, damage.size) == (len(parts[0]), len(parts[1]))


def test_a_cut_entry_at_the_end_is_torn() -> None:
    parts = placed(50, 50)
    for cut in (1, 16, 17, 60, 100):
        assert shape(walked(parts[0] + parts[1][:cut])) == [0, "torn"], cut


def test_zeros_at_the_end_are_told_apart_from_zeros_in_the_middle() -> None:
    parts = placed(50, 50)
    assert shape(walked(parts[0] + bytes(500))) == [0, "zeros"]
    assert shape(walked(parts[0] + bytes(500) + parts[1])) == [0, "no-entry", 1]


def test_a_batch_inside_a_record_is_not_taken_for_one_of_the_log() -> None:
    inner = bytearray(batch(b"inner"))
    INT64.pack_into(inner, 0, 1)
    outer = batch(b"before" + bytes(inner) + b"after")
    third = bytearray(batch(b"third"))
    INT64.pack_into(third, 0, 1)
    outer[65] ^= 1
    assert shape(walked(bytes(outer) + bytes(third))) == ["checksum", 1]


def test_messages_of_the_old_formats_are_found_again_too() -> None:
    made = [messages(1000 + n, 1001 + n, magic=n % 2, codec=n % 3 % 2) for n in range(6)]
    data, offset = b"", 0
    for one in made:
        one.place(offset)
        offset += 2
        data += bytes(one.view)
    whole = shape(walked(data))
    middle = whole.index(5)
    sizes = [item.size for item in walked(data)]
    broken = bytearray(data)
    broken[sum(sizes[:middle]) + 20] ^= 2
    assert shape(walked(bytes(broken))) == [*whole[:middle], "checksum", *whole[middle + 1 :]]


def test_offsets_below_the_base_and_too_far_from_it_are_damage() -> None:
    first, second = placed(5, 5)
    assert shape(walked(first + second, lowest=1)) == ["offset-order", 1]
    far = bytearray(second)
    INT64.pack_into(far, 0, 2**31 + 5)
    assert shape(walked(first + bytes(far))) == [0, "offset-order"]
    near = bytearray(second)
    INT64.pack_into(near, 0, 50)
    assert shape(walked(first + bytes(near), following=50)) == [0, "offset-order"]
    assert shape(walked(first + second, following=1)) == [0, 1], "overlaps, and is whole"


@pytest.mark.parametrize("seed", range(30))
def test_no_garbage_makes_it_fail_or_stop_early(seed: int) -> None:
    rng = random.Random(seed)
    kind = seed % 3
    size = rng.randrange(1, 200_000)
    if kind == 0:
        data = rng.randbytes(size)
    elif kind == 1:
        data = bytes(size)
    else:  # headers over headers, each claiming much
        head = bytearray(placed(1)[0][:61])
        INT64.pack_into(head, 0, 3)
        INT32.pack_into(head, 8, size // 2)
        data = bytes(head) * (size // 61)
    found = walked(data)
    position = 0
    for item in found:
        assert item.position == position
        position += item.size
    assert position == len(data)


def test_memory_does_not_grow_with_a_claimed_length_nor_with_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_walk, "PIECE_BYTES", 65_536)
    raw = batch(bytes(8_000_000))
    files = MemoryFilesystem()
    files.make_dir("/x")
    files.write_bytes("/x/log", bytes(raw))
    file = files.open_to_read("/x/log")
    tracemalloc.start()
    try:
        assert shape(list(LogWalk(file, len(raw)))) == [0]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_search_for_an_entry_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_walk, "SEARCH_TRIES", 100)
    head = bytearray(placed(1)[0][:61])
    INT64.pack_into(head, 0, 3)
    INT32.pack_into(head, 8, 10_000)
    (found,) = walked(bytes(head) * 1000)
    assert isinstance(found, Damage)
    assert found.size == 61_000
