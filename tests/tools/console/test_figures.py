"""Rates and lines are taken from looks at counters, and are bounded."""

from __future__ import annotations

from typing import Any

from tools.console import lines
from tools.console.figures import Figures, Rates, TopicFigures
from tools.console.lines import MINUTES, Line, svg_points


class Broker:
    """Counters that a test sets, and a clock."""

    def __init__(self) -> None:
        self.topics: dict[str, list[int]] = {}
        self.now_s = 0.0

    def told(self) -> dict[str, Any]:
        columns = zip(*self.topics.values(), strict=True) if self.topics else [()] * 5
        told = dict(zip(TopicFigures._fields, map(list, columns), strict=True))
        return {"topics": {"names": list(self.topics), **told}}

    def figures(self) -> Figures:
        return Figures(self.told, lambda: self.now_s)


def test_a_rate_is_taken_over_the_last_minute_or_two() -> None:
    broker = Broker()
    seen = broker.figures()
    for second in range(0, 600, 5):
        broker.now_s = second
        # 100 bytes a second for five minutes, then nothing.
        broker.topics["orders"] = [100 * min(second, 300), 0, 0, 0, min(second, 300)]
        seen.look()
        rates = seen.rates("orders")
        if 5 <= second <= 300:
            assert rates == Rates(100.0, 0.0, 1.0)
        if second > 300 + 120:
            assert rates == Rates(0.0, 0.0, 0.0)


def test_nothing_is_said_of_a_rate_after_a_single_look() -> None:
    broker = Broker()
    broker.topics["orders"] = [100, 0, 0, 0, 0]
    seen = broker.figures()
    seen.look()
    assert seen.rates("orders") == Rates()
    assert seen.rates("unknown") == Rates()


def test_a_topic_that_is_new_has_begun_with_nothing() -> None:
    broker = Broker()
    seen = broker.figures()
    seen.look()
    broker.now_s, broker.topics = 10.0, {"new": [500, 0, 0, 0, 50]}
    seen.look()
    assert seen.rates("new") == Rates(50.0, 0.0, 5.0)


def test_figures_that_are_old_are_asked_for_anew() -> None:
    broker = Broker()
    seen = broker.figures()
    assert not seen.fresh([])
    broker.topics["orders"] = [1, 1, 1, 1, 1]
    assert not seen.fresh([])
    broker.now_s = 20.0
    assert seen.fresh([])["orders"].byte_size == 1


def test_figures_that_lack_a_topic_are_asked_for_anew() -> None:
    broker = Broker()
    seen = broker.figures()
    seen.look()
    broker.topics["orders"] = [1, 1, 1, 1, 1]
    assert seen.fresh(["orders"])["orders"].byte_size == 1


def test_a_line_has_a_point_for_each_minute_of_an_hour_and_gaps() -> None:
    line = Line()
    for minute in (0, 1, 5, 70):
        line.add(minute, float(minute))
    points = line.points(70)
    assert len(points) == MINUTES
    assert {minute: point for minute, point in enumerate(points, 11) if point is not None} == {
        70: 70.0
    }
    line.add(72, 2.0)
    assert line.points(72)[-3:] == [70.0, None, 2.0]


def test_lines_end_with_their_topics_and_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(lines, "LINES_MAX", 2)
    broker = Broker()
    broker.topics = {name: [0, 0, 0, 0, 0] for name in "abc"}
    seen = broker.figures()
    for broker.now_s in (0.0, 5.0):
        seen.look()
    assert [bool(seen.line(name)) for name in "abc"] == [True, True, False]
    del broker.topics["a"]
    for broker.now_s in (10.0, 15.0):
        seen.look()
    assert [bool(seen.line(name)) for name in "abc"] == [False, True, True]


def test_a_line_is_drawn_in_stretches_from_what_is_known_first() -> None:
    values: list[float | None] = [*[None] * 40, 0.0, 5.0, None, 10.0, 10.0, *[0.0] * 15]
    stretches = list(svg_points(values, width=190, height=12))
    assert [len(stretch) for stretch in stretches] == [2, 17]
    assert [*stretches[0], stretches[1][0]] == [(0.0, 11.0), (10.0, 6.0), (30.0, 1.0)]
    assert list(svg_points([None] * 60, width=10, height=10)) == []


def test_a_line_of_a_few_minutes_takes_a_part_of_the_width() -> None:
    values: list[float | None] = [*[None] * 58, 1.0, 1.0]
    ((first, last),) = svg_points(values, width=90, height=12)
    assert (first[0], last[0]) == (80, 90)
