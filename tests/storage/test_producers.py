"""Idempotent producers: told as transcripts, and kept in Apache Kafka's snapshot files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.markers import Marker, encode_marker
from storage.errors import MalformedFile, OutOfOrderSequence, ProducerFenced
from storage.producers import REMEMBERED_BATCHES, ProducerStates
from storage.recovery import LastKnown
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    append,
    batch,
    file_of,
    header_of,
    new_log,
    opened,
)

if TYPE_CHECKING:
    from storage.log import Log

# Written by Apache Kafka 3.9.
EMPTY = bytes.fromhex("000148674bc700000000")
TWO_PRODUCERS = bytes.fromhex(
    "000116b0e94d00000002"
    "0000000000000000" "0000" "00000004" "0000000000000004" "00000000"
    "000001a1f886de1c" "ffffffff" "ffffffffffffffff"
    "0000000000000001" "0000" "00000001" "0000000000000007" "00000000"
    "000001a1f886e5d6" "00000000" "ffffffffffffffff"
)  # fmt: skip

TRANSCRIPTS = """
# in order, each one batch further
1 epoch=0 sequence=0 count=3 -> appended at 0
1 epoch=0 sequence=3 count=1 -> appended at 3
1 epoch=0 sequence=4 count=2 -> appended at 4

# a batch that comes again is answered with its first offset
1 epoch=0 sequence=0 count=3 -> appended at 0
1 epoch=0 sequence=3 count=1 -> appended at 3
1 epoch=0 sequence=0 count=3 -> duplicate of 0..2
1 epoch=0 sequence=3 count=1 -> duplicate of 3..3
1 epoch=0 sequence=4 count=1 -> appended at 4

# a duplicate is the same in both its sequences
1 epoch=0 sequence=0 count=3 -> appended at 0
1 epoch=0 sequence=0 count=2 -> OUT_OF_ORDER_SEQUENCE_NUMBER
1 epoch=0 sequence=1 count=2 -> OUT_OF_ORDER_SEQUENCE_NUMBER

# five batches are remembered, as many as a client has in flight
1 epoch=0 sequence=0 count=1 -> appended at 0
1 epoch=0 sequence=1 count=1 -> appended at 1
1 epoch=0 sequence=2 count=1 -> appended at 2
1 epoch=0 sequence=3 count=1 -> appended at 3
1 epoch=0 sequence=4 count=1 -> appended at 4
1 epoch=0 sequence=5 count=1 -> appended at 5
1 epoch=0 sequence=1 count=1 -> duplicate of 1..1
1 epoch=0 sequence=0 count=1 -> OUT_OF_ORDER_SEQUENCE_NUMBER

# a gap is refused and changes nothing
1 epoch=0 sequence=0 count=1 -> appended at 0
1 epoch=0 sequence=2 count=1 -> OUT_OF_ORDER_SEQUENCE_NUMBER
1 epoch=0 sequence=1 count=1 -> appended at 1

# a producer of whom nothing is known may begin anywhere
1 epoch=3 sequence=700 count=2 -> appended at 0
1 epoch=3 sequence=702 count=1 -> appended at 2

# a new epoch begins at 0, and shuts the old one out
1 epoch=0 sequence=0 count=1 -> appended at 0
1 epoch=1 sequence=1 count=1 -> OUT_OF_ORDER_SEQUENCE_NUMBER
1 epoch=1 sequence=0 count=1 -> appended at 1
1 epoch=0 sequence=1 count=1 -> INVALID_PRODUCER_EPOCH
1 epoch=0 sequence=0 count=1 -> INVALID_PRODUCER_EPOCH
1 epoch=1 sequence=0 count=1 -> duplicate of 1..1

# after sequence 2147483647 comes 0
1 epoch=0 sequence=2147483646 count=1 -> appended at 0
1 epoch=0 sequence=2147483647 count=1 -> appended at 1
1 epoch=0 sequence=0 count=1 -> appended at 2
1 epoch=0 sequence=2147483647 count=1 -> duplicate of 1..1

# a batch may lie across the end of the sequences
1 epoch=0 sequence=2147483646 count=4 -> appended at 0
1 epoch=0 sequence=1 count=1 -> OUT_OF_ORDER_SEQUENCE_NUMBER
1 epoch=0 sequence=2 count=1 -> appended at 4
1 epoch=0 sequence=2147483646 count=4 -> duplicate of 0..3

