"""The observer ends at any call that changes a file; the next one makes good for it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from protocol.logdata.metadata import ConfigRecord, FeatureLevelRecord
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from storage.metadata.loading import load
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut
from tests.tools.observer.scripted_controller import Finished, Line, ScriptedController, topic
from tools.observer.directory import ObserverDirectory
from tools.observer.follower import Follower

if TYPE_CHECKING:
    from storage.metadata.snapshots import SnapshotId

DATA = "/data/observer"
FOLDER = f"{DATA}/__cluster_metadata-0"


class Story:
    """A controller, and what an observer of it goes through: a log, a snapshot in pieces, a log, a
    snapshot of its own, another one from the leader, a leader that has another log."""

    def __init__(self) -> None:
        self.controller = ScriptedController()
        self.controller.lead(1)
        self.controller.append(FeatureLevelRecord(name="metadata.version", feature_level=21))
        self.controller.append(*topic("a", 5))
        self.snapshot: SnapshotId | None = None
        self.controller.steps = [
            lambda: self.controller.append(*topic("b", 2)),
            self.go_far_ahead,
            lambda: self.controller.append(*topic("d", 2)),
            lambda: self.controller.append(*topic("e", 20)),
            lambda: self.controller.append(*topic("f", 2)),
            self.unsure,
            self.replaced,
            self.go_far_ahead_again,
            lambda: self.controller.append(*topic("h", 1)),
        ]

    def go_far_ahead(self) -> None:
        self.controller.append(*topic("c", 60))
        self.snapshot = self.controller.snapshot()

    def unsure(self) -> None:
        self.controller.high_watermark = self.controller.end_offset
        kept = list(self.controller.image.records())
        self.controller.append(*topic("lost", 2))
        self.controller.image = type(self.controller.image)()
        for record in kept:
            self.controller.image.replay(record)

    def replaced(self) -> None:
        controller = self.controller
        controller.batches.pop()
        assert controller.high_watermark is not None
        controller.end_offset = controller.high_watermark
        controller.high_watermark = None
        controller.lead(2)

    def go_far_ahead_again(self) -> None:
        setting = ConfigRecord(resource_type=2, resource_name="c", name="k", value="v")
        self.controller.append(setting)
        self.controller.append(*topic("g", 30))
        self.snapshot = self.controller.snapshot()


def observe(controller: ScriptedController, files: MemoryFilesystem) -> Follower:
    kept = ObserverDirectory.open(files, DATA)
    made = Follower(
        [("controller", 9093)],
        kept,
        backoff_s=0,
        piece_bytes=1500,
        snapshot_after_bytes=1200,
        connect=Line(controller=controller).connect,
    )
    try:
        with pytest.raises(Finished):
            made.run()
    finally:
        kept.close()
    return made


def calls_of_the_story() -> int:
    files = MemoryFilesystem()
    files.make_dir("/data")
    files.sync_all()
    observe(Story().controller, files)
    return files.count


CALLS = calls_of_the_story()


@pytest.mark.parametrize("after", ["kill", "power cut 1", "power cut 2", "power cut 3"])
def test_an_observer_that_is_killed_at_any_call_is_made_good_for(after: str) -> None:
    assert CALLS > 50
    for cut_at in range(CALLS):
        rng = random.Random(f"{after} at {cut_at}")
        story = Story()
        files = MemoryFilesystem(recording=False)
        files.make_dir("/data")
        files.sync_all()
        files.cut_at = cut_at
        with pytest.raises(PowerCut):
            observe(story.controller, files)
        if after == "kill":
            files.kill()
        else:
            files = files.power_cut(rng)
            files.make_dir("/data")
        made = observe(story.controller, files)
        check(story, made, files, f"{after} at {cut_at}")


def check(story: Story, made: Follower, files: MemoryFilesystem, what: str) -> None:
    controller = story.controller
    assert list(made.image.records()) == list(controller.image.records()), what
    loaded = load(files, DATA)
    assert loaded.end_offset == controller.end_offset, what
    assert list(loaded.image.records()) == list(controller.image.records()), what
    assert loaded.snapshot is not None, what
    names = files.list_dir(FOLDER)
    assert len(names) <= 2, f"{what}: {names}"
    if loaded.snapshot == story.snapshot:
        data = files.read_bytes(f"{FOLDER}/{loaded.snapshot.file_name}")
        assert data == controller.snapshots[loaded.snapshot], what


def test_the_story_has_all_that_can_happen() -> None:
    files = MemoryFilesystem()
    story = Story()
    made = observe(story.controller, files)
    check(story, made, files, "undisturbed")
    calls = " ".join(files.calls)
    renamed = [call for call in files.calls if call.startswith("rename") and "checkpoint" in call]
    assert len(renamed) >= 3
    assert any("observer.checkpoint.part" in call for call in renamed), "a snapshot of its own"
    assert "truncate" in calls


@pytest.mark.parametrize("seed", range(8))
def test_a_download_goes_on_in_the_next_process_where_it_was_killed(seed: int) -> None:
    rng = random.Random(seed)
    controller = ScriptedController()
    controller.lead(1)
    controller.append(*topic("a", 500))
    snapshot = controller.snapshot()
    size = len(controller.snapshots[snapshot])
    files = MemoryFilesystem()
    starts = 0
    while True:
        starts += 1
        files.cut_at = files.count + rng.randrange(2, 25)
        try:
            observe(controller, files)
        except PowerCut:
            files.kill()
        else:
            break
    assert starts > 2, f"seed {seed}"
    sent = sum(
        min(one.max_bytes, size - one.topics[0].partitions[0].position)
        for one in controller.asked
        if isinstance(one, FetchSnapshotRequest)
    )
    assert sent <= size + starts * 1501, f"seed {seed}: {sent} bytes for a snapshot of {size}"
    path = f"{FOLDER}/{snapshot.file_name}"
    assert files.read_bytes(path) == controller.snapshots[snapshot]
