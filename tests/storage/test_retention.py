"""Retention of a log by size and by time, whatever the producers' clocks say."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, NONE
from storage.receive_times import LEAST_MS, PARTS
from storage.recovery import LastKnown, open_log
from storage.retention import HEADERS_MAX, OPENED_BYTES_MAX, SLOW_MS, RetentionRules, retained_from
from tests.storage.logs import FOLDER, NOW_MS, Settings, append, batch, drop_below_start, new_log
from tests.storage.message_sets import messages
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    pass

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_2100_MS = 4_102_444_800_000
TIMES = f"{FOLDER}/receive-times-checkpoint"


class Received(NamedTuple):
    """A record of the model."""

    offset: int
    timestamp_ms: int
    received_ms: int


class RetainedLog:
    """A log, our clock, and the list of all records that came in."""

    def __init__(self, seed: int = 0, settings: Settings | None = None) -> None:
        self.rng = random.Random(seed)
        self.settings = settings or Settings()
        self.files, self.log = new_log(self.settings)
        self.files.sync_all()
        self.now_ms = self.files.mtime_ms = NOW_MS
        self.received: list[Received] = []
        self.begun_ms = NOW_MS

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.files.mtime_ms = self.now_ms

    def send(self, *times: int, magic: int = 2, codec: int = NONE) -> int:
        """Append a set of these timestamps now."""
        offset = self.log.next_offset
        if magic == 2:
            rows = [(time, None, b"v" * 20, ()) for time in times]
            append(self.log, build_batch(rows, codec=codec), now_ms=self.now_ms)
        else:
            made = messages(*times, magic=magic, codec=codec, base_offset=offset)
            self.log.append_messages(made, now_ms=self.now_ms)
        self.log.write()
        for number, time in enumerate(times):
            self.received.append(Received(offset + number, time if magic else -1, self.now_ms))
        return offset

    def look(self, **rules: int) -> int:
        """Do once what the duty does; returns the log start."""
        start = retained_from(self.log, RetentionRules(True, **rules), now_ms=self.now_ms)
        assert self.log.start_offset <= start <= self.log.written_offset
        if start == self.log.next_offset > self.log.active.base_offset:
            self.log.roll(now_ms=self.now_ms)
        self.log.delete_records(start)
        drop_below_start(self.log)
        return start

    def look_well(self, **rules: int) -> int:
        """The same until nothing changes."""
        start = -1
        while start != (start := self.look(**rules)):
            pass
        return start

    def reopen(self, *, clean: bool) -> None:
        state = self.log.close(clean=clean)
        known = LastKnown(start_offset=self.log.start_offset, clean=state)
        self.log, reports = open_log(
            self.files, FOLDER, self.settings, known=known, now_ms=self.now_ms
        )
        assert reports == []

    def since(self, offset: int) -> list[Received]:
        return [one for one in self.received if one.offset >= offset]

    def before(self, offset: int) -> list[Received]:
        return [one for one in self.received if one.offset < offset]


# By time, with honest clocks


def test_the_log_starts_at_the_first_record_that_is_young_enough() -> None:
    world = RetainedLog()
    for _ in range(100):
        world.send(world.now_ms)
        world.wait(MINUTE_MS)

    assert world.look(retention_ms=30 * MINUTE_MS) == 70
    assert world.look(retention_ms=30 * MINUTE_MS) == 70
    world.wait(MINUTE_MS)
    assert world.look(retention_ms=30 * MINUTE_MS) == 71


@pytest.mark.parametrize(("magic", "codec"), [(1, NONE), (1, GZIP), (2, NONE), (2, GZIP)])
def test_it_starts_inside_a_batch_that_can_be_opened(magic: int, codec: int) -> None:
    world = RetainedLog()
    world.send(world.now_ms)
    world.wait(HOUR_MS)
    world.send(world.now_ms)
    world.wait(2000)
    world.send(*(world.now_ms - 1000 + 10 * number for number in range(101)), magic=magic,
               codec=codec)  # fmt: skip
    world.wait(1000)
    world.send(world.now_ms)

    start = world.look(retention_ms=1500)

    assert start == 2 + 50


def test_a_large_batch_stays_whole() -> None:
    world = RetainedLog()
    world.send(world.now_ms)
    world.wait(HOUR_MS)
    world.send(world.now_ms)
    world.wait(2000)
    rows = [(world.now_ms - 1000 + number, None, bytes(OPENED_BYTES_MAX // 500), ())
            for number in range(1001)]  # fmt: skip
    append(world.log, build_batch(rows, codec=GZIP), now_ms=world.now_ms)
    world.log.write()
    world.wait(1000)
    world.send(world.now_ms)

    assert world.look(retention_ms=1500) == 2


def test_an_idle_log_goes_to_its_last_record() -> None:
    world = RetainedLog()
    world.send(world.now_ms, world.now_ms)
    world.wait(HOUR_MS)
    assert world.look(retention_ms=HOUR_MS) == 0
    world.wait(1)

    assert world.look(retention_ms=HOUR_MS) == 2

    assert world.log.segments.base_offsets == [2]
    assert world.log.active.byte_size() == 0
    assert world.send(world.now_ms) == 2
    assert world.look(retention_ms=HOUR_MS) == 2


def test_a_minimum_timestamp_drops_what_is_older_than_that_moment() -> None:
    world = RetainedLog()
    for _ in range(10):
        world.send(world.now_ms)
        world.wait(MINUTE_MS)
    moment = NOW_MS + 4 * MINUTE_MS

    assert world.look(retention_ms=-1, retention_min_timestamp=moment) == 4
    assert world.look(retention_ms=3 * MINUTE_MS, retention_min_timestamp=moment) == 7
    assert world.look(retention_min_timestamp=world.now_ms) == 10


def test_without_limits_or_without_the_delete_policy_all_of_it_stays() -> None:
    world = RetainedLog()
    world.send(world.now_ms)
    world.wait(1000 * DAY_MS)
    strict = RetentionRules(False, retention_ms=1, retention_bytes=0)

    assert world.look() == 0
    assert retained_from(world.log, strict, now_ms=world.now_ms) == 0


def test_a_look_is_bounded_and_the_next_one_goes_on() -> None:
    world = RetainedLog()
    latest = world.now_ms + 100_000
    world.send(latest)  # the time index learns of nothing after this
    for number in range(HEADERS_MAX + 100):
        world.send(latest - 50_000 + number)
    for _ in range(40):
        world.wait(10_000)
        world.send(latest)
    rules = RetentionRules(True, retention_ms=world.now_ms - latest - 1)

    world.files.reads.clear()
    world.look(retention_ms=rules.retention_ms)

    assert len(world.files.reads) < 2 * HEADERS_MAX
    assert world.look_well(retention_ms=rules.retention_ms) > HEADERS_MAX


# By size


def test_the_oldest_segments_go_while_what_remains_is_not_below_the_limit() -> None:
    one = len(batch(b"x"))
    world = RetainedLog(settings=Settings(segment_bytes=2 * one))
    for _ in range(7):
        append(world.log, batch(b"x"), now_ms=world.now_ms)
        world.log.write()
    assert world.log.segments.base_offsets == [0, 2, 4, 6]

    assert world.look(retention_bytes=5 * one + 1) == 0
    assert world.look(retention_bytes=5 * one) == 2
    assert world.look(retention_bytes=one) == 6
    assert world.look(retention_bytes=0) == 7
    assert world.log.segments.base_offsets == [7]


def test_size_goes_before_time_and_the_higher_start_wins() -> None:
    one = len(batch(b"x"))
    world = RetainedLog(settings=Settings(segment_bytes=2 * one))
    for _ in range(8):
        append(world.log, batch(b"x", timestamp_ms=world.now_ms), now_ms=world.now_ms)
        world.log.write()
        world.wait(MINUTE_MS)

    assert world.look(retention_bytes=6 * one, retention_ms=HOUR_MS) == 2
    assert world.look(retention_bytes=6 * one, retention_ms=3 * MINUTE_MS) == 5


# With clocks that are wrong


@pytest.mark.parametrize("timestamp_ms", [0, -1, 1, YEAR_2100_MS, NOW_MS - DAY_MS])
def test_a_clock_that_is_far_off_neither_kills_nor_pins(timestamp_ms: int) -> None:
    world = RetainedLog()
    world.send(*[timestamp_ms] * 3)
    world.wait(30 * MINUTE_MS)
    world.send(timestamp_ms)

    assert world.look(retention_ms=30 * MINUTE_MS) == 0
    world.wait(1)
    assert world.look(retention_ms=30 * MINUTE_MS) == 3
    world.wait(30 * MINUTE_MS)
    assert world.look(retention_ms=30 * MINUTE_MS) == 4


def test_a_log_without_timestamps_goes_by_when_it_came_in() -> None:
    world = RetainedLog()
    for _ in range(200):
        world.send(-1, magic=0)
        world.wait(MINUTE_MS)

    start = world.look(retention_ms=100 * MINUTE_MS)

    width = 200 // PARTS + 1
    assert 100 - 2 * width <= start <= 100


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("behind_ms", [0, DAY_MS])
def test_no_clock_moves_more_than_the_bounds_of_its_receipt(seed: int, behind_ms: int) -> None:
    """Against the plain list of what came in when, with restarts but no file lost."""
    world = RetainedLog(seed, Settings(segment_bytes=3000, index_interval_bytes=300))
    rng, retention_ms = world.rng, 6 * HOUR_MS
    for _ in range(120):
        step(world, behind_ms)
        if rng.random() < 0.03:
            world.reopen(clean=True)
        start = world.look_well(retention_ms=retention_ms)
        since_ms = world.now_ms - retention_ms
        width_ms = max(LEAST_MS, (world.now_ms - NOW_MS) // PARTS)
        early_ms = width_ms if behind_ms else LATENCY_MS
        for one in world.before(start):
            assert one.received_ms < since_ms + early_ms, (seed, one, start)
        for one in world.since(start)[:1]:
            assert one.received_ms >= since_ms - 2 * width_ms, (seed, one, start)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_young_goes_whatever_happens_to_the_files(seed: int) -> None:
    world = RetainedLog(seed, Settings(segment_bytes=2000, index_interval_bytes=300))
    rng, retention_ms = world.rng, 6 * HOUR_MS
    for _ in range(100):
        step(world, 0)
        if rng.random() < 0.08:
            disturb(world)
        start = world.look(retention_ms=retention_ms)
        for one in world.before(start):
            assert one.received_ms < world.now_ms - retention_ms + LATENCY_MS, (seed, one)
    world.wait(2 * retention_ms)
    assert world.look_well(retention_ms=retention_ms) == world.log.written_offset


def test_honest_clocks_get_what_is_said_to_the_record() -> None:
    for seed in range(20):
        world = RetainedLog(seed, Settings(segment_bytes=3000, index_interval_bytes=300))
        for _ in range(100):
            world.wait(world.rng.randrange(HOUR_MS))
            times = [world.now_ms - world.rng.randrange(50) for _ in range(3)]
            magic = world.rng.choice((1, 2))
            world.send(*times, magic=magic, codec=world.rng.choice((NONE, GZIP)))
            start = world.look_well(retention_ms=DAY_MS)
            since_ms = world.now_ms - DAY_MS
            young = [one.offset for one in world.received if one.timestamp_ms >= since_ms]
            came = [one.offset for one in world.received if one.received_ms >= since_ms]
            assert min(came) <= start <= min(young), seed


LATENCY_MS = 50


def step(world: RetainedLog, behind_ms: int) -> None:
    """Wait a while, and take in something from some producer."""
    rng = world.rng
    world.wait(rng.choice((0, 1, 500, MINUTE_MS, HOUR_MS, rng.randrange(3 * HOUR_MS))))
    now = world.now_ms
    honest = [now - rng.randrange(LATENCY_MS) for _ in range(rng.randrange(1, 5))]
    kind = rng.randrange(6)
    times = honest
    if kind == 0:
        times = [0] * len(honest)
    elif kind == 1:
        times = [YEAR_2100_MS + time - NOW_MS for time in honest]
    elif kind == 2:
        times = [-1] * len(honest)
    elif kind == 3 and behind_ms:
        times = [time + rng.randrange(-behind_ms, behind_ms) for time in honest]
    magic = rng.choice((0, 1, 2))
    world.send(*times, magic=magic, codec=rng.choice((NONE, GZIP)))


def disturb(world: RetainedLog) -> None:
    """A restart, and something that may have happened to the files meanwhile."""
    rng = world.rng
    clean = rng.random() < 0.5
    state = world.log.close(clean=clean)
    known = LastKnown(start_offset=world.log.start_offset, clean=state, gaps_below=0)
    what = rng.choice(("nothing", "lost", "garbage", "cut", "copied", "power"))
    if what == "lost":
        world.files.remove(TIMES)
    elif what == "garbage":
        world.files.write_bytes(TIMES, rng.randbytes(rng.randrange(200)))
    elif what == "cut" and world.files.exists(TIMES):
        data = world.files.read_bytes(TIMES)
        world.files.write_bytes(TIMES, data[: rng.randrange(len(data) + 1)])
    elif what == "power":
        world.files = world.files.power_cut(rng)
        world.files.mtime_ms = world.now_ms
    elif what == "copied":
        copy = MemoryFilesystem()
        copy.mtime_ms = world.now_ms
        copy.make_dir(FOLDER)
        for name in world.files.list_dir(FOLDER):
            copy.write_bytes(f"{FOLDER}/{name}", world.files.read_bytes(f"{FOLDER}/{name}"))
        world.files = copy
    world.wait(rng.randrange(HOUR_MS))
    world.log, _ = open_log(world.files, FOLDER, world.settings, known=known, now_ms=world.now_ms)
    world.received = world.before(world.log.next_offset)


# Our own clock


def test_when_our_clock_was_ahead_and_is_put_right_nothing_is_pinned() -> None:
    world = RetainedLog()
    world.now_ms = YEAR_2100_MS
    world.send(NOW_MS)
    world.now_ms = NOW_MS
    assert world.look(retention_ms=HOUR_MS) == 0

    world.wait(HOUR_MS + 1)

    assert world.look(retention_ms=HOUR_MS) == 1


def test_offsets_that_were_taken_back_do_not_make_their_successors_older() -> None:
    world = RetainedLog()
    world.send(-1)
    world.wait(HOUR_MS)
    append(world.log, batch(timestamp_ms=-1), now_ms=world.now_ms)
    world.files.faults = {len(world.files.calls): 28}
    with pytest.raises(Exception, match="28"):
        world.log.write()

    world.send(-1)  # in the same millisecond

    world.wait(1)
    assert world.look(retention_ms=HOUR_MS) <= 1, "the second one is as young as can be"


def slow_record(world: RetainedLog) -> None:
    world.send(world.now_ms - SLOW_MS)


def test_a_record_that_took_a_while_on_the_way_is_believed() -> None:
    world = RetainedLog()
    slow_record(world)
    world.wait(500)
    world.send(world.now_ms)

    world.wait(HOUR_MS - 250)

    assert world.look(retention_ms=HOUR_MS) == 1
