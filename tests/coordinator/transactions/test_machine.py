"""A transactional id as a machine, without I/O."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest

from broker.coordinator.transactions import transaction as machine
from broker.coordinator.transactions.transaction import LAST_EPOCH, TV1, TV2, Expected, Transaction
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.transactions import TransactionState, decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_700_000_000_000
A, B = ("t", 0), ("u", 3)
ID = 7
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT


def new_ids() -> Callable[[], int]:
    numbers = count(1000)
    return lambda: next(numbers)


def begun(epoch: int = 0, *, timeout_ms: int = 5000) -> Transaction:
    """An instance that has just begun, with this epoch."""
    before = machine.first(ID, timeout_ms, NOW)._replace(epoch=epoch - 1)
    return init(before)


def init(
    before: Transaction,
    expected: tuple[int, int] | None = None,
    *,
    version: int = TV1,
    keep: bool = False,
) -> Transaction:
    return machine.initialized(
        before,
        timeout_ms=before.timeout_ms,
        expected=None if expected is None else Expected(*expected),
        new_producer_id=new_ids(),
        transaction_version=version,
        now_ms=NOW,
        keep=keep,
    )


def add(
    before: Transaction, *partitions: tuple[str, int], version: int = TV1, now_ms: int = NOW
) -> Transaction | None:
    return machine.added(
        before,
        before.producer_id,
        before.epoch,
        partitions,
        pending=False,
        client_version=version,
        now_ms=now_ms,
    )


def opened(*partitions: tuple[str, int], epoch: int = 0, version: int = TV1) -> Transaction:
    after = add(begun(epoch), *partitions, version=version)
    assert after is not None
    return after


def end(
    before: Transaction,
    producer: tuple[int, int] | None = None,
    *,
    commit: bool = True,
    version: int = TV1,
    pending: bool = False,
) -> Transaction | None:
    producer_id, epoch = producer or before.client
    return machine.ended(
        before,
        producer_id,
        epoch,
        commit=commit,
        pending=pending,
        client_version=version,
        new_producer_id=new_ids(),
        now_ms=NOW,
    )


def finished(before: Transaction, *, commit: bool = True, version: int = TV1) -> Transaction:
    decided = end(before, commit=commit, version=version)
    assert decided is not None
    return machine.completed(decided, now_ms=NOW)


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def test_the_first_instance_has_epoch_0_and_each_that_follows_one_more() -> None:
    first = begun()
    second = init(first)

    assert (first.producer_id, first.epoch, second.producer_id, second.epoch) == (ID, 0, ID, 1)
    assert first.state is second.state is TransactionState.EMPTY


def test_an_instance_that_goes_on_after_an_error_may_ask_twice() -> None:
    after = init(begun(4), (ID, 4))

    assert (after.epoch, init(after, (ID, 4)).epoch) == (5, 5)
    assert refusal(lambda: init(after, (ID, 3))) is ErrorCode.PRODUCER_FENCED
    assert refusal(lambda: init(init(after), (ID, 4))) is ErrorCode.PRODUCER_FENCED
    assert refusal(lambda: init(after, (ID + 1, 5))) is ErrorCode.PRODUCER_FENCED


def test_an_instance_after_the_last_epoch_has_another_id_and_may_ask_for_it_twice() -> None:
    last = begun(LAST_EPOCH - 1)

    other = init(last, (ID, LAST_EPOCH - 1))

    assert (other.producer_id, other.epoch, other.previous_producer_id) == (1000, 0, ID)
    again = init(other, (ID, LAST_EPOCH - 1))
    assert (again.producer_id, again.epoch) == (1000, 0)
    assert (init(last).producer_id, init(last).epoch) == (1000, 0)


def test_no_instance_ever_gets_the_epoch_that_fences_the_last_one() -> None:
    before = begun(LAST_EPOCH - 2)
    last = init(before, (ID, LAST_EPOCH - 2))
    assert init(last, (ID, LAST_EPOCH - 2)).epoch == LAST_EPOCH - 1
    for version, epoch in ((TV1, 0), (TV2, 1)):
        fenced = init(opened(A, epoch=LAST_EPOCH - 1), version=version)
        assert (fenced.producer_id, fenced.epoch) == (ID, LAST_EPOCH)
        after = init(machine.completed(fenced, now_ms=NOW))
        assert (after.producer_id, after.epoch) == (1000, epoch)


def test_a_fencing_of_the_last_epoch_without_an_id_at_hand_leaves_it_to_the_next_instance() -> None:
    fenced = machine.fenced(
        opened(A, epoch=LAST_EPOCH - 1),
        new_producer_id=lambda: -1,
        transaction_version=TV2,
        now_ms=NOW,
    )
    aborted = machine.completed(fenced, now_ms=NOW)
    assert (aborted.producer_id, aborted.epoch) == (ID, LAST_EPOCH)
    assert (init(aborted).producer_id, init(aborted).epoch) == (1000, 0)


def test_an_instance_that_comes_amid_a_transaction_has_it_aborted_in_a_higher_epoch() -> None:
    for version in (TV1, TV2):
        fenced = init(opened(A, B), version=version)

        assert fenced.state is TransactionState.PREPARE_ABORT
        assert (fenced.epoch, list(fenced.partitions)) == (1, [A, B])
        assert refusal(partial(init, fenced)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert refusal(partial(end, fenced, (ID, 0))) in {
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_TXN_STATE,
        }


def test_a_transaction_begins_with_its_first_partition_and_not_again_with_others() -> None:
    first = opened(A)
    more = add(first, A, B, now_ms=NOW + 5)

    assert more is not None
    assert (more.start_ms, more.update_ms) == (NOW, NOW + 5)
    assert list(more.partitions) == [A, B]
    assert add(more, B) is None


def test_partitions_are_added_by_the_last_instance_alone_and_not_amid_an_end() -> None:
    now = begun(3)
    for producer, code in (
        ((ID + 1, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((ID, 2), ErrorCode.PRODUCER_FENCED),
        ((ID, 4), ErrorCode.PRODUCER_FENCED),
    ):
        for pending in (False, True):
            added = partial(machine.added, client_version=TV1, now_ms=NOW, pending=pending)
            assert refusal(partial(added, now, *producer, [A])) is code
    decided = end(opened(A))
    assert decided is not None
    assert refusal(lambda: add(decided, A)) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_end_of_tv1_keeps_the_epoch_and_one_of_tv2_raises_it() -> None:
    for commit, state in ((True, COMPLETE_COMMIT), (False, COMPLETE_ABORT)):
        for version, epoch in ((TV1, 0), (TV2, 1)):
            after = finished(opened(A, version=version), commit=commit, version=version)

            assert (after.state, after.epoch, after.partitions) == (state, epoch, {})


NONE = None
ITS, PF = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED
EMPTY_5 = begun(5)
COMMITTED_TV2 = finished(opened(A, epoch=4, version=TV2), version=TV2)
ABORTED_TV2 = finished(opened(A, epoch=4, version=TV2), commit=False, version=TV2)


# KIP-890: an end by the epoch before is a repetition, one by the epoch of now is the next.
@pytest.mark.parametrize(
    ("now", "commit", "epoch", "outcome"),
    [
        (EMPTY_5, False, 4, PF),
        (EMPTY_5, False, 5, 6),
        (EMPTY_5, True, 4, PF),
        (EMPTY_5, True, 5, ITS),
        (ABORTED_TV2, False, 4, NONE),
        (ABORTED_TV2, False, 5, 6),
        (ABORTED_TV2, True, 4, ITS),
        (ABORTED_TV2, True, 5, ITS),
        (COMMITTED_TV2, False, 4, ITS),
        (COMMITTED_TV2, False, 5, 6),
        (COMMITTED_TV2, True, 4, NONE),
        (COMMITTED_TV2, True, 5, ITS),
        (COMMITTED_TV2, True, 3, PF),
    ],
)
def test_an_end_of_tv2_without_partitions_is_taken_refused_or_known(
    now: Transaction, commit: bool, epoch: int, outcome: int | None
) -> None:
    if isinstance(outcome, ErrorCode):
        assert refusal(lambda: end(now, (ID, epoch), commit=commit, version=TV2)) is outcome
        return
    after = end(now, (ID, epoch), commit=commit, version=TV2)
    assert (after and after.epoch) == outcome
    if after is not None:
        assert (after.state, after.start_ms) == (TransactionState.PREPARE_ABORT, NOW)


@pytest.mark.parametrize("version", [TV1, TV2])
def test_an_end_that_is_asked_for_again_before_it_is_complete_has_to_wait(version: int) -> None:
    before = opened(A, epoch=4, version=version)
    decided = end(before, version=version)
    assert decided is not None

    again = (ID, 4)
    assert refusal(lambda: end(decided, again, version=version)) is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )
    assert refusal(lambda: end(decided, again, commit=False, version=version)) is ITS
    # While the decision is on its way to the disk, the state is the one before.
    assert refusal(lambda: end(before, again, version=version, pending=True)) is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )


def test_an_end_of_tv1_fits_what_was_decided_or_is_refused() -> None:
    committed, aborted = finished(opened(A)), finished(opened(A), commit=False)

    assert end(committed) is None
    assert end(aborted, commit=False) is None
    assert refusal(lambda: end(committed, commit=False)) is ITS
    assert refusal(lambda: end(aborted)) is ITS
    assert refusal(lambda: end(begun())) is ITS
    assert refusal(lambda: end(begun(), commit=False)) is ITS
    assert refusal(lambda: end(opened(A), (ID, 1))) is PF


def test_an_end_in_the_last_epoch_of_tv2_hands_over_to_another_producer_id() -> None:
    decided = end(opened(A, epoch=LAST_EPOCH - 1, version=TV2), version=TV2)
    assert decided is not None
    assert (decided.producer_id, decided.epoch) == (ID, LAST_EPOCH)
    assert decided.next_producer_id == 1000

    after = machine.completed(decided, now_ms=NOW)

    assert (after.producer_id, after.epoch, after.next_producer_id) == (1000, 0, -1)
    assert after.previous_producer_id == ID
    # The answer was lost: the old id asks again.
    assert end(after, (ID, LAST_EPOCH - 1), version=TV2) is None
    assert refusal(lambda: end(after, (ID, LAST_EPOCH - 1), commit=False, version=TV2)) is ITS
    assert refusal(lambda: end(after, (ID, 5), version=TV2)) is (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )


def test_an_id_expires_by_its_last_use_and_never_amid_a_transaction() -> None:
    for now in (begun(), finished(opened(A))):
        assert not machine.is_expired(now, now_ms=NOW + 999, after_ms=1000)
        assert machine.is_expired(now, now_ms=NOW + 1000, after_ms=1000)
    decided = end(opened(A))
    assert decided is not None
    for now in (opened(A), decided):
        assert not machine.is_expired(now, now_ms=NOW + 10**9, after_ms=1000)


def test_the_time_of_the_last_use_never_goes_back() -> None:
    after = add(begun(), A, now_ms=NOW - 5000)

    assert after is not None
    assert after.update_ms == NOW


@pytest.mark.parametrize("version", [0, 1])
def test_a_state_is_read_back_from_its_record(version: int) -> None:
    decided = end(opened(A, B, ("t", 2), epoch=LAST_EPOCH - 1, version=TV2), version=TV2)
    assert decided is not None
    for now in (begun(), opened(A), decided, machine.completed(decided, now_ms=NOW)):
        raw = encode_value(machine.to_value(now), version)

        found = machine.from_value(decode_value(raw))

        assert found.partitions == now.partitions
        assert found[:5] == now[:5]
        if version:
            assert found._replace(last_epoch=now.last_epoch) == now
