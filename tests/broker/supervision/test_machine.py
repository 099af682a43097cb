"""What a supervisor does about its processes, as a story of what they say and when they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.supervision.machine import (
    ABORT_WITHIN_S,
    HUNG_S,
    LIVED_S,
    SILENT_S,
    STOP_WITHIN_S,
    WAIT_MAX_S,
    WAIT_S,
    Abort,
    Announce,
    AskToStop,
    Effect,
    Finish,
    Kill,
    Say,
    Spawn,
    State,
    Supervision,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def without_lines(effects: list[Effect]) -> list[Effect]:
    return [one for one in effects if not isinstance(one, Say)]


def lines(effects: list[Effect]) -> list[tuple[str, Mapping[str, object]]]:
    return [(one.event, one.facts) for one in effects if isinstance(one, Say)]


def running(count: int = 3, now_s: float = 0.0) -> Supervision:
    """All have been ready since then."""
    supervision = Supervision(count)
    supervision.start(now_s)
    supervision.led(now_s)
    for number in range(count):
        supervision.ready(number, now_s)
    return supervision


def all_beat(supervision: Supervision, now_s: float) -> None:
    for number in range(len(supervision.processes)):
        supervision.heard(number, now_s)


def test_the_controller_begins_and_the_others_when_it_leads() -> None:
    supervision = Supervision(3)

    assert supervision.start(0.0) == [Spawn(0)]
    assert supervision.led(0.1) == [Spawn(1), Spawn(2)]
    assert supervision.ready(1, 0.2) == []
    assert supervision.ready(0, 0.3) == []
    assert supervision.ready(2, 0.4) == [Announce()]


def test_a_process_that_ends_before_all_are_ready_ends_the_start() -> None:
    supervision = Supervision(3)
    supervision.start(0.0)
    supervision.led(0.1)

    assert supervision.ended(2, "exit 1", 0.2) == [AskToStop(1)]
    assert supervision.ended(1, "exit 0", 0.3) == [AskToStop(0)]
    assert supervision.ended(0, "exit 0", 0.4) == [Finish(clean=False, failed=True)]


def test_a_controller_that_cannot_start_ends_the_start_alone() -> None:
    supervision = Supervision(2)
    supervision.start(0.0)

    assert supervision.ended(0, "exit 1", 0.1) == [Finish(clean=False, failed=True)]


def test_a_controller_that_ends_for_another_is_begun_again_and_then_it_is_as_ever() -> None:
    supervision = Supervision(2)
    supervision.start(0.0)
    supervision.begins_again(0)

    assert supervision.ended(0, "exit 0", 0.1) == [Spawn(0)]
    assert supervision.led(0.2) == [Spawn(1)]
    assert supervision.ended(0, "SIGKILL", 0.3) == [AskToStop(1)]


def test_a_controller_that_ends_for_another_is_not_begun_again_where_a_stop_was_asked() -> None:
    supervision = Supervision(2)
    supervision.start(0.0)
    assert supervision.stop(0.1) == [AskToStop(0)]
    supervision.begins_again(0)

    assert supervision.ended(0, "exit 0", 0.2) == [Finish(clean=False, failed=False)]


def test_a_process_that_dies_is_begun_anew_at_once_and_the_others_go_on() -> None:
    supervision = running()
    all_beat(supervision, LIVED_S)

    effects = supervision.ended(1, "SIGKILL", LIVED_S)

    assert without_lines(effects) == [Spawn(1)]
    assert lines(effects) == [
        ("a process died", {"process": 1, "how": "SIGKILL", "begun_anew_after_s": 0.0})
    ]
    assert lines(supervision.ready(1, LIVED_S + 0.5, 0.25)) == [
        ("a process serves again", {"process": 1, "seconds": 0.5, "computing_s": 0.25})
    ]


def test_a_controller_that_dies_is_begun_anew_and_nobody_with_it() -> None:
    supervision = running()
    all_beat(supervision, LIVED_S)

    assert without_lines(supervision.ended(0, "SIGSEGV", LIVED_S)) == [Spawn(0)]
    assert supervision.led(LIVED_S + 0.1) == []


def test_a_process_that_serves_and_dies_young_is_begun_after_a_short_wait_each_time() -> None:
    supervision = running()
    for now_s in (1.0, 2.0, 3.0):
        all_beat(supervision, now_s)
        assert without_lines(supervision.ended(1, "SIGKILL", now_s)) == []
        assert supervision.look(now_s + WAIT_S) == [Spawn(1)]
        supervision.ready(1, now_s + WAIT_S)


def test_a_process_that_does_not_get_to_serve_is_begun_after_longer_and_longer_waits() -> None:
    supervision = running()
    now_s, waits = 0.0, []
    for _ in range(8):
        assert without_lines(supervision.ended(1, "exit 1", now_s)) == []
        due_s = supervision.processes[1].due_s
        assert due_s is not None
        waits.append(round(due_s - now_s, 3))
        now_s = due_s
        all_beat(supervision, now_s)
        assert supervision.look(now_s) == [Spawn(1)]

    assert waits == [WAIT_S, 0.4, 0.8, 1.6, 3.2, WAIT_MAX_S, WAIT_MAX_S, WAIT_MAX_S]

    supervision.ready(1, now_s)
    all_beat(supervision, now_s + LIVED_S)
    assert supervision.ended(1, "exit 1", now_s + LIVED_S)[1:] == [Spawn(1)], "it has lived"
    supervision.ended(1, "exit 1", now_s + LIVED_S)
    assert supervision.processes[1].due_s == now_s + LIVED_S + WAIT_S


def test_a_silent_process_is_named_once_then_ended_and_begun_anew() -> None:
    supervision = running()
    for now_s in (SILENT_S, HUNG_S):
        supervision.heard(0, now_s)
        supervision.heard(2, now_s)
        if now_s == SILENT_S:
            named = supervision.look(now_s)
            assert lines(named) == [
                ("a process has said nothing for a while", {"process": 1, "silent_s": SILENT_S})
            ]
            assert without_lines(named) == []
            assert supervision.look(now_s) == []
    assert without_lines(supervision.look(HUNG_S)) == [Abort(1)]
    assert supervision.look(HUNG_S) == []

    assert without_lines(supervision.look(HUNG_S + ABORT_WITHIN_S)) == [Kill(1)]
    assert without_lines(supervision.ended(1, "SIGKILL", HUNG_S + ABORT_WITHIN_S)) == [Spawn(1)]


def test_a_word_in_time_is_enough() -> None:
    supervision = running()
    all_beat(supervision, HUNG_S - 1)

    assert supervision.deadline_s() == HUNG_S - 1 + SILENT_S
    assert supervision.look(HUNG_S) == []


def test_a_process_that_was_silent_is_named_anew_after_it_has_spoken() -> None:
    supervision = running(1)
    assert lines(supervision.look(SILENT_S))
    supervision.heard(0, SILENT_S + 1)

    assert supervision.look(SILENT_S + 2) == []
    assert lines(supervision.look(2 * SILENT_S + 1))


def test_a_stop_asks_the_others_and_the_controller_when_they_have_gone() -> None:
    supervision = running()

    assert supervision.stop(20.0) == [AskToStop(1), AskToStop(2)]
    assert supervision.stop(20.1) == []
    supervision.stopped(2, clean=True)
    assert supervision.ended(2, "exit 0", 20.2) == []
    supervision.stopped(1, clean=True)
    assert supervision.ended(1, "exit 0", 20.3) == [AskToStop(0)]
    supervision.stopped(0, clean=True)
    assert supervision.ended(0, "exit 0", 20.4) == [Finish(clean=True, failed=False)]
    assert supervision.deadline_s() is None


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_stop_is_not_clean_if_one_of_them_was_not(which: int) -> None:
    supervision = running()
    supervision.stop(20.0)
    for number in (1, 2, 0):
        supervision.stopped(number, clean=number != which)
        last = supervision.ended(number, "exit 0", 20.1)

    assert last == [Finish(clean=False, failed=False)]


def test_a_process_that_does_not_stop_is_killed_and_the_stop_goes_on() -> None:
    supervision = running(2)
    supervision.stop(20.0)
    supervision.heard(0, 20.0 + HUNG_S)
    assert supervision.look(20.0 + HUNG_S) == [], "it writes, and its loop does not turn"
    supervision.heard(0, 20.0 + STOP_WITHIN_S)
    assert supervision.deadline_s() == 20.0 + STOP_WITHIN_S

    effects = supervision.look(20.0 + STOP_WITHIN_S)

    assert without_lines(effects) == [Kill(1)]
    assert without_lines(supervision.ended(1, "SIGKILL", 81.0)) == [AskToStop(0)]


def test_a_death_during_a_stop_is_told_and_not_made_good() -> None:
    supervision = running(2)
    supervision.stop(20.0)

    effects = supervision.ended(0, "SIGKILL", 20.1)

    assert lines(effects) == [("a process died", {"process": 0, "how": "SIGKILL"})]
    supervision.stopped(1, clean=True)
    assert supervision.ended(1, "exit 0", 20.2) == [Finish(clean=False, failed=False)]


def test_a_process_that_waits_to_be_begun_is_not_begun_in_a_stop() -> None:
    supervision = running(2)
    supervision.ended(1, "exit 1", 1.0)

    assert supervision.stop(1.1) == [AskToStop(0)]
    assert supervision.look(30.0) == []
    assert [one.state for one in supervision.processes] == [State.STOPPING, State.GONE]
