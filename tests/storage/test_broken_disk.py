"""EIO in every kind of file: which log stops, that no other does, and what is tried again."""

from __future__ import annotations

import errno
import os

import pytest

from storage import closing
from storage.closing import Cover
from storage.data_dir import DataDirectory
from storage.epochs import LeaderEpochs
from storage.errors import LogFailed, StorageError
from storage.syncing import SyncStep, take_all
from tests.storage.logs import NOW_MS, Settings, append, batch, batches_in, everything, produce
from tests.support.memory_filesystem import MemoryFile, MemoryFilesystem
from tests.support.topic_store import open_topics

BAD, GOOD = "/data/bad-0", "/data/good-0"
POINTS = "/data/recovery-point-offset-checkpoint"
SETTINGS = Settings(index_interval_bytes=100)


class BrokenFilesystem(MemoryFilesystem):
    """Every call that names one of these words fails: `write`, `.index`, a folder."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: tuple[str, ...] = ()
        self.unreadable = ""

    def about_to(self, what: str, path: str) -> None:
        super().about_to(what, path)
        call = f"{what} {path}"
        if self.broken and all(word in call for word in self.broken):
            raise OSError(errno.EIO, os.strerror(errno.EIO), call)

    def fail_reads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Reads of `unreadable` fail from now on."""
        pread = MemoryFile.pread

        def read(file: MemoryFile, size: int, position: int) -> bytes:
            if self.unreadable and self.unreadable in file.path:
                raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)
            return pread(file, size, position)

        monkeypatch.setattr(MemoryFile, "pread", read)


class Start:
    """A data directory with the topics `bad` and `good`."""

    def __init__(self, files: BrokenFilesystem) -> None:
        self.files = files
        self.directory = DataDirectory.take(
            files, "/data", node_id=1, new_uuid=lambda: bytes(range(16))
        )
        topics = open_topics(files, "/data")
        topics.begin_epoch()
        for number, name in enumerate(("bad", "good")):
            if topics.get(name) is None:
                topics.create(name, bytes([number]) * 16, 1, {})
        self.reports = self.directory.open_logs(topics, lambda _: SETTINGS, now_ms=NOW_MS)
        self.bad = self.directory.logs["bad", 0]
        self.good = self.directory.logs["good", 0]

    def fill(self) -> None:
        for log in (self.bad, self.good):
            for _ in range(4):
                produce(log, bytes(90))
            log.sync()

    def checkpoint(self) -> list[tuple[SyncStep, OSError]]:
        """Take the steps of a checkpoint as the broker does."""
        failed = take_all(self.directory.checkpoints.everything())
        for step, error in failed:
            if isinstance(step, Cover):
                step.failed(error)
        return failed


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setattr(closing, "INDEX_LAG_ENTRIES", 0)
    begun = Start(BrokenFilesystem())
    begun.fill()
    return begun


def expect_the_good_log_to_be_well(start: Start) -> None:
    """It takes records, its point is noted, and it is closed in good order."""
    assert produce(start.good, b"more") == 4
    start.good.sync()
    start.checkpoint()
    start.checkpoint()
    assert b"good 0 5" in start.files.read_bytes(POINTS)
    assert not start.directory.close(), "the bad log must be looked through"
    start.files.broken = ()
    again = Start(start.files)
    assert [r.reason for r in again.reports if r.partition == "good-0" and r.bytes_cut] == []
    assert again.good.next_offset == 5
    assert batches_in(everything(again.bad))[:4] == [(n, n) for n in range(4)]
    assert again.bad.failed is None


@pytest.mark.parametrize("action", ["write", "sync"])
def test_a_log_file_that_fails_stops_its_log_and_no_other(start: Start, action: str) -> None:
    start.files.broken = (f"{action} {BAD}/", ".log")

    append(start.bad, batch(b"x"))
    with pytest.raises(LogFailed):
        start.bad.sync()

    assert start.bad.failed is not None
    assert start.good.failed is None
    assert batches_in(everything(start.bad))[:4] == [(n, n) for n in range(4)], "it is still read"
    expect_the_good_log_to_be_well(start)


