"""The power fails at every call that changes anything; what was synced is there afterwards."""

from __future__ import annotations

import copy
import itertools
import random
from typing import TYPE_CHECKING

import pytest

from protocol.records.legacy import build_messages
from protocol.records.walk import walk
from storage import closing
from storage.closing import store_for_recovery
from storage.data_dir import DataDirectory
from storage.recovery import LastKnown, open_log
from tests.storage.logs import (
    FOLDER,
    NOW_MS,
    Settings,
    batch,
    everything,
    header_of,
    taken,
)
from tests.storage.message_sets import message_set, records_in
from tests.support.checkpoints import write_checkpoints
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.record_deletion import delete_records
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    from protocol.records.layout import Header
    from storage.log import Log
    from storage.producers import Duplicate

SETTINGS = Settings(segment_bytes=1100, index_interval_bytes=200)
PRODUCER_ID = 9


@pytest.fixture(autouse=True)
def _store_indexes_at_every_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "INDEX_LAG_ENTRIES", 0)


def filler(number: int) -> bytes:
    """Batches of different sizes."""
    return bytes(30 + number * 37 % 90)


FORMS = ("batch", "batches", "plain 0", "plain 1", "wrapper 0", "wrapper 1")


class History:
    """The records put into a log, how many of them were promised to be there for ever, and the
    offset that a checkpoint may note."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        """Timestamp (ms, -1 in format 0) and value of the record at each offset."""
        self.batches: list[int] = []
        """The offsets of the producer's records, by sequence: those of format 2."""
        self.promised = 0
        self.noted = 0

    def record(self, offset: int) -> tuple[int, bytes]:
        return 1000 + offset * 37 % 90, b"%05d" % offset + filler(offset)

    def sent(self, sequence: int, offset: int) -> bytearray:
        timestamp, value = self.record(offset)
        return batch(value, timestamp_ms=timestamp, producer=(PRODUCER_ID, 0, sequence))

    def forget_from(self, offset: int) -> None:
        """What was not promised has gone."""
        del self.records[offset:]
        self.batches = [other for other in self.batches if other < offset]


def append_some(log: Log, history: History, rng: random.Random) -> None:
    """Append a set of one to three records, in one form or another."""
    form, count = rng.choice(FORMS), rng.randrange(1, 4)
    base = len(history.records)
    records = [history.record(base + number) for number in range(count)]
    if not form.startswith("batch"):
        kind, magic = form.split()
        rows = [(timestamp, None, value, ()) for timestamp, value in records]
        codec = 1 if kind == "wrapper" else 0
        raw = build_messages(rows, magic=int(magic), codec=codec, base_offset=base)
        assert log.append_messages(message_set(raw)) == base
        history.records += [(time if magic == "1" else -1, value) for time, value in records]
        return
    parts: list[tuple[memoryview, Header]] = []
    for number in range(count if form == "batches" else 1):
        sent = history.sent(len(history.batches), base + number)
        if not parts:
            assert log.producers.check(header_of(sent)) is None
        parts.append((memoryview(sent), header_of(sent)))
        history.batches.append(base + number)
        history.records.append(records[number])
    if form == "batch":
        assert log.append(*parts[0]) == base
    else:
        assert log.append_batches(parts) == base


def work(log: Log, history: History, *, count: int, rng: random.Random) -> None:
    """Append, write and sync at whim."""
    for _ in range(count):
        append_some(log, history, rng)
        if rng.random() < 0.6:
            log.write()
        if rng.random() < 0.3:
            log.sync()
            history.promised = log.recovery_point
        if rng.random() < 0.2:
            steps = store_for_recovery(log)
            if rng.random() < 0.5:
                for step in steps:
                    step.sync()
        history.noted = log.covered_point


def expect_a_prefix(log: Log, history: History) -> None:
    """The log holds the first records of the history, all promised ones among them, once."""
    found = records_in(everything(log))
    count = len(found)
    assert [record.offset for record in found] == list(range(count))
    assert history.promised <= count <= len(history.records)
    assert [(r.timestamp_ms, r.value) for r in found] == history.records[:count]
    assert log.next_offset == count
    assert log.recovery_point <= count


def expect_the_indexes_to_be_right(log: Log, history: History) -> None:
    """Every offset and every time is found, and every index is one that its file can have."""
    for offset in range(log.start_offset, log.next_offset):
        assert offset in [r.offset for r in records_in(taken(log.read(offset, 1)))]
    for segment in map(log.segments.loaded_one, log.segments):
        log_file = segment.file.pread(segment.written_size, 0)
        boundaries = {position: size for position, size, _ in walk(log_file)}
        assert len(segment.offsets) <= len(boundaries)
        for position in range(0, segment.written_size, 50):
            assert segment.offsets.boundary(position) in boundaries
        times = [record.timestamp_ms for record in records_in(log_file)]
        assert segment.max_timestamp == max(times, default=-1)
    times = [timestamp for timestamp, _ in history.records[: log.next_offset]]
    for wanted in (0, 1030, 1060, 1085):
        found = log.offset_for_timestamp(wanted)
        first = next((offset for offset, time in enumerate(times) if time >= wanted), None)
        assert (found[1] if found else None) == first


def expect_producers_to_be_known(log: Log, history: History) -> None:
    kept = [offset for offset in history.batches if offset < log.next_offset]
    following = history.sent(len(kept), log.next_offset)
    assert log.producers.check(header_of(following)) is None
    if kept:
        again = history.sent(len(kept) - 1, kept[-1])
        repeated: Duplicate | None = log.producers.check(header_of(again))
        assert repeated is not None
        assert repeated.base_offset == kept[-1]


