"""Transactions that are open in partitions, against what the state topic says of them."""

from __future__ import annotations

import pytest

from protocol.logdata.transactions import TransactionState, encode_key
from storage.inspection.directory_check import check
from storage.inspection.findings import ALIKE_MAX, Finding
from storage.layout import LOG, file_name
from tests.storage.inspection.directories import TOP, Contents, in_memory
from tests.storage.inspection.transactional import (
    PRODUCER_IDS,
    TIMEOUT_MS,
    Done,
    Record,
    state,
    tombstone,
    written,
)
from tests.storage.logs import NOW_MS

S = TransactionState
OPEN: list[Done] = [(0, 7, "batch", 0)]
"""Producer 7 has something open in orders-0 from its first offset on."""
ENDED: list[Done] = [*OPEN, (0, 7, "commit", 0)]
STATE_LOG = f"__transaction_state-0/{file_name(0, LOG)}"


def found(contents: Contents, *, now_ms: int | None = NOW_MS) -> list[Finding]:
    return list(check(in_memory(contents), TOP, deep=True, now_ms=now_ms))


def only(contents: Contents, **more: int) -> Finding:
    """The one finding there is."""
    (one,) = found(contents, **more)
    return one


@pytest.mark.parametrize(
    ("done", "records"),
    [
        pytest.param(OPEN, [state("bank", 7)], id="open"),
        pytest.param(OPEN, [state("bank", 7, version=1, client_transaction_version=2)], id="tv2"),
        pytest.param(OPEN, [state("bank", 7, partitions=[1, 0])], id="nothing open in another"),
        pytest.param([], [state("bank", 7)], id="nothing open at all"),
        pytest.param(ENDED, [state("bank", 7, S.COMPLETE_COMMIT, partitions=[])], id="ended"),
        pytest.param(
            [*ENDED, (0, 7, "batch", 0)],
            [
                state("bank", 7, S.PREPARE_COMMIT, ends=[1]),
                state("bank", 7, S.COMPLETE_COMMIT, partitions=[]),
                state("bank", 7),
            ],
            id="the next one is open",
        ),
    ],
)
def test_what_a_coordinator_has_in_hand_is_flawless(
    done: list[Done], records: list[Record]
) -> None:
    assert found(written(done, records)) == []


@pytest.mark.parametrize(
    ("done", "records", "why"),
    [
        pytest.param(OPEN, [], "no transactional id has this producer id", id="unknown producer"),
        pytest.param(
            OPEN, [state("bank", 8)], "no transactional id has this producer id", id="another's"
        ),
        pytest.param(
            OPEN,
            [state("bank", 7), tombstone("bank")],
            "no transactional id has this producer id",
            id="a forgotten id",
        ),
        pytest.param(
            [(0, 7, "batch", 3)], [state("bank", 7, epoch=2)], "'bank' is in epoch 2", id="newer"
        ),
    ],
)
def test_what_nobody_ends_hangs_and_the_command_is_told(
    done: list[Done], records: list[Record], why: str
) -> None:
    one = only(written(done, records))
    assert (one.severity, one.kind) == ("warning", "hanging-transaction")
    assert (one.partition, one.offset) == ("orders-0", 0)
    assert one.reason.endswith(
        f"that nobody has in hand: {why}; triglot transactions abort --topic-partition orders-0 "
        "--start-offset 0"
    )


@pytest.mark.parametrize(
    ("done", "records", "why"),
    [
        pytest.param(OPEN, [state("bank", 7, S.EMPTY)], "'bank' is in state Empty", id="empty"),
        pytest.param(
            OPEN, [state("bank", 7, partitions=[1])], "'bank' names other partitions", id="others"
        ),
        pytest.param(
            OPEN, [state("bank", 7, epoch=1)], "'bank' has gone on to epoch 1", id="older epoch"
        ),
        pytest.param(
            [*ENDED, (0, 7, "batch", 0)],
            [
                state("bank", 7, S.PREPARE_COMMIT, ends=[1]),
                state("bank", 7, S.COMPLETE_COMMIT, partitions=[]),
            ],
            "'bank' is in state CompleteCommit",
            id="a batch after the end",
        ),
        pytest.param(
            OPEN,
            [
                state("bank", 7, S.PREPARE_COMMIT),
                state("bank", 7, S.COMPLETE_COMMIT, partitions=[]),
            ],
            "'bank' is in state CompleteCommit",
            id="ended by Apache Kafka, which does not say how far",
        ),
    ],
)
def test_what_a_start_of_ours_would_end_hangs_with_apache_kafka(
    done: list[Done], records: list[Record], why: str
) -> None:
    one = only(written(done, records))
    assert (one.severity, one.kind, one.partition) == ("warning", "hanging-transaction", "orders-0")
    assert one.reason.endswith(f"{why}; a start of triglot ends it, Apache Kafka never does")


@pytest.mark.parametrize("epoch", [0, 1], ids=["tv1", "tv2"])
def test_a_marker_that_is_missing_after_a_complete_end_is_found(epoch: int) -> None:
    records = [
        state("bank", 7, S.PREPARE_ABORT, epoch=epoch, partitions=[0, 1], ends=[1, 0]),
        state("bank", 7, S.COMPLETE_ABORT, epoch=epoch, partitions=[]),
    ]
    one = only(written(OPEN, records))
    assert (one.severity, one.kind) == ("warning", "marker-missing")
    assert (one.partition, one.offset) == ("orders-0", 0)
    assert "was ended by 'bank' (now CompleteAbort) and has no marker" in one.reason


