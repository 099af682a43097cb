"""A gap between two segments is a crash's doing in a log of ours, and Apache Kafka's in one of its.

Kafka running on the directory is stood in for by what it leaves: its own `quorum-state`, and logs
with segments missing. test_recovery_of_kafka has directories of a real one.
"""

from __future__ import annotations

import errno
import json
import random
from typing import TYPE_CHECKING

import pytest

from storage.checkpoints import decode_offsets
from storage.data_dir import DataDirectory
from storage.layout import (
    CLEANER_OFFSETS,
    RECOVERY_POINTS,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TAKEN_OVER,
    file_name,
)
from storage.metadata.quorum_state import SINCE
from storage.noted import METADATA
from tests.storage.logs import NOW_MS, Settings, batches_in, everything, produce
from tests.support.checkpoints import write_checkpoints
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    from storage.log import Log
    from storage.metadata.store import MetadataStore
    from storage.reports import RecoveryReport

PATH = "/data"
QUORUM_STATE = f"{PATH}/__cluster_metadata-0/quorum-state"
SETTINGS = Settings()
WITHOUT_THE_SECOND = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


class Run:
    """A start on the directory."""

    def __init__(self, files: MemoryFilesystem, seed: int = 1) -> None:
        self.files = files
        rng = random.Random(f"{seed} {len(files.calls)}")
        self.directory = DataDirectory.take(
            files, PATH, node_id=1, new_uuid=lambda: rng.randbytes(16)
        )
        self.topics: MetadataStore = open_topics(files, PATH)
        self.topics.begin_epoch()
        if self.topics.get("a") is None:
            self.topics.create("a", rng.randbytes(16), 1, {})
        self.reports: list[RecoveryReport] = self.directory.open_logs(
            self.topics, lambda _: SETTINGS, now_ms=NOW_MS
        )

    @property
    def log(self) -> Log:
        return self.directory.logs["a", 0]

    def offsets(self) -> list[int]:
        return [first for first, _ in batches_in(everything(self.log))]

    def fill(self, segments: int = 3) -> None:
        """Five batches in each segment; the last one stays the active."""
        for number in range(segments):
            if number:
                self.log.roll(now_ms=NOW_MS)
            for _ in range(5):
                produce(self.log, b"x" * 20)

    def die(self, *, without: int = 5, by_kafka: bool = False) -> MemoryFilesystem:
        """Killed, and one segment is missing afterwards."""
        self.log.write()
        self.files.kill()
        for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
            self.files.remove(f"{PATH}/a-0/{file_name(without, suffix)}")
        if by_kafka:
            kafka_leads(self.files)
        return self.files


def kafka_leads(files: MemoryFilesystem) -> None:
    state = json.loads(files.read_bytes(QUORUM_STATE))
    del state[SINCE]
    state["leaderEpoch"] += 1
    files.write_bytes(QUORUM_STATE, json.dumps(state).encode())


def test_in_a_log_of_ours_the_log_ends_before_the_gap() -> None:
    run = Run(MemoryFilesystem())
    run.fill()

    run = Run(run.die())

    assert run.offsets() == [0, 1, 2, 3, 4]
    assert [report.reason for report in run.reports] == ["follows a cut: offsets 5..9 are missing"]


def test_what_kafka_wrote_is_believed_and_nothing_is_removed() -> None:
    run = Run(MemoryFilesystem())
    run.fill()

    run = Run(run.die(by_kafka=True))

    assert run.reports == []
    assert run.offsets() == WITHOUT_THE_SECOND


def test_what_kafka_wrote_is_believed_after_we_ran_and_were_killed() -> None:
    run = Run(MemoryFilesystem())
    run.fill()
    run = Run(run.die(by_kafka=True))
    produce(run.log, b"ours")

    for _ in range(3):
        run = Run(run.die(without=999))
        assert run.reports == []
        assert run.offsets() == [*WITHOUT_THE_SECOND, 15]


def test_what_we_wrote_after_kafka_ends_before_a_gap() -> None:
    run = Run(MemoryFilesystem())
    run.fill()
    run = Run(run.die(by_kafka=True))
    run.log.roll(now_ms=NOW_MS)
    run.fill(3)

    run = Run(run.die(without=20))

    assert run.offsets() == [*WITHOUT_THE_SECOND, 15, 16, 17, 18, 19]


def test_what_kafka_wrote_after_us_is_believed() -> None:
    run = Run(MemoryFilesystem())
    run.fill()
    run.log.sync()
    write_checkpoints(run.directory)
    run = Run(run.die(without=999))
    run.log.roll(now_ms=NOW_MS)
    run.fill(3)

    run = Run(run.die(without=20, by_kafka=True))

    assert run.reports == []
    assert run.offsets() == [*range(20), *range(25, 30)]


@pytest.mark.parametrize("lost", [(TAKEN_OVER,), (RECOVERY_POINTS, CLEANER_OFFSETS), ()])
@pytest.mark.parametrize("content", [None, b"", b"0\nzero\n"])
def test_what_nobody_knows_who_wrote_is_believed(
    lost: tuple[str, ...], content: bytes | None
) -> None:
    run = Run(MemoryFilesystem())
    run.fill()
    files = run.die()
    for name in lost:
        files.remove(f"{PATH}/{name}")
        if content is not None:
            files.write_bytes(f"{PATH}/{name}", content)
    if not lost:
        files.write_bytes(QUORUM_STATE, content or b"{}")

    run = Run(files)

    assert run.offsets() == WITHOUT_THE_SECOND
    run = Run(run.die(without=999))
    assert run.offsets() == WITHOUT_THE_SECOND, "and again after that start"


def test_a_disk_that_refuses_costs_no_record() -> None:
    """Only what is known of the log's writer; the next start knows as little."""
    run = Run(MemoryFilesystem())
    run.fill()
    files = run.die(by_kafka=True)
    files.sync_all()
    Run(copy := files.power_cut(random.Random(1)))
    writing = next(at for at, call in enumerate(copy.calls) if TAKEN_OVER in call)
    copy = files.power_cut(random.Random(1))
    copy.faults = {writing: errno.ENOSPC}

    run = Run(copy)
    assert noted(copy)[METADATA] != run.topics.led_since
    assert run.offsets() == WITHOUT_THE_SECOND

    run = Run(run.die(without=999))
    assert run.offsets() == WITHOUT_THE_SECOND


def test_a_topic_made_again_has_not_been_taken_over() -> None:
    run = Run(MemoryFilesystem())
    run.fill()
    run = Run(run.die(by_kafka=True))
    assert noted(run.files)["a", 0] == 15

    run.directory.delete_topic(run.topics.remove("a"))

    assert ("a", 0) not in noted(run.files)


def test_a_log_that_lost_some_of_what_was_taken_over_goes_on_as_ours() -> None:
    run = Run(MemoryFilesystem())
    run.fill()
    run = Run(run.die(by_kafka=True))
    files = run.die(without=10)  # nothing of it had been synced

    run = Run(files)

    assert run.log.next_offset == noted(files)["a", 0] == 5


def noted(files: MemoryFilesystem) -> dict[tuple[str, int], int]:
    return decode_offsets(files.read_bytes(f"{PATH}/{TAKEN_OVER}"), TAKEN_OVER)
