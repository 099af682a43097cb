"""Transactions that were written here, as readers and all that removes records see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.records.batch import Batch
from protocol.records.legacy import read_messages
from protocol.records.walk import walk
from storage.cleaning.cleaning import Cleaning
from storage.cleaning.plan import CleaningLag, plan_cleaning
from storage.disk import DiskFilesystem
from storage.replacing import cover_sealed
from tests.support.caller import FETCH_BY_ID, Target, batch, fetch_request
from tests.support.fake_connection import InProcessBroker
from tests.support.offset_store import RULES
from tests.support.replacement import replace_segments
from tests.support.transactions import (
    READ_COMMITTED,
    KnownTransactions,
    TransactionalClient,
    create_topic,
    handed_out,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "orders"


class Bank:
    """Two transactional producers, a and b, and whoever looks at what they write."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.known = KnownTransactions.of(broker)
        self.a = TransactionalClient(broker, "a", 70)
        self.b = TransactionalClient(broker, "b", 71)

    @property
    def log(self) -> Any:
        return partition_of(self.broker, TOPIC).log

    def send(self, producer: TransactionalClient, *values: bytes, **options: Any) -> None:
        name = producer.transactional_id
        if name not in self.known.open:
            self.known.begin(name, producer.producer_id, (TOPIC, 0))
        assert producer.send(TOPIC, *values, **options).error_code == 0

    def end(self, producer: TransactionalClient, *, commit: bool) -> None:
        assert self.known.end(producer.transactional_id, commit=commit) == []

    def plain(self, value: bytes) -> None:
        sent = batch(value, timestamp_ms=self.broker.running.broker.now_ms())
        (entry,) = self.a.send_sets((TOPIC, 0, sent), transactional_id=None)
        assert entry.error_code == 0

    def write_history(self) -> None:
        """Offsets: 0 plain; 1 a, aborted at 3 with 2; 4 b, committed at 6 with 5; 7 a, aborted at
        9; 8 b, open; 10 plain."""
        self.plain(b"0")
        self.send(self.a, b"1")
        self.send(self.a, b"2")
        self.end(self.a, commit=False)
        self.send(self.b, b"4")
        self.send(self.b, b"5")
        self.end(self.b, commit=True)
        self.send(self.a, b"7")
        self.send(self.b, b"8")
        self.end(self.a, commit=False)
        self.plain(b"10")


STABLE, END = 8, 11
EVERYTHING = [b"0", b"1", b"2", b"4", b"5", b"7", b"8", b"10"]


class Seen(NamedTuple):
    """An answer for one partition."""

    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]] | None
    records: bytes


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data") as running:
        create_topic(running, TOPIC, 2)
        yield running


@pytest.fixture
def bank(broker: InProcessBroker) -> Bank:
    return Bank(broker)


def fetch(bank: Bank, *targets: Target, version: int, **options: Any) -> list[Seen]:
    options.setdefault("isolation_level", READ_COMMITTED)
    answer = bank.a.asker.call(fetch_request(*targets, **options), version)
    return [
        Seen(
            entry.high_watermark,
            entry.last_stable_offset,
            None
            if entry.aborted_transactions is None
            else [(one.producer_id, one.first_offset) for one in entry.aborted_transactions],
            bytes(entry.records),
        )
        for topic in answer.responses
        for entry in topic.partitions
        if entry.partition_index == 0
    ]


def named(bank: Bank, version: int) -> str | bytes:
    topic_id: bytes = bank.broker.running.broker.topics.by_name[TOPIC].topic_id
    return topic_id if version >= FETCH_BY_ID else TOPIC


def kept(seen: Seen) -> list[bytes | None]:
    return handed_out(seen.records, seen.aborted or ())


def read_all(bank: Bank, level: int = READ_COMMITTED) -> list[bytes | None]:
    """What such a client hands out of the whole log, where a fetch ends with each segment."""
    offset, records = bank.log.start_offset, b""
    aborted: set[tuple[int, int]] = set()
    while True:
        (seen,) = fetch(bank, Target(TOPIC, offset), version=11, isolation_level=level)
        if not seen.records:
            return kept(Seen(0, 0, list(aborted), records))
        records += seen.records
        aborted.update(seen.aborted or ())
        *_, (position, _, _) = walk(memoryview(seen.records))
        last = Batch(memoryview(seen.records)[position:])
        offset = last.base_offset + last.last_offset_delta + 1


