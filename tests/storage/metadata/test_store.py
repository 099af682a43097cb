"""Topics as records of the metadata log: durable, whole or not at all, and given once."""

from __future__ import annotations

import errno
import random

import pytest

from protocol.logdata.metadata import PartitionChangeRecord, ProducerIdsRecord
from storage.identity import uuid_of
from storage.metadata.image import MetadataError, PartitionState
from storage.metadata.metadata_log import MetadataNotStored
from storage.metadata.store import PRODUCER_ID_BLOCK, MetadataStore
from storage.steps import run_here
from storage.topics import Topic
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import IDENTITY, open_topics

ID = bytes(range(16))
OTHER_ID = bytes(range(16, 32))
LOG = "/data/__cluster_metadata-0/00000000000000000000.log"
DIRECTORY = uuid_of(IDENTITY.directory_id)


def store() -> tuple[MemoryFilesystem, MetadataStore]:
    files = MemoryFilesystem()
    files.make_dir("/data")
    return files, open_topics(files, "/data")


def shown(topics: MetadataStore) -> dict[str, tuple[bytes, int, dict[str, str]]]:
    """All there is to know of each topic."""
    return {t.name: (t.topic_id, t.partition_count, t.configs) for t in topics.topics()}


def test_what_is_stored_comes_back() -> None:
    files, topics = store()
    topics.begin_epoch()
    topics.create("orders", ID, 3, {"retention.ms": "1000", "segment.ms": "5"})
    topics.create("gone", OTHER_ID, 1, {"segment.ms": "5"})
    topics.set_partition_count("orders", 5)
    topics.set_configs("orders", {"cleanup.policy": "compact", "segment.ms": "5"})
    topics.remove("gone")
    epochs = [topics.leader_epoch("orders", number) for number in range(5)]

    again = open_topics(files, "/data")

    expected = {"orders": (ID, 5, {"cleanup.policy": "compact", "segment.ms": "5"})}
    assert shown(again) == shown(topics) == expected
    assert again.get("gone") is None
    assert [again.leader_epoch("orders", number) for number in range(5)] == epochs == [0] * 5
    again.begin_epoch()
    assert [again.leader_epoch("orders", number) for number in range(5)] == [1] * 5
    assert again.log.epoch == topics.log.epoch + 1


def test_partitions_are_led_and_kept_here() -> None:
    _, topics = store()
    topics.create("orders", ID, 2, {})

    state = PartitionState((1,), (1,), 1, 0, 0, (DIRECTORY,))
    assert topics.image.topics["orders"].partitions == {0: state, 1: state}


def test_a_change_is_one_append_and_one_sync() -> None:
    files, topics = store()
    before = topics.log.end_offset
    first = len(files.calls)

    topics.create_all([Topic(f"t{n}", bytes([n]) * 16, 2, {"a": "b"}) for n in range(1, 100)])

    writes = [call for call in files.calls[first:] if call.startswith("write")]
    syncs = [call for call in files.calls[first:] if call.startswith("sync")]
    assert (writes, syncs) == ([f"write {LOG}"], [f"sync {LOG}"])
    assert topics.log.end_offset == before + 99 * 4
    topics.remove_all([f"t{n}" for n in range(1, 100)])
    assert len(topics.deleted()) == 99
    assert shown(open_topics(files, "/data")) == {}


def test_settings_that_are_the_same_are_not_written() -> None:
    files, topics = store()
    topics.create("orders", ID, 1, {"a": "b"})
    before = files.read_bytes(LOG)

    topics.set_configs("orders", {"a": "b"})

    assert files.read_bytes(LOG) == before


def test_a_removed_topic_is_remembered_until_its_folders_have_gone() -> None:
    files, topics = store()
    topics.create("orders", ID, 3, {})
    topics.remove("orders")
    topics.create("orders", OTHER_ID, 1, {})

    again = open_topics(files, "/data")

    (deleted,) = again.deleted()
    assert (deleted.name, deleted.topic_id, deleted.partition_count) == ("orders", ID, 3)
    again.forget_deleted(ID)
    again.forget_deleted(ID)
    assert again.deleted() == []


def test_a_name_or_an_id_is_given_once() -> None:
    files, topics = store()
    topics.create("orders", ID, 1, {})
    before = files.read_bytes(LOG)

    with pytest.raises(ValueError, match="orders"):
        topics.create("orders", OTHER_ID, 1, {})
    with pytest.raises(ValueError, match="taken"):
        topics.create("other", ID, 1, {})
    with pytest.raises(ValueError, match="made twice"):
        topics.create_all([Topic("new", OTHER_ID, 1, {}), Topic("new", bytes(16), 1, {})])
    with pytest.raises(KeyError):
        topics.remove("unknown")
    assert files.read_bytes(LOG) == before


