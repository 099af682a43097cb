"""One bit is flipped, anywhere; it costs one batch at the most."""

from __future__ import annotations

import random
import struct

import pytest

from protocol.records.errors import CorruptBatch
from protocol.records.layout import LEADER_EPOCH_POSITION, LENGTH_POSITION, MAGIC_POSITION
from storage.clean_state import CleanStop
from storage.identity import uuid_text
from storage.layout import INDEX, TIME_INDEX
from storage.recovery import LastKnown, open_log
from storage.segment_recovery import SECTOR_BYTES
from tests.storage.flipped import Case, Stored, consumed, filled, wanted
from tests.storage.logs import FOLDER, NOW_MS, Settings, append, batch, new_log
from tests.storage.message_sets import message_set, produce_messages, records_in
from tests.support import old_sets

HEADER_BYTES = 27
"""Base offset, length, leader epoch, magic, checksum, attributes and last offset delta."""

CASES = {clean: filled(clean=clean) for clean in (True, False)}


def readers_find(case: Case, spoilt: Stored | None, *, synced: int, why: str) -> None:
    whole = wanted(case.batches)
    lost: set[int] = set() if spoilt is None else set(range(spoilt.base, spoilt.last + 1))
    log, _ = case.opened(synced=synced)
    assert log.failed is None, why
    end = case.end
    if spoilt is not None and spoilt.last == end - 1 and case.clean is None and not synced:
        end = spoilt.base  # of a damaged end nobody knows that it was there
    assert log.next_offset in (end, case.end), why
    for max_bytes, jump in ((1 << 20, False), (1, True), (400, False)):
        found = consumed(log, max_bytes=max_bytes, jump=jump)
        wrong = {o: r for o, r in found.items() if whole.get(o) != r}
        assert not wrong, (why, max_bytes, wrong)
        missing = whole.keys() - found.keys()
        assert missing <= lost, (why, max_bytes, sorted(missing - lost)[:5])
        log.segments.places.clear()
    files = case.files
    log.close(clean=False)
    for name in files.list_dir(FOLDER):
        if name.endswith(INDEX) and log.active.path(INDEX) != f"{FOLDER}/{name}":
            path = f"{FOLDER}/{name}"
            assert files.size_of(path) >= CASES[case.clean is not None].files.size_of(path), why


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_bit_in_a_header_costs_its_batch_and_nothing_else(clean: bool, part: int) -> None:
    case, rng = CASES[clean], random.Random(part)
    for number, one in enumerate(case.batches):
        for byte in range(part, HEADER_BYTES, 4):
            bit = rng.randrange(8)
            why = f"batch {number} of {one.path}, byte {byte}, bit {bit}"
            # Of an epoch whose checkpoint need not be on the disk nobody knows whether it began.
            is_epoch = LEADER_EPOCH_POSITION <= byte < MAGIC_POSITION
            synced = case.end if not clean and (is_epoch or rng.random() < 0.5) else 0
            spoilt = case.flipped(one.path, one.position + byte, bit)
            readers_find(spoilt, one, synced=synced, why=why)


@pytest.mark.parametrize("before", range(1, 9))
def test_a_flipped_length_behind_a_sector_of_which_the_offset_has_zeros_ends_no_log(
    before: int,
) -> None:
    """The first bytes of any offset are zeros; no crash need have left them out."""
    files, log = new_log()
    fill = bytes(2 * SECTOR_BYTES - len(batch(bytes(1000))) + 1000 - before)
    for value in (fill, b"second", b"third"):
        append(log, batch(value))
    log.write()
    log.close(clean=False)
    path = f"{FOLDER}/{0:020d}.log"
    data = bytearray(files.read_bytes(path))
    at = 2 * SECTOR_BYTES - before
    assert data[at : at + 8] == bytes(7) + b"\1"
    data[at + LENGTH_POSITION + 3] ^= 1
    files.write_bytes(path, bytes(data))

    log, _ = open_log(files, FOLDER, Settings(), known=LastKnown(gaps_below=0), now_ms=NOW_MS)

    assert log.next_offset == 3
    piece = log.read(2, 1000)
    assert piece is not None
    assert b"third" in piece.read()


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("at", [LENGTH_POSITION + 1, LENGTH_POSITION + 3, 60])
def test_a_message_inside_a_damaged_compressed_one_is_none_of_the_log(
    at: int, is_last: bool
) -> None:
    """What does not get smaller is in a snappy block as it was, and in format 0 with its offset."""
    files, log = new_log()
    produce_messages(log, -1, magic=0)
    inside = old_sets.messages(b"first" * 9, b"second" * 9, magic=0, offsets=(1, 2))
    size = len(inside)
    # The size, and one literal of it: a byte that says so, and its size less one.
    block = bytes([size & 127 | 128, size >> 7, 0xF4]) + struct.pack("<H", size - 1) + inside
    framed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    sent = old_sets.message(framed, magic=0, offset=2, attributes=old_sets.SNAPPY)
    begun = log.active.size
    log.append_messages(message_set(sent), now_ms=NOW_MS)
    log.write()
    if is_last:
        log.roll(now_ms=NOW_MS)
    produce_messages(log, -1, magic=0)
    log.sync()
    log.close(clean=False)
    path = f"{FOLDER}/{0:020d}.log"
    data = bytearray(files.read_bytes(path))
    data[begun + at] ^= 64
    files.write_bytes(path, bytes(data))

    for _ in range(2):
        log, _ = open_log(files, FOLDER, Settings(), known=LastKnown(gaps_below=0), now_ms=NOW_MS)

        assert log.next_offset == 4
        for offset in (1, 2):
            with pytest.raises(CorruptBatch):
                log.read(offset, 1000)
        piece = log.read(3, 1000)
        assert piece is not None
        assert [record.offset for record in records_in(piece.read())] == [3]
        log.close(clean=False)


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_bit_in_an_index_costs_nothing(clean: bool, suffix: str) -> None:
    case, rng = CASES[clean], random.Random(1)
    for name in sorted(case.files.list_dir(FOLDER)):
        if not name.endswith(suffix):
            continue
        path = f"{FOLDER}/{name}"
        for byte in range(case.files.size_of(path)):
            bit = rng.randrange(8)
            spoilt = case.flipped(path, byte, bit)
            readers_find(spoilt, None, synced=0, why=f"{name}, byte {byte}, bit {bit}")


@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_offset_does_not_end_a_search_by_time(clean: bool) -> None:
    case = CASES[clean]
    for number, one in enumerate(case.batches[:-1]):
        for byte in range(8):
            log, _ = case.flipped(one.path, one.position + byte, 6).opened(synced=case.end)
            found = log.offset_for_timestamp(1000 + number + 1)
            assert found is not None
            assert found[:2] == (1000 + number + 1, one.last + 1), (number, byte)
            log.close(clean=False)


def test_a_flipped_bit_in_what_a_clean_stop_noted_is_noticed() -> None:
    state = CASES[True].clean
    assert state is not None
    whole = CleanStop({"orders-0": state}, {"orders": uuid_text(bytes(16))}).encode()
    digits = [at for at, byte in enumerate(whole) if chr(byte).isdigit()]
    for at in digits[1:]:
        for bit in range(4):
            spoilt = bytearray(whole)
            spoilt[at] ^= 1 << bit
            with pytest.raises((ValueError, KeyError, TypeError)):
                CleanStop.decode(bytes(spoilt))
