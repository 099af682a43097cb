"""Compaction in a running broker: what stays, when it happens, and what may happen to it."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker import logs
from broker.background import child_process, cleaner
from broker.background import uncleanable as left_alone
from broker.background.child_process import spawn
from storage.disk import DiskFilesystem
from storage.replacing import Replacing
from storage.steps import run_here
from tests.storage.logs import header_of
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller
from tests.support.compacted import (
    AT_ONCE,
    Table,
    cleaner_pid,
    folder_of,
    is_gone,
    keyed,
    left_overs,
    log_bytes,
    wait_until,
)
from tests.support.fake_connection import InProcessBroker
from tests.support.scraped import counters
from tests.support.server_process import free_port

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from storage.log import Log

COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "100000",
    "min_cleanable_dirty_ratio": "0.01",
}
SLOWLY = {**AT_ONCE, "log.cleaner.io.max.bytes.per.second": "400000"}
"""Half a megabyte takes more than two seconds."""


class Brokers:
    """Brokers with a page of counters, and clients of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[BrokerProcess] = []
        self.callers: list[Caller] = []

    def __call__(self, settings: dict[str, str]) -> BrokerProcess:
        """Start one with these settings."""
        broker = BrokerProcess(
            self._folder / f"data-{len(self.started)}",
            settings={"metrics.port": str(free_port()), **settings},
        )
        broker.start()
        self.started.append(broker)
        return broker

    def caller(self, broker: BrokerProcess) -> Caller:
        self.callers.append(Caller(broker.host, broker.port))
        return self.callers[-1]

    def table(self, broker: BrokerProcess, name: str = "t", **configs: str) -> Table:
        """A compacted topic of one partition."""
        caller = self.caller(broker)
        caller.create_topic(name, 1, **{**COMPACTED, **configs})
        return Table(caller, name)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path)
    yield brokers
    for caller in brokers.callers:
        caller.socket.close()
    for broker in brokers.started:
        if broker.run is not None:
            said = broker.output()
            assert broker.stop() == 0
            assert "Traceback" not in said, said


def cleanings(broker: BrokerProcess) -> int:
    return int(counters(int(broker.settings["metrics.port"]))["cleanings_total"])


def wait_for_cleanings(broker: BrokerProcess, count: int = 1) -> None:
    wanted = cleanings(broker) + count
    wait_until(lambda: cleanings(broker) >= wanted, f"{count} cleanings")


def wait_until_at_work(broker: BrokerProcess) -> int:
    """Until the process is amid a slow cleaning; its id."""
    wait_until(lambda: cleaner_pid(broker.pid) is not None, "the process")
    time.sleep(0.3)
    pid = cleaner_pid(broker.pid)
    assert pid is not None
    return pid


def at_rest(broker: BrokerProcess, limit: int, topic: str = "t") -> bool:
    folder = folder_of(broker, topic)
    return log_bytes(folder) <= limit and not left_overs(folder)


def test_the_newest_record_of_each_key_stays_at_its_offset(
    start: Brokers,
) -> None:
    broker = start(AT_ONCE)
    table = start.table(broker)
    table.fill(2000)

    wait_until(lambda: at_rest(broker, 140_000), "compaction")

    assert table.faults() == []
    stored = table.stored()
    assert len(stored) < 300
    hole = next(offset for offset in range(2000) if offset not in stored)
    caller = start.caller(broker)
    fetched = caller.fetch("t", hole)
    assert fetched.error_code == 0
    assert fetched.high_watermark == 2000
    found = counters(int(broker.settings["metrics.port"]))
    assert found["cleaning_read_records_total"] > found["cleaning_kept_records_total"] > 0
    assert found["cleaning_read_bytes_total"] > found["cleaning_written_bytes_total"] > 0
    assert found["cleaning_failures_total"] == 0
    assert "compacted" in broker.output()
    assert (broker.data / "cleaner-offset-checkpoint").exists()


