"""Exactly once into a partition, without a producer id of our own: bytes stay as they are.

A delivery knows at which offset the next record must land. Everything that it sends is answered
with an offset, and that must be the one:

higher    somebody else has written in between; it is counted
lower     the broker took the batch for one that it has from another producer with the same id, and
          stored nothing: it is sent again without the producer's fields
none      the answer was lost, or the task before this one was killed: what is stored there is read
          back (`reconcile`), and only what is missing is sent

Many sets are on their way at a time. A broker that refused one and took the next would change their
order, so a set waits until it is alone wherever it might be refused: `Pacing` says when.

What remains: of two deliveries into one partition at once, each sees what the other has done only
when it looks. A broker itself recognises a batch with a producer's fields that comes twice. A batch
without them is doubled if a request of a task that was killed is carried out after the new task has
looked; so that one looks until the partition's end has kept still for `settle_s`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol

from client.errors import ConnectionLost
from client.producing import ProduceUnknown
from pipeline.delivering.reconcile import Log, Stored
from pipeline.errors import ForeignState, Refused, Unreachable
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pipeline.delivering.record_sets import RecordSet

IN_FLIGHT = 32
"""Sets that are on their way at a time ..."""
IN_FLIGHT_BYTES = 16 << 20
"""... and their bytes, unless a single one is larger."""

PRODUCERS_MAX = 100_000
"""Producers whose sequences are remembered. Beyond it they are forgotten, which costs waiting."""

PATIENCE_S = 60.0
"""How long one set may be tried again."""
PAUSE_S = 0.1
"""Between one try and the next, growing to ..."""
PAUSE_MAX_S = 2.0
SETTLE_S = 1.0
"""How long the end of a partition must keep still before what is there counts as all there is."""
SETTLE_MAX_S = 5.0
"""How long that is waited for where somebody else keeps writing."""

OF_THE_PRODUCER = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""What a broker has against a producer's fields. Without them it takes the batch."""


class Destination(Log, Protocol):
    """One partition that sets are produced to, over one connection."""

    def begin(self, data: bytes | bytearray | memoryview, magic: int) -> None:
        """Send one set behind those that have no answer yet, over the same connection, and do not
        wait. Raises ProduceUnknown or ConnectionLost for it and all before it."""

    def finish(self) -> int:
        """The base offset of the oldest that has not been answered. Raises Refused with its `code`,
        if it is not stored and will not be, and ProduceUnknown for it and all after it, also if
        the broker is only not ready."""

    def forget(self) -> None:
        """Expect no more answers; what was sent may still be appended."""


