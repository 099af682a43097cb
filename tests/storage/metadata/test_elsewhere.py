"""Directories that hold only some of what the metadata promises."""

from __future__ import annotations

import pytest

from protocol.logdata.metadata import ConfigRecord, PartitionChangeRecord, RegisterBrokerRecord
from storage.errors import DataDirectoryError
from storage.identity import uuid_of, uuid_text
from storage.metadata.image import TOPIC_RESOURCE
from storage.metadata.store import MetadataStore
from storage.steps import run_here
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import IDENTITY, open_topics

PATH = "/data"
HERE, OTHER, UNKNOWN = uuid_of(IDENTITY.directory_id), bytes(range(16)), bytes(range(1, 17))
TOPIC_ID = b"t" * 16


def registered(*directories: bytes) -> tuple[MemoryFilesystem, MetadataStore]:
    """Metadata of one topic of two partitions, kept by a node with these directories."""
    files = MemoryFilesystem()
    files.make_dir(PATH)
    store = open_topics(files, PATH)
    registration = RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=bytes(16),
        broker_epoch=7,
        end_points=[],
        features=[],
        rack=None,
        log_dirs=list(directories),
    )
    run_here(store.append([registration]))
    store.create("orders", TOPIC_ID, 2, {})
    return files, store


def place(store: MetadataStore, partition: int, directory: bytes) -> None:
    change = PartitionChangeRecord(
        partition_id=partition, topic_id=TOPIC_ID, directories=[directory]
    )
    run_here(store.append([change]))


def test_a_partition_that_lies_in_another_directory_of_the_node_is_not_begun_empty() -> None:
    files, store = registered(HERE, OTHER)
    place(store, 1, OTHER)
    files.calls.clear()

    with pytest.raises(DataDirectoryError) as refused:
        open_topics(files, PATH)

    assert "partition 1 of topic 'orders' is not in /data" in str(refused.value)
    assert uuid_text(OTHER) in str(refused.value)
    assert "kafka-reassign-partitions" in str(refused.value)
    assert files.calls == []


@pytest.mark.parametrize(
    ("directories", "place_of_it"),
    [
        ((HERE, OTHER), HERE),
        ((HERE, OTHER), UNKNOWN),  # D7: it will be adopted
        ((HERE, OTHER), bytes(16)),  # D6: unassigned
        ((OTHER, UNKNOWN), OTHER),  # this directory has a new id
        ((OTHER,), OTHER),
    ],
)
def test_a_partition_that_can_only_be_here_is_served(
    directories: tuple[bytes, ...], place_of_it: bytes
) -> None:
    files, store = registered(*directories)
    place(store, 1, place_of_it)

    assert open_topics(files, PATH).get("orders") is not None


def test_a_partition_that_was_moved_here_is_served() -> None:
    files, store = registered(HERE, OTHER)
    place(store, 1, OTHER)
    files.make_dir(f"{PATH}/orders-1")

    assert open_topics(files, PATH).get("orders") is not None


@pytest.mark.parametrize(("value", "served"), [("true", False), ("TRUE", False), ("false", True)])
def test_a_topic_with_records_in_a_remote_store_is_refused(value: str, served: bool) -> None:
    files, store = registered(HERE)
    config = ConfigRecord(
        resource_type=TOPIC_RESOURCE,
        resource_name="orders",
        name="remote.storage.enable",
        value=value,
    )
    run_here(store.append([config]))

    if served:
        open_topics(files, PATH)
        return
    with pytest.raises(DataDirectoryError, match=r"'orders' has remote\.storage\.enable=true"):
        open_topics(files, PATH)
