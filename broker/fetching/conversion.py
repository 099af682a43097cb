"""Stored entries in older formats: made once for all readers, and off the loop if they are large.

Old consumers come in groups that read the same topics. What is made for the first of them is kept,
least recently used first out, within `conversion.cache.max.bytes`; those that ask while it is being
made wait for the same job. One worker thread does what expands no further than most entries do,
another what does, so at most one of each is in memory in its expanded form.

A result goes to the cache and to the fetches that wait for it. They hold it until they are
answered, so a cache that is too small, or none, makes them slower and never stuck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock, logs
from broker.workers import MOST_EXPAND_BYTES
from protocol.errors import ErrorCode, KafkaError
from protocol.records.convert import ExpansionLimits, convert
from protocol.records.transcode import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.workers import Worker
    from config import BrokerSettings
    from protocol.records.convert import Converted, Form
    from storage.slices import FileSlice

    Key = tuple[int, int, int, Form]
    """Segment, position, bytes, form. A run of plain messages is one entry here."""
    Outcome = Converted | KafkaError
    """An entry that can't be converted is remembered as well: its reader asks again at once."""

INLINE_US = 1000
"""A pass of a fetch over its partitions converts for so long at most while the loop stands still;
the estimates below are rough, and high rather than low."""
INLINE_EXPANDED_BYTES = 16_384
"""Expanded size above which an entry goes to the worker, whatever its estimate."""
ENTRY_US = 30
RECORD_US = 0.4 if IMPLEMENTATION == "compiled" else 2.5
PLAIN_BYTES_PER_US = 500
COMPRESSED_BYTES_PER_US = 8
"""Stored bytes of gzip, which takes longest to make again."""

OVERHEAD_BYTES = 400
"""Memory for an entry of the cache besides its bytes."""


class ConversionUnit:
    """A part of a log that is converted as one: a batch, a wrapper, or a run of plain messages.

    `record_count` is the number of records, or 0 where only the inside of a wrapper would tell.
    `key` names stored bytes and form within this process.
    """

    __slots__ = ("_place", "compressed", "form", "key", "record_count", "stored")

    def __init__(
        self,
        stored: FileSlice,
        form: Form,
        place: tuple[int, int],
        *,
        record_count: int,
        compressed: bool,
    ) -> None:
        self.stored = stored
        self.form = form
        self.key: Key = (*place, stored.size, form)
        self.record_count = record_count
        self.compressed = compressed
        self._place = place

    def cost_us(self) -> float:
        """Roughly how long the conversion takes."""
        per_us = COMPRESSED_BYTES_PER_US if self.compressed else PLAIN_BYTES_PER_US
        return ENTRY_US + self.record_count * RECORD_US + self.stored.size / per_us

    def plain(self) -> ConversionUnit:
        """The same without a wrapper around it."""
        return ConversionUnit(
            self.stored,
            self.form.plain,
            self._place,
            record_count=self.record_count,
            compressed=self.compressed,
        )


class _Job:
    """Pieces of one partition, converted in order until they make `enough` bytes."""

    __slots__ = ("enough", "tickets", "units", "worked_s")

    def __init__(self, units: list[ConversionUnit], enough: int) -> None:
        self.units = units
        self.enough = enough
        self.tickets: list[Ticket] = []
        self.worked_s = 0.0


class Ticket:
    """A fetch that waits for jobs; `done` is called once with all that they made."""

    __slots__ = ("_done", "_jobs", "_left", "_made", "worked_s")

    def __init__(self, jobs: list[_Job], done: Callable[[dict[Key, Outcome]], None]) -> None:
        self._jobs = jobs
        self._left = len(jobs)
        self._made: dict[Key, Outcome] = {}
        self._done = done
        self.worked_s = 0.0
        """What the threads have worked for it; for those who join, that is nothing."""
        for job in jobs:
            job.tickets.append(self)

    def take(self, made: dict[Key, Outcome]) -> None:
        """Take over the result of one of the jobs."""
        if not self._left:
            return  # dropped by one who was told before
        self._made |= made
        self._left -= 1
        if not self._left:
            self._done(self._made)

    def drop(self) -> None:
        """The fetch is gone. A job that nobody waits for is not begun."""
        self._left = 0
        for job in self._jobs:
            if self in job.tickets:
                job.tickets.remove(self)


