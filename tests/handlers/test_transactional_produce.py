"""Produce with transactional batches: who lets them in, and what is told to which version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.records.compression import GZIP
from storage.steps import run_here
from tests.support.caller import batch
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
OLD, NEW = range(3, 12), range(12, 14)
"""Versions whose partitions are added beforehand, and by the batch itself."""
ALL = [*OLD, *NEW]
LARGE = bytes(300_000)
"""More than is prepared on the loop."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path / "data") as running:
        create_topic(running, TOPIC, 3)
        yield running


@pytest.fixture
def known(broker: InProcessBroker) -> KnownTransactions:
    return KnownTransactions.of(broker)


@pytest.fixture
def client(broker: InProcessBroker, known: KnownTransactions) -> TransactionalClient:
    return TransactionalClient(broker, ID, PRODUCER)


@pytest.mark.parametrize("version", ALL)
def test_batches_are_there_for_readers_of_committed_records_when_the_transaction_is(
    known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    known.begin(ID, PRODUCER, (TOPIC, 0))
    for number in range(3):
        sent = client.send(TOPIC, b"%d" % number, version=version)
        assert (sent.error_code, sent.base_offset) == (0, number)
    assert client.committed(TOPIC) == []
    everything = client.fetch(TOPIC, isolation_level=0)
    assert (everything.last_stable_offset, everything.high_watermark) == (0, 3)

    assert known.end(ID, commit=True) == []

    assert client.committed(TOPIC) == [b"0", b"1", b"2"]
    assert client.fetch(TOPIC).last_stable_offset == 4


@pytest.mark.parametrize("version", OLD)
def test_a_partition_that_was_not_added_is_refused_alone(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    known.begin(ID, PRODUCER, (TOPIC, 1))

    refused, stored = client.send_sets(
        (TOPIC, 0, client.set_of(TOPIC, b"a")),
        (TOPIC, 1, client.set_of(TOPIC, b"b", partition=1)),
        version=version,
    )

    abortable = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
    assert (refused.error_code, refused.base_offset) == (abortable, -1)
    assert (stored.error_code, stored.base_offset) == (0, 0)
    assert partition_of(broker, TOPIC, 0).log.next_offset == 0
    assert known.places(ID) == [(TOPIC, 1)]


@pytest.mark.parametrize("version", NEW)
def test_partitions_join_by_being_written_to_all_of_a_request_at_once(
    known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    known.begin(ID, PRODUCER)

    entries = client.send_sets(
        *((TOPIC, index, client.set_of(TOPIC, b"a", partition=index)) for index in range(3)),
        version=version,
    )

    assert [entry.error_code for entry in entries] == [0, 0, 0]
    places = [(TOPIC, index) for index in range(3)]
    assert known.places(ID) == places
    assert known.asked[0] == (places, True)


@pytest.mark.parametrize("version", NEW)
def test_what_is_not_there_or_internal_does_not_join(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    create_topic(broker, "__consumer_offsets")
    known.begin(ID, PRODUCER)
    stray = client.set_of("stray", b"a")

    codes = [
        client.send_sets((topic, index, stray), version=version)[0].error_code
        for topic, index in (("__consumer_offsets", 0), (TOPIC, 3))
    ]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, unknown]
    assert known.places(ID) == []


FOR_NOW = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize(
    ("said", "old", "new"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, FOR_NOW, FOR_NOW),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, FOR_NOW, FOR_NOW),
        (ErrorCode.NOT_COORDINATOR, FOR_NOW, FOR_NOW),
        (ErrorCode.CONCURRENT_TRANSACTIONS, FOR_NOW, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, *[ErrorCode.INVALID_PRODUCER_EPOCH] * 2),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, *[ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2),
        (ErrorCode.INVALID_TXN_STATE, *[ErrorCode.INVALID_TXN_STATE] * 2),
    ],
)
def test_what_the_coordinator_says_is_told_in_codes_that_a_producer_knows(
    known: KnownTransactions,
    client: TransactionalClient,
    version: int,
    said: ErrorCode,
    old: ErrorCode,
    new: ErrorCode,
) -> None:
    """As ReplicaManager of Kafka 4 turns them."""
    known.begin(ID, PRODUCER, (TOPIC, 0))
    known.refusal = said

    sent = client.send(TOPIC, b"a", version=version)

    assert sent.error_code == (old if version in OLD else new)


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_transactional_batch_without_a_transactional_id_refuses_the_request(
    broker: InProcessBroker, client: TransactionalClient, version: int, partitions: int
) -> None:
    sets = [(TOPIC, 0, client.set_of(TOPIC, b"a")), (TOPIC, 1, batch(b"plain"))]

    entries = client.send_sets(*sets[:partitions], version=version, transactional_id=None)

    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [entry.error_code for entry in entries] == [refused] * partitions
    assert partition_of(broker, TOPIC, 1).log.next_offset == 0


def test_transactional_batches_of_two_producers_refuse_the_request(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient
) -> None:
    known.begin(ID, PRODUCER, (TOPIC, 0), (TOPIC, 1))

    entries = client.send_sets(
        (TOPIC, 0, client.set_of(TOPIC, b"a")),
        (TOPIC, 1, client.set_of(TOPIC, b"a", partition=1, producer_id=8)),
    )

    codes = [entry.error_code for entry in entries]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert partition_of(broker, TOPIC, 0).log.next_offset == 0


@pytest.mark.parametrize("version", ALL)
def test_other_batches_under_a_transactional_id_are_stored_as_without(
    known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    sent = client.send_sets(
        (TOPIC, 0, batch(b"plain")),
        (TOPIC, 1, client.set_of(TOPIC, b"a", partition=1, transactional=False)),
        version=version,
    )

    assert [entry.error_code for entry in sent] == [0, 0]
    assert known.asked == []
    assert client.committed(TOPIC) == [b"plain"]


def test_a_batch_outside_of_the_open_transaction_of_its_producer_is_refused(
    known: KnownTransactions, client: TransactionalClient
) -> None:
    known.begin(ID, PRODUCER, (TOPIC, 0))
    client.send(TOPIC, b"a")

    sent = client.send(TOPIC, b"b", transactional=False)

    assert sent.error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", ALL)
def test_a_batch_that_is_sent_again_is_stored_once_and_asked_for_again(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    known.begin(ID, PRODUCER, (TOPIC, 0))
    again = client.set_of(TOPIC, b"a")
    client.send_sets((TOPIC, 0, again), version=version)
    known.asked.clear()

    (sent,) = client.send_sets((TOPIC, 0, again), version=version)

    assert (sent.error_code, sent.base_offset) == (0, 0)
    assert partition_of(broker, TOPIC).log.next_offset == 1
    assert known.asked == [([(TOPIC, 0)], version in NEW)]


@pytest.mark.parametrize("version", NEW)
def test_after_a_loss_of_power_a_batch_that_was_kept_joins_again_when_it_is_sent_again(
    known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    known.begin(ID, PRODUCER)
    again = client.set_of(TOPIC, b"a")
    client.send_sets((TOPIC, 0, again), version=version)
    known.begin(ID, PRODUCER)  # the coordinator's record of it was lost

    client.send_sets((TOPIC, 0, again), version=version)

    assert known.places(ID) == [(TOPIC, 0)]
    assert known.end(ID, commit=True, raised=1) == []
    assert client.committed(TOPIC) == [b"a"]


@pytest.mark.parametrize("version", NEW)
def test_a_producer_of_whom_nothing_is_known_begins_its_transaction_with_sequence_0(
    known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    known.begin(ID, PRODUCER)

    sent = client.send(TOPIC, b"late", version=version, base_sequence=5)

    assert sent.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.send(TOPIC, b"late", version=11, base_sequence=5).error_code == 0


@pytest.mark.parametrize("version", NEW)
def test_after_an_end_with_a_higher_epoch_late_batches_of_the_old_one_are_refused(
    known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    known.begin(ID, PRODUCER)
    client.send(TOPIC, b"a", version=version)
    late = client.set_of(TOPIC, b"late")
    known.end(ID, commit=True, raised=1)
    known.begin(ID, PRODUCER, epoch=1)

    (refused,) = client.send_sets((TOPIC, 0, late), version=version)
    client.next_epoch()
    sent = client.send(TOPIC, b"b", version=version)

    assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (sent.error_code, sent.base_offset) == (0, 2)


def test_acks_1_waits_for_the_disk_like_acks_all(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient
) -> None:
    known.begin(ID, PRODUCER, (TOPIC, 0))
    sets = (TOPIC, 0, client.set_of(TOPIC, b"a"))

    (sent,) = client.send_sets(sets, acks=1)

    log = partition_of(broker, TOPIC).log
    assert sent.error_code == 0
    assert log.recovery_point == log.written_offset == 1


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("value", [b"small", LARGE], ids=["on the loop", "on a thread"])
def test_batches_that_are_made_anew_are_let_in_in_the_same_way(
    broker: InProcessBroker,
    known: KnownTransactions,
    client: TransactionalClient,
    version: int,
    value: bytes,
) -> None:
    create_topic(broker, "zipped", compression_type="gzip")
    known.begin(ID, PRODUCER, *([("zipped", 0)] if version in OLD else ()))

    sent = client.send("zipped", value, version=version)
    refused = client.send("zipped", value, version=version, producer_epoch=3, base_sequence=0)

    assert (sent.error_code, sent.base_offset) == (0, 0)
    assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition_of(broker, "zipped").log.next_offset == 1
    assert client.committed("zipped") == []
    known.end(ID, commit=True)
    stored = client.fetch("zipped")
    assert stored.records[22] & 7 == GZIP
    assert client.committed("zipped") == [value]


@pytest.mark.parametrize("version", ALL)
def test_a_batch_on_a_thread_is_refused_when_its_transaction_ends_meanwhile(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient, version: int
) -> None:
    create_topic(broker, "zipped", compression_type="gzip")
    known.begin(ID, PRODUCER, ("zipped", 0))
    large = client.request(("zipped", 0, client.set_of("zipped", LARGE)), version=version)
    client.asker.send(large, version)
    known.end(ID, commit=False)
    known.begin(ID, PRODUCER, epoch=1)

    broker.turn_until(lambda: bool(client.asker.answers()))

    (topic,) = client.asker.answers()[0].responses
    assert topic.partition_responses[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition_of(broker, "zipped").log.next_offset == 0


@pytest.mark.parametrize("magic", ["0.9.0", "0.10.0"])
def test_a_topic_of_an_older_format_has_no_place_for_transactions(
    broker: InProcessBroker, known: KnownTransactions, client: TransactionalClient, magic: str
) -> None:
    create_topic(broker, "old", message_format_version=magic)
    known.begin(ID, PRODUCER)

    sent = client.send("old", b"a", version=12)

    assert sent.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert known.places(ID) == []


@pytest.mark.parametrize("version", ALL)
def test_without_verification_only_who_joins_by_writing_is_looked_at(
    tmp_path: Path, version: int
) -> None:
    settings = {"transaction_partition_verification_enable": "false"}
    with InProcessBroker(tmp_path / "data", **settings) as broker:
        create_topic(broker, TOPIC)
        known = KnownTransactions.of(broker)
        client = TransactionalClient(broker, ID, PRODUCER)

        sent = client.send(TOPIC, b"a", version=version)

        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert sent.error_code == (unknown if version in NEW else 0)
        assert bool(known.asked) == (version in NEW)


def test_verification_is_switched_off_and_on_while_the_broker_runs(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data") as broker:
        create_topic(broker, TOPIC)
        KnownTransactions.of(broker)
        client = TransactionalClient(broker, ID, PRODUCER)
        settings = broker.running.broker.dynamic_settings

        run_here(settings.change("", {"transaction.partition.verification.enable": "false"}))
        unverified = client.send(TOPIC, b"a", version=11)
        run_here(settings.change("", {}))
        verified = client.send(TOPIC, b"b", version=11)

    assert unverified.error_code == ErrorCode.NONE
    assert verified.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