def test_what_contradicts_the_log_never_gets_into_it() -> None:
    """It would stop every start from then on."""
    files, topics = store()
    topics.create("orders", ID, 1, {})
    before = files.read_bytes(LOG)

    with pytest.raises(MetadataError, match="does not have"):
        run_here(topics.append([PartitionChangeRecord(partition_id=5, topic_id=ID, leader=1)]))

    assert files.read_bytes(LOG) == before
    assert list(shown(open_topics(files, "/data"))) == ["orders"]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches hold ten topics of one partition instead of a hundred thousand."""
    monkeypatch.setattr("storage.metadata.metadata_log.BATCH_BYTES", 1800)


def many() -> list[Topic]:
    return [Topic(f"t{n}", bytes([n]) * 16, 1, {}) for n in range(1, 26)]


@pytest.mark.usefixtures("small_batches")
def test_an_operation_larger_than_a_batch_can_be_is_refused_before_anything_is_written() -> None:
    files, topics = store()
    before = files.read_bytes(LOG)

    with pytest.raises(ValueError, match=r"31 records, \d+ bytes; .* at most 1800"):
        topics.create_all([Topic("small", ID, 1, {}), Topic("big", OTHER_ID, 30, {})])

    assert files.read_bytes(LOG) == before
    assert shown(topics) == {}


@pytest.mark.usefixtures("small_batches")
def test_operations_that_fit_no_single_batch_are_several_each_synced_before_the_next() -> None:
    files, topics = store()
    first = len(files.calls)

    topics.create_all(many())

    calls = files.calls[first:]
    assert len(calls) > 2
    assert calls == [f"write {LOG}", f"sync {LOG}"] * (len(calls) // 2)
    assert len(shown(topics)) == 25
    assert shown(open_topics(files, "/data")) == shown(topics)


@pytest.mark.usefixtures("small_batches")
def test_a_disk_that_fills_up_amid_several_batches_has_whole_topics_only() -> None:
    files, topics = store()
    told: list[int] = []
    topics.log.appended = told.append
    files.capacity = files.used_bytes() + 2500

    with pytest.raises(MetadataNotStored):
        topics.create_all(many())

    files.capacity = None
    assert 0 < len(shown(topics)) < 25
    assert len(told) == 1, "whoever follows the log is told of what is there"
    assert shown(open_topics(files, "/data")) == shown(topics)


def test_partitions_that_were_said_to_be_elsewhere_are_taken_over() -> None:
    """D6, D7: a directory was copied, or Apache Kafka had not yet said in which one they are."""
    files, topics = store()
    topics.create("orders", ID, 3, {})
    for number, directory in enumerate((bytes(15) + b"\1", b"elsewhere 123456")):
        run_here(
            topics.append(
                [PartitionChangeRecord(partition_id=number, topic_id=ID, directories=[directory])]
            )
        )

    again = open_topics(files, "/data")
    again.begin_epoch()

    found = [state.directories for state in again.image.topics["orders"].partitions.values()]
    assert found == [(DIRECTORY,)] * 3
    end = again.log.end_offset
    again.begin_epoch()
    assert again.log.end_offset == end + 3
    assert [s.directories for s in again.image.topics["orders"].partitions.values()] == found


def test_producer_ids_are_reserved_on_disk_before_they_are_given() -> None:
    files, topics = store()
    before = topics.log.end_offset
    given = [topics.next_producer_id() for _ in range(PRODUCER_ID_BLOCK + 1)]
    assert given == list(range(PRODUCER_ID_BLOCK + 1))
    assert topics.log.end_offset == before + 2, "one record for each block"

    after_a_crash = open_topics(files, "/data")

    assert after_a_crash.next_producer_id() == 2 * PRODUCER_ID_BLOCK


def test_producer_ids_go_on_after_those_of_apache_kafka() -> None:
    _, topics = store()
    run_here(topics.append([ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=7000)]))

    assert [topics.next_producer_id() for _ in range(2)] == [7000, 7001]
    assert topics.image.next_producer_id == 8000


@pytest.mark.parametrize("change", ["create", "remove", "grow", "configure", "epoch", "producer"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_change_that_cannot_be_stored_has_not_happened(change: str, code: int) -> None:
    files, topics = store()
    topics.begin_epoch()
    topics.create("orders", ID, 1, {})
    before = files.read_bytes(LOG)
    files.faults = {files.count: code}
    changes = {
        "create": lambda: topics.create("other", OTHER_ID, 1, {}),
        "remove": lambda: topics.remove("orders"),
        "grow": lambda: topics.set_partition_count("orders", 2),
        "configure": lambda: topics.set_configs("orders", {"a": "b"}),
        "epoch": lambda: topics.begin_epoch(),
        "producer": topics.next_producer_id,
    }

    with pytest.raises(MetadataNotStored, match=r"__cluster_metadata-0, offset \d+") as raised:
        changes[change]()

    assert raised.value.errno == code
    assert files.read_bytes(LOG) == before
    assert shown(topics) == {"orders": (ID, 1, {})}
    assert topics.leader_epoch("orders", 0) == 0
    assert topics.get("other") is None
    assert topics.deleted() == []
    assert shown(open_topics(files.power_cut(random.Random(1)), "/data")) == shown(topics)
    if code == errno.ENOSPC:
        changes[change]()  # there is room again; a disk that is broken is not believed any more
    else:
        with pytest.raises(MetadataNotStored):
            changes[change]()
