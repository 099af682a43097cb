"""The metadata log while it is written to: full and failing disks, power cuts, epochs."""

from __future__ import annotations

import copy
import errno
import random
from typing import TYPE_CHECKING

import pytest

from storage.errors import DataDirectoryError
from storage.metadata import snapshot_writing
from storage.metadata.loading import MetadataRefused, load
from storage.metadata.metadata_log import MetadataNotStored
from storage.removal import Removal
from storage.steps import run_here
from tests.storage.metadata.metadata_files import PATH, removal, topic
from tests.storage.metadata.opening_metadata import blank, opened
from tests.storage.metadata.snapshot_files import FOLDER, NOW_MS
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut

if TYPE_CHECKING:
    from storage.metadata.metadata_log import MetadataLog

SEEDS = 5


def topics_of(log: MetadataLog) -> dict[str, int]:
    """Names, and how many partitions each has."""
    return {name: len(one.partitions) for name, one in log.image.topics.items()}


# A disk that is full, or fails


def fresh() -> tuple[MemoryFilesystem, MetadataLog]:
    files = blank()
    store, _ = opened(files)
    run_here(store.log.append(topic(0, 2), now_ms=NOW_MS))
    return files, store.log


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("rolled", [False, True])
def test_an_append_that_fails_changes_nothing_or_is_the_last(code: int, *, rolled: bool) -> None:
    def start() -> tuple[MemoryFilesystem, MetadataLog]:
        files, log = fresh()
        if rolled:
            log.begin_snapshot("x", now_ms=NOW_MS)
        return files, log

    files, log = start()
    before = files.count
    run_here(log.append(topic(1, 3), topic(2), now_ms=NOW_MS))
    calls = files.count - before
    assert calls >= 2
    told: list[int | None] = []
    for call in range(calls):
        files, log = start()
        files.faults = {files.count + call: code}
        end = log.end_offset
        try:
            run_here(log.append(topic(1, 3), topic(2), now_ms=NOW_MS))
        except MetadataNotStored as error:
            told.append(error.errno)
        else:
            assert rolled, "it was a file that the log can do without"
            assert (
                list(load(files, PATH).image.topics) == list(topics_of(log)) == ["t0", "t1", "t2"]
            )
            continue
        assert topics_of(log) == {"t0": 2}, "nothing has been replayed"
        try:
            run_here(log.append(topic(3), now_ms=NOW_MS))
        except MetadataNotStored:
            expected = [{"t0": 2}, {"t0": 2, "t1": 3, "t2": 1}]
            assert topics_of(log) == {"t0": 2}, "it takes no more"
        else:
            assert log.end_offset == end + 2
            expected = [{"t0": 2, "t3": 1}]
        found = load(files, PATH)
        counts = {name: len(one.partitions) for name, one in found.image.topics.items()}
        assert counts in expected, call
    assert len(told) >= 2
    assert set(told) == {code}


def test_a_disk_that_is_full_for_a_while_costs_nothing() -> None:
    files, log = fresh()
    for room in range(0, 300, 7):
        files.capacity = files.used_bytes() + room
        with pytest.raises(MetadataNotStored):
            run_here(log.append(topic(1, 20), now_ms=NOW_MS))
    files.capacity = None
    run_here(log.append(topic(1, 20), now_ms=NOW_MS))

    assert topics_of(log) == {"t0": 2, "t1": 20}
    assert list(load(files, PATH).image.topics) == ["t0", "t1"]


def test_what_a_failed_sync_lost_is_not_believed_by_the_next_start() -> None:
    """The kernel's cache goes on showing it, and calls it clean."""
    files, log = fresh()
    files.faults = {files.count + 1: errno.EIO}
    with pytest.raises(MetadataNotStored):
        run_here(log.append(topic(1), now_ms=NOW_MS))
    files.kill()

    store, _ = opened(files)

    assert list(store.image.topics) == ["t0"]
    assert list(opened(files.power_cut(random.Random(3)))[0].image.topics) == ["t0"]


# Epochs


def with_one_topic() -> MemoryFilesystem:
    """A second start has made the index files, and a third one makes as many calls."""
    files = blank()
    run_here(opened(files)[0].append(topic(0)))
    opened(files)
    files.sync_all()
    return files


def test_an_epoch_is_never_begun_twice() -> None:
    files = with_one_topic()
    start = files.count
    opened(files)
    calls = files.count - start
    for cut in range(calls):
        for seed in range(SEEDS):
            rng, given = random.Random(1000 * cut + seed), {1, 2}
            files = with_one_topic()
            for _ in range(3):
                files.cut_at = files.count + cut
                epochs_before = set(given)
                with pytest.raises(PowerCut):
                    opened(files)
                files = files.power_cut(rng)
                try:
                    epoch = opened(files)[0].log.epoch
                except MetadataRefused:
                    break  # noise at the end: see the history below
                assert epoch not in epochs_before, (cut, seed)
                given.add(epoch)
                files.sync_all()


