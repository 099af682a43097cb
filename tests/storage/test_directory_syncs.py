"""Every name that an acknowledgement depends on is on the disk before it: the order of the calls.

A new name is created or renamed in its folder and lasts from the folder's next sync on. (What a
power cut then leaves is in test_power_loss.)
"""

from __future__ import annotations

import pytest

from storage import closing
from storage.data_dir import DataDirectory
from storage.layout import RECEIVE_TIMES
from tests.storage.logs import NOW_MS, Settings, produce
from tests.support.checkpoints import write_checkpoints
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.record_deletion import delete_records
from tests.support.topic_store import open_topics

SETTINGS = Settings(segment_bytes=400, index_interval_bytes=100)

NOT_PROMISED = (".lock", RECEIVE_TIMES)
"""Names that need not last."""


class Directory:
    """A data directory, in a folder that has to be made, and the calls that it came to."""

    def __init__(self, files: MemoryFilesystem | None = None) -> None:
        self.files = files or MemoryFilesystem()
        self.counter = 0
        self.directory = DataDirectory.take(
            self.files, "/srv/brokers/data", node_id=1, new_uuid=self.new_uuid
        )
        self.topics = open_topics(self.files, "/srv/brokers/data")
        self.topics.begin_epoch()
        self.reports = self.directory.open_logs(self.topics, lambda _: SETTINGS, now_ms=NOW_MS)

    def new_uuid(self) -> bytes:
        self.counter += 1
        return self.counter.to_bytes(16, "big")

    def create(self, name: str) -> None:
        topic = self.topics.create(name, self.new_uuid(), 1, {})
        self.directory.create_partition(topic, 0, SETTINGS, now_ms=NOW_MS)

    def fill(self, name: str, count: int) -> None:
        """Append and acknowledge: a log may be told as synced."""
        log = self.directory.logs[name, 0]
        for _ in range(count):
            produce(log, bytes(60), b"second")
            log.sync()


def unsettled(files: MemoryFilesystem) -> set[str]:
    """Names made or renamed, and not yet followed by a sync of their folder."""
    names: set[str] = set()
    for call in files.calls:
        action, _, path = call.partition(" ")
        if action in ("create", "mkdir"):
            names.add(path)
        elif action == "rename":
            old, new = path.split(" ")
            names.discard(old)
            names.add(new)
        elif action == "remove":
            names.discard(path)
        elif action == "sync":
            names = {
                name for name in names if name.rpartition("/")[0] not in (path, path.rstrip("/"))
            }
    return {name for name in names if not name.endswith(NOT_PROMISED)}


def test_this_test_sees_a_name_that_was_not_synced() -> None:
    files = MemoryFilesystem()
    files.make_dir("/a")
    files.sync_dir("/")
    files.open_file("/a/b", create=True)
    assert unsettled(files) == {"/a/b"}
    files.rename("/a/b", "/a/c")
    assert unsettled(files) == {"/a/c"}

    files.sync_dir("/a")

    assert unsettled(files) == set()


def test_a_new_data_directory_has_all_its_folders_and_files_on_disk() -> None:
    used = Directory()

    assert unsettled(used.files) == set()


def test_a_topic_is_on_disk_when_its_creation_is_answered() -> None:
    used = Directory()

    used.create("orders")

    # The folders may follow with the first batch: a start makes those that are missing.
    assert all("/orders-0" in name for name in unsettled(used.files))


def test_the_first_batch_of_a_partition_waits_for_all_names_of_its_files() -> None:
    used = Directory()
    used.create("orders")

    used.fill("orders", 1)

    assert unsettled(used.files) == set()


def test_every_acknowledged_batch_of_a_log_that_rolls_is_in_files_with_lasting_names() -> None:
    used = Directory()
    used.create("orders")

    for _ in range(9):
        used.fill("orders", 1)
        assert unsettled(used.files) == set()

    assert len(used.directory.logs["orders", 0].segments) > 3


def test_a_checkpoint_notes_no_point_above_names_that_may_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "INDEX_LAG_ENTRIES", 0)
    used = Directory()
    used.create("orders")
    used.fill("orders", 5)

    write_checkpoints(used.directory)

    assert unsettled(used.files) == set()


def test_deleted_records_and_topics_are_gone_on_disk_when_that_is_answered() -> None:
    used = Directory()
    used.create("orders")
    used.create("other")
    used.fill("orders", 6)

    delete_records(used.directory, "orders", 0, 9)
    assert not {name for name in unsettled(used.files) if "checkpoint" in name}
    stored = used.topics.remove("orders")
    used.directory.delete_topic(stored)

    assert {name for name in unsettled(used.files) if "orders" in name} == set()


def test_a_clean_stop_leaves_no_name_behind_that_may_go() -> None:
    used = Directory()
    used.create("orders")
    used.create("untouched")
    used.fill("orders", 5)

    assert used.directory.close()

    assert {name for name in unsettled(used.files) if "untouched" not in name} == set()


def test_after_a_kill_the_next_acknowledgement_waits_for_the_names_of_the_run_before() -> None:
    used = Directory()
    used.create("orders")
    log = used.directory.logs["orders", 0]
    for _ in range(4):
        produce(log, bytes(60), b"never synced")
    assert unsettled(used.files) != set()
    used.files.kill()

    again = Directory(used.files)
    again.fill("orders", 1)

    assert unsettled(used.files) == set()
