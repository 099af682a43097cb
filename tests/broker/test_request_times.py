"""Phases of requests, told by times that a test gives."""

from __future__ import annotations

from typing import Any, cast

from broker.histograms import BOUNDS_S, Histogram
from broker.metrics.text import histogram_rows, labels
from broker.request_times import (
    DISK,
    LOCAL,
    QUEUE,
    SEND,
    WAIT,
    RequestTimes,
    TimedRequest,
    Timing,
)


class Api:
    name = "Produce"


class Route:
    api = Api


class Request:
    route = Route

    def __init__(self) -> None:
        self.answered = False


def begun(now_s: float, *, stands_for: int = 1) -> TimedRequest:
    return TimedRequest(cast("Any", Request()), stands_for, now_s)


def counted(times: RequestTimes) -> dict[int, float]:
    """The sum of each phase."""
    return {phase: round(one.sum_s, 6) for (_, phase), one in times.histograms.items()}


def test_a_request_that_waits_for_the_disk_has_all_phases_but_a_wait() -> None:
    times = RequestTimes()
    timing, one = Timing(times), begun(10.005)

    timing.handled([one], 10.0, 10.006)
    timing.sent(10.007)
    assert not times.histograms, "it is not answered yet"
    timing.synced([one.request], 10.016)
    one.request.answered = True
    timing.sent(10.018)

    assert counted(times) == {QUEUE: 0.005, LOCAL: 0.001, DISK: 0.01, SEND: 0.002}
    assert not timing.open


def test_a_request_that_waits_is_handled_twice_and_queued_once() -> None:
    times = RequestTimes()
    timing, one = Timing(times), begun(10.0)

    timing.handled([one], 10.0, 10.001)
    again = timing.waited(one.request, 10.501)
    assert again == [one]
    timing.handled(again, 10.6, 10.502)
    one.request.answered = True
    timing.sent(10.502)

    assert counted(times) == {QUEUE: 0.0, LOCAL: 0.002, WAIT: 0.5, SEND: 0.0}


def test_a_request_that_is_not_timed_may_wait_and_be_synced() -> None:
    timing, other = Timing(RequestTimes()), begun(1.0)

    timing.synced([other.request], 2.0)

    assert timing.waited(other.request, 3.0) == []


def test_a_timed_request_counts_for_those_that_are_not() -> None:
    times = RequestTimes()
    timing, one = Timing(times), begun(0.0, stands_for=64)
    one.request.answered = True

    timing.handled([one], 0.0, 0.001)
    timing.sent(0.001)

    (histogram,) = [times.histograms[key] for key in times.histograms if key[1] == LOCAL]
    assert sum(histogram.counts) == 64
    assert round(histogram.sum_s, 6) == 0.064


def test_a_duration_at_a_bound_is_below_it_and_one_above_all_bounds_is_counted() -> None:
    histogram = Histogram()
    for seconds in (0.001, 0.0011, 1000.0):
        histogram.add(seconds)

    rows = dict(histogram_rows(histogram))
    assert rows['_bucket{le="0.0005"}'] == 0
    assert rows['_bucket{le="0.001"}'] == 1
    assert rows['_bucket{le="0.0025"}'] == rows['_bucket{le="30.0"}'] == 2
    assert rows['_bucket{le="+Inf"}'] == rows["_count"] == 3
    assert len(rows) == len(BOUNDS_S) + 3


def test_labels_keep_any_characters() -> None:
    assert labels(group='a"b\\c\nd', n=1) == '{group="a\\"b\\\\c\\nd",n="1"}'
