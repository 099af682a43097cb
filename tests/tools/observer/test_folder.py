"""The folder of an observer: what it keeps there, and what a later one makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.metadata.following.effects import ObserverStopped
from protocol.logdata.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    UserScramCredentialRecord,
)
from storage.errors import DataDirectoryError, LockHeld
from storage.metadata.image import METADATA_VERSION_FEATURE
from storage.metadata.loading import load
from tests.support.memory_filesystem import MemoryFilesystem
from tests.tools.observer.scripted_controller import (
    CLUSTER,
    ScriptedController,
    topic,
)
from tests.tools.observer.scripted_follower import DATA, follow, follower, same
from tools.observer.directory import ObserverDirectory

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_is_kept_are_the_files_of_a_controller(
    controller: ScriptedController, files: MemoryFilesystem
) -> None:
    controller.append(*topic("a"))
    snapshot = controller.snapshot()
    controller.append(*topic("b"))
    made, _ = follower(controller, ObserverDirectory.open(files, DATA))
    follow(made)
    folder = f"{DATA}/__cluster_metadata-0"
    assert files.read_bytes(f"{folder}/{snapshot.file_name}") == controller.snapshots[snapshot]
    assert files.read_bytes(f"{folder}/{4:020d}.log") == b"".join(controller.batches)
    loaded = load(files, DATA)
    assert (loaded.snapshot, loaded.end_offset) == (snapshot, 6)
    assert same(loaded.image, controller.image)


def test_a_later_run_goes_on_where_the_last_one_ended(
    controller: ScriptedController, files: MemoryFilesystem
) -> None:
    controller.append(*topic("a"))
    controller.snapshot()
    controller.append(*topic("b"))
    kept = ObserverDirectory.open(files, DATA)
    follow(follower(controller, kept)[0])
    kept.close()
    controller.append(*topic("c"))
    controller.asked.clear()
    made, events = follower(controller, ObserverDirectory.open(files, DATA))
    follow(made)
    assert events.lines == ["state below 8: a b c"]
    assert same(made.image, controller.image)
    assert not [one for one in controller.asked if type(one).__name__ == "FetchSnapshotRequest"]


def test_a_transaction_that_is_open_when_the_observer_stops_counts_when_it_ends_later(
    controller: ScriptedController, files: MemoryFilesystem
) -> None:
    controller.append(BeginTransactionRecord(), *topic("a"))
    kept = ObserverDirectory.open(files, DATA)
    follow(follower(controller, kept)[0])
    kept.close()
    controller.steps = [lambda: controller.append(EndTransactionRecord())]
    made, events = follower(controller, ObserverDirectory.open(files, DATA))
    follow(made)
    assert events.lines == ["state below 5: no topics", "3 TopicRecord a", "4 PartitionRecord"]
    assert list(made.image.topics) == ["a"]


def test_another_cluster_is_not_followed(
    controller: ScriptedController, files: MemoryFilesystem
) -> None:
    kept = ObserverDirectory.open(files, DATA)
    follow(follower(controller, kept)[0])
    kept.close()
    again = ObserverDirectory.open(files, DATA)
    assert again.cluster_id == CLUSTER
    controller.cluster_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    made, _ = follower(controller, again)
    with pytest.raises(ObserverStopped, match="is of cluster AAAAAAAAAAAAAAAAAAAAAQ"):
        made.run()
    assert again.held().end_offset == 2


def test_a_long_log_gives_way_to_a_snapshot_of_its_own(
    controller: ScriptedController, files: MemoryFilesystem
) -> None:
    def add(number: int) -> Callable[[], None]:
        return lambda: controller.append(*topic(f"topic{number}", 3))

    controller.steps = [add(number) for number in range(30)]
    kept = ObserverDirectory.open(files, DATA)
    made, events = follower(controller, kept, snapshot_after_bytes=2000)
    follow(made)
    assert same(made.image, controller.image)
    assert len(events.lines) == 1 + 30 * 4
    assert kept.log_bytes <= 2000
    loaded = load(files, DATA)
    assert loaded.snapshot is not None
    assert loaded.end_offset == controller.end_offset
    assert same(loaded.image, controller.image)
    kept.close()
    controller.append(*topic("late"))
    again, _ = follower(controller, ObserverDirectory.open(files, DATA))
    follow(again)
    assert same(again.image, controller.image)


def test_a_snapshot_of_its_own_leaves_out_what_a_lowered_level_cannot_say(
    controller: ScriptedController, files: MemoryFilesystem
) -> None:
    user = UserScramCredentialRecord(
        name="ann", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    controller.append(user)
    controller.append(FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=7))
    controller.append(*topic("a", 100))
    made, _ = follower(controller, ObserverDirectory.open(files, DATA), snapshot_after_bytes=100)
    follow(made)
    loaded = load(files, DATA)
    assert loaded.snapshot is not None
    assert loaded.end_offset == loaded.snapshot.end_offset == controller.end_offset
    assert list(loaded.image.topics) == ["a"]
    assert made.image.scram_credentials
    assert not loaded.image.scram_credentials


def test_no_snapshot_is_made_amid_a_transaction(
    controller: ScriptedController, files: MemoryFilesystem
) -> None:
    controller.steps = [
        lambda: controller.append(BeginTransactionRecord(), *topic("a", 100)),
        lambda: controller.append(EndTransactionRecord()),
    ]
    kept = ObserverDirectory.open(files, DATA)
    made, _ = follower(controller, kept, snapshot_after_bytes=100)
    follow(made)
    loaded = load(files, DATA)
    assert loaded.snapshot is not None
    assert loaded.snapshot.end_offset == controller.end_offset
    assert same(loaded.image, controller.image)


def test_a_folder_is_held_by_one_observer(
    controller: ScriptedController, files: MemoryFilesystem
) -> None:
    kept = ObserverDirectory.open(files, DATA)
    with pytest.raises(LockHeld):
        ObserverDirectory.open(files, DATA)
    kept.close()
    ObserverDirectory.open(files, DATA).close()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("meta.properties", b"version=1\ncluster.id=c\nnode.id=1\n"),
        ("meta.properties", b"garbage"),
        ("recovery-point-offset-checkpoint", b"0\n0\n"),
    ],
)
def test_a_brokers_directory_is_left_alone(files: MemoryFilesystem, name: str, data: bytes) -> None:
    files.write_bytes(f"{DATA}/{name}", data)
    before = files.count
    with pytest.raises(DataDirectoryError, match="folder"):
        ObserverDirectory.open(files, DATA)
    assert files.count == before


def test_a_snapshot_that_was_damaged_on_the_disk_is_downloaded_again(
    controller: ScriptedController, files: MemoryFilesystem
) -> None:
    controller.append(*topic("a", 50))
    snapshot = controller.snapshot()
    kept = ObserverDirectory.open(files, DATA)
    follow(follower(controller, kept)[0])
    kept.close()
    path = f"{DATA}/__cluster_metadata-0/{snapshot.file_name}"
    data = bytearray(files.read_bytes(path))
    data[100] ^= 1
    files.remove(path)
    files.write_bytes(path, bytes(data))
    made, events = follower(controller, ObserverDirectory.open(files, DATA))
    follow(made)
    assert events.lines[0] == "downloaded 53-1"
    assert files.read_bytes(path) == controller.snapshots[snapshot]