class Pacing:
    """Whether a set may be sent while others are on their way.

    It may not where a broker could refuse one of them and take another: the first batch of a
    producer, or one whose sequence does not follow; an entry that is larger than all before, in
    another codec or format, or dated in the future; and where the destination is `wary`, as it may
    refuse anything (too few replicas, keys missing for compaction, bounds of time), all but batches
    of one producer whose sequences follow, as those are refused together.
    """

    def __init__(
        self,
        *,
        sets: int = IN_FLIGHT,
        size: int = IN_FLIGHT_BYTES,
        wary: bool = False,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.sets = sets
        self.size = size
        self._wary = wary
        self._now_ms = now_ms
        self._next: dict[int, tuple[int, int]] = {}
        """Of each producer: its epoch, and the sequence that follows."""
        self._largest = 0
        self._kinds: set[tuple[int, int]] = set()
        self._risk = False
        self._bytes = 0

    def allows(self, next_set: RecordSet, in_flight: deque[RecordSet]) -> bool:
        """Whether it may be sent now, behind these."""
        if not in_flight:
            self._bytes = 0
            return True
        if (
            len(in_flight) >= self.sets
            or self._bytes + len(next_set.data) > self.size
            or self._risk
            or self._is_risk(next_set)
        ):
            return False
        return not self._wary or (
            next_set.producer[0] >= 0 and next_set.producer[0] == in_flight[-1].producer[0]
        )

    def sent(self, sent: RecordSet) -> None:
        self._risk = self._is_risk(sent)
        self._bytes += len(sent.data)
        if sent.producer[0] >= 0:
            if len(self._next) >= PRODUCERS_MAX:
                self._next.clear()
            self._next[sent.producer[0]] = sent.producer[1], sent.next_sequence

    def taken(self, taken: RecordSet) -> None:
        """The broker has stored it, and so would store others like it."""
        self._risk = False
        self._bytes -= len(taken.data)
        self._largest = max(self._largest, len(taken.data))
        self._kinds.add((taken.magic, taken.codec))

    def lost(self) -> None:
        """Forget what is in flight, and the broker's state of producers: both are unknown now."""
        self._next.clear()
        self._risk = False
        self._bytes = 0

    def _is_risk(self, next_set: RecordSet) -> bool:
        producer, epoch, sequence = next_set.producer
        return (
            len(next_set.data) > self._largest
            or (next_set.magic, next_set.codec) not in self._kinds
            or (producer >= 0 and self._next.get(producer) != (epoch, sequence))
            or next_set.max_timestamp > self._now_ms()
        )


class Delivery:
    """Sends the sets of one range to `destination`, where the first is to land at `next_offset` or,
    if somebody else writes too, behind it.

    What the destination has from there on is looked at first. With `doubtful`, as another task may
    have ended just now with requests on their way, that is not before its end has kept still.

    `counts`: `sent` and `found` sets, `sent_records` and `found_records`, `sent_bytes`; `foreign`
    offsets that somebody else has written; `lost` answers; `producer_refused`, sets that went
    without the producer's fields; `out_of_order`, sets that a broker took before one that it had
    refused.
    """

    def __init__(
        self,
        destination: Destination,
        next_offset: int,
        *,
        doubtful: bool = False,
        pacing: Pacing | None = None,
        patience_s: float = PATIENCE_S,
        settle_s: float = SETTLE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._destination = destination
        self._sure = next_offset
        """All sets that are done are stored below it."""
        self._expected = next_offset
        self._doubtful = doubtful
        self._pacing = pacing or Pacing()
        self._patience_s = patience_s
        self._settle_s = settle_s
        self._clock = clock
        self._sleep = sleep
        self._waiting: deque[RecordSet] = deque()
        self._in_flight: deque[RecordSet] = deque()
        self._must_look = True
        self._stored: Stored | None = None
        self._failing_since: float | None = None
        self._pause_s = PAUSE_S

    def deliver(self, sets: Iterable[RecordSet]) -> None:
        """Send these behind all before. Raises Refused, Unreachable, ForeignState."""
        for next_set in sets:
            self._waiting.append(next_set)
            while self._waiting:
                self._step()

    def finish(self) -> int:
        """Wait for all answers. The offset at which the next set is to land."""
        if self._must_look:
            self._look()
        while self._in_flight or self._waiting:
            if self._waiting:
                self._step()
            else:
                self._take_answer()
        return self._sure

    def _step(self) -> None:
        """Find, send, or wait for one answer, so that the next set may be sent."""
        if self._must_look:
            self._look()
        next_set = self._waiting[0]
        if self._stored is not None:
            passed = self._stored.foreign
            found = self._stored.find(next_set)
            self.counts["foreign"] += self._stored.foreign - passed
            if found is not None:
                self._waiting.popleft()
                self._sure = max(self._sure, found)
                self.counts["found"] += 1
                self.counts["found_records"] += next_set.records
                return
        if not self._pacing.allows(next_set, self._in_flight):
            self._take_answer()
            return
        if not self._in_flight and self._expected > self._sure:
            self.counts["foreign"] += self._expected - self._sure
            self._sure = self._expected
        self._in_flight.append(self._waiting.popleft())
        self._pacing.sent(next_set)
        try:
            self._destination.begin(next_set.data, next_set.magic)
        except (ProduceUnknown, ConnectionLost) as error:
            self._answers_lost([], error)

    def _take_answer(self) -> None:
        answered = self._in_flight.popleft()
        try:
            base_offset = self._destination.finish()
        except ProduceUnknown as error:
            self._answers_lost([answered], error)
        except Refused as error:
            self._was_refused(answered, error)
        else:
            if base_offset < 0:
                self._answers_lost([answered], Refused("the answer has no offset"))
            elif base_offset >= self._expected:
                self._was_taken(answered, base_offset)
            elif answered.producer[0] >= 0:
                self._send_again(answered.without_producer())
            else:
                raise ForeignState(
                    f"{self._destination.name} was to go on at offset {self._expected:,} and went "
                    f"on at {base_offset:,}: its log was cut or its topic made anew"
                )

    def _was_taken(self, taken: RecordSet, base_offset: int) -> None:
        self._pacing.taken(taken)
        self.counts["foreign"] += base_offset - self._expected
        self.counts["sent"] += 1
        self.counts["sent_records"] += taken.records
        self.counts["sent_bytes"] += len(taken.data)
        self._sure = self._expected = base_offset + taken.records
        self._failing_since = None
        self._pause_s = PAUSE_S

    def _was_refused(self, refused: RecordSet, error: Refused) -> None:
        if error.code in OF_THE_PRODUCER and refused.producer[0] >= 0:
            self._send_again(refused.without_producer())
            return
        self._finish_behind()
        text = f"{error}; it is the set that ends at the source's offset {refused.last}"
        raise Refused(text, error.code) from None

    def _send_again(self, again: RecordSet) -> None:
        """Before anything else, without its producer: it is not stored."""
        self.counts["producer_refused"] += 1
        waiting, unknown = self._finish_behind()
        self._waiting.extendleft(reversed([again, *waiting]))
        self._pacing.lost()
        if unknown is not None:
            self._try_later(unknown)

    def _finish_behind(self) -> tuple[list[RecordSet], Exception | None]:
        """Take the answers of what is still on its way behind a set that was refused: the sets that
        are not stored, or not known to be, and why."""
        waiting: list[RecordSet] = []
        unknown: Exception | None = None
        while self._in_flight:
            behind = self._in_flight.popleft()
            try:
                base_offset = self._destination.finish()
            except ProduceUnknown as error:
                waiting += [behind, *self._in_flight]
                self._in_flight.clear()
                unknown = error
            except Refused:
                waiting.append(behind)
            else:
                if base_offset >= self._expected:
                    self.counts["out_of_order"] += 1
                    self._was_taken(behind, base_offset)
                else:
                    waiting.append(behind)
        return waiting, unknown

    def _answers_lost(self, lost: list[RecordSet], error: Exception) -> None:
        waiting = [*lost, *self._in_flight]
        self._in_flight.clear()
        self.counts["lost"] += len(waiting)
        self._waiting.extendleft(reversed(waiting))
        self._pacing.lost()
        self._try_later(error)

    def _try_later(self, error: Exception) -> None:
        self._destination.forget()
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > self._patience_s:
            if isinstance(error, Refused):
                raise error
            raise Unreachable(
                f"{self._destination.name}: nothing could be written for {self._patience_s:g} s: "
                f"{error}"
            )
        self._sleep(self._pause_s)
        self._pause_s = min(PAUSE_MAX_S, self._pause_s * 2)
        self._must_look = self._doubtful = True

    def _look(self) -> None:
        """See what the destination has behind what is sure to be there."""
        end = self._destination.end()
        if self._doubtful:
            end = self._settled(end)
        if end < self._sure:
            raise ForeignState(
                f"{self._destination.name} ends at offset {end:,}, where {self._sure:,} had been "
                "reached: its log was cut or its topic made anew. Use another --state"
            )
        self._must_look = self._doubtful = False
        self._expected = end
        self._stored = None
        if end > self._sure:
            self._stored = Stored(self._destination, self._sure, end, window=self._pacing.sets)

    def _settled(self, end: int) -> int:
        """The end, once it has not moved for a while."""
        since = began = self._clock()
        while True:
            now = self._clock()
            if now - since >= self._settle_s or now - began >= SETTLE_MAX_S:
                return end
            self._sleep(self._settle_s / 4)
            later = self._destination.end()
            if later != end:
                end, since = later, self._clock()
