"""Sealed segments are read again, and what is damaged in them is found and not served."""

from __future__ import annotations

import random

import pytest

from protocol.records.errors import CorruptBatch
from storage import scrubbing
from storage.chain import Damage
from storage.log import Log
from storage.scrubbing import Scrub
from tests.storage.logs import (
    FOLDER,
    Settings,
    batches_in,
    everything,
    new_log,
    opened,
    produce,
    taken,
)
from tests.support.memory_filesystem import MemoryFilesystem

BATCHES = 12


def sealed_log() -> tuple[MemoryFilesystem, Log, list[int]]:
    """A log with `BATCHES` of one record in its first segment, and where each begins."""
    files, log = new_log(Settings(index_interval_bytes=200))
    positions = []
    for number in range(BATCHES):
        positions.append(log.active.size)
        produce(log, b"value %d" % number * 10)
    log.roll(now_ms=0)
    produce(log, b"next segment")
    log.close(clean=True)
    return files, opened(files, Settings(index_interval_bytes=200)), positions


def scrub(log: Log) -> Scrub:
    one = Scrub(log.files, log.segments.sealed()[0])
    while not one.done:
        one.step()
    return one


def test_a_whole_segment_is_read_to_its_end_in_bounded_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrubbing, "STEP_BYTES", 300)
    _, log, positions = sealed_log()
    largest = positions[-1] - positions[-2]
    one, steps = Scrub(log.files, log.segments.sealed()[0]), 0
    while not one.done:
        assert 0 < one.step() < 300 + largest
        steps += 1

    assert (one.damages, one.position) == ([], log.segments[0].byte_size())
    assert steps > 3


@pytest.mark.parametrize("seed", range(60))
def test_any_flipped_bit_that_a_reader_could_meet_is_found(seed: int) -> None:
    files, log, positions = sealed_log()
    rng = random.Random(seed)
    at = rng.randrange(log.segments[0].byte_size())
    number = max(index for index, position in enumerate(positions) if position <= at)
    data = bytearray(files.read_bytes(f"{FOLDER}/{0:020d}.log"))
    data[at] ^= 1 << rng.randrange(8)
    files.open_file(f"{FOLDER}/{0:020d}.log").write_at([data], 0)

    found = scrub(log)

    # Also in the offset and the leader epoch, which no checksum covers.
    assert [damage.position for damage in found.damages] == [positions[number]], f"seed {seed}"


def test_damage_that_was_found_is_not_served_and_the_rest_is() -> None:
    _, log, positions = sealed_log()
    whole = everything(log)
    damage = Damage(positions[5], positions[6], 5, 6, "found damaged")
    log.segments[0].verified.found([damage])
    log.segments.places.clear()

    assert batches_in(taken(log.read(0, 1 << 20)))[-1] == (4, 4)
    entries = log.read_entries(0, 1 << 20)
    assert entries is not None
    assert entries.next_offset == 5
    with pytest.raises(CorruptBatch, match=f"position {positions[5]}"):
        log.read(5, 1 << 20)
    with pytest.raises(CorruptBatch, match=f"position {positions[5]}"):
        log.read_entries(5, 1 << 20)
    assert taken(log.read(6, 1 << 20)) == whole[positions[6] : log.segments[0].byte_size()]