def test_a_tombstone_is_seen_for_delete_retention_ms_and_then_goes(
    start: Brokers,
) -> None:
    broker = start(AT_ONCE)
    table = start.table(broker, delete_retention_ms="1500")
    table.append((b"dead", b"x"), (b"alive", b"y"))
    table.append((b"dead", None))
    table.fill(400)
    wait_until(lambda: 0 not in table.stored(), "compaction")
    assert table.stored()[2] == (b"dead", None)

    time.sleep(1.5)
    table.fill(200)
    wait_until(lambda: 2 not in table.stored(), "its end")

    assert table.faults() == []
    assert table.stored()[1] == (b"alive", b"y")


def test_an_idle_log_is_rolled_by_our_clock_and_compacted(
    start: Brokers,
) -> None:
    broker = start(AT_ONCE)
    table = start.table(broker, segment_ms="300")
    table.append((b"k", b"1"))
    table.append((b"k", b"2"))

    wait_until(lambda: 0 not in table.stored(), "compaction")

    assert table.faults() == []


def test_an_idle_log_is_rolled_after_a_restart_too(start: Brokers) -> None:
    broker = start({"log.cleaner.backoff.ms": "600000"})
    table = start.table(broker, max_compaction_lag_ms="2000")
    table.append((b"k", b"1"))
    table.append((b"k", b"2"))
    time.sleep(1.5)
    broker.stop()
    broker.settings |= AT_ONCE
    broker.start()
    table.reconnect(start.caller(broker))

    # It is as old as its records, not as this process.
    wait_until(lambda: 0 not in table.stored(), "compaction", within_s=1.5)


def test_a_log_is_kept_small_although_its_segments_may_be_large(
    start: Brokers,
) -> None:
    broker = start(AT_ONCE)
    table = start.table(broker, segment_bytes=str(100 << 20), min_cleanable_dirty_ratio="0.5")
    table.fill(2500, size=1000)

    wait_until(lambda: at_rest(broker, 1 << 20), "compaction")

    assert table.faults() == []


def test_a_young_log_is_left_alone(start: Brokers) -> None:
    broker = start(AT_ONCE)
    table = start.table(broker, min_compaction_lag_ms="600000")
    now_ms = int(time.time() * 1000)
    caller = start.caller(broker)
    for _ in range(300):
        caller.produce("t", keyed((b"k", bytes(1000)), timestamp_ms=now_ms))
    time.sleep(0.5)
    assert cleanings(broker) == 0
    assert len(table.stored()) == 300


def test_nothing_is_compacted_when_it_is_switched_off(start: Brokers) -> None:
    broker = start({**AT_ONCE, "log.cleaner.enable": "false"})
    table = start.table(broker)
    table.fill(400)
    time.sleep(0.5)
    assert cleanings(broker) == 0
    assert cleaner_pid(broker.pid) is None
    assert len(table.stored()) == 400


def test_a_topic_that_is_not_compacted_needs_no_process(
    start: Brokers,
) -> None:
    broker = start(AT_ONCE)
    start.table(broker, cleanup_policy="delete").fill(400)
    time.sleep(0.3)
    assert cleaner_pid(broker.pid) is None


def test_a_stop_amid_a_cleaning_is_quick_and_leaves_nothing(
    start: Brokers,
) -> None:
    broker = start(SLOWLY)
    table = start.table(broker)
    table.fill(1000)
    pid = wait_until_at_work(broker)

    before_s = time.monotonic()
    assert broker.stop() == 0

    assert time.monotonic() - before_s < 1.0
    assert is_gone(pid)
    broker.settings["log.cleaner.enable"] = "false"
    broker.start()
    assert left_overs(folder_of(broker, "t")) == []
    table.reconnect(start.caller(broker))
    assert table.faults() == []


