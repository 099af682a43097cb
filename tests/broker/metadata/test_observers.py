"""Followers of the metadata log: what is remembered, for how long, and of how many."""

from __future__ import annotations

from typing import Any

from broker.metadata.observers import OBSERVERS_MAX, SESSION_MS, Observer, Observers

ZERO = bytes(16)


def fetched(observers: Observers, replica_id: int, offset: int, **more: Any) -> Observer:
    """A fetch from this offset; the follower then."""
    facts = {"leader_end_offset": 100, "now_ms": 1000, **more}
    directory_id = facts.pop("directory_id", ZERO)
    observers.fetched(replica_id, directory_id, offset=offset, **facts)
    (one,) = [
        one
        for one in observers.live(facts["now_ms"])
        if (one.replica_id, one.directory_id) == (replica_id, directory_id)
    ]
    return one


def test_who_asks_from_the_end_on_has_everything() -> None:
    one = fetched(Observers(), 5, 100)

    assert (one.log_end_offset, one.last_fetch_ms, one.caught_up_ms) == (100, 1000, 1000)


def test_who_lags_has_never_had_everything() -> None:
    observers = Observers()
    fetched(observers, 5, 10)

    one = fetched(observers, 5, 99, now_ms=2000)

    assert (one.last_fetch_ms, one.caught_up_ms) == (2000, -1)


def test_who_has_what_there_was_at_its_last_fetch_had_everything_then() -> None:
    observers = Observers()
    fetched(observers, 5, 90)

    one = fetched(observers, 5, 100, leader_end_offset=130, now_ms=2000)

    assert (one.last_fetch_ms, one.caught_up_ms) == (2000, 1000)
    assert fetched(observers, 5, 120, leader_end_offset=140, now_ms=3000).caught_up_ms == 1000


def test_a_clock_that_goes_back_does_not_take_anything_back() -> None:
    observers = Observers()
    fetched(observers, 5, 100, now_ms=5000)

    one = fetched(observers, 5, 100, now_ms=4000)

    assert (one.last_fetch_ms, one.caught_up_ms) == (5000, 5000)


def test_a_node_with_a_new_disk_is_another_follower() -> None:
    observers = Observers()
    fetched(observers, 5, 100, directory_id=b"a" * 16)
    fetched(observers, 5, 0, directory_id=b"b" * 16)

    assert [one.log_end_offset for one in observers.live(1000)] == [100, 0]


def test_a_follower_that_is_silent_for_too_long_is_gone() -> None:
    observers = Observers()
    fetched(observers, 5, 100, now_ms=0)
    fetched(observers, 6, 100, now_ms=1)

    assert len(observers.live(SESSION_MS)) == 2
    assert [one.replica_id for one in observers.live(SESSION_MS + 1)] == [6]
    assert len(observers) == 1


def test_a_snapshot_that_is_being_loaded_is_where_the_log_will_be_needed() -> None:
    observers = Observers()
    fetched(observers, 5, 10)

    observers.loads(5, ZERO, end_offset=60, now_ms=2000)

    (one,) = observers.live(2000)
    assert (one.log_end_offset, one.replicated_offset, one.last_fetch_ms) == (-1, 60, 2000)
    assert fetched(observers, 5, 60, now_ms=3000).replicated_offset == 60
    assert fetched(observers, 5, 55, now_ms=3000).replicated_offset == 55


def test_no_number_of_made_up_followers_fills_the_memory() -> None:
    observers = Observers()
    for replica_id in range(OBSERVERS_MAX + 10):
        observers.fetched(replica_id, ZERO, offset=0, leader_end_offset=0, now_ms=1000)
        observers.fetched(0, ZERO, offset=0, leader_end_offset=0, now_ms=1000)

    found = [one.replica_id for one in observers.live(1000)]
    assert found == [0, *range(11, OBSERVERS_MAX + 10)]