@pytest.mark.parametrize("version", range(4, 19))
def test_a_reader_of_committed_records_gets_them_by_the_short_way_and_the_long(
    bank: Bank, version: int
) -> None:
    bank.write_history()
    topic = named(bank, version)
    wanted = [(0, b"0"), (4, b"4"), (5, b"5")]
    told = {1: (70, 1), 2: (70, 1), 3: (70, 1), 7: (70, 7)}
    for offset in range(END):
        (alone,) = fetch(bank, Target(topic, offset), version=version)
        (among,) = fetch(bank, Target(topic, offset), Target(topic, 0, 1), version=version)

        assert alone == among
        assert alone[:2] == (END, STABLE)
        assert kept(alone) == [value for at, value in wanted if at >= offset]
        assert alone.aborted is not None
        assert {told[at] for at in told if offset <= at < STABLE} <= set(alone.aborted)


@pytest.mark.parametrize("version", range(4, 19))
def test_others_get_all_of_it_and_are_told_nothing(bank: Bank, version: int) -> None:
    bank.write_history()

    (seen,) = fetch(bank, Target(named(bank, version)), version=version, isolation_level=0)

    assert (seen.last_stable_offset, seen.aborted) == (STABLE, None)
    assert kept(seen) == EVERYTHING


@pytest.mark.parametrize("version", range(4))
def test_readers_of_older_formats_get_all_records_and_no_markers(bank: Bank, version: int) -> None:
    """As Kafka 3.9: isolation is younger than these versions."""
    bank.write_history()

    (seen,) = fetch(bank, Target(TOPIC), version=version, isolation_level=0)

    messages = list(read_messages(memoryview(bytearray(seen.records))))
    offsets = [0, 1, 2, 4, 5, 7, 8, 10]
    assert [(one.offset, one.value) for one in messages] == list(
        zip(offsets, EVERYTHING, strict=True)
    )


@pytest.mark.parametrize("version", range(2, 12))
def test_list_offsets_goes_as_far_as_its_isolation_level(bank: Bank, version: int) -> None:
    bank.write_history()
    last_ms = bank.log.max_timestamp()[0]
    bank.send(bank.b, b"11", timestamp_ms=last_ms + 5)

    def found(timestamp: int, level: int) -> int:
        asked = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=timestamp)
        topics = [ListOffsetsRequest.Topic(name=TOPIC, partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)
        entry = bank.a.asker.call(request, version).topics[0].partitions[0]
        assert entry.error_code == 0
        offset: int = entry.offset
        return offset

    assert (found(-1, 0), found(-1, READ_COMMITTED)) == (END + 1, STABLE)
    assert (found(-2, 0), found(-2, READ_COMMITTED)) == (0, 0)
    assert (found(last_ms + 1, 0), found(last_ms + 1, READ_COMMITTED)) == (END, -1)
    bank.end(bank.b, commit=True)
    assert (found(-1, 0), found(-1, READ_COMMITTED)) == (END + 2, END + 2)


def test_describe_producers_tells_since_where_a_transaction_is_open(bank: Bank) -> None:
    bank.write_history()
    topic = DescribeProducersRequest.Topic(name=TOPIC, partition_indexes=[0])

    answer = bank.a.asker.call(DescribeProducersRequest(topics=[topic]), 0)

    producers = answer.topics[0].partitions[0].active_producers
    assert [
        (one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
        for one in producers
    ] == [(70, 0, 2, -1), (71, 0, 2, 8)]
    assert [one.coordinator_epoch for one in producers] == [0, 0]


# What removes records


def delete_records(bank: Bank, offset: int) -> int:
    asked = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=TOPIC, partitions=[asked])], timeout_ms=1000
    )
    entry = bank.a.asker.call(request, 2).topics[0].partitions[0]
    assert entry.error_code == ErrorCode.NONE
    low_watermark: int = entry.low_watermark
    return low_watermark


