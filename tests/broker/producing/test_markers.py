"""Markers among the batches of a turn, on a disk that fails, and in the offsets of groups."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.records.batch import Batch
from protocol.records.markers import MARKER_SIZE, Marker, decode_marker
from protocol.records.walk import walk
from storage.disk import DiskFile
from tests.support.caller import Target, batch, fetch_request
from tests.support.fake_connection import InProcessBroker
from tests.support.transactions import (
    KnownTransactions,
    TransactionalClient,
    create_topic,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC, ID, PRODUCER = "orders", "bank", 7
OFFSETS = "__consumer_offsets"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data", offsets_topic_num_partitions="1") as running:
        create_topic(running, TOPIC, 3)
        yield running


@pytest.fixture
def known(broker: InProcessBroker) -> KnownTransactions:
    return KnownTransactions.of(broker)


@pytest.fixture
def client(broker: InProcessBroker, known: KnownTransactions) -> TransactionalClient:
    known.begin(ID, PRODUCER, (TOPIC, 0), (TOPIC, 1), (TOPIC, 2))
    return TransactionalClient(broker, ID, PRODUCER)


def stored(client: TransactionalClient, partition: int = 0) -> list[bytes | Marker | None]:
    """The values in the partition, batch by batch, and its markers."""
    records = bytes(client.fetch(TOPIC, partition=partition, isolation_level=0).records)
    found: list[bytes | Marker | None] = []
    for position, size, _ in walk(memoryview(records)):
        one = memoryview(records)[position : position + size]
        if Batch(one).is_control:
            found.append(decode_marker(one))
        else:
            found += [record.value for record in Batch(one).records()]
    return found


def fail_writes(monkeypatch: pytest.MonkeyPatch, folder: str, code: int) -> None:
    write_at = DiskFile.write_at

    def fail(file: DiskFile, buffers: Any, position: int) -> None:
        if f"/{folder}/" in file.path and file.path.endswith(".log"):
            raise OSError(code, "as the test wants it")
        write_at(file, buffers, position)

    monkeypatch.setattr(DiskFile, "write_at", fail)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_written_to_each_partition_of_the_transaction(
    known: KnownTransactions, client: TransactionalClient, commit: bool
) -> None:
    for partition in range(3):
        client.send(TOPIC, b"a", b"b", partition=partition)

    assert known.end(ID, commit=commit, coordinator_epoch=4) == []

    for partition in range(3):
        assert stored(client, partition) == [b"a", b"b", Marker(commit, 4)]
        found = client.fetch(TOPIC, partition=partition)
        assert found.last_stable_offset == found.high_watermark == 3
        aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
        assert aborted == ([] if commit else [(PRODUCER, 0)])


def test_a_marker_comes_behind_the_batches_that_wait_for_the_end_of_the_turn(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient
) -> None:
    sets = [client.set_of(TOPIC, b"%d" % number) for number in range(2)]
    others = TransactionalClient(broker, "other", 8)
    for sent in sets:
        client.asker.send(client.request((TOPIC, 0, sent)), 11)
    others.asker.send(
        others.request((TOPIC, 0, batch(b"plain")), transactional_id=None, acks=1), 11
    )
    assert client.asker.answers() == others.asker.answers() == []

    assert known.end(ID, commit=True) == []

    assert partition_of(broker, TOPIC).log.written_offset == 4
    broker.turn_until(lambda: len(client.asker.answers()) == 2)
    (entry,) = others.asker.answers()[0].responses[0].partition_responses
    assert (entry.error_code, entry.base_offset) == (0, 2)
    assert stored(client) == [b"0", b"1", b"plain", Marker(True, 0)]


def test_a_reader_that_waits_is_answered_by_the_marker(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient
) -> None:
    reader = TransactionalClient(broker, ID, PRODUCER)
    client.send(TOPIC, b"a")
    reader.asker.send(
        fetch_request(Target(TOPIC), max_wait_ms=60_000, min_bytes=1, isolation_level=1), 11
    )
    broker.turn(3)
    assert reader.asker.answers() == []

    known.end(ID, commit=True)

    assert len(reader.asker.answers()) == 1


def test_where_nothing_is_open_and_what_has_gone_needs_no_marker(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient
) -> None:
    client.send(TOPIC, b"a")
    known.places(ID).extend([("gone", 0), (TOPIC, 3), (OFFSETS, 0)])

    assert known.end(ID, commit=True) == []

    ends = [partition_of(broker, TOPIC, index).log.written_offset for index in range(3)]
    assert ends == [2, 0, 0]


def test_to_write_markers_again_writes_none(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient
) -> None:
    client.send(TOPIC, b"a")
    known.end(ID, commit=True)
    known.begin(ID, PRODUCER, (TOPIC, 0))

    assert known.end(ID, commit=True) == []

    assert partition_of(broker, TOPIC).log.written_offset == 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_partition_whose_disk_refuses_is_named_and_the_others_are_written(
    broker: InProcessBroker,
    known: KnownTransactions,
    client: TransactionalClient,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    for partition in range(3):
        client.send(TOPIC, b"a", partition=partition)
    with monkeypatch.context() as broken:
        fail_writes(broken, f"{TOPIC}-1", code)
        assert known.end(ID, commit=True) == [(TOPIC, 1)]

    assert stored(client, 0) == stored(client, 2) == [b"a", Marker(True, 0)]
    assert client.committed(TOPIC, partition=1) == []
    log = partition_of(broker, TOPIC, 1).log
    assert (log.last_stable_offset, log.next_offset) == (0, 1)
    if code == errno.ENOSPC:
        broker.turn_until(lambda: not broker.running.broker.disk.full)
        known.begin(ID, PRODUCER, (TOPIC, 1))
        assert known.end(ID, commit=True) == []
        assert client.committed(TOPIC, partition=1) == [b"a"]


def test_a_write_that_fails_takes_marker_and_queued_batches_back_and_tells_their_producers(
    broker: InProcessBroker,
    known: KnownTransactions,
    client: TransactionalClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.asker.send(client.request((TOPIC, 0, client.set_of(TOPIC, b"a"))), 11)
    with monkeypatch.context() as broken:
        fail_writes(broken, f"{TOPIC}-0", errno.ENOSPC)
        assert known.end(ID, commit=True) == [(TOPIC, 0)]
    broker.turn_until(lambda: bool(client.asker.answers()))

    (entry,) = client.asker.answers()[0].responses[0].partition_responses
    assert (entry.error_code, entry.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    log = partition_of(broker, TOPIC).log
    assert (log.next_offset, log.producers.open_since(PRODUCER)) == (0, -1)
    broker.turn_until(lambda: not broker.running.broker.disk.full)
    known.begin(ID, PRODUCER, (TOPIC, 0))
    assert known.end(ID, commit=True) == [], "nothing of the transaction is there any more"
    assert log.next_offset == 0


def test_on_a_full_disk_markers_wait_and_nothing_changes(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient
) -> None:
    client.send(TOPIC, b"a")
    client.commit_offsets("readers", {(TOPIC, 0): 5}, version=5)
    places = list(known.places(ID))
    broker.running.broker.disk.full = True

    left = known.end(ID, commit=True)

    assert left == [(TOPIC, 0), (OFFSETS, 0)]
    assert client.committed(TOPIC) == []
    broker.running.broker.disk.full = False
    known.begin(ID, PRODUCER, *places)
    assert known.end(ID, commit=True) == []
    assert client.committed(TOPIC) == [b"a"]


@pytest.mark.parametrize(("epoch", "coordinator_epoch"), [(0, 9), (2, 3)])
def test_a_marker_of_an_older_producer_or_coordinator_is_not_tried_again(
    broker: InProcessBroker, epoch: int, coordinator_epoch: int
) -> None:
    known = KnownTransactions.of(broker)
    client = TransactionalClient(broker, ID, PRODUCER)
    client.epoch = 1
    known.begin(ID, PRODUCER, (TOPIC, 0), epoch=1)
    client.send(TOPIC, b"a")
    known.end(ID, commit=True, coordinator_epoch=4)
    known.begin(ID, PRODUCER, (TOPIC, 0), epoch=1)
    client.send(TOPIC, b"b")

    known.begin(ID, PRODUCER, (TOPIC, 0), epoch=epoch)
    assert known.end(ID, commit=False, coordinator_epoch=coordinator_epoch) == []

    assert partition_of(broker, TOPIC).log.last_stable_offset == 2


def test_a_partition_of_groups_that_is_being_loaded_is_asked_again(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient
) -> None:
    client.commit_offsets("readers", {(TOPIC, 0): 5}, version=5)
    places = list(known.places(ID))
    (shard,) = broker.running.broker.groups.runtime.shards
    shard.loaded = False

    assert known.end(ID, commit=True) == [(OFFSETS, 0)]

    shard.loaded = True
    known.begin(ID, PRODUCER, *places)
    assert known.end(ID, commit=True) == []
    assert [one.offset for _, _, one in shard.state.offsets.entries("readers")] == [5]


def test_an_end_counts_its_bytes_for_the_checkpoint_and_the_next_flush(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient
) -> None:
    client.send(TOPIC, b"a")
    appends = broker.running.broker.appends
    before = appends.bytes_written
    appends.unsynced.clear()

    known.end(ID, commit=True)

    assert appends.bytes_written - before == MARKER_SIZE
    assert list(appends.unsynced.values()) == [partition_of(broker, TOPIC)]
