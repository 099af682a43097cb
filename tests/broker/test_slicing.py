"""Background work is done in slices with pauses between them, on a clock that the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from broker.slicing import Slicer
from tests.support.manual_loop import ManualLoop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

SLICE_S, PAUSE_S = 0.25, 1.0


class SteppedLoop(ManualLoop):
    """A step of work takes half a slice of its time."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def work(self, count: int) -> Iterator[None]:
        for number in range(count):
            self.now_s += SLICE_S / 2
            self.steps.append(number)
            yield None


@pytest.fixture
def loop() -> SteppedLoop:
    return SteppedLoop()


@pytest.fixture
def slicer(loop: SteppedLoop) -> Slicer:
    return Slicer(
        cast("asyncio.AbstractEventLoop", loop),
        "test",
        slice_s=SLICE_S,
        pause_s=PAUSE_S,
        monotonic_s=lambda: loop.now_s,
    )


def test_a_slice_ends_with_its_time_and_a_pause_follows(loop: SteppedLoop, slicer: Slicer) -> None:
    ended: list[float] = []

    slicer.run(loop.work(5), lambda: ended.append(loop.now_s))
    assert (loop.steps, slicer.is_running) == ([0, 1], True)
    began_s = loop.now_s
    loop.pass_s(PAUSE_S)
    assert loop.steps == [0, 1, 2, 3]
    assert loop.now_s - began_s == pytest.approx(PAUSE_S + SLICE_S)
    loop.pass_s(PAUSE_S)

    assert (loop.steps, len(ended), slicer.is_running) == ([0, 1, 2, 3, 4], 1, False)
    assert not loop.timers


def test_work_that_waits_goes_on_a_pause_after_the_end_of_its_wait(
    loop: SteppedLoop, slicer: Slicer
) -> None:
    waiting: list[Callable[[], None]] = []
    ended: list[bool] = []

    def work() -> Iterator[Callable[[Callable[[], None]], None]]:
        yield waiting.append

    slicer.run(work(), lambda: ended.append(True))
    assert (len(waiting), loop.timers, ended) == (1, [], [])
    waiting[0]()
    loop.pass_s(PAUSE_S)

    assert ended == [True]


def test_work_that_was_stopped_neither_goes_on_nor_ends(loop: SteppedLoop, slicer: Slicer) -> None:
    ended: list[bool] = []
    waiting: list[Callable[[], None]] = []

    def work() -> Iterator[Callable[[Callable[[], None]], None]]:
        yield waiting.append

    slicer.run(loop.work(5), lambda: ended.append(True))
    slicer.stop()
    assert not loop.timers
    slicer.run(work(), lambda: ended.append(True))
    slicer.stop()
    waiting[0]()

    assert (loop.timers, ended, slicer.is_running) == ([], [], False)


def test_what_work_raises_is_given_to_its_owner(loop: SteppedLoop, slicer: Slicer) -> None:
    failures: list[str] = []

    def work() -> Iterator[None]:
        yield None
        raise OSError("no room")

    slicer.run(work(), lambda: failures.append("done"), lambda error: failures.append(str(error)))

    assert (failures, slicer.is_running) == (["no room"], False)
    slicer.run(loop.work(1), lambda: failures.append("done"))
    assert failures == ["no room", "done"]
