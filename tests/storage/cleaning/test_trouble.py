"""Power cuts, a full or failing disk, damage, and entries that cannot be opened."""

from __future__ import annotations

import errno
import random
import re
from itertools import count
from zlib import crc32

import pytest

from protocol.records.builder import build_batch
from protocol.records.errors import CorruptBatch
from protocol.records.layout import HEADER_SIZE
from protocol.records.legacy import build_messages
from storage.cleaning import output
from storage.cleaning.cleaning import Cleaning
from storage.errors import StorageError
from storage.layout import CLEANED
from storage.swaps import finish_renames
from storage.transaction_index import AbortedTransaction
from tests.records.loop_inputs import message
from tests.storage.cleaning.histories import History
from tests.storage.cleaning.partition import (
    FOLDER,
    Partition,
    batch,
    marker,
    rules,
    with_payload,
)
from tests.support.memory_filesystem import MemoryFile, MemoryFilesystem, PowerCut

SMALL = rules(segment_bytes=2000, index_interval_bytes=100)


def content(files: MemoryFilesystem) -> dict[str, bytes]:
    return {name: files.read_bytes(f"{FOLDER}/{name}") for name in files.list_dir(FOLDER)}


def changes() -> int:
    """How many calls a cleaning of the log below makes that change something."""
    partition = History(5).partition
    before = len(partition.files.calls)
    list(Cleaning(partition.files, partition.plan(SMALL)).groups())
    return len(partition.files.calls) - before


def test_a_power_cut_at_any_call_leaves_the_sources_as_they_were() -> None:
    total = changes()
    assert total > 20
    for number in range(total):
        for seed in range(3):
            partition = History(5).partition
            before = content(partition.files)
            partition.files.cut_at = len(partition.files.calls) + number
            with pytest.raises(PowerCut):
                list(Cleaning(partition.files, partition.plan(SMALL)).groups())
            after = partition.files.power_cut(random.Random(seed))
            finish_renames(after, FOLDER, after.list_dir(FOLDER))
            assert content(after) == before, f"call {number}, seed {seed}"


def test_a_group_is_on_the_disk_when_it_is_handed_over() -> None:
    for seed in range(5):
        partition = History(5).partition
        for group in Cleaning(partition.files, partition.plan(SMALL)).groups():
            written = {
                name: data
                for name, data in content(partition.files).items()
                if name.startswith(f"{group.base_offset:020d}") and name.endswith(CLEANED)
            }
            assert len(written) >= 3 or group.empty
            partition.files.sync_dir(FOLDER)
            after = content(partition.files.power_cut(random.Random(seed)))
            assert {name: after[name] for name in written} == written


def test_an_error_of_the_disk_at_any_call_removes_what_was_being_written() -> None:
    for number in range(changes()):
        partition = History(5).partition
        before = content(partition.files)
        partition.files.faults = {len(partition.files.calls) + number: errno.EIO}
        with pytest.raises(OSError, match="Input/output"):
            list(Cleaning(partition.files, partition.plan(SMALL)).groups())
        left = content(partition.files)
        assert {name: left[name] for name in before} == before
        made = {int(name[:20]) for name in left if name not in before}
        assert made <= groups_before(number), f"call {number}"


def groups_before(number: int) -> set[int]:
    """The base offsets of the groups that are complete before this call."""
    partition, found = History(5).partition, set()
    first = len(partition.files.calls)
    for group in Cleaning(partition.files, partition.plan(SMALL)).groups():
        if len(partition.files.calls) - first <= number:
            found.add(group.base_offset)
    return found


def test_a_full_disk_ends_the_cleaning_and_gives_its_room_back() -> None:
    partition = Partition().segment(*(batch(n, (b"%d" % n, bytes(500))) for n in range(99)))
    before = content(partition.files)
    partition.files.capacity = sum(map(len, before.values())) + 30_000
    with pytest.raises(OSError, match=re.escape("No space left")):
        list(Cleaning(partition.files, partition.plan()).groups())
    assert content(partition.files) == before


DAMAGES = {
    "the checksum does not fit": (65, b"\xff"),
    "magic 9 is unknown": (16, b"\x09"),
    "length 3 is below 49, the least of format 2": (8, b"\0\0\0\3"),
    "an entry of 65551 bytes is cut, 280 are there": (8, b"\0\1\0\3"),
    "offsets 0 to 0 follow 1": (0, bytes(8)),
}


@pytest.mark.parametrize("first_dirty", [0, 4])
@pytest.mark.parametrize("trouble", DAMAGES)
def test_a_damaged_entry_is_named_and_nothing_is_changed(trouble: str, first_dirty: int) -> None:
    partition = Partition().segment(*(batch(n, (b"b", b"%d" % n)) for n in range(6)))
    data, at = bytearray(partition.file(0)), 140
    position, damage = DAMAGES[trouble]
    data[at + position : at + position + len(damage)] = damage
    partition.files.write_bytes(f"{FOLDER}/{0:020d}.log", bytes(data))
    before = content(partition.files)
    with pytest.raises(CorruptBatch) as caught:
        list(Cleaning(partition.files, partition.plan(first_dirty=first_dirty)).groups())
    assert str(caught.value) == f"{FOLDER}/{0:020d}.log, position {at}: {trouble}"
    assert content(partition.files) == before


