"""Reading a range from which something is missing: what is a hole, what a gap, what damage."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from client.cluster import TopicPartition
from pipeline.errors import CorruptData, NoSuchTopic, OffsetsGone
from pipeline.reading.plan import Range
from pipeline.reading.ranges import LeftOut, read_range, records_of
from protocol.records.legacy import build_messages
from tests.support.fake_source import FakeSource, first_offsets

if TYPE_CHECKING:
    from tests.support.fake_source import FakeLog


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


@pytest.fixture
def log(source: FakeSource) -> FakeLog:
    return source.log("orders", 0)


def of(start: int, end: int) -> Range:
    return Range("orders", 0, start, end)


class Clock:
    """Every look at it takes `step` seconds."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


# Holes


def test_holes_of_compaction_are_no_gaps(source: FakeSource, log: FakeLog) -> None:
    for at in (3, 10, 27):
        log.append(b"x", at=at)
    left_out = LeftOut()
    assert first_offsets(read_range(source, of(0, 28), left_out=left_out)) == [3, 10, 27]
    assert not left_out


def test_a_hole_at_the_end_of_a_range_ends_with_the_entry_after_it(
    source: FakeSource, log: FakeLog
) -> None:
    log.append(b"x")
    log.append(b"x", at=50)
    chunks = list(read_range(source, of(0, 20)))
    assert first_offsets(chunks) == [0]
    assert source.fetches == [0]


def test_a_hole_up_to_the_end_of_the_log_ends_the_range(source: FakeSource, log: FakeLog) -> None:
    log.append(b"x")
    log.end = 20
    left_out = LeftOut()
    assert first_offsets(read_range(source, of(0, 20), left_out=left_out)) == [0]
    assert not left_out


def test_a_hole_does_not_reach_into_a_transaction_that_is_open(
    source: FakeSource, log: FakeLog
) -> None:
    log.append(b"x")
    log.stable = 5
    log.append(b"y", at=5)
    chunks = read_range(source, of(0, 6), committed_only=True, clock=Clock(20))
    assert first_offsets([next(chunks)]) == [0]
    with pytest.raises(OffsetsGone, match="offsets 5 to 5 wait for a transaction"):
        next(chunks)


# Gaps


def test_a_gap_is_told_with_its_offsets(source: FakeSource, log: FakeLog) -> None:
    for _ in range(10):
        log.append(*[b"x"] * 1000)
    log.start = 5000
    with pytest.raises(OffsetsGone) as raised:
        list(read_range(source, of(100, 10_000)))
    assert str(raised.value) == (
        "orders-0: offsets 100 to 4,999 were deleted before they were read; "
        "go on without them with onGap=skip (--on-gap skip)"
    )


def test_a_gap_is_skipped_and_counted(source: FakeSource, log: FakeLog) -> None:
    for _ in range(10):
        log.append(b"x", b"y")
    log.start = 7
    left_out = LeftOut()
    chunks = list(read_range(source, of(1, 20), on_gap="skip", left_out=left_out))
    assert first_offsets(chunks) == list(range(6, 20, 2))
    assert chunks[0].start == 7
    assert left_out == LeftOut(6, 0, 0, ["orders-0 offsets 1 to 6: deleted"])


def test_a_range_that_is_gone_altogether_is_one_gap(source: FakeSource, log: FakeLog) -> None:
    for _ in range(10):
        log.append(b"x")
    log.start = 10
    left_out = LeftOut()
    assert list(read_range(source, of(2, 6), on_gap="skip", left_out=left_out)) == []
    assert left_out.offsets_missing == 4


def test_retention_while_a_range_is_read_is_a_gap(source: FakeSource, log: FakeLog) -> None:
    for _ in range(20):
        log.append(b"x" * 100)

    def delete(offset: int) -> None:
        if offset == 4:
            log.start = 12

    source.before_fetch = delete
    left_out = LeftOut()
    chunks = list(read_range(source, of(0, 20), on_gap="skip", left_out=left_out, fetch_bytes=700))
    assert first_offsets(chunks) == [*range(4), *range(12, 20)]
    assert left_out.offsets_missing == 8


def test_a_start_that_was_raised_while_the_broker_answered_is_a_gap(
    source: FakeSource, log: FakeLog
) -> None:
    log.append(b"x", at=10)
    log.entries.insert(0, (0, 4, b""))  # found by the broker, and gone before it was sent
    source.before_fetch = lambda _: None
    fetch = source.fetch

    def raised(*args: object, **options: object) -> object:
        return fetch(*args, **options)._replace(log_start_offset=8)  # type: ignore[arg-type]

    source.fetch = raised  # type: ignore[assignment]
    left_out = LeftOut()
    chunks = list(read_range(source, of(0, 11), on_gap="skip", left_out=left_out))
    assert first_offsets(chunks) == [10]
    assert left_out.offsets_missing == 8


