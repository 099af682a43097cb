"""The judge of the tests with groups finds what it should: stories with one thing wrong in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.groups.ledger import Ledger
from tests.clients.groups.source import PARTITIONS

if TYPE_CHECKING:
    from tests.clients.groups.host import Event

ALL = list(range(PARTITIONS))


def event(at: int, member: str, name: str, **facts: object) -> Event:
    return {"at": at, "member": member, "event": name, **facts}


def read(at: int, member: str, *numbers: int) -> Event:
    values = [f"7-{number}" for number in numbers]
    return event(at, member, "read", partition=7, offset=numbers[0], values=values)


def told(*events: Event) -> Ledger:
    ledger = Ledger()
    for found in events:
        ledger.note(found)
    return ledger


def test_reading_on_behind_a_commit_is_no_fault() -> None:
    ledger = told(read(1, "a", 0, 1), event(2, "a", "committed", offsets={"7": 2}), read(3, "b", 2))

    assert ledger.faults() == []
    assert ledger.read_twice(0, 9) == []
    assert ledger.committed() == {7: 2}


def test_reading_again_what_nobody_could_commit_is_no_fault_and_is_twice() -> None:
    refused = event(2, "a", "refused", offsets={"7": 2}, why="rebalance")

    ledger = told(read(1, "a", 0, 1), refused, read(3, "b", 1))

    assert ledger.faults() == []
    assert ledger.read_twice(0, 9) == ["(7, 1) by ['a', 'b']"]
    assert ledger.read_twice(2, 9) == []


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (read(3, "b", 1), "partition 7: b read 1 0 ms after a committed 2"),
        (event(3, "b", "committed", offsets={"7": 1}), "partition 7: b moved it from 2 to 1"),
        (read(3, "b", 2) | {"values": ["7-3"]}, "partition 7: b read '7-3' at 2"),
    ],
    ids=["read again", "moved back", "wrong value"],
)
def test_a_fault_is_named_with_the_story_of_its_partition(wrong: Event, fault: str) -> None:
    ledger = told(read(1, "a", 0, 1), event(2, "a", "committed", offsets={"7": 2}), wrong)

    found, *story = ledger.faults()

    assert found == fault
    assert len(story) == 3


def test_a_paused_member_may_read_what_it_had_until_it_hears_of_its_assignment() -> None:
    ledger = told(event(1, "b", "committed", offsets={"7": 2}))
    ledger.stopped({"a"})
    now = ledger.stops[0].begin
    ledger.note(read(now + 1, "a", 1))
    assert ledger.faults() == []

    ledger.note(event(now + 2, "a", "lost", partitions=[7]))
    ledger.note(read(now + 3, "a", 1))

    assert ledger.faults()[0].startswith("partition 7: a read 1")


@pytest.mark.parametrize(
    ("shares", "shared"),
    [
        ({"a": ALL[:25], "b": ALL[25:]}, True),
        ({"a": ALL[:17], "b": ALL[17:34], "c": ALL[34:]}, True),
        ({"a": ALL, "b": []}, False),
        ({"a": ALL[:26], "b": ALL[25:]}, False),
        ({"a": ALL[:25], "b": ALL[25:-1]}, False),
    ],
    ids=["halves", "thirds", "nothing for one", "one owned twice", "one owned by none"],
)
def test_partitions_are_shared_when_each_has_one_owner_and_shares_are_alike(
    shares: dict[str, list[int]], shared: bool
) -> None:
    ledger = told(
        *(event(1, member, "gained", partitions=share) for member, share in shares.items())
    )

    assert ledger.is_shared(set(shares)) is shared
    assert not ledger.is_shared({*shares, "idle"})


def test_what_nobody_read_is_named() -> None:
    written = [0] * PARTITIONS
    written[7] = 3

    ledger = told(read(1, "a", 0), read(2, "a", 2))

    assert ledger.unread(written) == {7: [1]}
    assert not ledger.has_read(written)


def test_a_member_that_failed_ends_the_waiting() -> None:
    ledger = told(event(1, "a", "failed", why="no broker"))

    with pytest.raises(AssertionError, match="a failed: no broker"):
        ledger.wait_for(lambda: False, lambda: "", 60)
