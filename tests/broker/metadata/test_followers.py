"""Who waits until all processes have followed a change."""

from __future__ import annotations

from broker.metadata.followers import Followers


def test_a_change_is_waited_for_until_the_last_process_has_it() -> None:
    followers, told = Followers((2, 3)), list[str]()
    followers.came(2)
    followers.came(3)
    followers.wait(10, lambda: told.append("ten"))
    followers.wait(12, lambda: told.append("twelve"))

    followers.followed(2, 12)
    assert told == []
    followers.followed(3, 11)
    assert told == ["ten"]
    followers.followed(3, 12)
    assert told == ["ten", "twelve"]


def test_at_a_start_all_are_waited_for_but_those_that_have_ended() -> None:
    followers, told = Followers((2, 3)), list[int]()
    followers.all_come()
    followers.wait(10, lambda: told.append(1))
    followers.followed(2, 10)
    assert told == []
    followers.gone(3)

    assert told == [1]


def test_where_nobody_follows_or_all_have_it_nobody_waits() -> None:
    followers, told = Followers((2, 3)), list[int]()
    followers.wait(10, lambda: told.append(1))
    followers.came(2)
    followers.followed(2, 10)
    followers.wait(10, lambda: told.append(2))

    assert told == [1, 2]


def test_a_process_that_has_ended_is_waited_for_no_more() -> None:
    followers, told = Followers((2, 3)), list[int]()
    followers.came(2)
    followers.came(3)
    followers.followed(3, 10)
    followers.wait(10, lambda: told.append(1))
    assert told == []

    followers.gone(2)

    assert told == [1]


def test_a_process_that_begins_to_serve_has_what_it_asked_for_before() -> None:
    followers, told = Followers((2, 3)), list[int]()
    followers.followed(2, 10)
    followers.came(2)
    followers.wait(10, lambda: told.append(1))

    assert told == [1]


def test_a_looker_on_is_not_waited_for() -> None:
    followers, told = Followers((2, 3)), list[int]()
    followers.followed(77, 0)
    followers.wait(10, lambda: told.append(1))

    assert told == [1]


def test_who_is_answered_may_wait_again() -> None:
    followers, told = Followers((2, 3)), list[int]()
    followers.came(2)
    followers.wait(1, lambda: followers.wait(2, lambda: told.append(2)))
    followers.followed(2, 1)
    assert told == []
    followers.followed(2, 2)

    assert told == [2]
