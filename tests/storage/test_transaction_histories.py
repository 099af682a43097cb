"""Random transactional histories against a list as the model, through crashes of every kind."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from itertools import pairwise
from struct import pack

import pytest

from storage import closing
from storage.closing import store_for_recovery
from storage.errors import StorageError
from storage.recovery import LastKnown, open_log
from storage.transaction_index import AbortedTransaction, encode
from tests.storage.logs import FOLDER, NOW_MS, Settings, append, batch, header_of
from tests.storage.test_transactions import end
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut


class Model:
    """Every batch of a log, as (producer, first offset, last offset, what it is)."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int, str]] = []
        self.sequences: dict[int, int] = {}
        self.coordinator_epoch = 0

    def cut(self, end_offset: int) -> None:
        self.batches = [entry for entry in self.batches if entry[2] < end_offset]
        self.sequences = {}
        for producer, first, last, kind in self.batches:
            if kind == "data":
                self.sequences[producer] = self.sequences.get(producer, 0) + last - first + 1

    def walk(self) -> tuple[int, list[AbortedTransaction]]:
        opened: dict[int, int] = {}
        aborted, end_offset = [], 0
        for producer, first, last, kind in self.batches:
            end_offset = last + 1
            if kind == "data":
                opened.setdefault(producer, first)
            elif kind != "plain":
                began = opened.pop(producer, None)
                if kind == "abort" and began is not None:
                    stable = min(opened.values(), default=last + 1)
                    aborted.append(AbortedTransaction(producer, began, last, stable))
        return min(opened.values(), default=end_offset), aborted


class Run:
    """A log, its model, and what a checkpoint may say."""

    SETTINGS = Settings(segment_bytes=900, index_interval_bytes=150)

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files = MemoryFilesystem(recording=False)
        self.files.make_dir(FOLDER)
        self.files.sync_all()
        self.model = Model()
        self.noted = self.promised = 0
        self.log, _ = open_log(self.files, FOLDER, self.SETTINGS, now_ms=NOW_MS)

    def append(self) -> None:
        model, rng, log = self.model, self.rng, self.log
        producer, count = rng.randrange(5), rng.randint(1, 3)
        kind = rng.choice(("data", "data", "data", "commit", "abort", "plain"))
        if kind == "plain":
            first, count = (
                append(log, batch(*[b"p" * rng.randrange(60)] * count, timestamp_ms=NOW_MS)),
                count,
            )
        elif kind == "data":
            sequence = model.sequences.get(producer, 0)
            raw = batch(
                *[b"d" * rng.randrange(60)] * count,
                timestamp_ms=NOW_MS,
                producer=(producer, 0, sequence),
                transactional=True,
            )
            assert log.producers.check(header_of(raw)) is None
            first = append(log, raw)
            model.sequences[producer] = sequence + count
        else:
            model.coordinator_epoch += rng.random() < 0.1
            epoch = model.coordinator_epoch
            first = end(log, producer, commit=kind == "commit", coordinator_epoch=epoch)
            count = 1
        model.batches.append((producer, first, first + count - 1, kind))

    def write(self) -> None:
        if self.rng.random() < 0.1:
            self.files.faults = {self.files.count: errno.ENOSPC}
        try:
            self.log.write()
        except StorageError:
            self.model.cut(self.log.next_offset)
            self.files.faults = {}
            # Or a power cut might bring back what was refused; the model does not know that.
            self.log.active.file.sync()
        self.files.faults = {}

    def step(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            self.append()
        self.write()
        if rng.random() < 0.3:
            self.log.sync()
            self.promised = self.log.recovery_point
        if rng.random() < 0.3:
            steps = store_for_recovery(self.log)
            if rng.random() < 0.7:
                for step in steps:
                    step.sync()
        if rng.random() < 0.3:
            self.noted = self.log.covered_point

    def restart(self) -> str:
        how = self.rng.choice(("clean", "kill", "power"))
        known = LastKnown(recovery_point=self.noted, gaps_below=0)
        state: bytes | None = self.log.producers.encode()
        if how == "clean":
            clean = self.log.close(clean=True)
            assert clean is not None
            known = LastKnown(recovery_point=self.log.recovery_point, clean=clean)
            self.promised = self.noted = self.log.recovery_point
        elif how == "power":
            self.files = self.files.power_cut(self.rng)
            state = None
        else:
            self.files.kill()
        if how != "clean" and self.rng.random() < 0.4:
            how, state = "power amid the start", None
            self.files.cut_at = self.files.count + self.rng.randrange(12)
            with suppress(PowerCut):
                open_log(self.files, FOLDER, self.SETTINGS, known=known, now_ms=NOW_MS)
            self.files = self.files.power_cut(self.rng)
        self.log, _ = open_log(self.files, FOLDER, self.SETTINGS, known=known, now_ms=NOW_MS)
        assert self.log.failed is None
        assert self.log.next_offset >= self.promised
        if state is None:
            self.promised = self.log.next_offset
        self.model.cut(self.log.next_offset)
        if state is not None:
            assert self.log.producers.encode() == state
        return how

    def check(self, when: str) -> None:
        log, rng = self.log, self.rng
        stable, aborted = self.model.walk()
        assert log.last_stable_offset == stable, when
        for _ in range(4):
            upper = rng.randint(0, stable)
            offset = rng.randint(0, upper)
            expected = [a for a in aborted if a.last_offset >= offset and a.first_offset < upper]
            assert log.aborted_transactions(offset, upper) == expected, (when, offset, upper)
        if stable:
            offset = rng.randrange(stable)
            piece = log.read(offset, rng.randint(1, 900), end_offset=stable)
            assert piece is not None
            told = log.aborted_in(offset, piece)
            last = [b for b in self.model.batches if b[1] <= offset][-1]
            upper = max(last[2] + 1, offset + 1)
            expected = [a for a in aborted if a.last_offset >= offset and a.first_offset < upper]
            assert [a for a in told if a.first_offset < upper] == expected, when
            listed = b"".join(pack(">qqx", a.producer_id, a.first_offset) for a in told)
            assert log.aborted_listed_in(offset, piece) == (len(told), listed), when
            # As Kafka: not beyond the next index entry, though more is known of the file.
            segment = log.segments.of_file(piece.file)
            assert segment is not None
            relative = log.segments.loaded_one(segment).offsets.offset_from(piece.end)
            if relative is not None:
                beyond = segment.base_offset + relative
                assert all(a.first_offset < beyond for a in told), when

    def check_files(self) -> None:
        """After a clean stop each file holds just the aborts of its segment."""
        _, aborted = self.model.walk()
        bases = [*self.log.segments.base_offsets, 1 << 62]
        for base, following in pairwise(bases):
            inside = [a for a in aborted if base <= a.last_offset < following]
            path = f"{FOLDER}/{base:020d}.txnindex"
            assert self.files.exists(path) == bool(inside)
            if inside:
                assert self.files.read_bytes(path) == encode(inside)


@pytest.mark.parametrize("seed", range(60))
def test_last_stable_offset_and_aborts_are_those_of_a_naive_walk(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "INDEX_LAG_ENTRIES", 0)
    run = Run(seed)
    for number in range(12):
        for _ in range(run.rng.randint(0, 5)):
            run.step()
            run.check(f"seed {seed}, step {number}")
        how = run.restart()
        run.check(f"seed {seed}, step {number} after {how}")
    assert run.log.close(clean=True) is not None
    run.check_files()
