"""Which call meets which fault, and what a description that makes none is told."""

from __future__ import annotations

from typing import Any

import pytest

from broker.faults.engine import FAULTS_MAX, SYNC, WRITE, Call, Engine, FaultError
from broker.faults.places import groups
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_fetch import OffsetFetchRequest

ERROR = "NOT_LEADER_OR_FOLLOWER"
PRODUCE = Call("Produce", "billing-1", [("orders", 0), ("orders", 1), ("bills", 0)])


def engine(*descriptions: dict[str, Any], seed: int = 7) -> Engine:
    made = Engine(lambda: seed)
    for description in descriptions:
        made.add({"error": ERROR, **description})
    return made


def fired(made: Engine, calls: int, call: Call = PRODUCE) -> list[int]:
    """The numbers of those of so many calls that met a fault."""
    return [number for number in range(1, calls + 1) if made.meet(call) is not None]


def test_a_fault_acts_once_unless_it_is_told_otherwise() -> None:
    assert fired(engine({"api": "Produce"}), 5) == [1]


@pytest.mark.parametrize(
    ("trigger", "calls"),
    [
        ({"times": 3}, [1, 2, 3]),
        ({"on_call": 3}, [3]),
        ({"on_call": 2, "times": 2}, [2, 3]),
        ({"times": "always"}, [1, 2, 3, 4, 5]),
        ({"times": "always", "on_call": 4}, [4, 5]),
    ],
)
def test_a_trigger_chooses_among_the_calls(trigger: dict[str, Any], calls: list[int]) -> None:
    assert fired(engine(trigger), 5) == calls


def test_calls_that_the_filter_leaves_out_are_not_counted() -> None:
    made = engine({"api": "Produce", "topic": "orders", "on_call": 2})

    assert made.meet(Call("Fetch", "billing-1", [("orders", 0)])) is None
    assert made.meet(Call("Produce", "billing-1", [("bills", 0)])) is None
    assert made.meet(PRODUCE) is None
    assert made.meet(PRODUCE) is not None


@pytest.mark.parametrize(
    "description",
    [{"client": "billing-*"}, {"client": "billing-1"}, {"api": ["Fetch", "Produce"]}, {"api": "*"}],
)
def test_a_filter_takes_names_patterns_and_lists(description: dict[str, Any]) -> None:
    made = engine(description)

    assert made.meet(Call("Heartbeat", "shipping", [])) is None or description == {"api": "*"}
    assert fired(engine(description), 1) == [1]


def test_a_fault_may_be_about_the_requests_of_a_group() -> None:
    made = engine({"group": "bill*", "times": "always"})

    assert made.meet(Call("Heartbeat", "", [], ["shipping"])) is None
    assert made.meet(Call("Produce", "", [("billing", 0)])) is None
    assert made.meet(Call("OffsetFetch", "", [], ["shipping", "billing"])) is not None


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (HeartbeatRequest(group_id="billing", generation_id=1, member_id="m"), ["billing"]),
        (DescribeGroupsRequest(groups=["billing", "shipping"]), ["billing", "shipping"]),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="billing", topics=None)]),
            ["billing"],
        ),
        (MetadataRequest(topics=None), []),
    ],
)
def test_the_groups_of_a_request_are_those_that_it_names(message: Any, named: list[str]) -> None:
    assert groups(message) == named


def test_a_hit_has_the_places_that_the_fault_is_about() -> None:
    whole = engine({}).meet(PRODUCE)
    topic = engine({"topic": "ord*"}).meet(PRODUCE)
    partition = engine({"topic": "orders", "partition": 1}).meet(PRODUCE)

    assert whole is not None
    assert topic is not None
    assert partition is not None
    assert list(whole.places) == PRODUCE.places
    assert list(topic.places) == [("orders", 0), ("orders", 1)]
    assert list(partition.places) == [("orders", 1)]


def test_the_first_fault_that_acts_is_the_one_that_is_met() -> None:
    made = engine({"times": 1}, {"times": 1, "topic": "orders"})

    numbers = [hit.fault.number for _ in range(3) if (hit := made.meet(PRODUCE))]

    assert numbers == [1, 2]