def test_a_stop_while_a_segment_is_being_replaced_leaves_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopping = threading.Event(), threading.Event()
    commit = Replacing.commit

    def commit_during_the_stop(replacing: Replacing) -> None:
        begun.set()
        assert stopping.wait(10)
        commit(replacing)

    monkeypatch.setattr(Replacing, "commit", commit_during_the_stop)
    with InProcessBroker(tmp_path / "data", log_cleaner_backoff_ms="20") as broker:
        log = compacted_log(broker, "t")
        broker.turn_until(begun.is_set, within_s=20)
        # The stop waits for the thread, and the loop stands still meanwhile.
        threading.Timer(0.2, stopping.set).start()
        assert left_overs(tmp_path / "data" / "t-0")

    assert left_overs(tmp_path / "data" / "t-0") == []
    assert len(log.segments) > 1


@pytest.mark.parametrize("seed", range(3))
def test_the_process_may_be_killed_at_any_moment(seed: int, start: Brokers) -> None:
    rng = random.Random(seed)
    broker = start({**AT_ONCE, "log.cleaner.io.max.bytes.per.second": "2000000"})
    table = start.table(broker)
    table.fill(500)
    wait_until(lambda: cleaner_pid(broker.pid) is not None, "the process")
    time.sleep(rng.uniform(0, 0.6))
    pid = cleaner_pid(broker.pid)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    table.fill(500)
    assert table.faults() == []
    # What failed is tried again after five seconds.
    wait_until(lambda: at_rest(broker, 140_000), "compaction", within_s=30)
    assert table.faults() == [], f"seed {seed}"


def test_the_broker_may_be_killed_at_any_moment(start: Brokers) -> None:
    seed = int(os.environ.get("TEST_KILL_SEED", random.randrange(1_000_000)))
    rng = random.Random(seed)
    broker = start({**AT_ONCE, "log.cleaner.io.max.bytes.per.second": "3000000"})
    table = start.table(broker)
    for _ in range(int(os.environ.get("TEST_KILL_ROUNDS", "4"))):
        table.fill(600)
        wait_until(lambda: cleaner_pid(broker.pid) is not None, "the process")
        time.sleep(rng.uniform(0, 0.5))
        pid = cleaner_pid(broker.pid)
        broker.kill()
        if pid is not None:
            wait_until(partial(is_gone, pid), "its end", within_s=2)
        broker.start()
        assert "missing" not in broker.output(), f"seed {seed}"
        table.reconnect(start.caller(broker))
        assert table.faults() == [], f"seed {seed}"
    wait_until(lambda: at_rest(broker, 140_000), "compaction")
    assert table.faults() == [], f"seed {seed}"


def test_a_topic_may_go_and_come_back_amid_a_cleaning(
    start: Brokers,
) -> None:
    broker = start(SLOWLY)
    table = start.table(broker)
    table.fill(600)
    wait_until_at_work(broker)
    caller = start.caller(broker)

    caller.delete_topic("t")
    again = start.table(broker)
    again.fill(40)

    other = start.table(broker, "other")
    other.fill(600, keys=3)
    wait_until(lambda: at_rest(broker, 110_000, "other"), "compaction of another", within_s=60)
    assert again.faults() == other.faults() == []
    assert len(again.stored()) == 40
    assert counters(int(broker.settings["metrics.port"]))["cleaning_failures_total"] == 0


def test_records_may_be_deleted_amid_a_cleaning(start: Brokers) -> None:
    broker = start(SLOWLY)
    table = start.table(broker, cleanup_policy="compact,delete")
    table.fill(600)
    wait_until_at_work(broker)
    caller = start.caller(broker)

    assert caller.delete_records("t", 450) == 450

    wait_for_cleanings(broker)
    fetched = caller.fetch("t", 450)
    assert fetched.error_code == 0
    assert fetched.log_start_offset == 450
    stored = table.stored(first=450)
    newest = {offset for offset in table.newest.values() if offset >= 450}
    assert newest <= set(stored)
    assert min(stored) >= 450
    assert counters(int(broker.settings["metrics.port"]))["cleaning_failures_total"] == 0


