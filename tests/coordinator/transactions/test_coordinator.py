"""The coordinator at work: what is told while an end is under way, failing disks, time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker.coordinator.transactions import ends
from broker.coordinator.transactions.transaction import TV2
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.transactions import TransactionState
from storage.errors import StorageError
from tests.coordinator.transactions.world import STATE_TOPIC, TIMEOUT_MS, TOPIC, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "data") as found:
        yield found


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def refuse_writes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes no more records of the state topic."""

    def write() -> None:
        raise StorageError("no room")

    log = world.partition(0, STATE_TOPIC).log
    monkeypatch.setattr(type(log), "append", lambda *_, **__: write())


def test_no_marker_is_written_before_its_decision_is_on_the_disk(world: World) -> None:
    producer = world.begin()
    world.write(producer, 0)
    log = world.partition(0, STATE_TOPIC).log
    synced: list[bool] = []
    world.participants.before = lambda: synced.append(log.recovery_point >= log.written_offset)

    told = world.ask_end(producer)

    assert (world.participants.asked, told) == ([], [])
    world.turn_until(lambda: bool(told))
    assert synced == [True]
    assert told == [(ErrorCode.NONE, *producer)]
    assert world.content(0) == ["data", "commit"]


def test_a_client_is_told_before_the_markers_and_nothing_is_handled_between(world: World) -> None:
    producer = world.begin()
    world.write(producer, 0)
    before: list[tuple[bool, str]] = []
    turned: list[None] = []
    world.participants.before = lambda: before.append((bool(turned), world.state()))

    def done(*outcome: object) -> None:
        assert world.content(0) == ["data"]
        world.parts.loop.call_soon(turned.append, None)

    world.runtime.end("x", *producer, commit=True, client_version=TV2, done=done)
    world.turn_until(lambda: bool(turned))

    assert before == [(False, "PrepareCommit")]
    assert world.content(0) == ["data", "commit"]


def test_complete_is_written_soon_but_for_what_follows_at_once(world: World) -> None:
    producer = world.begin()
    for _ in range(3):
        world.add(producer, 0)
        world.end(producer)
        assert world.state() == "CompleteCommit"

    transactions = ["Ongoing", "PrepareCommit"] * 3
    assert world.written() == ["Empty", *transactions]
    world.turn_until(lambda: world.written() == ["Empty", *transactions, "CompleteCommit"])


def test_a_stop_writes_what_is_complete(tmp_path: Path) -> None:
    with World(tmp_path / "data") as world:
        producer = world.begin()
        world.add(producer, 0)
        world.end(producer)
        world.coordinator.stop()
        assert world.written()[-1] == "CompleteCommit"


def test_complete_is_written_later_where_a_disk_refuses_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.begin()
    world.write(producer, 0)
    world.end(producer)
    monkeypatch.setattr(ends, "RETRY_S", 0.01)
    with monkeypatch.context() as patched:
        refuse_writes(world, patched)
        world.runtime.ends.write_completed()
        assert world.state() == "CompleteCommit"

    world.turn_until(lambda: world.written()[-1] == "CompleteCommit")


def test_an_id_that_was_forgotten_is_not_written_any_more(world: World) -> None:
    producer = world.begin()
    world.add(producer, 0)
    world.end(producer)
    world.now_ms += 604_800_000
    world.runtime.look_for_expired()
    world.turn_until(lambda: world.runtime.expired == 1)

    world.runtime.ends.write_completed()

    assert world.written() == ["Empty", "Ongoing", "PrepareCommit", "None"]


def test_where_nobody_waits_for_the_disk_an_end_is_told_at_once(tmp_path: Path) -> None:
    with World(tmp_path / "data", log_flush_policy="os") as world:
        producer = world.begin()
        world.write(producer, 0)
        assert world.ask_end(producer) == [(ErrorCode.NONE, *producer)]
        assert world.content(0) == ["data", "commit"]


def test_while_a_decision_is_on_its_way_others_are_told_to_come_again(world: World) -> None:
    producer = world.begin()
    world.write(producer, 0)
    told = world.ask_end(producer)

    for call in (
        lambda: world.add(producer, 1),
        lambda: world.ask_end(producer),
        lambda: world.ask_end(producer, commit=False),
        lambda: world.begin(),
        lambda: world.coordinator.verify("x", *producer, [(TOPIC, 0)], add=False),
        lambda: world.coordinator.verify("x", *producer, [(TOPIC, 1)], add=True),
    ):
        assert refusal(call) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.now_ms += 10 * TIMEOUT_MS
    world.runtime.look_for_timed_out()
    world.turn_until(lambda: bool(told))
    assert world.content(0) == ["data", "commit"]