def test_a_log_that_became_shorter_is_waited_for_and_then_a_gap(
    source: FakeSource, log: FakeLog
) -> None:
    log.append(b"x", b"y")
    with pytest.raises(OffsetsGone, match="orders-0 ends at offset 2, but is to be read up to 9"):
        list(read_range(source, of(0, 9), clock=Clock(20)))
    left_out = LeftOut()
    chunks = list(read_range(source, of(0, 9), on_gap="skip", left_out=left_out, clock=Clock(20)))
    assert first_offsets(chunks) == [0]
    assert left_out.offsets_missing == 7


def test_a_leader_that_does_not_know_the_end_yet_is_waited_for(
    source: FakeSource, log: FakeLog
) -> None:
    log.append(b"x")

    def come(_: int) -> None:
        if len(source.fetches) == 4:
            log.append(b"y")

    source.before_fetch = come
    assert first_offsets(read_range(source, of(0, 2))) == [0, 1]


def test_a_position_beyond_the_log_is_a_gap(source: FakeSource, log: FakeLog) -> None:
    log.append(b"x")
    with pytest.raises(OffsetsGone, match="ends at offset 1, but is to be read up to 9"):
        list(read_range(source, of(5, 9), clock=Clock(20)))


def test_a_topic_that_was_deleted_is_a_gap(source: FakeSource, log: FakeLog) -> None:
    source.logs.clear()
    with pytest.raises(OffsetsGone, match="orders-0 was deleted before offsets 0 to 8"):
        list(read_range(source, of(0, 9)))
    left_out = LeftOut()
    assert list(read_range(source, of(0, 9), on_gap="skip", left_out=left_out)) == []
    assert left_out.offsets_missing == 9


def test_so_is_one_that_was_deleted_when_its_start_was_asked_for(
    source: FakeSource, log: FakeLog
) -> None:
    log.append(b"x", at=7)
    log.start = 7

    def gone(*_: object) -> dict[TopicPartition, int]:
        raise NoSuchTopic("there is no partition orders-0")

    source.offsets = gone  # type: ignore[assignment]
    left_out = LeftOut()
    assert list(read_range(source, of(0, 8), on_gap="skip", left_out=left_out)) == []
    assert left_out.offsets_missing == 8


def test_an_open_transaction_is_not_waited_for_forever(source: FakeSource, log: FakeLog) -> None:
    log.append(b"x")
    log.append(b"y")
    log.stable = 1
    chunks = read_range(source, of(0, 2), committed_only=True, on_gap="skip", clock=Clock(20))
    assert first_offsets([next(chunks)]) == [0]
    with pytest.raises(OffsetsGone, match="offsets 1 to 1 wait for a transaction that is still"):
        next(chunks)


# Damage


NONSENSE = (
    pytest.param(struct.pack(">qiib", 4, 3, 0, 2) + bytes(60), id="length"),
    pytest.param(struct.pack(">qiib", 4, 60, 0, 9) + bytes(60), id="magic"),
    pytest.param(struct.pack(">qiib", 4, 1 << 30, 0, 2) + bytes(60), id="beyond"),
    pytest.param(b"\xff" * 80, id="ones"),
    pytest.param(bytes(80), id="zeros"),
)


def spoilt(log: FakeLog, nonsense: bytes) -> None:
    """Offsets 0..11 by two; those from 4 to 7 are nonsense, in which a broker cannot search."""
    for _ in range(2):
        log.append(b"a", b"b")
    log.put(4, 7, nonsense)
    for _ in range(2):
        log.append(b"a", b"b")
    log.unreadable = (5, 7)


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_what_cannot_be_an_entry_is_told_with_its_offset(
    source: FakeSource, log: FakeLog, nonsense: bytes
) -> None:
    spoilt(log, nonsense)
    chunks = read_range(source, of(0, 12))
    assert first_offsets([next(chunks)]) == [0, 2]
    with pytest.raises(CorruptData) as raised:
        next(chunks)
    assert str(raised.value).startswith("orders-0 offset 4: ")
    assert "--on-corrupt skip" in str(raised.value)


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_what_cannot_be_an_entry_is_stepped_over(
    source: FakeSource, log: FakeLog, nonsense: bytes
) -> None:
    spoilt(log, nonsense)
    left_out = LeftOut()
    chunks = read_range(source, of(0, 12), on_corrupt="skip", left_out=left_out)
    assert first_offsets(chunks) == [0, 2, 8, 10]
    assert (left_out.batches_corrupt, left_out.offsets_corrupt) == (1, 4)
    assert left_out.examples[0].startswith("orders-0 offsets 4 to 7: ")


