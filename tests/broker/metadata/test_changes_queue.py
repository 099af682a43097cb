"""The queue of changes, with a loop and a thread that the test turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.metadata.changes import Changes
from tests.support.manual_loop import ManualLoop
from tests.support.manual_worker import ManualWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.steps import Steps


def test_changes_take_their_first_step_in_turn_and_are_told_what_came_of_jobs() -> None:
    loop, worker = ManualLoop(), ManualWorker()
    changes = Changes(soon(loop), worker, monotonic_s=loop.time)  # type: ignore[arg-type]
    told: list[Any] = []

    def change(name: str, job: Callable[[], Any]) -> Steps[str]:
        told.append(f"{name} begins")
        try:
            told.append((yield job))
        except OSError as error:
            told.append(str(error))
        yield None
        return f"{name} is done"

    def fail() -> None:
        raise OSError("refused")

    changes.make(change("first", lambda: 1), told.append, told.append)
    changes.make(change("second", fail), told.append, told.append)
    assert told == ["first begins"]
    assert len(changes) == 2

    worker.do_one()
    loop.pass_s(0)

    assert told == ["first begins", 1, "first is done", "second begins"]
    worker.do_one()
    assert told[4:] == ["refused", "second is done"]
    assert len(changes) == 0


def test_others_are_served_between_the_slices_of_a_change() -> None:
    loop, worker = ManualLoop(), ManualWorker()
    changes = Changes(soon(loop), worker, monotonic_s=loop.time)  # type: ignore[arg-type]
    taken: list[int] = []

    def change() -> Steps[None]:
        for number in range(6):
            taken.append(number)
            loop.now_s += 0.0004
            yield None

    changes.make(change(), lambda _: taken.append(-1), lambda _: None)
    assert taken == [0, 1, 2], "a slice is a millisecond"
    loop.timers.pop().call()
    assert taken == [0, 1, 2, 3, 4, 5]
    loop.timers.pop().call()

    assert taken[6:] == [-1]
    assert loop.timers == []


def test_a_change_that_fails_in_any_way_holds_up_no_other() -> None:
    loop, worker = ManualLoop(), ManualWorker()
    changes = Changes(soon(loop), worker, monotonic_s=loop.time)  # type: ignore[arg-type]
    told: list[Any] = []

    def fault() -> Steps[None]:
        yield None
        raise KeyError("a fault")

    def good() -> Steps[str]:
        yield None
        return "good"

    changes.make(fault(), told.append, told.append)
    changes.make(good(), told.append, told.append)
    loop.pass_s(0)

    assert [type(one) for one in told] == [KeyError, str]


def test_a_stop_finishes_the_change_under_way_and_gives_up_those_behind_it() -> None:
    loop, worker = ManualLoop(), ManualWorker()
    changes = Changes(soon(loop), worker, monotonic_s=loop.time)  # type: ignore[arg-type]
    done: list[str] = []

    def change(name: str) -> Steps[str]:
        for part in ("sync", "folders"):
            yield lambda: done.append(f"{name} {part}")  # noqa: B023 (done before the next)
        return f"{name} ended"

    changes.make(change("first"), done.append, done.append)  # type: ignore[arg-type]
    changes.make(change("second"), done.append, done.append)  # type: ignore[arg-type]
    late = worker.jobs[0][1]
    worker.lose_the_last_word()

    changes.stop()
    late(None)  # what the thread had told the loop comes after the stop

    assert done == ["first sync", "first folders", "first ended"]
    assert len(changes) == 0


def soon(loop: ManualLoop) -> Any:
    """`call_soon` is a timer that is due."""
    loop.call_soon = lambda call, *arguments: loop.call_later(0, call, *arguments)  # type: ignore[attr-defined]
    return loop
