"""A partition of a broker that loses answers, refuses, is written to by others and forgets; and
tasks that are killed.

Everything is decided by a seeded `random.Random`, so that a run that fails can be had again.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client.producing import ProduceUnknown
from pipeline.errors import Refused
from protocol.errors import ErrorCode
from protocol.records.batch import Batch
from protocol.records.builder import build_batch

if TYPE_CHECKING:
    from random import Random


class Killed(BaseException):
    """The process of the task ends here."""


@dataclass
class Faults:
    """The probability of each fault, for every answer."""

    lost_before: float = 0.0
    lost_after: float = 0.0
    passing: float = 0.0
    timed_out: float = 0.0
    killed: float = 0.0
    foreign: float = 0.0
    late: float = 0.0
    """Of each set with a producer that was on its way when the task was killed: that it is carried
    out, at some later time."""


class SimulatedPartition:
    """A `delivery.Destination` of Kafka's rules for producers' sequences.

    `stamp_ms` is the append time that it gives batches, as with LogAppendTime.
    """

    name = "copy-0"

    def __init__(self, random: Random, faults: Faults, *, stamp_ms: int | None = None) -> None:
        self.random = random
        self.faults = faults
        self.stamp_ms = stamp_ms
        self.entries: list[bytes] = []
        self.following = 0
        self.foreign = 0
        self.most_in_flight = 0
        self._on_the_way: deque[bytes] = deque()
        self._late: list[bytes] = []
        self._producers: dict[int, tuple[int, int, list[tuple[int, int, int]]]] = {}
        """Of each: epoch, next sequence, and of its last five batches both sequences and offset."""

    # What a delivery asks.

    def end(self) -> int:
        self._others()
        return self.following

    def stored(self, offset: int) -> memoryview:
        found = [entry for entry in self.entries if Batch(memoryview(entry)).last_offset >= offset]
        return memoryview(b"".join(found[:3]))

    def begin(self, data: bytes | bytearray | memoryview, magic: int) -> None:
        assert magic == 2
        self._maybe_killed()
        self._on_the_way.append(bytes(data))
        self.most_in_flight = max(self.most_in_flight, len(self._on_the_way))

    def finish(self) -> int:
        self._others()
        self._maybe_killed()
        data = self._on_the_way.popleft()
        chance = self.random.random()
        for likely, outcome in (
            (self.faults.lost_before, self._lost_before),
            (self.faults.lost_after, self._lost_after),
            (self.faults.passing, self._passing),
            (self.faults.timed_out, self._timed_out),
        ):
            if chance < likely:
                return outcome(data)
            chance -= likely
        return self._append(data)

    def forget(self) -> None:
        self._dropped(self.random.randrange(len(self._on_the_way) + 1))

    # What happens to it.

    def others_append(self, data: bytes) -> None:
        self.foreign += Batch(memoryview(data)).record_count
        self._append(data)

    def delete_before(self, index: int) -> None:
        """Retention: the entries before this one."""
        del self.entries[:index]

    def delete(self, index: int) -> None:
        """Compaction: one entry, of which no record is left."""
        del self.entries[index]

    def values(self) -> list[bytes]:
        return [
            record.value or b""
            for entry in self.entries
            for record in Batch(memoryview(entry)).records()
        ]

    def _others(self) -> None:
        if self.random.random() < self.faults.foreign:
            value = b"foreign-%d" % self.following
            self.others_append(build_batch([(5, None, value, ())] * self.random.randint(1, 3)))
        if self._late and self.random.random() < 0.3:
            with contextlib.suppress(Refused):
                self._append(self._late.pop(0))

    def _maybe_killed(self) -> None:
        if self.random.random() < self.faults.killed:
            self._dropped(self.random.randrange(len(self._on_the_way) + 1))
            raise Killed

    def _dropped(self, carried_out: int) -> None:
        """The connection ends: the first ones were carried out, the others are not, or not yet."""
        for index, data in enumerate(self._on_the_way):
            try:
                if index < carried_out:
                    self._append(data)
                elif Batch(memoryview(data)).producer_id >= 0:
                    if self.random.random() < self.faults.late:
                        self._late.append(data)
                    else:
                        break
            except Refused:
                pass
        self._on_the_way.clear()

    def _lost_before(self, data: bytes) -> int:
        self._on_the_way.clear()
        raise Unknown(0)

    def _lost_after(self, data: bytes) -> int:
        self._append(data)
        self.forget()
        raise Unknown(0)

    def _passing(self, data: bytes) -> int:
        raise Unknown(ErrorCode.NOT_ENOUGH_REPLICAS)

    def _timed_out(self, data: bytes) -> int:
        self._append(data)
        raise Unknown(ErrorCode.REQUEST_TIMED_OUT)

    def _append(self, data: bytes) -> int:
        entry = bytearray(data)
        batch = Batch(memoryview(entry))
        assert batch.is_intact()
        assert batch.base_offset == 0
        assert batch.last_offset_delta + 1 == batch.record_count
        assert not batch.attributes & ~7
        known = self._sequenced(batch)
        if known is not None:
            return known
        base_offset = self.following
        if self.stamp_ms is not None:
            batch.stamp_log_append_time(self.stamp_ms + base_offset)
        batch.place(base_offset, 7)
        self.entries.append(bytes(entry))
        self.following += batch.record_count
        return base_offset

    def _sequenced(self, batch: Batch) -> int | None:
        if batch.producer_id < 0:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        known = self._producers.get(batch.producer_id)
        epoch, following, recent = known or (batch.producer_epoch, first, [])
        if batch.producer_epoch < epoch:
            raise refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        if batch.producer_epoch > epoch:
            following, recent = 0, []
        for begin, end, offset in recent:
            if (begin, end) == (first, last):
                return offset
        if first != following:
            raise refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        recent = [*recent, (first, last, self.following)][-5:]
        self._producers[batch.producer_id] = batch.producer_epoch, last + 1, recent
        return None


class Unknown(ProduceUnknown):
    """With only what a delivery looks at."""

    def __init__(self, code: int) -> None:
        Exception.__init__(self, "simulated")
        self.code = code


def refused(code: ErrorCode) -> Refused:
    return Refused(f"{code.name}: simulated", code)
