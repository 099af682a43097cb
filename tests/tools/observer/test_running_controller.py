"""An observer of our own broker: epochs, snapshots and the log's start move while it follows."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import TYPE_CHECKING

import pytest

from protocol.messages.describe_quorum import DescribeQuorumRequest
from storage.disk import DiskFilesystem
from storage.metadata.loading import load
from tests.support.running_controller import RunningController
from tests.tools.observer.following import Ended, checkpoints
from tools.observer.directory import ObserverDirectory
from tools.observer.follower import Follower, Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from protocol.logdata.metadata import MetadataRecord
    from storage.metadata.image import MetadataImage

REPLICA_ID = 7
DIRECTORY_ID = bytes(range(16))
IN_TIME_S = 20.0


class Offsets(Watcher):
    """Says when the observer has got so far, and ends it there when it is to."""

    def __init__(self) -> None:
        self.reached = -1
        self.states = 0
        self.end: int | None = None
        self._more = Condition()

    def state(self, image: MetadataImage, end_offset: int) -> None:
        self.states += 1
        self._reach(end_offset)

    def changed(self, offset: int, record: MetadataRecord, image: MetadataImage) -> None:
        self._reach(offset + 1)

    def _reach(self, offset: int) -> None:
        with self._more:
            self.reached = offset
            self._more.notify_all()
        if self.end is not None and offset >= self.end:
            raise Ended

    def until(self, offset: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: self.reached >= offset, IN_TIME_S), self.reached


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunningController]:
    with RunningController(tmp_path / "data") as running:
        yield running


def create(controller: RunningController, name: str) -> None:
    with controller.connect_as_client() as client:
        client.create_topic(name, partitions=3)


def observers(controller: RunningController) -> list[tuple[int, int]]:
    """Id and end of the log of those that the controller knows to follow it."""
    topic = DescribeQuorumRequest.Topic
    asked = [topic.Partition(partition_index=0)]
    request = DescribeQuorumRequest(
        topics=[topic(topic_name="__cluster_metadata", partitions=asked)]
    )
    with controller.connect() as caller:
        found = caller.call(request, 2).topics[0].partitions[0].observers
    return [(observer.replica_id, observer.log_end_offset) for observer in found]


def wait_until_known(controller: RunningController, observer: tuple[int, int]) -> None:
    """It is its next fetch that tells how far an observer has got."""
    deadline = time.monotonic() + IN_TIME_S
    while observers(controller) != [observer]:
        assert time.monotonic() < deadline, observers(controller)
        time.sleep(0.01)


def test_it_follows_through_new_epochs_snapshots_and_a_log_that_begins_later(
    controller: RunningController, tmp_path: Path
) -> None:
    told = Offsets()
    made = Follower(
        [("127.0.0.1", controller.port)],
        ObserverDirectory.open(DiskFilesystem(), str(tmp_path / "copy")),
        watcher=told,
        replica_id=REPLICA_ID,
        directory_id=DIRECTORY_ID,
        backoff_s=0.001,
    )
    with ThreadPoolExecutor() as other:
        following = other.submit(made.run)
        create(controller, "a")
        told.until(controller.end_offset)
        controller.begin_epoch()
        create(controller, "b")
        told.until(controller.end_offset)
        controller.raise_start(controller.take_snapshot().end_offset)
        create(controller, "c")
        told.until(controller.end_offset)
        wait_until_known(controller, (REPLICA_ID, controller.end_offset))
        told.end = controller.end_offset + 1
        controller.append()
        with pytest.raises(Ended):
            following.result(IN_TIME_S)
    made.kept.close()

    assert told.states == 1, "it was never too far behind"
    assert sorted(made.image.topics) == ["a", "b", "c"]
    assert load(DiskFilesystem(), str(tmp_path / "copy")).end_offset == controller.end_offset


def test_one_that_was_away_for_too_long_is_given_the_snapshot(
    controller: RunningController, tmp_path: Path
) -> None:
    def follow(offset: int) -> Follower:
        told = Offsets()
        told.end = offset
        kept = ObserverDirectory.open(DiskFilesystem(), str(tmp_path / "copy"))
        made = Follower([("127.0.0.1", controller.port)], kept, watcher=told)
        with pytest.raises(Ended):
            made.run()
        kept.close()
        return made

    create(controller, "a")
    follow(controller.end_offset)
    assert not checkpoints(tmp_path / "copy")
    controller.begin_epoch()
    create(controller, "b")
    snapshot = controller.take_snapshot()
    controller.raise_start(snapshot.end_offset)
    create(controller, "c")
    made = follow(controller.end_offset)
    assert sorted(made.image.topics) == ["a", "b", "c"]
    there = checkpoints(tmp_path / "data")
    assert checkpoints(tmp_path / "copy") == {snapshot.file_name: there[snapshot.file_name]}
