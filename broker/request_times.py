"""How long requests take, and what they spend it on.

The phases of a request, from its last byte to the last byte of its answer:

queue  it waits for its turn, behind other connections or behind earlier requests of its own (read
       from the loop's clock: to the millisecond)
local  it is handled, and what it brings is written
wait   it waits for records, for other members of its group, for a change of the metadata, for a
       thread
disk   it waits for the sync that acks=all promises
send   its answer is handed to the kernel

Of each version of an API the first `ALL_TIMED` requests are timed, then every `TIMED_EVERY`th,
which counts for as many: to time one costs a fifth of a small request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.histograms import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from protocol.connection import Request

ALL_TIMED = 1024
TIMED_EVERY = 64

QUEUE, LOCAL, WAIT, DISK, SEND = range(5)
PHASES = ("queue", "local", "wait", "disk", "send")


def next_timed(number: int) -> int:
    """The number of the request that is timed after this one; both count from 0."""
    following = number + 1
    return following if following < ALL_TIMED else -(-following // TIMED_EVERY) * TIMED_EVERY


class TimedRequest:
    """A request on its way. `seconds` has the phases that are over; of each the sum, because a
    request may wait twice."""

    __slots__ = ("_at_s", "began_s", "request", "seconds", "stands_for")

    def __init__(self, request: Request, stands_for: int, now_s: float) -> None:
        """Its handler is called now."""
        self.request = request
        self.stands_for = stands_for
        self.began_s = self._at_s = now_s
        self.seconds: dict[int, float] = {}

    def end(self, phase: int, now_s: float) -> None:
        """All since the end of the last phase was this one."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now_s - self._at_s
        self._at_s = now_s

    def queued_since(self, whole_s: float) -> None:
        """Its last byte had come at this time of the loop, which counts in whole milliseconds."""
        self.seconds[QUEUE] = max(0, int(1000 * (self.began_s - whole_s))) / 1000


class RequestTimes:
    """The histograms, by name of the API and phase. Bounded by the APIs there are."""

    __slots__ = ("histograms",)

    def __init__(self) -> None:
        self.histograms: dict[tuple[str, int], Histogram] = {}

    def add(self, requests: Iterable[TimedRequest]) -> None:
        """These are answered: count their phases."""
        histograms = self.histograms
        for one in requests:
            name = one.request.route.api.name
            for phase, seconds in one.seconds.items():
                histogram = histograms.get((name, phase))
                if histogram is None:
                    histogram = histograms[name, phase] = Histogram()
                histogram.add(seconds, one.stands_for)


class Timing:
    """The timed requests of one connection. `open` has those without an answer that was sent; they
    are bounded by the requests that a connection may have in flight."""

    __slots__ = ("_times", "open")

    def __init__(self, times: RequestTimes) -> None:
        self._times = times
        self.open: dict[Request, TimedRequest] = {}

    def handled(self, timed: list[TimedRequest], whole_s: float, now_s: float) -> None:
        """These are handled, and what they bring is written. The last byte that the connection
        has read came at `whole_s`, a time of the loop."""
        for one in timed:
            if not one.seconds:
                one.queued_since(whole_s)
            one.end(LOCAL, now_s)
            self.open[one.request] = one
        timed.clear()

    def synced(self, requests: Iterable[Request], now_s: float) -> None:
        """What these requests brought is on the disk."""
        for request in requests:
            one = self.open.get(request)
            if one is not None:
                one.end(DISK, now_s)

    def waited(self, request: Request, now_s: float) -> list[TimedRequest]:
        """This request has waited long enough, and is handled again: it, if it is timed."""
        one = self.open.pop(request, None)
        if one is None:
            return []
        one.end(WAIT, now_s)
        return [one]

    def sent(self, now_s: float) -> None:
        """All answers there are have been handed to the kernel."""
        done = [one for one in self.open.values() if one.request.answered]
        for one in done:
            one.end(SEND, now_s)
            del self.open[one.request]
        self._times.add(done)
