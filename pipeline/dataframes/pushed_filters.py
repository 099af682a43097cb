"""Filters of a query, as far as they tell what need not be fetched.

By topic, partition, offset and time. Spark hands them over where its switch
`spark.sql.python.filterPushdown.enabled` and our option `pushFilters` are on, and applies all of
them again to what is read, so that rows are the same with and without: only what cannot match is
left out here, before it is fetched. An upper bound of time leaves out nothing, since a log is not
in the order of its records' times.

It has to be asked for, because Spark 4.3 keeps what was planned with the filters of one query for
the next query on the same data frame, and for the other half of a union or join.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pipeline.reading.plan import OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

    from pipeline.reading.plan import Offsets
    from pipeline.reading.source import Source

MILLISECOND = 1000
"""In microseconds."""


@dataclass
class Bounds:
    """The values of a column that may match: from `least` to `most`, both inclusive, and if
    `among` is given only those in it."""

    least: int = -OFFSET_MAX
    most: int = OFFSET_MAX
    among: set[object] | None = None

    def narrow(self, filter_: Filter) -> None:
        """By one more filter of this column; by none of a kind that says nothing here."""
        match filter_:
            case EqualTo(value=value) | EqualNullSafe(value=value):
                self._only({value})
            case In(value=values):
                self._only(set(values))
            case GreaterThan(value=int(value)):
                self.least = max(self.least, value + 1)
            case GreaterThanOrEqual(value=int(value)):
                self.least = max(self.least, value)
            case LessThan(value=int(value)):
                self.most = min(self.most, value - 1)
            case LessThanOrEqual(value=int(value)):
                self.most = min(self.most, value)

    def _only(self, values: set[object]) -> None:
        self.among = values if self.among is None else self.among & values
        numbers = [value for value in self.among if isinstance(value, int)]
        if len(numbers) == len(self.among):
            self.least = max(self.least, min(numbers, default=OFFSET_MAX))
            self.most = min(self.most, max(numbers, default=-OFFSET_MAX))

    def may_be(self, value: int | str) -> bool:
        """Whether the column may have this value."""
        if self.among is not None and value not in self.among:
            return False
        return isinstance(value, str) or self.least <= value <= self.most


@dataclass
class PushedFilters:
    """What the filters of a query leave over. Each of them has to be true of a row."""

    topic: Bounds = field(default_factory=Bounds)
    partition: Bounds = field(default_factory=Bounds)
    offset: Bounds = field(default_factory=Bounds)
    since_ms: int | None = None

    def add(self, filters: Iterable[Filter]) -> None:
        """Take what they say of our columns."""
        for filter_ in filters:
            match getattr(filter_, "attribute", None):
                case ("topic",):
                    self.topic.narrow(filter_)
                case ("partition",):
                    self.partition.narrow(filter_)
                case ("offset",):
                    self.offset.narrow(filter_)
                case ("timestamp",):
                    self._add_time(filter_)

    def _add_time(self, filter_: Filter) -> None:
        match filter_:
            case (
                EqualTo(value=datetime() as time)
                | EqualNullSafe(value=datetime() as time)
                | GreaterThan(value=datetime() as time)
                | GreaterThanOrEqual(value=datetime() as time)
            ):
                # Where no zone is said, PySpark means this process's own.
                since = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
                micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
                self.since_ms = max(micros // MILLISECOND, self.since_ms or 0)

    def narrowed(self, source: Source, starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """The starts and ends of the partitions that are left, and of what is left of them."""
        left = [
            place
            for place in ends
            if self.topic.may_be(place.topic) and self.partition.may_be(place.partition)
        ]
        begins = {place: max(starts[place], self.offset.least) for place in left}
        # Past the last offset there is none to add one to.
        stops = {place: min(ends[place] - 1, self.offset.most) + 1 for place in left}
        if self.since_ms is not None:
            going = [place for place in left if begins[place] < stops[place]]
            # A millisecond earlier: an index may name the second of two records of one time.
            found = source.no_later(going, max(self.since_ms - 1, 0))
            begins |= {place: max(begins[place], offset) for place, offset in found.items()}
        return begins, stops
