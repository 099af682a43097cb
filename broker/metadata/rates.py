"""Rates over Kafka's windows, and the bucket of tokens of KIP-599. Pure: time is an argument.

Times are ms of a clock that does not jump. What is recorded are bytes, per cent of a second, or
connections; a rate is of these per second.
"""

from __future__ import annotations

from typing import NamedTuple

THROTTLE_MAX_MS = 2**31 - 1
"""The longest time that an answer can tell."""


class Windows(NamedTuple):
    """How many windows a rate is taken over (`quota.window.num`), and their length (`...size`)."""

    number: int
    size_ms: int

    @property
    def full_s(self) -> float:
        """The seconds of all windows but the current one."""
        return (self.number - 1) * self.size_ms / 1000


class _Sample:
    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.amount = 0.0


class Rate:
    """What was recorded in the windows of late. It holds one sample more than there are windows, as
    the oldest reaches into them."""

    __slots__ = ("_samples", "_windows", "used_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self.used_ms = 0.0
        """When something was recorded last."""

    def record(self, amount: float, now_ms: float) -> None:
        """Count this; a negative amount takes back what has been counted."""
        self.used_ms = now_ms
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.size_ms:
            samples.append(_Sample(now_ms))
            del samples[: -self._windows.number - 1]
        samples[-1].amount += amount
        samples[-1].last_ms = now_ms

    def amount(self, now_ms: float) -> float:
        """What was recorded in all windows."""
        return self._measure(now_ms)[1]

    def throttle_ms(self, quota: float, now_ms: float) -> int:
        """How long to wait until the rate is down to the quota; 0 where it is not above it."""
        elapsed_ms, amount = self._measure(now_ms)
        rate = amount / elapsed_ms * 1000
        if rate <= quota:
            return 0
        return min(round((rate - quota) / quota * elapsed_ms), THROTTLE_MAX_MS)

    def _measure(self, now_ms: float) -> tuple[float, float]:
        """The time (ms) that the rate is over, and what was recorded in it. Windows that have not
        begun count as if nothing had come in them, so that a first burst is no violation."""
        count, size_ms = self._windows
        self._samples = [one for one in self._samples if now_ms - one.last_ms < count * size_ms]
        samples = self._samples
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0.0
        missing = count - 1 - int(elapsed_ms // size_ms)
        elapsed_ms += max(missing, 0) * size_ms
        return elapsed_ms or float(size_ms), sum(one.amount for one in samples)


class TokenBucket:
    """Tokens that come at the rate of the quota, up to what comes in all windows. They may be
    overdrawn by one change, however large; until that is made good no other is made."""

    __slots__ = ("_tokens", "_windows", "used_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        """None for a bucket that is full."""
        self.used_ms = 0.0

    def take(self, amount: float, quota: float, now_ms: float) -> None:
        """Take so many, also if there are fewer."""
        self._tokens = self._left(quota, now_ms) - amount
        self.used_ms = now_ms

    def throttle_ms(self, quota: float, now_ms: float) -> int:
        """How long it takes until nothing is owed; 0 if nothing is."""
        left = self._left(quota, now_ms)
        return 0 if left >= 0 else min(max(round(-left / quota * 1000), 1), THROTTLE_MAX_MS)

    def _left(self, quota: float, now_ms: float) -> float:
        full = self._windows.number * self._windows.size_ms / 1000 * quota
        if self._tokens is None:
            return full
        return min(full, self._tokens + max(now_ms - self.used_ms, 0.0) / 1000 * quota)
