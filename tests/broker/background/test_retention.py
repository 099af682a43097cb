"""Retention: its share of the loop, and a bad log among good ones."""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker import clock
from broker.background import retention
from broker.background.log_starts import LogStarts
from broker.background.retention import PAUSE_S, SLICE_S, SYNCED_MAX, TOGETHER_MAX, Retention
from broker.background.retention_wait import RetentionWait
from broker.coordinator.offset_coordinator import StoredOffset
from broker.current_settings import CurrentSettings
from broker.partitions.topic import Partition, Topic
from config import load
from protocol.errors import ErrorCode, KafkaError
from storage.data_dir import DataDirectory
from storage.retention import retained_from
from tests.storage.logs import NOW_MS, Settings, append, batch, new_log
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from broker.background.deletion_clock import DeletionClock
    from broker.partitions.disk_state import DiskState
    from broker.producing.group_commit import GroupCommit
    from broker.workers import Worker
    from storage.log import Log

DAY_MS = 24 * 3600 * 1000
LOG_STARTS = "/data/log-start-offset-checkpoint"


class FakeTimer:
    """A handle of a timer."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.cancel = cancel


class HandDriven:
    """A loop whose timers fire when the test says so, and threads that are done at once."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.delays: list[float] = []

    def call_later(self, delay_s: float, action: Callable[..., None], *args: Any) -> Any:
        self.delays.append(delay_s)
        timer = (delay_s, partial(action, *args))
        self.timers.append(timer)

        def cancel() -> None:
            if timer in self.timers:
                self.timers.remove(timer)

        return FakeTimer(cancel)

    def run(
        self,
        job: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        try:
            result = job()
        except OSError as error:
            assert failed is not None
            failed(error)
        else:
            done(result)

    def turn(self) -> float:
        """Let the next timer fire; its delay."""
        delay_s, action = self.timers.pop(0)
        action()
        return delay_s


class FakeDisk:
    """A disk with room, and a list of logs that could not be read."""

    def __init__(self, read_failed: list[str]) -> None:
        self._read_failed = read_failed

    def noticed(self, error: BaseException) -> bool:
        return False

    def read_failed(self, log: Log, error: OSError) -> None:
        self._read_failed.append(log.name)

    def remove_later(self, remove: Callable[[], None], delay_ms: int) -> None:
        remove()


class RetainedLogs:
    """A directory of so many partitions with a record each, and retention over them."""

    def __init__(self, count: int, **overrides: str) -> None:
        self.files = MemoryFilesystem()
        self.driven = HandDriven()
        self.settings = load()
        self.directory = DataDirectory.take(
            self.files, "/data", node_id=1, new_uuid=lambda: bytes(range(1, 17))
        )
        topic = Topic("t", bytes(range(16)), overrides, self.settings)
        store = open_topics(self.files, "/data")
        self.directory.open_logs(store, lambda _: Settings(), now_ms=NOW_MS)
        stored = store.create("t", bytes(range(16)), count, {})
        for index in range(count):
            log = self.directory.create_partition(stored, index, Settings(), now_ms=NOW_MS)
            append(log, batch(timestamp_ms=NOW_MS))
            log.sync()
            topic.partitions.append(Partition(topic, index, log, leader_id=1))
        self.partitions = topic.partitions
        self.time_ms = NOW_MS
        self.read_failed: list[str] = []
        self.synced: list[int] = []
        self.replacing: list[Log] = []
        self.committed: dict[tuple[str, str, int], int] = {}
        self.groups_are_loading = False
        _, self.offsets_log = new_log(Settings())
        self.retention_wait = RetentionWait(self.stored_offset, self.now_ms)
        disk = FakeDisk(self.read_failed)
        log_starts = LogStarts(
            self.directory,
            cast("DiskState", disk),
            cast("GroupCommit", self),
            syncer=cast("Worker", self.driven),
            readers=cast("Worker", self.driven),
            is_replacing=self.replacing.__contains__,
        )
        self.retention = Retention(
            cast("asyncio.AbstractEventLoop", self.driven),
            CurrentSettings(self.settings),
            [topic],
            log_starts=log_starts,
            disk=cast("DiskState", disk),
            syncer=cast("Worker", self.driven),
            deletion_clock=cast("DeletionClock", self),
            wait=lambda: self.retention_wait,
            now_ms=self.now_ms,
        )

    def stored_offset(self, group: str, topic: str, index: int) -> StoredOffset | None:
        offset = self.committed.get((group, topic, index))
        if self.groups_are_loading:
            raise KafkaError(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return None if offset is None else StoredOffset(offset, self.offsets_log)

    def now_ms(self) -> int:
        """The time, for the deletion clock too."""
        return self.time_ms

    def wait(self, logs: Iterable[Log], done: Callable[[dict[Log, str]], None]) -> None:
        """A group commit that is done at once."""
        self.sync(list(logs), done)

    def sync(self, logs: list[Log], done: Callable[[dict[Log, str]], None]) -> None:
        self.synced.append(len(logs))
        for log in logs:
            log.sync()
        done({})

    def round(self) -> list[float]:
        """A whole round; the delays of its slices, without the one to the next round."""
        self.driven.turn()
        delays = []
        while self.driven.timers[0][0] < 1:
            delays.append(self.driven.turn())
        return delays

    @property
    def starts(self) -> list[int]:
        return [one.log.start_offset for one in self.partitions]


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock on which every question takes a tenth of a slice."""
    times = [0.0]

    def monotonic_s() -> float:
        times[0] += SLICE_S / 10
        return times[0]

    monkeypatch.setattr(clock, "monotonic_s", monotonic_s)
    return times


def test_the_first_round_and_those_after_it_come_when_the_keys_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "monotonic_s", lambda: 0.0)  # no slice ends on a busy machine
    world = RetainedLogs(3)
    world.retention.start()
    world.round()

    assert world.driven.delays == [30.0, 300.0]


def test_a_round_is_cut_into_slices_with_longer_pauses(slow_clock: list[float]) -> None:
    world = RetainedLogs(100)
    world.retention.start()

    delays = world.round()

    assert set(delays) == {PAUSE_S}
    assert 9 <= len(delays) <= 11
    assert PAUSE_S >= 4 * SLICE_S
    assert world.starts == [0] * 100


def test_the_starts_of_several_logs_are_stored_with_one_write() -> None:
    world = RetainedLogs(TOGETHER_MAX)
    for partition in world.partitions:
        append(partition.log, batch(timestamp_ms=NOW_MS + DAY_MS), now_ms=NOW_MS + DAY_MS)
        partition.log.sync()
    world.time_ms = NOW_MS + 7 * DAY_MS + 1
    before = len(world.files.calls)
    world.retention.start()

    world.round()

    assert world.starts == [1] * TOGETHER_MAX
    written = [call for call in world.files.calls[before:] if LOG_STARTS in call]
    assert sum(call.startswith("rename") for call in written) == 1
    assert world.files.read_bytes(LOG_STARTS).startswith(b"0\n%d\n" % (TOGETHER_MAX + 1))
    assert world.synced == []


def test_logs_that_are_sealed_are_synced_a_few_at_a_time() -> None:
    world = RetainedLogs(3 * SYNCED_MAX)
    world.time_ms = NOW_MS + 8 * DAY_MS
    world.retention.start()

    world.round()

    assert world.synced == [SYNCED_MAX] * 3
    for partition in world.partitions:
        assert partition.log.segments.base_offsets == [1]
        names = world.files.list_dir(partition.log.folder)
        assert sorted(name for name in names if name.endswith((".log", ".deleted"))) == [
            f"{1:020d}.log"
        ]


def test_a_log_that_cannot_be_read_is_told_of_and_the_others_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RetainedLogs(3)
    world.time_ms = NOW_MS + 8 * DAY_MS
    looked_at = retained_from

    def failing(log: Log, *rest: Any, **more: Any) -> int:
        if log.name == "t-1":
            raise OSError(errno.EIO, "no")
        return looked_at(log, *rest, **more)

    monkeypatch.setattr(retention, "retained_from", failing)
    world.retention.start()

    world.round()

    assert world.starts == [1, 0, 1]
    assert world.read_failed == ["t-1"]


def test_a_failed_log_is_left_as_it_is() -> None:
    world = RetainedLogs(2)
    world.partitions[0].log.fail("damaged")
    world.time_ms = NOW_MS + 8 * DAY_MS
    world.retention.start()

    world.round()

    assert world.starts == [0, 1]


def test_a_log_start_that_is_not_stored_takes_no_file() -> None:
    world = RetainedLogs(1)
    log = world.partitions[0].log
    world.time_ms = NOW_MS + 8 * DAY_MS
    write_atomic = world.files.write_atomic

    def refusing(path: str, data: bytes) -> None:
        if path == LOG_STARTS:
            raise OSError(errno.EIO, "no")
        write_atomic(path, data)

    world.files.write_atomic = refusing  # type: ignore[method-assign]
    world.retention.start()
    world.round()
    assert log.segments.base_offsets == [0, 1]
    assert world.files.exists(f"/data/t-0/{0:020d}.log")

    world.files.write_atomic = write_atomic  # type: ignore[method-assign]
    world.round()

    assert log.segments.base_offsets == [1], "the next round tries again"
    assert not world.files.exists(f"/data/t-0/{0:020d}.log")


def test_of_a_compacted_log_only_what_lies_below_its_start_goes() -> None:
    world = RetainedLogs(1, **{"cleanup.policy": "compact"})
    log = world.partitions[0].log
    for _ in range(3):
        log.roll(now_ms=NOW_MS)
        append(log, batch(timestamp_ms=NOW_MS))
    log.sync()
    assert log.segments.base_offsets == [0, 1, 2, 3]
    log.delete_records(2)
    world.time_ms = NOW_MS + 80 * DAY_MS
    world.retention.start()

    world.round()

    assert log.segments.base_offsets == [2, 3]
    assert log.start_offset == 2


def test_no_segment_leaves_a_log_while_a_replacement_of_its_segments_is_decided() -> None:
    world = RetainedLogs(1, **{"cleanup.policy": "compact,delete"})
    log = world.partitions[0].log
    log.roll(now_ms=NOW_MS)
    append(log, batch(timestamp_ms=NOW_MS))
    log.sync()
    log.delete_records(1)
    world.retention.start()
    world.replacing.append(log)
    world.round()
    assert log.segments.base_offsets == [0, 1]

    world.replacing.clear()
    world.round()

    assert log.segments.base_offsets == [1]


def test_a_deleted_topic_in_the_middle_of_a_round_disturbs_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RetainedLogs(2)
    world.time_ms = NOW_MS + 8 * DAY_MS
    gone = world.partitions[0].log
    world.retention.start()

    def sync(logs: list[Log], done: Callable[[dict[Log, str]], None]) -> None:
        del world.directory.logs["t", 0]
        gone.close(clean=False)
        done({log: "closed" for log in logs if log is gone})

    monkeypatch.setattr(world, "sync", sync)
    world.round()

    assert world.partitions[1].log.segments.base_offsets == [1]
    assert gone.segments.base_offsets == [0, 1]


def test_retention_that_was_stopped_does_nothing_more() -> None:
    world = RetainedLogs(1)
    world.retention.start()
    world.retention.stop()

    assert world.driven.timers == []