def test_a_damaged_record_ends_the_compaction_of_its_log_alone(start: Brokers) -> None:
    broker = start({"log.cleaner.backoff.ms": "600000"})
    table, other = start.table(broker, "t"), start.table(broker, "other")
    table.fill(600)
    other.fill(600, keys=3)
    broker.stop()
    segment = min(folder_of(broker, "t").glob("*.log"))
    with segment.open("r+b") as file:
        file.seek(30_000)
        file.write(b"\xff" * 8)
    before = sorted(path.stat().st_size for path in folder_of(broker, "t").glob("*.log"))
    broker.settings |= AT_ONCE

    broker.start()

    wait_until(lambda: at_rest(broker, 110_000, "other"), "compaction of another")
    wait_until(lambda: "compaction failed" in broker.output(), "the line")
    said = [line for line in broker.output().splitlines() if "compaction failed" in line]
    assert len(said) == 1
    assert f"{segment.name}, position" in said[0]
    assert sorted(path.stat().st_size for path in folder_of(broker, "t").glob("*.log")) == before
    assert left_overs(folder_of(broker, "t")) == []
    other.reconnect(start.caller(broker))
    assert other.faults() == []


def lines_said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings and errors of a broker in this process, from now on."""
    said: list[str] = []

    def note(event: str, **facts: object) -> None:
        said.append(f"{event} {facts}")

    monkeypatch.setattr(logs, "warning", note)
    monkeypatch.setattr(logs, "error", note)
    return said


def compacted_log(broker: InProcessBroker, name: str, batches: int = 5) -> Log:
    """The log of a compacted topic, each record in a segment of its own; none is superseded."""
    configs = {key.replace("_", "."): value for key, value in COMPACTED.items()}
    topics = broker.running.broker.topics
    log: Log = run_here(topics.create(name, 1, configs)).partitions[0].log
    for number in range(batches):
        raw = bytearray(keyed((b"k%d" % number, bytes(60_000))))
        log.append(memoryview(raw), header_of(raw))
        log.write()
    return log


def test_a_log_is_left_alone_where_the_disk_has_no_room_for_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = lines_said(monkeypatch)
    monkeypatch.setattr(DiskFilesystem, "free_bytes", lambda files, path: 2_000_000)
    settings = {"log_cleaner_backoff_ms": "20", "disk_reserve_bytes": "0"}
    with InProcessBroker(tmp_path / "data", **settings) as broker:
        log = compacted_log(broker, "t")

        broker.turn_until(lambda: bool(said))
        for _ in range(20):
            broker.turn_until(lambda: True)
        assert len(said) == 1
        assert "the disk is too full" in said[0]
        assert broker.running.broker.cleaner.counts.cleanings == 0
        assert sum(segment.byte_size() for segment in log.segments) > 300_000


def test_a_process_that_cannot_live_is_reported_once_and_tried_less_and_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = lines_said(monkeypatch)
    begun_s: list[float] = []

    def begin(module: str) -> subprocess.Popen[bytes]:
        begun_s.append(time.monotonic())
        return spawn(module)

    monkeypatch.setattr(child_process, "spawn", begin)
    monkeypatch.setattr(cleaner, "MODULE", "broker.no_such_process")
    monkeypatch.setattr(cleaner, "FIRST_S", 0.1)
    monkeypatch.setattr(left_alone, "FIRST_S", 0.1)
    with InProcessBroker(tmp_path / "data", log_cleaner_backoff_ms="20") as broker:
        for name in ("a", "b", "c"):
            compacted_log(broker, name, batches=1)
        counts = broker.running.broker.cleaner.counts

        broker.turn_until(lambda: counts.failures >= 3, within_s=20)

        assert begun_s[2] - begun_s[1] > 0.15, "the first wait is 0.1 s, the next 0.2"
        failed = [line for line in said if line.startswith("compaction failed")]
        assert len(failed) == 1
        assert "its process ended with 1" in failed[0]
        assert any("no_such_process" in line for line in said)