# producers do not know of each other
1 epoch=0 sequence=0 count=1 -> appended at 0
2 epoch=0 sequence=0 count=1 -> appended at 1
2 epoch=0 sequence=1 count=1 -> appended at 2
1 epoch=0 sequence=1 count=1 -> appended at 3
"""


def transcripts() -> list[tuple[str, list[str]]]:
    found = []
    for part in TRANSCRIPTS.strip().split("\n\n"):
        title, *lines = part.splitlines()
        found.append((title.removeprefix("# "), lines))
    return found


def send(log: Log, line: str) -> str:
    """What a producer's batch is answered with."""
    producer, epoch, sequence, count = (
        int(word.rpartition("=")[2]) for word in line.partition(" -> ")[0].split()
    )
    raw = batch(*[b"x"] * count, producer=(producer, epoch, sequence))
    try:
        duplicate = log.producers.check(header_of(raw))
    except KafkaError as error:
        return error.code.name
    if duplicate is not None:
        return f"duplicate of {duplicate.base_offset}..{duplicate.last_offset}"
    offset = append(log, raw)
    log.write()
    return f"appended at {offset}"


@pytest.mark.parametrize(("title", "lines"), transcripts(), ids=[t for t, _ in transcripts()])
def test_transcript(title: str, lines: list[str]) -> None:
    _, log = new_log()

    for line in lines:
        assert send(log, line) == line.partition(" -> ")[2], f"{title}: {line}"


@pytest.mark.parametrize(("title", "lines"), transcripts(), ids=[t for t, _ in transcripts()])
def test_a_crash_in_the_middle_changes_no_transcript(title: str, lines: list[str]) -> None:
    """Only the batches after the newest snapshot are scanned, and they restore the window."""
    files, log = new_log()

    for line in lines:
        assert send(log, line) == line.partition(" -> ")[2], f"{title}: {line}"
        log = opened(files)


def test_kafkas_snapshots_are_read_and_written_byte_for_byte() -> None:
    assert ProducerStates().encode() == EMPTY
    for data in (EMPTY, TWO_PRODUCERS):
        assert ProducerStates.decode(data, "x").encode() == data


def test_a_producer_goes_on_from_kafkas_snapshot() -> None:
    states = ProducerStates.decode(TWO_PRODUCERS, "x")

    assert states.check(header_of(batch(b"x", producer=(0, 0, 5)))) is None
    duplicate = states.check(header_of(batch(b"x", producer=(0, 0, 4))))
    assert duplicate is not None
    assert (duplicate.base_offset, duplicate.timestamp) == (4, 0x1A1F886DE1C)
    with pytest.raises(OutOfOrderSequence):
        states.check(header_of(batch(b"x", producer=(1, 0, 5))))


@pytest.mark.parametrize("position", range(len(TWO_PRODUCERS)))
def test_a_snapshot_with_a_wrong_byte_is_refused(position: int) -> None:
    data = bytearray(TWO_PRODUCERS)
    data[position] ^= 0x10

    with pytest.raises(MalformedFile):
        ProducerStates.decode(bytes(data), "x")


@pytest.mark.parametrize("size", [0, 5, 9, 11, 101])
def test_a_snapshot_that_is_cut_is_refused(size: int) -> None:
    with pytest.raises(MalformedFile):
        ProducerStates.decode(TWO_PRODUCERS[:size], "x")


def test_a_snapshot_is_taken_at_each_roll_and_at_a_clean_stop() -> None:
    files, log = new_log(Settings(segment_bytes=250))
    for number in range(5):
        append(log, batch(bytes(60), producer=(7, 0, number), timestamp_ms=number))
    log.write()
    log.close(clean=True)

    names = [name for name in files.list_dir(FOLDER) if name.endswith(".snapshot")]
    assert sorted(names) == [f"{offset:020d}.snapshot" for offset in (1, 2, 3, 4, 5)]
    at_two = ProducerStates.decode(file_of(files, ".snapshot", 2), "x")
    assert at_two.check(header_of(batch(b"x", producer=(7, 0, 2)))) is None


def test_p3_a_snapshot_that_is_damaged_or_missing_costs_a_scan_and_no_state() -> None:
    files, log = new_log()
    for number in range(3):
        append(log, batch(b"x", producer=(7, 0, number)))
    state = log.close(clean=True)
    path = f"{FOLDER}/{3:020d}.snapshot"

    from storage.recovery import open_log

    files.write_bytes(path, b"\0" * 56)
    log, reports = open_log(files, FOLDER, Settings(), known=LastKnown(clean=state))
    assert ["checksum" in r.reason or "version" in r.reason for r in reports] == [True]
    assert log.producers.check(header_of(batch(b"x", producer=(7, 0, 1)))) is not None

    files.remove(path)
    log, reports = open_log(files, FOLDER, Settings(), known=LastKnown(clean=state))
    assert "snapshot is missing" in reports[0].reason
    assert log.producers.check(header_of(batch(b"x", producer=(7, 0, 1)))) is not None