@pytest.mark.parametrize("action", ["write", "sync"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_an_index_or_snapshot_that_fails_at_a_checkpoint_stops_its_log_and_no_other(
    start: Start, action: str, suffix: str
) -> None:
    start.files.broken = (f"{action} {BAD}/", suffix)

    failed = start.checkpoint()

    assert [step.log for step, _ in failed if isinstance(step, Cover)] == [start.bad]
    assert start.bad.failed is not None
    assert start.bad.covered_point == 0
    assert batches_in(everything(start.bad)) == [(n, n) for n in range(4)]
    expect_the_good_log_to_be_well(start)


@pytest.mark.parametrize("word", ["create", ".snapshot", ".timeindex"])
def test_a_roll_that_fails_stops_its_log_and_no_other(start: Start, word: str) -> None:
    start.files.broken = (f"{BAD}/", word)

    with pytest.raises(LogFailed, match="rolling at 4"):
        start.bad.roll(now_ms=NOW_MS)

    assert start.bad.failed is not None
    expect_the_good_log_to_be_well(start)


def test_a_folder_that_can_not_be_synced_stops_its_log_and_no_other(start: Start) -> None:
    start.bad.roll(now_ms=NOW_MS)
    produce(start.bad, b"x")
    start.files.broken = (f"sync {BAD}",)

    with pytest.raises(LogFailed, match="sync failed"):
        start.bad.sync()

    expect_the_good_log_to_be_well(start)


def test_an_epoch_file_that_fails_is_tried_again(start: Start) -> None:
    start.bad.set_leader_epoch(7)
    produce(start.bad, b"x")
    start.files.broken = (f"{BAD}/leader-epoch-checkpoint",)

    for _ in range(2):
        with pytest.raises(StorageError, match="leader-epoch-checkpoint"):
            start.bad.sync()
    assert start.bad.recovery_point == 4
    start.files.broken = ()
    start.bad.sync()

    assert start.bad.failed is None
    assert start.bad.recovery_point == 5
    stored = LeaderEpochs.decode(start.files.read_bytes(f"{BAD}/leader-epoch-checkpoint"), BAD)
    assert (7, 4) in stored.entries()


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
)
@pytest.mark.parametrize("action", ["create", "write", "sync", "rename"])
def test_a_checkpoint_that_fails_stops_no_log_and_is_written_the_next_time(
    start: Start, name: str, action: str
) -> None:
    start.checkpoint()
    produce(start.good, b"more")  # so that both files have news
    start.files.broken = (f"{action} /data/{name}",)

    ((_, error),) = start.checkpoint()

    assert name in str(error)
    assert start.bad.failed is start.good.failed is None
    start.files.broken = ()
    assert start.checkpoint() == []
    assert b"bad 0 4\ngood 0 " in start.files.read_bytes(f"/data/{name}")
    assert not start.files.exists(f"/data/{name}.tmp")


@pytest.mark.parametrize("where", ["the file", "an index", "the snapshot"])
def test_a_clean_stop_notes_the_other_logs_when_one_fails(start: Start, where: str) -> None:
    suffix = {"the file": ".log", "an index": ".index", "the snapshot": ".snapshot"}[where]
    produce(start.bad, b"x")
    produce(start.good, b"x")
    start.files.broken = (f"sync {BAD}/", suffix)

    assert not start.directory.close()

    start.files.broken = ()
    assert b"good 0 5" in start.files.read_bytes(POINTS)
    reads = len(start.files.reads)
    again = Start(start.files)
    scanned = sum(
        size for path, _, size in start.files.reads[reads:] if path.startswith(f"{GOOD}/")
    )
    # What a failed sync should have stored may be in the cache still, but is not believed.
    assert (again.good.next_offset, again.bad.next_offset) == (5, 4 if suffix == ".log" else 5)
    assert scanned < 4096, "nothing of it lay above its recovery point"


def test_a_read_that_fails_is_told_and_stops_the_log(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start.files.fail_reads(monkeypatch)
    start.files.unreadable = f"{BAD}/"

    with pytest.raises(OSError, match="Input/output") as raised:
        start.bad.read(2, 50)
    refused = start.bad.refuse("bad-0: read failed", raised.value)

    assert isinstance(refused, LogFailed)
    with pytest.raises(LogFailed, match="read failed"):
        append(start.bad, batch(b"x"))
    start.files.unreadable = ""
    assert batches_in(everything(start.bad)) == [(n, n) for n in range(4)]
