"""Two-phase commits (KIP-939): no time-out, and a transaction that outlives its producer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker.coordinator.transactions import transaction as machine
from broker.coordinator.transactions.transaction import LAST_EPOCH, TV1, TV2
from protocol.errors import ErrorCode
from protocol.logdata.transactions import TransactionState, decode_value, encode_value
from tests.coordinator.transactions.test_machine import (
    ID,
    NOW,
    A,
    add,
    end,
    finished,
    init,
    new_ids,
    opened,
    refusal,
)
from tests.coordinator.transactions.world import TIMEOUT_MS, TOPIC, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAST = LAST_EPOCH - 1
"""The last epoch of a producer."""
NEW = 1000
"""The first id that is new in these tests."""

# The machine


def test_who_keeps_a_transaction_has_the_next_epoch_and_is_told_that_of_the_transaction() -> None:
    open_ = opened(A, epoch=5, version=TV2)

    kept = init(open_, keep=True)
    again = init(kept, keep=True)

    assert (kept.client, again.client) == ((ID, 6), (ID, 7))
    for one in (kept, again):
        assert (one.state, one.producer_id, one.epoch) == (TransactionState.ONGOING, ID, 5)
        assert (one.partitions, one.start_ms) == (open_.partitions, open_.start_ms)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("version", "marker", "after"), [(TV1, 5, 7), (TV2, 6, 8)])
def test_its_markers_are_of_the_epoch_of_its_batches(
    commit: bool, version: int, marker: int, after: int
) -> None:
    kept = init(init(opened(A, epoch=5, version=version), keep=True), keep=True)

    decided = end(kept, commit=commit, version=version)

    assert decided is not None
    assert (decided.producer_id, decided.epoch) == (ID, marker)
    ended = machine.completed(decided, now_ms=NOW)
    assert (ended.client, ended.is_kept, ended.is_commit) == ((ID, after), False, commit)


@pytest.mark.parametrize(
    ("epoch", "keeps", "client", "ended"),
    [
        (LAST, 1, (NEW, 0), (NEW, 1)),
        (LAST, 2, (NEW, 1), (NEW, 2)),
        (LAST - 1, 1, (ID, LAST), (NEW, 0)),
        (LAST - 1, 2, (NEW, 0), (NEW, 1)),
    ],
)
def test_an_id_whose_epochs_are_used_up_is_changed_for_another(
    epoch: int, keeps: int, client: tuple[int, int], ended: tuple[int, int]
) -> None:
    kept = opened(A, epoch=epoch, version=TV2)
    for _ in range(keeps):
        kept = init(kept, keep=True)
    assert kept.client == client

    decided = end(kept, version=TV2)

    assert decided is not None
    assert (decided.producer_id, decided.epoch) == (ID, epoch + 1)
    after = machine.completed(decided, now_ms=NOW)
    assert after.client == ended
    # Whose answer was lost asks again.
    assert refusal(lambda: end(decided, client, version=TV2)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert end(after, client, version=TV2) is None


def test_who_began_it_is_fenced_and_nothing_is_added_to_it() -> None:
    open_ = opened(A, epoch=5, version=TV2)
    kept = init(open_, keep=True)

    for version in (TV1, TV2):
        assert refusal(lambda: end(kept, (ID, 5), version=version)) is ErrorCode.PRODUCER_FENCED  # noqa: B023
        assert refusal(lambda: end(kept, (ID, 7), version=version)) is ErrorCode.PRODUCER_FENCED  # noqa: B023
    assert refusal(lambda: add(kept, A)) is ErrorCode.PRODUCER_FENCED
    by_client = (
        lambda: machine.verify(kept, ID, 6, pending=False),
        lambda: machine.added(kept, ID, 6, [A], pending=False, client_version=TV2, now_ms=NOW),
    )
    assert [refusal(call) for call in by_client] == [ErrorCode.INVALID_TXN_STATE] * 2


def test_who_says_its_id_and_epoch_may_ask_twice_and_others_are_fenced() -> None:
    open_ = opened(A, epoch=5, version=TV2)

    kept = init(open_, (ID, 5), keep=True)

    assert kept.client == init(kept, (ID, 5), keep=True).client == (ID, 6)
    assert init(kept, (ID, 6), keep=True).client == (ID, 7)
    for expected in ((ID, 4), (ID + 1, 6)):
        fenced = refusal(lambda: init(kept, expected, keep=True))  # noqa: B023
        assert fenced is ErrorCode.PRODUCER_FENCED
    # Epoch 5 is in use, so who asks with the one before has been followed by another.
    followed = add(finished(opened(A, epoch=4, version=TV2), version=TV2), A, version=TV2)
    assert followed is not None
    assert refusal(lambda: init(followed, (ID, 4), keep=True)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(("version", "marker"), [(TV1, 6), (TV2, 6)])
def test_an_instance_that_does_not_keep_it_has_it_aborted(version: int, marker: int) -> None:
    kept = init(opened(A, epoch=5, version=TV2), keep=True)

    decided = init(kept, version=version)

    assert decided.state is TransactionState.PREPARE_ABORT
    assert (decided.producer_id, decided.epoch) == (ID, marker)
    after = machine.completed(decided, now_ms=NOW)
    assert after.client == (ID, 7)  # the client's own 6 is fenced, too
    assert init(after).client == (ID, 8)


def test_an_abort_by_time_without_an_id_at_hand_leaves_the_new_one_to_the_next_instance() -> None:
    kept = init(opened(A, epoch=LAST - 1, version=TV2), keep=True)
    decided = machine.fenced(kept, new_producer_id=lambda: -1, transaction_version=TV2, now_ms=NOW)
    after = machine.completed(decided, now_ms=NOW)
    assert after.client == (ID, LAST_EPOCH)
    assert init(after).client == (NEW, 0)


def test_keeping_nothing_is_to_begin() -> None:
    after = init(finished(opened(A, epoch=5, version=TV2), version=TV2), keep=True)
    assert (after.client, after.is_kept, after.state) == ((ID, 7), False, TransactionState.EMPTY)
    decided = end(opened(A), version=TV2)
    assert decided is not None
    assert refusal(lambda: init(decided, keep=True)) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_what_was_prepared_has_the_longer_of_two_time_outs() -> None:
    open_ = opened(A, version=TV2)._replace(timeout_ms=machine.NO_TIMEOUT_MS)
    for asked_ms in (5, machine.NO_TIMEOUT_MS):
        kept = machine.initialized(
            open_,
            timeout_ms=asked_ms,
            expected=None,
            new_producer_id=new_ids(),
            transaction_version=TV2,
            now_ms=NOW,
            keep=True,
        )
        assert kept.timeout_ms == machine.NO_TIMEOUT_MS


def test_records_tell_both_ids() -> None:
    kept = init(opened(A, epoch=LAST, version=TV2), keep=True)
    decided = end(kept, version=TV2)
    assert decided is not None
    for state in (kept, decided):
        value = decode_value(encode_value(machine.to_value(state), 1))
        assert machine.from_value(value) == state._replace(last_epoch=-1)


# With partitions


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    settings = {"transaction.two.phase.commit.enable": "true"}
    with World(tmp_path / "data", version=TV2, **settings) as found:
        yield found


def test_a_transaction_of_a_two_phase_commit_has_no_time_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.begin(two_phase=True)
    world.write(producer, 0)
    other = world.begin("y")
    world.add(other, 1, transactional_id="y")

    later_ms = world.runtime.now_ms() + 10 * TIMEOUT_MS
    monkeypatch.setattr(world.runtime, "now_ms", lambda: later_ms)
    world.runtime.look_for_timed_out()

    world.turn_until(lambda: world.is_in("CompleteAbort", "y"))
    assert world.state() == "Ongoing"
    assert world.end(producer, version=TV2) == (producer[0], 1)
    assert world.content(0) == ["data", "commit"]


def test_it_is_off_unless_configured_and_keeping_needs_the_form_of_records_that_has_it(
    tmp_path: Path,
) -> None:
    with World(tmp_path / "off") as world:
        for keep in (False, True):
            code = refusal(lambda: world.begin(two_phase=True, keep=keep))  # noqa: B023
            assert code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert refusal(lambda: world.begin(keep=True)) is ErrorCode.UNSUPPORTED_VERSION
        world.version = 1
        assert world.begin(keep=True)[1] == 0


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_prepared_is_ended_after_two_crashes(
    world: World, tmp_path: Path, commit: bool
) -> None:
    producer = world.begin(two_phase=True)
    world.write(producer, 0, 1)

    with world.crashed(tmp_path / "one") as first:
        first.start()
        assert first.state() == "Ongoing"
        assert first.begin(two_phase=True, keep=True) == (producer[0], 1)
        with first.crashed(tmp_path / "two") as second:
            second.start()
            now = second.runtime.known("x")[1]
            assert (now.client, now.producer_id, now.epoch) == ((producer[0], 1), *producer)
            kept = second.begin(two_phase=True, keep=True)
            assert kept == (producer[0], 2)
            assert second.end(kept, commit=commit, version=TV2) == (producer[0], 3)
            marker = "commit" if commit else "abort"
            assert [second.content(index) for index in (0, 1)] == [["data", marker]] * 2
            second.write((producer[0], 3), 0)
            second.end((producer[0], 3), version=TV2)
            assert second.content(0) == ["data", marker, "data", "commit"]


@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_crash_at_each_step_of_the_end_of_a_kept_one_leaves_it_undecided_or_finished(
    world: World, tmp_path: Path, version: int
) -> None:
    world.write(world.begin(two_phase=True), 0, 1, 2)
    kept = world.begin(two_phase=True, keep=True)
    crashed = [world.crashed(tmp_path / "before")]
    world.participants.before = lambda: crashed.append(
        world.crashed(tmp_path / f"step-{len(crashed)}")
    )

    world.end(kept, version=version)
    crashed.append(world.crashed(tmp_path / "after", {0: 1, 1: 1}))

    assert len(crashed) == 5
    for after in crashed:
        with after:
            after.start()
            # The client has not been answered, and asks again.
            after.end(kept, version=version)
            assert [after.content(index) for index in range(3)] == [["data", "commit"]] * 3
            assert after.state() == "CompleteCommit"
            assert not any(after.is_open(index) for index in range(3))


def test_a_kept_transaction_whose_partitions_the_record_lacks_has_them_again(
    world: World, tmp_path: Path
) -> None:
    """As when a loss of power takes the record of the transaction, and not its batches."""
    producer = world.begin(two_phase=True)
    world.append(producer, 0)
    with world.crashed(tmp_path / "after") as after:
        after.start()
        assert after.state() == "Ongoing"
        kept = after.begin(two_phase=True, keep=True)
        assert after.runtime.known("x")[1].partitions == {(TOPIC, 0): None}
        after.append(producer, 1)
        with after.crashed(tmp_path / "again") as again:
            again.start()
            assert again.end(kept, version=TV2) == (producer[0], 2)
            assert [again.content(index) for index in (0, 1)] == [["data", "commit"]] * 2


def test_a_batch_of_the_producer_before_is_not_taken_for_part_of_a_transaction_that_is_kept(
    world: World,
) -> None:
    producer_id, epoch = producer = world.begin()
    world.write(producer, 0)
    assert world.coordinator.includes("x", producer_id, epoch, (TOPIC, 0))

    kept = world.begin(keep=True)

    assert not world.coordinator.includes("x", producer_id, epoch, (TOPIC, 0))
    for adds in (False, True):
        verify = partial(world.coordinator.verify, "x", *producer, [(TOPIC, 0)], add=adds)
        assert refusal(verify) is ErrorCode.INVALID_PRODUCER_EPOCH
    world.end(kept, version=TV2)
    assert world.content(0) == ["data", "commit"]