DAY_MS = 24 * 3600 * 1000


def looked(states: ProducerStates, now_ms: int) -> int:
    return states.expire(now_ms=now_ms, after_ms=DAY_MS)


def test_a_producer_that_was_silent_for_the_time_set_is_forgotten() -> None:
    states = ProducerStates()
    states.update(header_of(batch(b"x", producer=(1, 0, 0), timestamp_ms=NOW_MS)), 0)
    states.update(header_of(batch(b"x", producer=(2, 0, 0), timestamp_ms=NOW_MS)), 1)
    states.settle()
    assert looked(states, NOW_MS) == 0

    states.update(header_of(batch(b"x", producer=(2, 0, 1), timestamp_ms=NOW_MS)), 2)
    states.settle()

    assert looked(states, NOW_MS + DAY_MS - 1) == 0
    assert looked(states, NOW_MS + DAY_MS) == 1
    assert 1 not in states
    assert 2 in states
    assert looked(states, NOW_MS + 2 * DAY_MS - 2) == 0
    assert looked(states, NOW_MS + 2 * DAY_MS - 1) == 1
    assert 2 not in states


def test_a_clock_that_is_put_back_makes_nobody_silent() -> None:
    states = ProducerStates()
    states.update(header_of(batch(b"x", producer=(1, 0, 0))), 0)
    states.settle()
    assert looked(states, NOW_MS + 9 * DAY_MS) == 0
    assert looked(states, NOW_MS) == 0
    assert looked(states, NOW_MS + DAY_MS - 1) == 0
    assert looked(states, NOW_MS + DAY_MS) == 1


def test_a_producer_of_old_records_is_remembered_while_it_writes() -> None:
    states = ProducerStates()
    for sequence in range(5):
        sent = header_of(batch(b"x", producer=(1, 0, sequence), timestamp_ms=1))
        states.update(sent, sequence)
        states.settle()
        assert looked(states, NOW_MS + sequence * DAY_MS) == 0
        assert states.check(sent) is not None


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    states = ProducerStates()
    opening = batch(b"x", producer=(1, 0, 0), timestamp_ms=1, transactional=True)
    states.update(header_of(opening), 0)

    assert (looked(states, NOW_MS), looked(states, NOW_MS + DAY_MS)) == (0, 0)
    loaded = ProducerStates.decode(states.encode(), "x")
    assert (looked(loaded, NOW_MS), looked(loaded, NOW_MS + DAY_MS)) == (0, 0)

    marker = encode_marker(1, 0, marker=Marker(True, 0), timestamp_ms=2)
    states.update(header_of(marker), 1)
    later = NOW_MS + 2 * DAY_MS
    assert (looked(states, later), looked(states, later + DAY_MS)) == (0, 1)


def test_what_a_snapshot_told_is_as_old_as_its_file() -> None:
    files, log = new_log()
    append(log, batch(b"x", producer=(1, 0, 0)))
    append(log, batch(b"x", producer=(2, 0, 0)))
    append(log, batch(b"x", producer=(3, 0, 0), transactional=True))
    log.roll(now_ms=NOW_MS)
    append(log, batch(b"x", producer=(2, 0, 1)))
    log.sync()
    files.set_modified_ms(f"{FOLDER}/{3:020d}.snapshot", NOW_MS)

    log = opened(files, known=LastKnown(recovery_point=3))
    assert looked(log.producers, NOW_MS + DAY_MS - 1) == 0
    log = opened(files, known=LastKnown(recovery_point=3))
    assert looked(log.producers, NOW_MS + DAY_MS) == 1

    assert 1 not in log.producers
    assert 2 in log.producers, "has written after the snapshot"
    assert 3 in log.producers, "has a transaction open"


def test_going_back_restores_what_was_known() -> None:
    states = ProducerStates()
    states.update(header_of(batch(b"x", producer=(1, 0, 0))), 0)
    states.settle()
    before = states.encode()
    for number in range(1, REMEMBERED_BATCHES * 2):
        states.update(header_of(batch(b"x", producer=(1, 0, number))), number)
    states.update(header_of(batch(b"x", producer=(2, 0, 0))), 50)

    states.back()

    assert states.encode() == before
    with pytest.raises(ProducerFenced) as raised:
        states.check(header_of(batch(b"x", producer=(1, -1, 0))))
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
