"""Folders of partitions and whose they are: ids that are damaged, another's, or of lost topics."""

from __future__ import annotations

from copy import deepcopy

import pytest

from protocol.records.walk import walk
from storage.errors import DataDirectoryError, LogFailed
from storage.identity import decode_partition_metadata, encode_partition_metadata
from storage.metadata.loading import load
from tests.storage.logs import produce
from tests.storage.test_data_dir import SIX, Start, offsets, reasons, used
from tests.support.checkpoints import write_checkpoints
from tests.support.record_deletion import delete_records

OTHER_ID = bytes(15) + b"\x07"
ID_FILE = "/data/orders-0/partition.metadata"


@pytest.mark.parametrize("known", [False, True], ids=["of nobody", "of another topic"])
def test_d3_a_folder_with_another_id_is_not_served_and_not_touched(known: bool) -> None:
    """Unlike Kafka, which puts it aside and has the partition begin at offset 0."""
    files, topic = used()
    if known:
        start = Start(files)
        start.topics.create("other", OTHER_ID, 1, {})
        start.directory.close()
    files.write_bytes(ID_FILE, encode_partition_metadata(OTHER_ID))
    before = {name: files.read_bytes(f"/data/orders-0/{name}") for name in
              files.list_dir("/data/orders-0")}  # fmt: skip

    start = Start(files)

    (report,) = start.reports
    assert "the partition is not served" in report.reason
    log = start.directory.logs["orders", 0]
    with pytest.raises(LogFailed):
        log.read(0, 100)
    with pytest.raises(LogFailed):
        log.read(12, 100)
    with pytest.raises(LogFailed):
        log.start_after_deletion(5)
    with pytest.raises(LogFailed):
        produce(log, b"new")
    write_checkpoints(start.directory)
    assert not start.directory.close(), "the next start looks through it"
    after = {name: files.read_bytes(f"/data/orders-0/{name}") for name in before}
    assert after == before

    files.remove(ID_FILE)
    start = Start(files)
    assert start.reports == []
    assert offsets(start) == SIX
    assert files.read_bytes(ID_FILE) == encode_partition_metadata(topic.topic_id)


def test_a_log_start_and_gaps_of_a_partition_that_is_not_served_stay_noted() -> None:
    files, _ = used()
    start = Start(files)
    delete_records(start.directory, "orders", 0, 7)
    start.directory.close()
    files.write_bytes(ID_FILE, encode_partition_metadata(OTHER_ID))
    Start(files).directory.close()
    Start(files).directory.close()
    files.remove(ID_FILE)

    start = Start(files)

    assert start.directory.logs["orders", 0].start_offset == 7
    assert offsets(start) == SIX[3:]


def test_a_flipped_bit_in_an_id_parts_no_topic_from_its_records() -> None:
    files, topic = used()
    right = encode_partition_metadata(topic.topic_id)
    for position in range(len(right)):
        spoilt = bytearray(right)
        spoilt[position] ^= 1 << position % 8
        files.write_bytes(ID_FILE, bytes(spoilt))

        start = Start(files)

        assert offsets(start) == SIX, position
        found = files.read_bytes(ID_FILE)
        assert decode_partition_metadata(found, "x") == topic.topic_id, position
        if found != bytes(spoilt):
            assert any("written again" in reason for reason in reasons(start.reports)), position
        start.directory.close()


@pytest.mark.parametrize("named", [True, False], ids=["with an id", "without"])
def test_a_folder_of_the_name_of_a_new_partition_is_put_aside_and_told(named: bool) -> None:
    files, _ = used()
    start = Start(files)
    for name in ("00000000000000000000.log", "partition.metadata"):
        data = files.read_bytes(f"/data/orders-0/{name}")
        if named or name.endswith(".log"):
            files.write_bytes(f"/data/new-0/{name}", data)

    start.create("new")

    assert start.directory.logs["new", 0].next_offset == 0
    (report,) = start.directory.taken_reports()
    (aside,) = [name for name in files.list_dir("/data") if name.endswith("-stray")]
    assert aside in report.reason
    assert "00000000000000000000.log" in files.list_dir(f"/data/{aside}")
    assert start.directory.taken_reports() == []


def test_a_topic_that_is_deleted_takes_no_folder_of_another_with_it() -> None:
    files, topic = used()
    files.write_bytes(ID_FILE, encode_partition_metadata(OTHER_ID))
    start = Start(files)

    assert start.directory.delete_topic(start.topics.remove(topic.name)) == []

    (aside,) = [name for name in files.list_dir("/data") if name.startswith("orders-0")]
    assert aside.endswith("-stray")
    assert "00000000000000000000.log" in files.list_dir(f"/data/{aside}")


METADATA = "/data/__cluster_metadata-0/00000000000000000000.log"


def test_topics_whose_metadata_are_lost_stop_the_start_and_are_named() -> None:
    """Unlike Kafka, which puts their folders aside: settings of others may be lost with them."""
    whole, _ = used()
    start = Start(whole)
    for name in ("a", "b", "c"):
        start.create(name, 2)
        start.fill(name)
    start.topics.set_configs("orders", {"retention.ms": "-1"})
    start.directory.close()
    every = {"orders", "a", "b", "c"}
    data = whole.read_bytes(METADATA)
    complete = 0
    for position, _, _ in walk(data):
        files = deepcopy(whole)
        files.write_bytes(METADATA, data[:position])
        lost = every - load(files, "/data").image.topics.keys()
        complete += not lost
        if not lost:
            assert offsets(Start(files)) == SIX
            continue

        with pytest.raises(DataDirectoryError) as refused:
            Start(files)

        if lost != every:
            assert all(f"{name}-0" in str(refused.value) for name in lost), position
        assert set(files.list_dir("/data")) >= set(whole.list_dir("/data"))
    assert complete


def test_a_partition_that_the_metadata_have_lost_stops_the_start() -> None:
    files, _ = used()
    files.write_bytes("/data/orders-1/partition.metadata", files.read_bytes(ID_FILE))
    files.write_bytes("/data/orders-1/00000000000000000000.log", b"records")

    with pytest.raises(DataDirectoryError, match=r"knows nothing of 1 .* \(orders-1\)"):
        Start(files)


def test_a_folder_without_records_or_of_a_known_topic_stops_no_start() -> None:
    files, topic = used()
    other = encode_partition_metadata(OTHER_ID)
    for path, data in (
        ("empty-0/partition.metadata", other),
        ("empty-0/00000000000000000000.log", b""),
        ("copy-0/partition.metadata", encode_partition_metadata(topic.topic_id)),
        ("copy-0/00000000000000000000.log", b"records"),
    ):
        files.write_bytes(f"/data/{path}", data)

    start = Start(files)

    assert [report.partition for report in start.reports] == ["copy-0", "empty-0"]
    assert offsets(start) == SIX