def test_chance_comes_from_the_seed_which_is_shown() -> None:
    def run(**more: Any) -> list[int]:
        return fired(engine({"probability": 0.3, **more}), 200)

    (fault,) = engine({"probability": 0.3}).standing()

    assert run() == run(seed=7)
    assert run(seed=8) != run(seed=7)
    assert 30 < len(run()) < 90
    assert len(run(times=5)) == 5
    assert fault.shown()["seed"] == 7
    assert "seed=7" in str(fault), "which is what the log says"


def test_faults_that_never_acted_are_told_also_when_they_were_removed() -> None:
    made = engine({"api": "Fetch"}, {"api": "Produce"}, {"api": "Heartbeat"})
    made.meet(PRODUCE)
    made.remove(1)

    assert [fault.number for fault in made.unfired()] == [1, 3]
    made.clear()
    assert made.unfired() == []


def test_faults_of_the_disk_are_not_about_requests() -> None:
    made = engine({"api": "*", "times": "always"})
    made.add({"disk": "full", "topic": "orders"})

    write = made.meet(Call(WRITE, "", [("orders", 0)]))
    request = made.meet(PRODUCE)

    assert write is not None
    assert request is not None
    assert (write.fault.number, request.fault.number) == (2, 1)
    assert made.meet(Call(WRITE, "", [("bills", 0)])) is None
    assert made.meet(Call(SYNC, "", [("orders", 0)])) is None
    assert str(write.fault) == "disk=full topic=orders on_call=1 times=always"
    assert made.stands("full")


@pytest.mark.parametrize(
    ("description", "told"),
    [
        ({"error": None, "disk": "ful"}, "disk is one of full, failed_write, failed_sync, slow"),
        ({"disk": "full"}, "a disk that is 'full' has no action of requests; found error"),
        ({"error": None, "disk": "slow"}, "has delay_ms and no other action; found none"),
        ({"error": None, "disk": "full", "api": "Fetch"}, "a fault of the disk has no api"),
        ({"api": "Prodcue"}, "there is no API 'Prodcue'; did you mean Produce?"),
        ({"api": "offset_commit"}, "did you mean OffsetCommit?"),
        ({"error": "NOT_LEADER_FOR_PARTITION"}, "did you mean NOT_LEADER_OR_FOLLOWER?"),
        ({"error": "REQUEST_TIMEOUT"}, "did you mean REQUEST_TIMED_OUT?"),
        ({"error": "NONE"}, "there is no error 'NONE'"),
        ({"topics": "orders"}, "a fault has no 'topics'; did you mean topic?"),
        ({"times": 0}, "times is a whole number, at least 1, or 'always', not 0"),
        ({"on_call": "2"}, "on_call is a whole number, at least 1, not '2'"),
        ({"partition": -1}, "partition is a whole number, at least 0, not -1"),
        ({"probability": 1.5}, "probability is a number above 0 and at most 1, not 1.5"),
        ({"delay_ms": 5}, "found error, delay_ms"),
        ({"error": None}, "found none"),
        ({"error": None, "close": "now"}, "close is 'before' or 'after', not 'now'"),
        ({"error": None, "delay_ms": 10**9}, "delay_ms is a whole number, from 1 to 3600000"),
        ({"client": 5}, "client is a name or a pattern such as 'orders-*', not 5"),
        ({"api": []}, "api is a name, a list of names or '*', not []"),
    ],
)
def test_a_description_that_makes_no_fault_is_told_why(
    description: dict[str, Any], told: str
) -> None:
    made = engine()

    with pytest.raises(FaultError) as raised:
        made.add({"error": ERROR, **description})

    assert told in str(raised.value)
    assert "\n" not in str(raised.value)
    assert made.standing() == []


def test_the_number_of_faults_has_a_bound() -> None:
    made = engine(*[{}] * FAULTS_MAX)

    with pytest.raises(FaultError, match="which is the most"):
        made.add({"error": ERROR})