def test_a_marker_is_missing_too_where_the_id_has_another_producer_since() -> None:
    records = [
        state("bank", 7, S.PREPARE_COMMIT, epoch=32767, ends=[1]),
        state("bank", 9, S.COMPLETE_COMMIT, partitions=[]),
    ]
    one = only(written([(0, 7, "batch", 32766)], records))
    assert one.kind == "marker-missing"


def test_the_marker_of_an_end_before_the_last_is_missed_too() -> None:
    records = [
        state("bank", 7, S.PREPARE_COMMIT, ends=[1]),
        state("bank", 7, partitions=[1]),
        state("bank", 7, S.PREPARE_ABORT, partitions=[1], ends=[0]),
        state("bank", 7, S.COMPLETE_ABORT, partitions=[]),
    ]
    one = only(written(OPEN, records))
    assert (one.kind, one.partition, one.offset) == ("marker-missing", "orders-0", 0)


@pytest.mark.parametrize(
    ("opened", "end"),
    [
        pytest.param(OPEN, state("bank", 7, S.PREPARE_COMMIT, ends=[1], led_in=-1), id="led later"),
        pytest.param(
            [(0, 7, "batch", 1)],
            state("bank", 7, S.PREPARE_COMMIT, ends=[1]),
            id="of a later epoch",
        ),
        pytest.param(
            [(0, 7, "batch", 1)],
            state(
                *("bank", 7, S.PREPARE_COMMIT),
                epoch=1,
                ends=[1],
                version=1,
                client_transaction_version=2,
            ),
            id="of a later epoch, tv2",
        ),
    ],
)
def test_what_was_opened_after_an_end_was_not_ended_by_it(opened: list[Done], end: Record) -> None:
    """A log that lost its end has begun again below the offset that the record names."""
    records = [end, state("bank", 7, S.COMPLETE_COMMIT, epoch=1, partitions=[])]
    assert only(written(opened, records)).kind == "hanging-transaction"


@pytest.mark.parametrize("epoch", [0, 1], ids=["tv1", "tv2"])
def test_an_end_that_is_decided_is_a_note(epoch: int) -> None:
    records = [state("bank", 7, S.PREPARE_COMMIT, epoch=epoch, partitions=[0, 1], ends=[1, 0])]
    one = only(written(OPEN, records))
    assert (one.severity, one.kind) == ("note", "unfinished-end")
    assert (one.partition, one.offset) == ("__transaction_state-0", 0)
    assert one.reason == (
        "'bank' is in state PrepareCommit, in 2 partitions: the next start finishes it"
    )


def test_a_transaction_whose_time_is_up_is_a_note() -> None:
    contents = written(OPEN, [state("bank", 7)])
    assert found(contents, now_ms=NOW_MS + TIMEOUT_MS) == []
    assert found(contents, now_ms=None) == []
    one = only(contents, now_ms=NOW_MS + TIMEOUT_MS + 1)
    assert (one.severity, one.kind) == ("note", "time-out")
    assert "open for longer than its 60000 ms: the next start aborts it" in one.reason


def test_where_the_state_topic_never_was_nobody_ends_anything() -> None:
    assert only(written(OPEN, [], state_topic=False)).kind == "hanging-transaction"


def test_where_a_part_of_the_state_topic_is_elsewhere_an_unknown_producer_says_nothing() -> None:
    contents = written(OPEN, [state("other", 8)])
    here = {name: data for name, data in contents.items() if "__transaction_state-0/" not in name}
    assert "hanging-transaction" not in {one.kind for one in found(here)}


def test_where_records_of_the_state_topic_are_damaged_an_unknown_producer_says_nothing() -> None:
    contents = written(OPEN, [state("bank", 7), state("other", 8)])
    data = bytearray(contents[STATE_LOG])
    data[100] ^= 1
    kinds = {one.kind for one in found(contents | {STATE_LOG: bytes(data)})}
    assert "checksum" in kinds
    assert "hanging-transaction" not in kinds


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ((NOW_MS, b"\x00\x05abc", b"", ()), "a key of version 5, known is 0"),
        ((NOW_MS, encode_key("bank"), b"\x00\x00", ()), "a value of 2 bytes"),
        ((NOW_MS, encode_key("bank"), b"\x00\x00" + bytes(14) + b"\x63", ()), "state 99 of 'bank'"),
        ((NOW_MS, encode_key("bank"), b"\x00\x00" + bytes(14) + b"\x01", ()), "'bank': Transact"),
    ],
)
def test_a_record_that_makes_no_sense_is_found(record: Record, said: str) -> None:
    one = only(written([], [record]))
    assert (one.severity, one.kind) == ("warning", "transaction-state")
    assert (one.partition, one.offset) == ("__transaction_state-0", 0)
    assert said in one.reason
    assert "a start passes over it" in one.reason


def test_of_many_that_hang_in_one_partition_most_are_only_counted() -> None:
    hanging = found(written([(0, number, "batch", 0) for number in range(PRODUCER_IDS)], []))
    assert len(hanging) == ALIKE_MAX + 1
    assert hanging[-1].reason == f"{PRODUCER_IDS - ALIKE_MAX} more findings of the kind " + (
        "hanging-transaction"
    )