@pytest.mark.parametrize("commit", [True, False])
def test_records_of_an_open_transaction_can_be_deleted_and_it_ends_as_any_other(
    bank: Bank, commit: bool
) -> None:
    bank.write_history()
    bank.send(bank.b, b"11")

    assert delete_records(bank, 9) == 9

    assert bank.log.last_stable_offset == 9, "nothing before the start is waited for"
    (seen,) = fetch(bank, Target(TOPIC, 9), version=11)
    assert kept(seen) == []
    bank.end(bank.b, commit=commit)
    (seen,) = fetch(bank, Target(TOPIC, 9), version=11)
    assert (seen.last_stable_offset, kept(seen)) == (13, [b"10", b"11"] if commit else [b"10"])


def test_retention_takes_an_open_transaction_with_it_and_holds_nobody_back(
    tmp_path: Path,
) -> None:
    with InProcessBroker(tmp_path / "data", log_initial_task_delay_ms="10") as broker:
        create_topic(broker, TOPIC, segment_bytes="1000", retention_bytes="1000")
        bank = Bank(broker)
        bank.send(bank.a, b"hanging")
        for number in range(30):
            bank.plain(b"%d" % number * 100)
        assert bank.log.producers.oldest_open == 0

        broker.running.broker.retention.start()
        broker.turn_until(lambda: bank.log.start_offset > 0)

        assert bank.log.last_stable_offset == bank.log.start_offset
        bank.end(bank.a, commit=False)
        assert bank.log.last_stable_offset == bank.log.written_offset == 32


def compact(bank: Bank) -> None:
    """Seal what there is and clean it, as the cleaner does."""
    log = bank.log
    log.roll(now_ms=bank.broker.running.broker.now_ms())
    cover_sealed(log)
    log.sync()
    plan = plan_cleaning(
        log, RULES, CleaningLag(0, 2**63 - 1, 0.0), now_ms=bank.broker.running.broker.now_ms()
    )
    if plan is None:
        return
    cleaning = Cleaning(DiskFilesystem(), plan)
    for group in cleaning.groups():
        assert replace_segments(log, group)
    log.cleaned_to = cleaning.cleaned_to


def test_compaction_keeps_what_is_open_and_of_the_rest_what_was_committed(bank: Bank) -> None:
    def put(producer: TransactionalClient, value: bytes) -> None:
        bank.send(producer, value, key=b"key")

    put(bank.a, b"first")
    bank.end(bank.a, commit=True)
    put(bank.a, b"aborted")
    bank.end(bank.a, commit=False)
    put(bank.a, b"second")
    bank.end(bank.a, commit=True)
    bank.log.roll(now_ms=bank.broker.running.broker.now_ms())
    put(bank.b, b"open")
    put(bank.a, b"third")
    bank.end(bank.a, commit=True)

    compact(bank)

    assert read_all(bank, 0) == [b"second", b"open", b"third"]
    assert read_all(bank) == [b"second"]
    bank.end(bank.b, commit=True)
    compact(bank)
    assert read_all(bank) == [b"third"]


def test_a_producer_with_an_open_transaction_is_remembered_for_as_long_as_it_is_open(
    tmp_path: Path,
) -> None:
    with InProcessBroker(tmp_path / "data", producer_id_expiration_ms="1") as broker:
        create_topic(broker, TOPIC)
        bank = Bank(broker)
        bank.send(bank.a, b"1")
        bank.send(bank.b, b"2")
        bank.end(bank.b, commit=True)
        expiry = broker.running.broker.producer_expiry

        def is_forgotten(producer: TransactionalClient) -> bool:
            expiry.run()
            return producer.producer_id not in bank.log.producers

        broker.turn_until(lambda: is_forgotten(bank.b))
        assert bank.a.producer_id in bank.log.producers
        assert bank.log.last_stable_offset == 0

        bank.end(bank.a, commit=True)
        broker.turn_until(lambda: is_forgotten(bank.a))


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_was_open_at_a_stop_is_ended_after_the_next_start(
    tmp_path: Path, commit: bool
) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        create_topic(broker, TOPIC)
        Bank(broker).write_history()
    with InProcessBroker(tmp_path / "data") as broker:
        bank = Bank(broker)
        assert bank.log.last_stable_offset == STABLE
        bank.known.begin("b", 71, (TOPIC, 0))
        bank.end(bank.b, commit=commit)

        (seen,) = fetch(bank, Target(TOPIC), version=11)

        committed = [b"0", b"4", b"5", b"8", b"10"] if commit else [b"0", b"4", b"5", b"10"]
        assert kept(seen) == committed
        assert seen.last_stable_offset == END + 1