class Conversions:
    """The cache, the jobs under way, and counters of both.

    converted_entries   stored batches, wrappers and runs of messages that were converted
    converted_records   records in them
    converted_bytes     bytes made of them
    hits, misses        lookups that found a result in the cache, and that did not
    joined              fetches that waited for a job that another one had begun
    failures            stored entries that could not be converted
    cached_bytes        memory that the cache takes
    """

    def __init__(
        self,
        worker: Worker,
        expander: Worker,
        limits: ExpansionLimits,
        *,
        cache_max_bytes: int,
    ) -> None:
        """`expander` is for what expands far, that the others need not wait for it."""
        self._worker = worker
        self._expander = expander
        self._set_limits(limits)
        self._cache_max_bytes = cache_max_bytes
        # In the order of use, the least recent first.
        self._cache: dict[Key, Outcome] = {}
        self._under_way: dict[Key, _Job] = {}
        self.cached_bytes = 0
        self.converted_entries = 0
        self.converted_records = 0
        self.converted_bytes = 0
        self.hits = 0
        self.misses = 0
        self.joined = 0
        self.failures = 0

    def _set_limits(self, limits: ExpansionLimits) -> None:
        self._limits = limits
        self._inline_limits = limits._replace(bytes=min(limits.bytes, INLINE_EXPANDED_BYTES))
        self._most_limits = limits._replace(bytes=min(limits.bytes, MOST_EXPAND_BYTES))

    def configure(self, limits: ExpansionLimits, *, cache_max_bytes: int) -> None:
        """Work within other limits from now on."""
        if limits != self._limits:
            self._set_limits(limits)
            self._cache.clear()  # it remembers what was too large
            self.cached_bytes = 0
        self._cache_max_bytes = cache_max_bytes
        self._shrink()

    def find(self, unit: ConversionUnit) -> Outcome | None:
        """The cached result for this unit, if there is one."""
        found = self._cache.pop(unit.key, None)
        if found is None:
            self.misses += 1
            return None
        self._cache[unit.key] = found
        self.hits += 1
        return found

    def convert_now(self, unit: ConversionUnit) -> Outcome | None:
        """Convert a small unit here; None if it is under way or turns out to be a large one."""
        if unit.key in self._under_way:
            return None
        made = self._convert(unit, self._inline_limits)
        if _is_too_large(made):
            return None
        self._keep({unit.key: made})
        return made

    def begin(
        self,
        wanted: list[tuple[list[ConversionUnit], int]],
        done: Callable[[dict[Key, Outcome]], None],
    ) -> Ticket:
        """Have units converted on the worker, those of each partition until they make so many
        bytes. `done` gets what was made, on the loop and never before this returns."""
        jobs: dict[_Job, None] = {}
        new: list[_Job] = []
        for units, enough in wanted:
            own = []
            for unit in units:
                job = self._under_way.get(unit.key)
                if job is None:
                    own.append(unit)
                elif job not in jobs:
                    jobs[job] = None
                    self.joined += 1
            if own:
                job = _Job(own, enough)
                self._under_way.update(dict.fromkeys([unit.key for unit in own], job))
                jobs[job] = None
                new.append(job)
        ticket = Ticket(list(jobs), done)
        for job in new:
            self._start(job)
        return ticket

    def _start(self, job: _Job, *, large: bool = False) -> None:
        limits = self._limits if large else self._most_limits

        def done(made: dict[Key, Outcome]) -> None:
            if not large and any(map(_is_too_large, made.values())):
                self._start(job, large=True)
                return
            for unit in job.units:
                del self._under_way[unit.key]
            self._keep(made)
            tickets, job.tickets = job.tickets, []
            if tickets:
                tickets[0].worked_s += job.worked_s
            for ticket in tickets:
                ticket.take(made)

        worker = self._expander if large else self._worker
        worker.run(lambda: self._work(job, limits), done)

    def _work(self, job: _Job, limits: ExpansionLimits) -> dict[Key, Outcome]:
        """On a worker's thread."""
        began_s = clock.thread_s()
        made: dict[Key, Outcome] = {}
        size = 0
        for unit in job.units:
            if size >= job.enough or not job.tickets:
                break
            outcome = made[unit.key] = self._convert(unit, limits)
            if isinstance(outcome, KafkaError):
                break
            size += len(outcome.data)
        job.worked_s += clock.thread_s() - began_s
        return made

    def _convert(self, unit: ConversionUnit, limits: ExpansionLimits) -> Outcome:
        stored = unit.stored
        try:
            data = stored.read()
            if len(data) != stored.size:
                raise KafkaError(
                    f"{len(data)} of {stored.size} bytes could be read",
                    code=ErrorCode.CORRUPT_MESSAGE,
                )
            return convert(data, unit.form, limits)
        except KafkaError as error:
            # Without the trace, which would keep all that the conversion held.
            return KafkaError(str(error), code=error.code)
        except OSError as error:
            return KafkaError(str(error), code=ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception as error:
            # A fault of ours must not end the thread that all conversions need.
            logs.fault_once_a_minute("a conversion failed", error, unit.form.name)
            return KafkaError(str(error), code=ErrorCode.CORRUPT_MESSAGE)

    def _keep(self, made: dict[Key, Outcome]) -> None:
        """Count results and put them into the cache."""
        for key, outcome in made.items():
            size = OVERHEAD_BYTES
            if isinstance(outcome, KafkaError):
                self.failures += 1
                if outcome.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    continue  # the disk may be well again soon
            else:
                self.converted_entries += 1
                self.converted_records += outcome.record_count
                self.converted_bytes += len(outcome.data)
                size += len(outcome.data)
            if size <= self._cache_max_bytes and key not in self._cache:
                self._cache[key] = outcome
                self.cached_bytes += size
        self._shrink()

    def _shrink(self) -> None:
        while self.cached_bytes > self._cache_max_bytes:
            self.cached_bytes -= self._size(self._cache.pop(next(iter(self._cache))))

    @staticmethod
    def _size(outcome: Outcome) -> int:
        data = b"" if isinstance(outcome, KafkaError) else outcome.data
        return OVERHEAD_BYTES + len(data)


def _is_too_large(outcome: Outcome) -> bool:
    """Whether the entry expands beyond the limits it was converted with."""
    return isinstance(outcome, KafkaError) and outcome.code == ErrorCode.MESSAGE_TOO_LARGE


def limits_of(settings: BrokerSettings) -> ExpansionLimits:
    """How far these let a batch expand."""
    return ExpansionLimits(settings.max_decompressed_batch_bytes, settings.max_decompression_ratio)
