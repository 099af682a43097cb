"""A crash at each step of an end, and losses of power that take what nobody had waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.coordinator.transactions.transaction import TV1, TV2
from protocol.errors import ErrorCode, KafkaError
from tests.coordinator.transactions.world import STATE_TOPIC, TOPIC, World, batches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "data") as found:
        yield found


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_crash_at_each_step_of_an_end_leaves_it_undecided_or_finished(
    world: World, tmp_path: Path, commit: bool, version: int
) -> None:
    world.version = version
    producer = world.begin()
    world.write(producer, 0, 1, 2)
    crashed = [world.crashed(tmp_path / "before")]
    world.participants.before = lambda: crashed.append(
        world.crashed(tmp_path / f"step-{len(crashed)}")
    )

    world.end(producer, commit=commit, version=version)
    crashed.append(world.crashed(tmp_path / "after"))

    assert len(crashed) == 5
    marker = "commit" if commit else "abort"
    for step, after in enumerate(crashed):
        with after:
            after.start()
            contents = [after.content(index) for index in range(3)]
            if step == 0:
                assert (after.state(), contents) == ("Ongoing", [["data"]] * 3)
                after.end(producer, commit=commit, version=version)
                contents = [after.content(index) for index in range(3)]
            assert after.state() == ("CompleteCommit" if commit else "CompleteAbort")
            assert contents == [["data", marker]] * 3
            # The client has not been answered, and asks again.
            after.end(producer, commit=commit, version=version)
            assert [after.content(index) for index in range(3)] == contents


def test_a_marker_that_a_loss_of_power_took_is_written_again(world: World, tmp_path: Path) -> None:
    producer = world.begin()
    world.write(producer, 0, 1)
    world.end(producer)

    with world.crashed(tmp_path / "after", {0: 1}) as after:
        assert after.content(0) == ["data"]
        after.start()
        assert [after.content(0), after.content(1)] == [["data", "commit"]] * 2
        assert after.state() == "CompleteCommit"


@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_lost_marker_is_written_again_though_the_next_transaction_has_begun_elsewhere(
    world: World, tmp_path: Path, version: int
) -> None:
    producer = world.begin()
    world.write(producer, 0)
    producer = world.end(producer, version=version)
    world.write(producer, 1)

    with world.crashed(tmp_path / "after", {0: 1}) as after:
        after.start()
        assert [after.content(0), after.content(1)] == [["data", "commit"], ["data"]]
        assert after.state() == "Ongoing"


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize(
    ("complete", "lost"),
    [(True, 1), (True, 2), (False, 1)],
    ids=["ongoing", "complete-too", "complete-was-not-written"],
)
def test_what_the_next_transaction_wrote_is_not_ended_with_the_last_one(
    world: World, tmp_path: Path, version: int, complete: bool, lost: int
) -> None:
    producer = world.begin()
    world.write(producer, 0)
    producer = world.end(producer, version=version)
    if complete:
        world.runtime.ends.write_completed()
    world.write(producer, 0, sequence=0 if version == TV2 else 1)
    assert world.content(0) == ["data", "commit", "data"]
    written = world.written()
    assert written == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        *["CompleteCommit"] * complete,
        "Ongoing",
    ]
    with world.crashed(tmp_path / "after", states=len(written) - lost) as after:
        after.start()

        assert after.content(0) == ["data", "commit", "data"]
        assert after.is_open(0)
        assert after.state() == "Ongoing"
        after.end(producer, commit=False, version=version)
        assert after.content(0) == ["data", "commit", "data", "abort"]


def test_a_transaction_whose_record_was_lost_is_open_as_it_was_for_its_client(
    world: World, tmp_path: Path
) -> None:
    producer = world.begin()
    world.write(producer, 2)

    with world.crashed(tmp_path / "after", states=1) as after:
        after.start()
        assert after.state() == "Ongoing"
        after.end(producer)
        assert after.content(2) == ["data", "commit"]


def test_what_a_fenced_producer_left_open_is_aborted(world: World, tmp_path: Path) -> None:
    producer = world.begin()
    newer = world.begin()
    assert newer == (producer[0], producer[1] + 1)
    world.append(producer, 0)

    with world.crashed(tmp_path / "after") as after:
        after.start()
        assert after.content(0) == ["data", "abort"]
        assert after.state() == "Empty"
        after.write(newer, 0)
        after.end(newer)
        assert after.content(0) == ["data", "abort", "data", "commit"]


def test_a_producer_of_whom_no_transactional_id_is_known_is_left_alone(
    world: World, tmp_path: Path
) -> None:
    world.begin()
    world.append((4711, 0), 0)

    with world.crashed(tmp_path / "after") as after:
        after.start()
        assert after.content(0) == ["data"]


def test_an_end_that_kafka_decided_is_finished_in_all_its_partitions(
    world: World, tmp_path: Path
) -> None:
    """Its record has no header that says up to where."""
    producer = world.begin()
    world.write(producer, 0, 1)
    shard, now = world.runtime.known("x")
    decided = now._replace(state=type(now.state).PREPARE_COMMIT)
    shard.write("x", decided, transaction_version=0, now_ms=world.now_ms)

    with world.crashed(tmp_path / "after") as after:
        after.start()
        assert after.participants.asked == [(producer, True, [(TOPIC, 0), (TOPIC, 1)])]
        assert [after.content(0), after.content(1)] == [["data", "commit"]] * 2
        assert after.state() == "CompleteCommit"


def test_a_damaged_record_costs_its_id_and_nobody_else(world: World, tmp_path: Path) -> None:
    world.begin("a")
    world.begin("b")
    world.begin("c")
    after = world.crashed(tmp_path / "after")
    path = after.data / f"{STATE_TOPIC}-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    second = list(batches(bytes(data)))[1]
    at = bytes(data).index(bytes(second.view))
    data[at + second.size - 3] ^= 1
    path.write_bytes(data)

    with after:
        after.start()
        assert after.begin("a")[1] == 1
        assert after.begin("c")[1] == 1


def test_an_id_that_was_loaded_goes_on_where_it_was(world: World, tmp_path: Path) -> None:
    producer = world.begin()
    world.begin()

    with world.crashed(tmp_path / "after") as after:
        after.start()
        assert after.begin() == (producer[0], 2)
        with pytest.raises(KafkaError) as caught:
            after.add(producer, 0)
        assert caught.value.code is ErrorCode.PRODUCER_FENCED