@pytest.mark.parametrize("seed", range(4))
def test_a_log_is_a_prefix_of_its_history_wherever_the_power_fails(seed: int) -> None:
    whole, told = MemoryFilesystem(), History()
    whole.make_dir(FOLDER)
    whole.sync_all()
    numbers = itertools.count()

    def stopped_here() -> tuple[random.Random, bool, MemoryFilesystem, History]:
        rng = random.Random(f"{seed} {next(numbers)}")
        power_failed, files = stopped(whole, rng)
        return rng, power_failed, files, copy.deepcopy(told)

    stops = whole.at_every_call(lambda: one_run(whole, told, random.Random(seed)), stopped_here)
    assert told.promised == len(told.records)
    assert len(stops) > 60
    for rng, power_failed, files, history in stops:
        for again in range(3):
            if again:
                power_failed, files = stopped(files, rng)
            point = rng.choice((0, history.noted))
            known = LastKnown(recovery_point=point, was_clean=False, gaps_below=0)
            log, _ = open_log(files, FOLDER, SETTINGS, known=known, now_ms=NOW_MS)
            expect_a_prefix(log, history)
            expect_the_indexes_to_be_right(log, history)
            expect_producers_to_be_known(log, history)
            history.forget_from(log.next_offset)
            if power_failed:  # what is found after that is on the disk
                history.promised = log.next_offset
            work(log, history, count=4, rng=rng)


def stopped(files: MemoryFilesystem, rng: random.Random) -> tuple[bool, MemoryFilesystem]:
    """Whether the power fails, and what is there afterwards."""
    if rng.random() < 0.7:
        return True, files.power_cut(rng)
    # Only the process died: what was written is there, synced or not.
    return False, files.copy()


def one_run(files: MemoryFilesystem, history: History, rng: random.Random) -> None:
    log, _ = open_log(files, FOLDER, SETTINGS, now_ms=NOW_MS)
    work(log, history, count=25, rng=rng)
    log.close(clean=True)
    history.promised = log.recovery_point


class Broker:
    """The least that a broker does with a data directory."""

    def __init__(self, files: MemoryFilesystem, seed: int) -> None:
        self.rng = random.Random(seed)
        self.directory = DataDirectory.take(files, "/data", node_id=1, new_uuid=self.uuid)
        self.topics = open_topics(files, "/data")
        self.topics.begin_epoch()
        self.reports = self.directory.open_logs(self.topics, lambda _: SETTINGS, now_ms=NOW_MS)

    def uuid(self) -> bytes:
        return self.rng.randbytes(16)

    def create(self, name: str, partitions: int) -> None:
        topic = self.topics.create(name, self.uuid(), partitions, {})
        for number in range(partitions):
            self.directory.create_partition(topic, number, SETTINGS, now_ms=NOW_MS)


class Promises:
    """Answers given to clients of `Broker`."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.history = History()
        self.start = 0
        self.producer_ids: list[int] = []


def life(files: MemoryFilesystem, promises: Promises, seed: int) -> None:
    """Two starts, with everything a directory does in between."""
    for turn in range(2):
        broker = Broker(files, seed + turn)
        if turn == 0:
            broker.create("a", 1)
            promises.topics.add("a")
        log = broker.directory.logs["a", 0]
        work(log, promises.history, count=9, rng=broker.rng)
        promises.producer_ids.append(broker.topics.next_producer_id())
        log.sync()
        promises.history.promised = log.recovery_point
        write_checkpoints(broker.directory)
        work(log, promises.history, count=4, rng=broker.rng)
        if turn == 1:
            log.sync()
            promises.history.promised = log.recovery_point
            promises.start = delete_records(broker.directory, "a", 0, 6)
        assert broker.directory.close()
        promises.history.promised = len(promises.history.records)


def test_a_data_directory_keeps_its_promises_wherever_the_power_fails() -> None:
    whole, told = MemoryFilesystem(), Promises()
    numbers = itertools.count()

    def cut_here() -> tuple[Promises, list[MemoryFilesystem]]:
        cut_at = next(numbers)
        rngs = [random.Random(f"{seed} {cut_at}") for seed in range(2)]
        return copy.deepcopy(told), [whole.power_cut(rng) for rng in rngs]

    cuts = whole.at_every_call(lambda: life(whole, told, 1), cut_here)
    assert len(cuts) > 60
    for promises, survivors in cuts:
        for files in survivors:
            expect_the_promises_kept(files, promises)


def expect_the_promises_kept(files: MemoryFilesystem, promises: Promises) -> None:
    """By a start after the power cut, and by the next one."""
    broker = Broker(files, 77)
    assert promises.topics <= {topic.name for topic in broker.topics.topics()}
    assert broker.topics.next_producer_id() not in promises.producer_ids
    if "a" not in promises.topics:
        return
    log = broker.directory.logs["a", 0]
    assert promises.start <= log.start_offset <= 6
    assert log.failed is None
    found = [r for r in records_in(everything(log)) if r.offset >= log.start_offset]
    assert [r.offset for r in found] == list(range(log.start_offset, log.next_offset))
    kept = promises.history.records[log.start_offset : log.next_offset]
    assert [(r.timestamp_ms, r.value) for r in found] == kept
    assert promises.history.promised <= log.next_offset <= len(promises.history.records)
    expect_producers_to_be_known(log, promises.history)
    assert broker.directory.close()
    assert Broker(files, 78).reports == []