def test_no_epoch_is_left_after_the_last_one() -> None:
    files, _ = fresh()
    files.write_bytes(f"{FOLDER}/quorum-state", b'{"leaderId":1,"leaderEpoch":%d}' % (2**31 - 2))
    with pytest.raises(DataDirectoryError, match="no epoch is left"):
        opened(files)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_snapshot_that_can_not_be_begun_or_written_costs_nothing_but_itself(code: int) -> None:
    def run(log: MetadataLog) -> None:
        work = log.begin_snapshot("x", now_ms=NOW_MS)
        try:
            work.run()
        except OSError:
            log.snapshot_failed(work)
            raise

    files, log = fresh()
    before = files.count
    run(log)
    calls = files.count - before
    told: list[tuple[int | None, int]] = []
    for call in range(calls):
        files, log = fresh()
        records = log.records_since_snapshot
        files.faults = {files.count + call: code}
        try:
            run(log)
        except OSError as error:
            told.append((error.errno, log.records_since_snapshot))
        try:
            run_here(log.append(topic(1), now_ms=NOW_MS))
        except MetadataNotStored:
            assert code == errno.EIO
        found = load(files, PATH)
        assert list(found.image.topics) == list(topics_of(log)), call
        assert topics_of(log)["t0"] == 2
    assert len(told) > calls // 2
    assert set(told) == {(code, records)}, "it is still due"


# A whole life, with the power cut at every call


class Life:
    """The changes asked of a metadata log, and how much of them is certain."""

    def __init__(self) -> None:
        self.certain: dict[str, int] = {}
        """The topics after the last change that returned."""
        self.possible: list[dict[str, int]] = [{}]
        """And after the change that was under way, if any."""
        self.epoch = 0

    def change(self, log: MetadataLog, number: int, rng: random.Random) -> None:
        after = dict(self.certain)
        if number % 3 == 2 and self.certain:
            name = rng.choice(sorted(self.certain))
            del after[name]
            operations = [removal(int(name[1:]))]
        else:
            count = rng.randrange(1, 9)
            operations = [topic(number * 10 + index, count) for index in range(1 + number % 2)]
            after |= {f"t{number * 10 + index}": count for index in range(1 + number % 2)}
        self.possible = [self.certain, after]
        run_here(log.append(*operations, now_ms=NOW_MS + number))
        self.certain = after
        self.possible = [after]


def live(files: MemoryFilesystem, life: Life, rng: random.Random) -> None:
    """Two starts, changes, snapshots, and the log before them let go."""
    for start in range(2):
        store, _ = opened(files)
        log = store.log
        assert log.epoch > life.epoch
        life.epoch = log.epoch
        assert topics_of(log) in life.possible
        life.certain = topics_of(log)
        for number in range(4):
            life.change(log, start * 4 + number, rng)
            if number % 2:
                take_snapshot(log, f"u{start}{number}")
        log.close()


def take_snapshot(log: MetadataLog, unique: str) -> None:
    work = log.begin_snapshot(unique, now_ms=NOW_MS)
    work.run()
    log.snapshots.add(work.snapshot_id)
    taken: Removal | None = log.raise_start(work.snapshot_id.end_offset)
    if taken is not None:
        taken.set_aside()
        taken.remove()
    for old in log.snapshots.ids[:-1]:
        log.snapshots.remove_removed(log.snapshots.remove(old))


@pytest.fixture
def _sync_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_writing, "SYNC_BYTES", 400)


@pytest.mark.usefixtures("_sync_often")
def test_a_power_cut_leaves_what_was_acknowledged_and_whole_operations_only() -> None:
    whole, told = blank(), Life()
    whole.count = 0

    def cuts_here() -> tuple[str, MemoryFilesystem, list[MemoryFilesystem], Life]:
        cut = whole.count - 1
        survivors = [whole.power_cut(random.Random(cut * 1000 + seed)) for seed in range(SEEDS)]
        return f"cut {cut} ({whole.calls[-1]})", whole.copy(), survivors, copy.deepcopy(told)

    cuts = whole.at_every_call(lambda: live(whole, told, random.Random(0)), cuts_here)
    assert len(cuts) > 60
    refused = 0
    for cut, (call, files, survivors, before) in enumerate(cuts):
        for seed, survivor in enumerate(survivors):
            where, life = f"{call}, seed {seed}", copy.deepcopy(before)
            if may_refuse(survivor, files):
                refused += 1
                continue
            store, _ = opened(survivor)
            assert topics_of(store.log) in life.possible, where
            assert store.log.epoch > life.epoch, where
            # and it goes on from there
            life.certain = topics_of(store.log)
            life.change(store.log, 50, random.Random(cut * 1000 + seed))
            assert topics_of(opened(survivor)[0].log) == life.certain, where
    assert refused < len(cuts) * SEEDS // 50


def may_refuse(survivor: MemoryFilesystem, files: MemoryFilesystem) -> bool:
    """Whether the power cut has left all of an append but one byte: that may as well be damage to
    what was acknowledged."""
    for name in survivor.list_dir(FOLDER) if survivor.is_dir(FOLDER) else ():
        path = f"{FOLDER}/{name}"
        if name.endswith(".log") and files.exists(path):
            found, wrote = survivor.read_bytes(path), files.read_bytes(path)
            if sum(a != b for a, b in zip(found, wrote, strict=False)) == 1:
                return True
    return False