def test_damage_among_plain_messages_is_named_as_well() -> None:
    run = [build_messages([(5, b"k", b"v%d" % n, ())], magic=1, base_offset=n) for n in range(4)]
    at = len(run[0]) + len(run[1])
    for trouble, data in {
        "the checksum does not fit": b"".join(run)[: at + 36] + b"!" + b"".join(run)[at + 37 :],
        "offsets of messages do not rise": run[0] + run[1] + run[1] + run[2],
    }.items():
        partition = Partition().segment(*run)
        partition.files.write_bytes(f"{FOLDER}/{0:020d}.log", data[: len(b"".join(run))])
        with pytest.raises(CorruptBatch, match=trouble) as caught:
            list(Cleaning(partition.files, partition.plan(end=4)).groups())
        position = at if "checksum" in trouble else 0
        assert f"position {position}:" in str(caught.value)


def test_a_file_that_is_shorter_than_planned_is_no_source() -> None:
    partition = Partition().segment(batch(0, (b"a", b"1")), batch(1, (b"a", b"2")))
    plan = partition.plan()
    partition.files.write_bytes(f"{FOLDER}/{0:020d}.log", partition.file(0)[:-9])
    with pytest.raises(CorruptBatch, match=r"position 0: the file has \d+ bytes, not \d+"):
        list(Cleaning(partition.files, plan).groups())


@pytest.mark.parametrize("opened", range(3))
def test_a_file_that_is_made_anew_between_two_looks_is_no_source(
    opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition().segment(batch(0, (b"a", b"1")), batch(1, (b"a", b"2")))
    plan, files, looks = partition.plan(), partition.files, count()
    open_to_read = files.open_to_read

    def open_another(path: str) -> MemoryFile:
        if next(looks) == opened:
            files.write_bytes(path, b"")
        return open_to_read(path)

    monkeypatch.setattr(files, "open_to_read", open_another)
    with pytest.raises(CorruptBatch, match=r"bytes of the plan|0 bytes are not enough"):
        list(Cleaning(files, plan).groups())


def test_an_index_of_aborted_transactions_must_be_one() -> None:
    partition = Partition().segment(
        batch(0, (b"k", b"1"), producer=(6, 0, 0), transactional=True),
        marker(1, 6, commit=False),
        aborted=[AbortedTransaction(6, 0, 1, 2)],
    )
    path = f"{FOLDER}/{0:020d}.txnindex"
    partition.files.write_bytes(path, partition.files.read_bytes(path)[:-1])
    with pytest.raises(CorruptBatch, match=r"txnindex: 33 bytes are no index"):
        list(Cleaning(partition.files, partition.plan()).groups())


def test_what_cannot_be_opened_stays_as_it_is_and_is_counted() -> None:
    bomb = batch(0, (b"k", bytes(3 << 20)), codec=1)
    broken = [
        with_payload(batch(1, (b"k", b"1")), b"no gzip at all", 1),
        with_payload(batch(2, (b"k", b"1")), b"\x14\0\0\0\x7f\x7f\x02\x02", 0),
        with_payload(batch(3, (b"k", b"1")), b"", 6),
        message(1, 4, 5, None, b"no gzip either", attributes=1),
        message(1, 5, 5, b"k", None).replace(b"k\xff\xff\xff\xff", b"k\x00\x00\x00\x09"),
    ]
    short = bytearray(broken[-1])
    short[12:16] = crc32(short[16:]).to_bytes(4)
    broken[-1] = bytes(short)
    good = [batch(6, (b"k", b"1")), batch(7, (b"k", b"2"))]
    partition = Partition().segment(bomb, *broken, *good)

    done = partition.clean(partition.plan(rules(max_decompressed_bytes=2 << 20)))

    assert partition.entries() == [bomb, *broken, good[1]]
    assert done.stats.unreadable == 6
    # With more room the first one can be opened.
    partition.clean(partition.plan(rules(max_decompressed_bytes=4 << 20)))
    assert partition.entries() == [*broken, good[1]]


def test_an_entry_larger_than_a_piece_is_read_whole() -> None:
    large = batch(1, (b"a", bytes(5 << 20)), (b"b", b"1"))
    partition = Partition().segment(batch(0, (b"a", b"1")), large, batch(3, (b"b", b"2")))
    partition.clean()
    first, second = partition.entries()
    assert partition.rows().keys() == {1, 3}
    assert len(first) == len(large) - 9
    assert first[HEADER_SIZE:] == large[HEADER_SIZE:-9]
    assert second == batch(3, (b"b", b"2"))


def test_a_record_that_only_seems_to_be_one_of_its_batch_is_not_cut() -> None:
    rows = build_batch([(1, b"k", b"v", ())])[HEADER_SIZE:]
    for payload in (rows + b"\0", rows[:-1], b"\xff" * 9):
        entry = with_payload(batch(0, (b"k", b"1")), payload, 0)
        partition = Partition().segment(entry, batch(1, (b"k", b"2")))
        assert partition.clean().stats.unreadable == 1
        assert partition.entries()[0] == entry


def test_a_segment_that_would_outgrow_its_index_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partition = Partition().segment(*(batch(n, (b"%d" % n, b"x")) for n in range(9)))
    before = content(partition.files)
    monkeypatch.setattr(output, "SIZE_MAX", len(partition.file(0)) - 1)
    with pytest.raises(StorageError, match=r"\.log\.cleaned: more than 629 bytes"):
        list(Cleaning(partition.files, partition.plan()).groups())
    assert content(partition.files) == before
