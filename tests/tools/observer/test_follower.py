"""An observer beside a controller that does what the test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.metadata.following.effects import ObserverStopped
from protocol.errors import ErrorCode
from protocol.logdata.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.support.memory_filesystem import MemoryFilesystem
from tests.tools.observer.scripted_controller import (
    Line,
    ScriptedController,
    topic,
    topic_id_of,
)
from tests.tools.observer.scripted_follower import DATA, follow, follower, same
from tools.observer.directory import ObserverDirectory
from tools.observer.memory import InMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.observer.files import Keeping


@pytest.fixture(params=["memory", "folder"])
def kept(request: pytest.FixtureRequest, files: MemoryFilesystem) -> Keeping:
    return InMemory() if request.param == "memory" else ObserverDirectory.open(files, DATA)


def test_it_tells_the_whole_state_first_and_then_each_change(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append(*topic("a", 2))
    controller.steps = [
        lambda: controller.append(*topic("b")),
        lambda: controller.append(RemoveTopicRecord(topic_id=topic_id_of("a"))),
    ]
    made, events = follower(controller, kept)
    follow(made)
    assert events.lines == [
        "state below 5: a",
        "5 TopicRecord b",
        "6 PartitionRecord",
        "7 RemoveTopicRecord",
    ]
    assert same(made.image, controller.image)
    assert made.end_offset == 8


def test_it_begins_with_a_snapshot_where_there_is_one(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append(*topic("a", 100))
    controller.snapshot()
    controller.append(*topic("b"))
    made, events = follower(controller, kept, piece_bytes=1000)
    follow(made)
    assert events.lines == ["downloaded 103-1", "state below 105: a b"]
    assert same(made.image, controller.image)


def test_an_observer_that_is_far_behind_takes_a_snapshot_in_the_place_of_its_log(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append(*topic("a"))

    def go_far_ahead() -> None:
        controller.append(RemoveTopicRecord(topic_id=topic_id_of("a")))
        controller.append(*topic("b"))
        controller.snapshot()

    controller.steps = [go_far_ahead]
    made, events = follower(controller, kept)
    follow(made)
    assert events.lines == ["state below 4: a", "downloaded 7-1", "state below 7: b"]
    assert same(made.image, controller.image)


def test_a_transaction_counts_when_it_ends(controller: ScriptedController, kept: Keeping) -> None:
    controller.steps = [
        lambda: controller.append(BeginTransactionRecord(), *topic("a")),
        lambda: controller.append(*topic("b")),
        lambda: controller.append(EndTransactionRecord()),
    ]
    made, events = follower(controller, kept)
    seen: list[int] = []
    controller.steps.insert(2, lambda: seen.append(len(made.image.topics)))
    follow(made)
    assert seen == [0]
    assert events.lines == [
        "state below 2: no topics",
        "3 TopicRecord a",
        "4 PartitionRecord",
        "5 TopicRecord b",
        "6 PartitionRecord",
    ]
    assert same(made.image, controller.image)


def test_of_an_aborted_transaction_nobody_hears(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.steps = [
        lambda: controller.append(BeginTransactionRecord(), *topic("a")),
        lambda: controller.append(AbortTransactionRecord(), *topic("b")),
    ]
    made, events = follower(controller, kept)
    follow(made)
    assert events.lines == ["state below 2: no topics", "6 TopicRecord b", "7 PartitionRecord"]
    assert list(made.image.topics) == ["b"]


def test_what_is_not_agreed_upon_is_kept_but_not_replayed(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append(*topic("a"))
    controller.high_watermark = 2

    def agree() -> None:
        controller.high_watermark = 4

    made, events = follower(controller, kept)
    seen: list[list[str]] = []
    controller.steps = [lambda: seen.append(list(made.image.topics)), agree]
    follow(made)
    assert seen == [[]]
    assert events.lines == ["state below 2: no topics", "2 TopicRecord a", "3 PartitionRecord"]


def other_history(controller: ScriptedController, count: int) -> Callable[[], None]:
    """A new leader that never had the last batches."""

    def happen() -> None:
        del controller.batches[-count:]
        controller.end_offset = 3 if controller.batches else 0
        controller.epochs = [(1, 0)]
        controller.lead(3)
        controller.high_watermark = None
        controller.append(*topic("c"))

    return happen


def test_a_log_that_parts_from_the_leaders_is_cut_before_it_counts(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append(ConfigRecord(resource_type=4, resource_name="", name="k", value="v"))
    image = list(controller.image.records())
    controller.append(*topic("a"))
    controller.high_watermark = 3
    controller.steps = [other_history(controller, 1)]
    made, events = follower(controller, kept)
    follow(made)
    assert list(made.image.topics) == ["c"]
    assert made.image.configs == {(4, ""): {"k": "v"}}
    assert len(list(made.image.records())) == len(image) + 2
    if not isinstance(kept, InMemory):
        assert events.lines == ["state below 3: no topics", "4 TopicRecord c", "5 PartitionRecord"]
    assert made.machine.end_offset == controller.end_offset


def test_a_controller_that_was_set_back_is_followed_even_if_what_is_gone_had_counted(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append(ConfigRecord(resource_type=4, resource_name="", name="k", value="v"))
    controller.append(*topic("a"))
    controller.steps = [other_history(controller, 1)]
    made, events = follower(controller, kept)
    follow(made)
    assert list(made.image.topics) == ["c"]
    assert made.image.configs == {(4, ""): {"k": "v"}}
    assert events.lines[0] == "state below 5: a"
    assert events.lines[-1] in ("state below 6: c", "5 PartitionRecord")


def test_a_damaged_snapshot_is_thrown_away_and_loaded_again(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append(*topic("a", 50))
    controller.snapshot()
    spoiled: list[int] = []

    def spoil(piece: bytes) -> bytes:
        if len(spoiled) == 3:
            return piece
        spoiled.append(len(piece))
        return piece[:70] + bytes([piece[70] ^ 4]) + piece[71:]

    controller.spoil = spoil
    made, events = follower(controller, kept)
    follow(made)
    assert len(spoiled) == 3
    assert len(events.troubles) == 3
    assert "checksum" in events.troubles[0]
    assert same(made.image, controller.image)


def test_a_snapshot_that_always_comes_damaged_ends_it(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append(*topic("a", 50))
    controller.snapshot()
    controller.spoil = lambda piece: piece[:-1] + bytes([piece[-1] ^ 1])
    made, _ = follower(controller, kept)
    with pytest.raises(ObserverStopped, match="came damaged 5 times"):
        made.run()


def test_the_leader_is_found_on_another_node(kept: Keeping) -> None:
    leader, other = ScriptedController(epoch=2), ScriptedController(epoch=2)
    leader.lead(2)
    other.leader_id, other.nodes = 2, {2: ("leader", 9093)}
    line = Line(controller=other, leader=leader)
    made, _ = follower(line, kept)
    follow(made)
    assert line.opened == ["controller", "leader"]


def test_a_leader_that_cannot_be_reached_sends_it_back_to_the_address_it_knows(
    kept: Keeping,
) -> None:
    other = ScriptedController(epoch=2)
    other.leader_id, other.nodes = 2, {2: ("gone", 9093)}

    line = Line(controller=other)
    made, events = follower(line, kept)

    def become_leader(*_: object) -> bool:
        if line.opened.count("controller") == 2:
            other.leader_id = 1
            other.lead(3)
            line.lose = lambda request: False
        return False

    line.lose = become_leader
    follow(made)
    assert line.opened[:3] == ["controller", "gone", "controller"]
    assert any("cannot connect to gone:9093" in trouble for trouble in events.troubles)


def test_a_record_that_is_not_known_ends_it_and_says_where(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append_bytes(b"\x01\xff\x01\x00")
    made, _ = follower(controller, kept)
    with pytest.raises(ObserverStopped, match=r"offset 2.*use a later triglot"):
        made.run()


def test_errors_that_pass_are_waited_for(controller: ScriptedController, kept: Keeping) -> None:
    controller.append(*topic("a", 50))
    controller.snapshot()
    controller.refusals = [
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
    made, events = follower(controller, kept)
    follow(made)
    assert len(events.troubles) == 3
    assert same(made.image, controller.image)


def test_a_topic_that_was_made_again_is_another_one(
    controller: ScriptedController, kept: Keeping
) -> None:
    controller.append(*topic("a"))
    controller.steps = [
        lambda: controller.append(RemoveTopicRecord(topic_id=topic_id_of("a"))),
        lambda: controller.append(TopicRecord(name="a", topic_id=bytes(range(16)))),
    ]
    made, _ = follower(controller, kept)
    follow(made)
    assert made.image.topics["a"].topic_id == bytes(range(16))
