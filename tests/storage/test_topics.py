"""The topic store: durable, small, and loud when its file is wrong."""

from __future__ import annotations

import errno

import pytest

from storage.errors import DataDirectoryError
from storage.topics import PRODUCER_ID_BLOCK, JsonTopicStore
from tests.support.memory_filesystem import MemoryFilesystem

ID = bytes(range(16))
OTHER_ID = bytes(range(16, 32))
PATH = "/data/triglot-topics.json"


def store() -> tuple[MemoryFilesystem, JsonTopicStore]:
    files = MemoryFilesystem()
    files.make_dir("/data")
    return files, JsonTopicStore.load(files, "/data")


def test_what_is_stored_comes_back() -> None:
    files, topics = store()
    topics.begin_epoch()
    topics.create("orders", ID, 3, {"retention.ms": "1000"})
    topics.create("gone", OTHER_ID, 1, {})
    topics.set_partition_count("orders", 5)
    topics.set_configs("orders", {"cleanup.policy": "compact"})
    topics.remove("gone")

    again = JsonTopicStore.load(files, "/data")

    assert [topic.name for topic in again.topics()] == ["orders"]
    topic = again.by_id(ID)
    assert topic is again.get("orders")
    assert topic is not None
    assert (topic.partition_count, topic.configs) == (5, {"cleanup.policy": "compact"})
    assert again.leader_epoch == 0
    assert again.begin_epoch() == 1
    assert again.by_id(OTHER_ID) is None


def test_a_name_or_an_id_is_given_once() -> None:
    _, topics = store()
    topics.create("orders", ID, 1, {})

    with pytest.raises(ValueError, match="orders"):
        topics.create("orders", OTHER_ID, 1, {})
    with pytest.raises(ValueError, match="taken"):
        topics.create("other", ID, 1, {})
    with pytest.raises(KeyError):
        topics.remove("unknown")


def test_producer_ids_are_reserved_on_disk_before_they_are_given() -> None:
    files, topics = store()
    given = [topics.next_producer_id() for _ in range(PRODUCER_ID_BLOCK + 1)]
    assert given == list(range(PRODUCER_ID_BLOCK + 1))

    after_a_crash = JsonTopicStore.load(files, "/data")

    assert after_a_crash.next_producer_id() == 2 * PRODUCER_ID_BLOCK
    stores = [call for call in files.calls if call.startswith("rename")]
    assert len(stores) == 3, "one write for each block"


@pytest.mark.parametrize("change", ["create", "remove", "grow", "configure", "epoch", "producer"])
def test_a_change_that_cannot_be_stored_has_not_happened(change: str) -> None:
    files, topics = store()
    topics.begin_epoch()
    topics.create("orders", ID, 1, {})
    before = files.read_bytes(PATH)
    files.faults = {len(files.calls): errno.ENOSPC}
    changes = {
        "create": lambda: topics.create("other", OTHER_ID, 1, {}),
        "remove": lambda: topics.remove("orders"),
        "grow": lambda: topics.set_partition_count("orders", 2),
        "configure": lambda: topics.set_configs("orders", {"a": "b"}),
        "epoch": topics.begin_epoch,
        "producer": topics.next_producer_id,
    }

    with pytest.raises(OSError, match="No space"):
        changes[change]()

    assert files.read_bytes(PATH) == before
    topic = topics.get("orders")
    assert topic is not None
    assert topic is topics.by_id(ID)
    assert (topic.partition_count, topic.configs, topics.leader_epoch) == (1, {}, 0)
    assert topics.get("other") is None
    assert topics.next_producer_id() == 0


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "line 1, column 1"),
        (b'{"version": 1,\n "topics": [', "line 2, column"),
        (b"\xff{}", "not UTF-8"),
        (b"[]", "version"),
        (b'{"version": 2}', "known is 1"),
        (b'{"version": 1}', "leader_epoch"),
        (b'{"version": 1, "leader_epoch": "x"}', "leader_epoch"),
        (b'{"version": 1, "leader_epoch": 0, "next_producer_id": -1}', "next_producer_id"),
        (b'{"version": 1, "leader_epoch": 0, "next_producer_id": 0, "topics": [{}]}', "topics.0."),
        (
            b'{"version": 1, "leader_epoch": 0, "next_producer_id": 0, "topics": [{"name": "a", '
            b'"topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": 0, "configs": {}}]}',
            "topics.0.",
        ),
    ],
)
def test_a_malformed_file_stops_the_start_and_says_where(content: bytes, told: str) -> None:
    files, _ = store()
    files.write_bytes(PATH, content)

    with pytest.raises(DataDirectoryError, match=told) as raised:
        JsonTopicStore.load(files, "/data")
    assert PATH in str(raised.value)


def test_partitions_without_a_topics_file_are_no_empty_cluster() -> None:
    files, _ = store()
    files.write_bytes("/data/orders-0/partition.metadata", b"version: 0\n")

    with pytest.raises(DataDirectoryError, match="orders-0"):
        JsonTopicStore.load(files, "/data")
