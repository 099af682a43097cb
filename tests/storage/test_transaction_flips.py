"""A transaction index has no checksum; the log bears it out, or it is made anew."""

from __future__ import annotations

import random

import pytest

from storage.recovery import LastKnown, open_log
from storage.transaction_index import AbortedTransaction, encode
from tests.storage.logs import FOLDER, NOW_MS, Settings, append, batch, new_log
from tests.storage.test_transactions import begin, end

PATH = f"{FOLDER}/{0:020d}.txnindex"


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_shows_nobody_what_was_aborted_and_hides_nothing(bit: int) -> None:
    files, log = new_log(Settings(index_interval_bytes=100))
    for producer_id in (1, 2, 3, 4):
        begin(log, producer_id)
        append(log, batch(b"between"))
        end(log, producer_id, commit=False)
    log.write()
    up_to = log.next_offset
    log.roll(now_ms=NOW_MS)
    append(log, batch(b"next segment"))
    wanted = log.aborted_transactions(0, up_to)
    assert len(wanted) == 4
    clean = log.close(clean=True)
    whole = files.read_bytes(PATH)

    for at in range(len(whole)):
        copy = files.copy()
        spoilt = bytearray(whole)
        spoilt[at] ^= 1 << bit
        copy.write_bytes(PATH, bytes(spoilt))
        log, _ = open_log(
            copy, FOLDER, Settings(index_interval_bytes=100), known=LastKnown(clean=clean), now_ms=0
        )
        for offset in range(0, up_to, 3):
            upper = offset + random.Random(at).randrange(1, up_to - offset + 1)
            found = {one[:3] for one in log.aborted_transactions(offset, upper)}
            needed = {
                one[:3] for one in wanted if one.last_offset >= offset and one.first_offset < upper
            }
            assert needed <= found <= {one[:3] for one in wanted}, (at, offset, upper)


@pytest.mark.parametrize("bit", [0, 1, 2, 4, 7])
def test_a_flipped_bit_moves_no_transaction_to_another_batch_or_marker(bit: int) -> None:
    files, log = new_log(Settings(index_interval_bytes=100))
    wanted: list[AbortedTransaction] = []
    for _ in range(2):
        for number in range(6):
            for producer_id in (1, 2):
                begin(log, producer_id)
                append(log, batch(b"between"))
                begin(log, producer_id)
            for producer_id in (1, 2):
                end(log, producer_id, commit=(number + producer_id) % 2 == 0)
        log.write()
        wanted = log.aborted_transactions(0, log.next_offset)
        log.roll(now_ms=NOW_MS)
    append(log, batch(b"last segment"))
    up_to = log.next_offset
    assert len(wanted) == 12
    clean = log.close(clean=True)
    whole = files.read_bytes(PATH)
    settings = Settings(index_interval_bytes=100)

    for at in range(bit % 3, len(whole), 3):
        copy, spoilt = files.copy(), bytearray(whole)
        spoilt[at] ^= 1 << bit
        copy.write_bytes(PATH, bytes(spoilt))
        for offset in (0, 13):
            for upper in (offset + 9, up_to):
                log, _ = open_log(copy, FOLDER, settings, known=LastKnown(clean=clean), now_ms=0)
                found = [one[:3] for one in log.aborted_transactions(offset, upper)]
                needed = [
                    one[:3]
                    for one in wanted
                    if one.last_offset >= offset and one.first_offset < upper
                ]
                assert found == needed, (at, offset, upper)


def test_entries_far_into_an_index_are_compared_with_the_log_when_they_are_used() -> None:
    files, log = new_log(Settings(index_interval_bytes=1000))
    for _ in range(700):
        begin(log, 1)
        end(log, 1, commit=False)
    log.write()
    wanted = log.aborted_transactions(0, log.next_offset)
    log.roll(now_ms=NOW_MS)
    append(log, batch(b"next segment"))
    clean = log.close(clean=True)
    spoilt = bytearray(files.read_bytes(PATH))
    spoilt[34 * 650 + 9] ^= 2  # the producer id
    files.write_bytes(PATH, bytes(spoilt))

    log, _ = open_log(files, FOLDER, Settings(), known=LastKnown(clean=clean), now_ms=0)

    first = wanted[650].first_offset
    assert log.aborted_transactions(first, first + 2) == [wanted[650]]


def test_an_index_that_is_torn_behind_an_entry_above_the_recovery_point_is_made_anew() -> None:
    files, log = new_log(Settings(index_interval_bytes=100))
    for producer_id in (1, 2, 3):
        begin(log, producer_id)
        end(log, producer_id, commit=False)
    log.write()
    log.sync()
    wanted = log.aborted_transactions(0, log.next_offset)
    point = log.next_offset
    log.close(clean=False)
    spoilt = bytearray(encode(wanted))
    spoilt[22] ^= 1  # the first marker is far above the point now, and the others below it
    files.write_bytes(PATH, bytes(spoilt))

    known = LastKnown(recovery_point=point, synced=point)
    log, _ = open_log(files, FOLDER, Settings(), known=known, now_ms=0)

    assert log.aborted_transactions(0, point) == wanted