def test_a_decision_that_was_not_synced_is_told_as_a_coordinator_that_is_not_available(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.begin()
    world.write(producer, 0)
    group_commit = world.parts.group_commit
    log = world.partition(0, STATE_TOPIC).log
    monkeypatch.setattr(
        type(group_commit), "wait", lambda _, logs, done: done(dict.fromkeys(logs, "it broke"))
    )

    told = world.ask_end(producer)

    assert told == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)]
    assert log.failed is None
    assert world.content(0) == ["data"]
    assert world.state() == "Ongoing"


def test_a_disk_that_refuses_a_decision_leaves_the_transaction_open(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.begin()
    world.write(producer, 0)
    with monkeypatch.context() as patched:
        refuse_writes(world, patched)
        for call in (
            lambda: world.ask_end(producer),
            lambda: world.add(producer, 1),
            lambda: world.begin(),
        ):
            assert refusal(call) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.state() == "Ongoing"

    world.end(producer)
    assert world.content(0) == ["data", "commit"]


def test_a_partition_that_refuses_its_marker_gets_it_later_and_nothing_begins_meanwhile(
    world: World,
) -> None:
    producer = world.begin()
    world.write(producer, 0, 1)
    world.participants.refusing = {(TOPIC, 1)}

    world.end(producer)  # which has been decided

    assert world.state() == "PrepareCommit"
    assert refusal(lambda: world.add(producer, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.participants.refusing.clear()
    world.turn_until(lambda: world.state() == "CompleteCommit")
    assert [world.content(0), world.content(1)] == [["data", "commit"]] * 2
    assert world.participants.asked[1] == (producer, True, [(TOPIC, 1)])


def test_a_transaction_whose_time_is_up_is_aborted_and_its_producer_fenced(world: World) -> None:
    for version, transactional_id in enumerate(("a", "b", "c")):
        world.version = version
        producer = world.begin(transactional_id)
        world.add(producer, version, transactional_id=transactional_id)
        world.append(producer, version)
        world.runtime.look_for_timed_out()
        assert world.state(transactional_id) == "Ongoing"
        deadlines = world.runtime._deadlines_ms
        assert world.runtime.now_ms() < deadlines[transactional_id]
        assert deadlines[transactional_id] <= world.runtime.now_ms() + TIMEOUT_MS
        deadlines[transactional_id] = 0

        world.runtime.look_for_timed_out()

        world.turn_until(partial(world.is_in, "CompleteAbort", transactional_id))
        assert world.content(version) == ["data", "abort"]
        code = refusal(partial(world.ask_end, producer, name=transactional_id))
        assert code is ErrorCode.PRODUCER_FENCED
        assert world.begin(transactional_id) == (producer[0], 2)
    assert world.runtime.aborted == 3


def test_a_restart_gives_an_open_transaction_the_time_that_it_had_left(
    world: World, tmp_path: Path
) -> None:
    producer = world.begin()
    world.write(producer, 0)

    for passed_ms in (0, 20_000, 10 * TIMEOUT_MS, -10 * TIMEOUT_MS):
        with world.crashed(tmp_path / f"after-{passed_ms}") as after:
            after.now_ms = world.now_ms + passed_ms
            after.start()
            left_ms = after.runtime._deadlines_ms["x"] - after.runtime.now_ms()
            expected_ms = min(max(TIMEOUT_MS - passed_ms, 0), TIMEOUT_MS)
            assert expected_ms - 1000 <= left_ms <= expected_ms


def test_ids_that_nobody_uses_are_forgotten_for_good(world: World, tmp_path: Path) -> None:
    kept = world.begin("open")
    world.add(kept, 0, transactional_id="open")
    ids = [f"id-{number}" for number in range(600)]
    for transactional_id in ids:
        world.begin(transactional_id)
    world.now_ms += 604_800_000 - 1
    world.runtime.look_for_expired()
    world.turn_until(lambda: not world.runtime._slicer.is_running)
    assert world.runtime.expired == 0

    world.now_ms += 1
    world.runtime.look_for_expired()
    world.turn_until(lambda: not world.runtime._slicer.is_running)

    assert world.runtime.expired == len(ids)
    assert [name for name, _ in world.runtime.all()] == ["open"]
    with world.crashed(tmp_path / "after") as after:
        after.start()
        assert [name for name, _ in after.runtime.all()] == ["open"]
        assert after.begin("id-1")[1] == 0


def test_produce_is_told_whether_its_partition_belongs_to_the_transaction(world: World) -> None:
    verify = world.coordinator.verify
    assert refusal(lambda: verify("x", 1, 0, [(TOPIC, 0)], add=False)) is (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    producer = world.begin()
    world.add(producer, 0)

    verify("x", *producer, [(TOPIC, 0)], add=False)
    for call, code in (
        (
            lambda: verify("x", *producer, [(TOPIC, 0), (TOPIC, 1)], add=False),
            ErrorCode.TRANSACTION_ABORTABLE,
        ),
        (
            lambda: verify("x", producer[0], producer[1] + 1, [(TOPIC, 0)], add=False),
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ),
        (
            lambda: verify("x", producer[0] + 1, 0, [(TOPIC, 0)], add=True),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
        (
            lambda: verify("y", *producer, [(TOPIC, 0)], add=True),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
    ):
        assert refusal(call) is code


def test_a_partition_is_added_by_produce_itself_and_written_down_once(world: World) -> None:
    producer = world.begin()
    log = world.partition(0, STATE_TOPIC).log
    before = log.written_offset

    for _ in range(3):
        world.coordinator.verify("x", *producer, [(TOPIC, 2)], add=True)

    assert log.written_offset == before + 1
    assert world.state() == "Ongoing"
    world.append(producer, 2)
    assert world.end(producer, version=TV2) == (producer[0], producer[1] + 1)
    assert world.content(2) == ["data", "commit"]


def test_a_topic_that_is_gone_keeps_no_end_from_coming_about(world: World) -> None:
    producer = world.begin()
    world.add(producer, 0)
    world.runtime.add("x", *producer, [("gone", 0)], client_version=0)

    world.end(producer)

    assert world.state() == "CompleteCommit"


def test_a_partition_is_known_to_be_in_a_transaction_until_its_end_is_decided(world: World) -> None:
    producer_id, epoch = producer = world.begin()
    includes = world.coordinator.includes
    assert not includes("x", producer_id, epoch, (TOPIC, 0))
    world.write(producer, 0)

    assert includes("x", producer_id, epoch, (TOPIC, 0))
    assert not includes("x", producer_id, epoch, (TOPIC, 1))
    assert not includes("x", producer_id, epoch + 1, (TOPIC, 0))
    assert not includes("x", producer_id + 1, epoch, (TOPIC, 0))
    assert not includes("y", producer_id, epoch, (TOPIC, 0))
    told = world.ask_end(producer)
    assert told == []
    assert not includes("x", producer_id, epoch, (TOPIC, 0))
    world.turn_until(lambda: bool(told))
    assert not includes("x", producer_id, epoch, (TOPIC, 0))


def test_a_partition_of_a_transaction_that_was_fenced_is_not_known_any_more(world: World) -> None:
    producer_id, epoch = producer = world.begin()
    world.write(producer, 0)

    world.begin()

    assert not world.coordinator.includes("x", producer_id, epoch, (TOPIC, 0))


def test_an_end_that_the_disk_refused_leaves_the_partition_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer_id, epoch = producer = world.begin()
    world.write(producer, 0)
    with monkeypatch.context() as patch:
        refuse_writes(world, patch)
        code = refusal(partial(world.ask_end, producer))

    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.includes("x", producer_id, epoch, (TOPIC, 0))


def test_a_partition_is_not_known_while_an_older_marker_is_still_to_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer_id, epoch = producer = world.begin()
    world.write(producer, 0)
    shard, now = world.runtime.known("x")
    aborted = now._replace(state=TransactionState.PREPARE_ABORT)
    lost = [(TOPIC, 0)]
    monkeypatch.setattr(world.participants, "write_markers", lambda *_, **__: lost)

    world.runtime.ends.mend(shard, "x", aborted, lost)
    world.runtime.adopt(shard, "x", now, [(TOPIC, 1)])

    assert not world.coordinator.includes("x", producer_id, epoch, (TOPIC, 0))
    assert not world.coordinator.includes("x", producer_id, epoch, (TOPIC, 1))