def test_damage_of_thousands_of_offsets_costs_few_fetches(source: FakeSource, log: FakeLog) -> None:
    log.append(b"x")
    log.put(1, 70_000, bytes(80))
    log.append(b"x")
    log.unreadable = (2, 70_000)
    left_out = LeftOut()
    chunks = read_range(source, of(0, 70_002), on_corrupt="skip", left_out=left_out)
    assert first_offsets(chunks) == [0, 70_001]
    assert left_out.offsets_corrupt == 70_000
    assert len(source.fetches) < 60


def test_what_a_broker_finds_by_its_last_offset_alone_is_read_whole(
    source: FakeSource, log: FakeLog
) -> None:
    """An index has the last offsets of batches: from the others the way goes over the damage."""
    spoilt(log, bytes(80))
    log.unreadable = (5, 8)
    left_out = LeftOut()
    chunks = list(read_range(source, of(0, 12), on_corrupt="skip", left_out=left_out))
    assert first_offsets(chunks) == [0, 2, 8, 10]
    assert chunks[1].start == 8
    assert left_out.offsets_corrupt == 4


def test_so_is_a_wrapper_of_the_older_formats(source: FakeSource, log: FakeLog) -> None:
    log.put(0, 7, bytes(80))
    rows = [(1, None, b"v", ())] * 4
    wrapper = bytearray(build_messages(rows, magic=1, codec=1))
    struct.pack_into(">q", wrapper, 0, 11)
    log.put(8, 11, bytes(wrapper))
    log.unreadable = (1, 10)
    left_out = LeftOut()
    rows_read = records_of(source, of(0, 12), on_corrupt="skip", left_out=left_out)
    assert [offset.as_py() for batch in rows_read for offset in batch["offset"]] == [8, 9, 10, 11]
    assert left_out.offsets_corrupt == 8


def test_damage_up_to_the_end_of_a_range_ends_it(source: FakeSource, log: FakeLog) -> None:
    log.append(b"x")
    log.put(1, 9, bytes(80))
    log.unreadable = (2, 9)
    left_out = LeftOut()
    chunks = read_range(source, of(0, 8), on_corrupt="skip", left_out=left_out)
    assert first_offsets(chunks) == [0]
    assert left_out.offsets_corrupt == 7


def test_an_entry_beyond_the_end_of_the_log_is_damage(source: FakeSource, log: FakeLog) -> None:
    """No checksum covers the offset: believed, it would pass for a hole up to there."""
    log.append(b"x")
    raw = bytearray(log.entries[0][2])
    struct.pack_into(">q", raw, 0, 1 << 40)
    log.put(1, 1, bytes(raw))
    log.append(b"x")
    with pytest.raises(
        CorruptData, match="orders-0 offset 1: it is said to hold offsets 1099511627776"
    ):
        list(read_range(source, of(0, 3)))


@pytest.mark.parametrize("delta", [-3, -1])
def test_an_entry_that_a_broker_would_pass_over_is_damage(
    source: FakeSource, log: FakeLog, delta: int
) -> None:
    """Found by its last offset, it is never the answer to a fetch of what it should have held."""
    for _ in range(4):
        log.append(b"a", b"b")
    raw = bytearray(log.entries[2][2])
    struct.pack_into(">i", raw, 23, delta)
    log.entries[2] = (4, 4 + delta, bytes(raw))
    with pytest.raises(CorruptData, match="orders-0 offset 4: it is said to hold offsets 4 to "):
        list(read_range(source, of(2, 8)))


def test_an_entry_that_goes_back_is_damage(source: FakeSource, log: FakeLog) -> None:
    for _ in range(3):
        log.append(b"a", b"b")
    log.entries.insert(2, (5, 5, log.entries[0][2]))
    with pytest.raises(CorruptData, match="orders-0 offset 4: it is said to hold offsets 0 to 1"):
        list(read_range(source, of(0, 6)))
    left_out = LeftOut()
    chunks = read_range(source, of(0, 6), on_corrupt="skip", left_out=left_out)
    assert first_offsets(chunks) == [0, 2, 4]
    assert (left_out.batches_corrupt, left_out.offsets_corrupt) == (1, 0)


def test_what_the_broker_cannot_read_and_does_not_say_is_damage_and_no_hole(
    source: FakeSource, log: FakeLog
) -> None:
    log.append(b"x")
    log.put(1, 4, b"")
    log.append(b"x")
    fetch = source.fetch

    def silent(partition: TopicPartition, offset: int, **options: object) -> object:
        fetched = fetch(partition, offset, **options)  # type: ignore[arg-type]
        nothing = 1 <= offset <= 4
        return fetched._replace(entries=memoryview(b"")) if nothing else fetched

    source.fetch = silent  # type: ignore[assignment]
    log.unreadable = None
    chunks = read_range(source, of(1, 6))
    with pytest.raises(CorruptData, match="orders-0 offset 1: the broker cannot read it"):
        next(chunks)
