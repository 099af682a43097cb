"""Losses of power that take markers of several ends, and ends that Apache Kafka has completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.coordinator.transactions import loading
from broker.coordinator.transactions import transaction as machine
from broker.coordinator.transactions.transaction import TV1, TV2
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.transactions import TransactionState
from storage.steps import run_here
from tests.coordinator.transactions.world import STATE_TOPIC, TOPIC, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "data") as found:
        yield found


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("kept", [1, 2], ids=["both-lost", "the-first-lost"])
def test_the_markers_of_an_end_before_the_last_are_written_again(
    world: World, tmp_path: Path, version: int, kept: int
) -> None:
    producer = world.begin()
    world.write(producer, 0)
    producer = world.end(producer, version=version)
    world.write(producer, 1)
    world.end(producer, commit=False, version=version)

    with world.crashed(tmp_path / "after", {0: 1, 1: kept}) as after:
        after.start()
        assert [after.content(0), after.content(1)] == [["data", "commit"], ["data", "abort"]]
        assert after.state() == "CompleteAbort"


@pytest.mark.parametrize("version", [TV1, TV2])
def test_what_is_open_was_ended_by_the_first_end_that_reaches_so_far(
    world: World, tmp_path: Path, version: int
) -> None:
    """The second transaction has added the partition, too, and written nothing there."""
    producer = world.begin()
    world.write(producer, 0)
    producer = world.end(producer, version=version)
    world.add(producer, 0, 1)
    world.append(producer, 1)
    world.end(producer, commit=False, version=version)

    with world.crashed(tmp_path / "after", {0: 1}) as after:
        after.start()
        assert [after.content(0), after.content(1)] == [["data", "commit"], ["data", "abort"]]


def test_markers_of_the_end_before_one_that_is_not_finished_are_written_again(
    world: World, tmp_path: Path
) -> None:
    producer = world.begin()
    world.write(producer, 0)
    world.end(producer)
    world.write(producer, 1)
    world.end(producer, commit=False)

    # Empty, Ongoing, Prepare, Ongoing, Prepare: Complete was not written.
    assert world.written() == ["Empty", *("Ongoing", "PrepareCommit"), *("Ongoing", "PrepareAbort")]
    with world.crashed(tmp_path / "after", {0: 1, 1: 1}) as after:
        after.start()
        assert [after.content(0), after.content(1)] == [["data", "commit"], ["data", "abort"]]
        assert after.state() == "CompleteAbort"


def test_ends_are_known_of_partitions_that_were_added_in_turns(
    world: World, tmp_path: Path
) -> None:
    """A record has them by topic, whatever the order was."""
    run_here(world.parts.topics.create("other", 1, {}))
    producer = world.begin()
    world.write(producer, 0)
    world.runtime.add("x", *producer, [("other", 0)], client_version=TV1)
    for sequence in range(3):
        world.write(producer, 1, sequence=sequence)
    world.end(producer)

    # Of partition 1 the last batch and the marker are lost; "other" is empty, and ended at 0.
    with world.crashed(tmp_path / "after", {1: 2}) as after:
        after.start()
        assert after.content(1) == ["data", "data", "commit"]


@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "on-a-thread"])
def test_markers_are_mended_when_what_tells_of_them_is_on_the_disk_and_before_anybody_is_served(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Where only the process has died, the record of the end may still be lost with the machine."""
    if not at_once:
        monkeypatch.setattr(loading, "AT_ONCE_BYTES", -1)
    producer = world.begin()
    world.write(producer, 0, 1)
    world.end(producer)
    seen = []

    with world.crashed(tmp_path / "after", {0: 1, 1: 1}) as after:

        def look() -> None:
            log = after.partition(0, STATE_TOPIC).log
            with pytest.raises(KafkaError) as caught:
                after.runtime.known("x")
            seen.append((log.recovery_point == log.written_offset, caught.value.code))

        after.participants.before = look
        after.start()
        assert seen == [(True, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 2
        assert [after.content(0), after.content(1)] == [["data", "commit"]] * 2


@pytest.mark.parametrize("state", ["Ongoing", "CompleteCommit"])
def test_what_was_written_after_an_end_that_kafka_completed_is_not_ended_with_it(
    world: World, tmp_path: Path, state: str
) -> None:
    """Kafka's records have no header that says up to where."""
    producer = world.begin()
    world.write(producer, 0)
    shard, now = world.runtime.known("x")
    decided = now._replace(state=TransactionState.PREPARE_COMMIT)
    completed = machine.completed(decided, now_ms=world.now_ms)
    for record in (decided, completed):
        shard.write("x", record, transaction_version=0, now_ms=world.now_ms)
    shard.states["x"] = completed
    world.participants.write_markers(
        *producer, commit=True, coordinator_epoch=0, partitions=[(TOPIC, 0)]
    )
    if state == "Ongoing":
        world.add(producer, 0)
    world.append(producer, 0, sequence=1)

    with world.crashed(tmp_path / "after") as after:
        after.start()
        assert after.content(0) == ["data", "commit", "data"]
        assert after.state() == "Ongoing"
