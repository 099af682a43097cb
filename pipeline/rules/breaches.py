"""The records of topics that break rules, found by Spark's own functions.

One query reads all records once. It adds up, for each stretch of time of a partition, which rules
its records break, how many they are, and between which times they lie: a stretch is no longer than
the shortest gap that a rule allows, so that a gap that is too long lies between two of them. Each
rule of what is unique is a query of its own, grouped by that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.rules.rules import GAP, JSON, RANGE, REQUIRED, TOPIC, UNIQUE, VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame, Row

    from pipeline.rules.rows import Rows
    from pipeline.rules.rules import Rule

EXAMPLES = 5
"""Of each rule and topic."""
STRETCH_MS = 60_000
SHOWN = 60
"""Characters of a value that breaks a rule."""
OF_A_RECORD = (REQUIRED, RANGE, VALUES, JSON)


class Example(NamedTuple):
    """A record that breaks a rule, and how."""

    partition: int
    offset: int
    found: str


@dataclass(frozen=True)
class Breach:
    """A rule that records of a topic break."""

    rule: str
    check: str
    topic: str
    count: int
    """Of records; of gaps, how many there are; of what is unique, records beyond the first."""
    examples: list[Example]
    """The first by partition and offset, each of another stretch of time; of gaps by time."""

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "examples": [one._asdict() for one in self.examples]}


def stretches(rows: Rows, rules: Sequence[Rule]) -> DataFrame:
    """A row for each stretch of time of a partition: `topic`, `partition`, `begin_ms` and `end_ms`
    (null for records without a time), `records`, `bytes` of their values, `offset` of the earliest,
    and for each rule of single records `count_N` and `first_N`. Raises WrongUse."""
    from pyspark.sql import functions as F

    at = F.unix_millis(rows.kafkas("timestamp"))
    width_ms = min([STRETCH_MS, *(rule.longest_ms for rule in rules if rule.check == GAP)])
    columns = [
        F.min(at).alias("begin_ms"),
        F.max(at).alias("end_ms"),
        F.count("*").alias("records"),
        F.sum(rows.value_bytes).alias("bytes"),
        F.min_by(rows.kafkas("offset"), F.struct(at, rows.kafkas("offset"))).alias("offset"),
    ]
    for number, rule in enumerate(rules):
        if rule.check not in OF_A_RECORD:
            continue
        broken, found = _condition(rows, rule)
        broken = broken & _is_of(rows, rule)
        place = F.struct(
            rows.kafkas("partition").alias("partition"),
            rows.kafkas("offset").alias("offset"),
            F.substring(F.coalesce(found, F.lit("")), 1, SHOWN).alias("found"),
        )
        columns.append(F.count_if(broken).alias(f"count_{number}"))
        columns.append(F.min(F.when(broken, place)).alias(f"first_{number}"))
    return rows.frame.groupBy(
        rows.kafkas("topic").alias("topic"),
        rows.kafkas("partition").alias("partition"),
        F.floor(at / width_ms).alias("stretch"),
    ).agg(*columns)


def broken_by_records(made: DataFrame, rules: Sequence[Rule]) -> Iterator[Breach]:
    """The rules of single records that are broken, of `stretches`."""
    from pyspark.sql import functions as F

    chosen = [(number, rule) for number, rule in enumerate(rules) if rule.check in OF_A_RECORD]
    if not chosen:
        return
    columns = []
    for number, _ in chosen:
        first = F.col(f"first_{number}")
        columns.append(F.sum(f"count_{number}").alias(f"count_{number}"))
        columns.append(F.min_by(first, first, EXAMPLES).alias(f"first_{number}"))
    for row in made.groupBy("topic").agg(*columns).collect():
        for number, rule in chosen:
            if row[f"count_{number}"]:
                examples = [_example(rule, one) for one in row[f"first_{number}"]]
                yield Breach(rule.name, rule.check, row.topic, row[f"count_{number}"], examples)


def gaps(made: DataFrame, *, per: str) -> DataFrame:
    """The time between records of each partition, or topic, of `stretches`: `topic`, `partition`
    and `offset` of the record behind it, `begin_ms`, `end_ms`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    apart = ["topic"] if per == TOPIC else ["topic", "partition"]
    before = (
        Window.partitionBy(*apart).orderBy("begin_ms").rowsBetween(Window.unboundedPreceding, -1)
    )
    timed = made.where(F.col("begin_ms").isNotNull())
    return timed.select(
        "topic",
        "partition",
        "offset",
        F.max("end_ms").over(before).alias("begin_ms"),
        F.col("begin_ms").alias("end_ms"),
    ).where("end_ms > begin_ms")


def broken_by_gaps(made: DataFrame, rule: Rule) -> Iterator[Breach]:
    """The gaps that are longer than a rule allows, of `stretches`."""
    from pyspark.sql import functions as F

    long = gaps(made, per=rule.per).where(F.expr(f"end_ms - begin_ms > {rule.longest_ms}"))
    if rule.topics is not None:
        long = long.where(F.col("topic").rlike(f"^(?:{rule.topics})$"))
    place = F.struct("begin_ms", "end_ms", "partition", "offset")
    told = long.groupBy("topic").agg(
        F.count("*").alias("count"), F.min_by(place, place, EXAMPLES).alias("first")
    )
    for row in told.collect():
        examples = [
            Example(
                one.partition,
                one.offset,
                f"{(one.end_ms - one.begin_ms) / 1000:,.1f} s without a record before it",
            )
            for one in row.first
        ]
        yield Breach(rule.name, rule.check, row.topic, row["count"], examples)


def broken_by_doubles(rows: Rows, rule: Rule) -> Iterator[Breach]:
    """The records that have what an earlier one of their topic has, by a rule of what is unique.

    Raises WrongUse.
    """
    from pyspark.sql import functions as F

    what = rows.kafkas("key") if rule.field is None else rows.text(rule.field)
    place = F.struct(
        rows.kafkas("partition").alias("partition"), rows.kafkas("offset").alias("offset")
    )
    of = rows.frame.where(what.isNotNull() & _is_of(rows, rule))
    several = (
        of.groupBy(rows.kafkas("topic").alias("topic"), what.alias("what"))
        .agg(F.count("*").alias("count"), F.min(place).alias("first"), F.max(place).alias("last"))
        .where("count > 1")
    )
    shown = F.substring(F.make_valid_utf8(F.col("what").cast("string")), 1, SHOWN)
    one = F.struct("last", "first", shown.alias("what"), "count")
    told = several.groupBy("topic").agg(
        F.sum(F.col("count") - 1).alias("count"), F.min_by(one, one, EXAMPLES).alias("found")
    )
    for row in told.collect():
        examples = [
            Example(
                some.last.partition,
                some.last.offset,
                f"{rule.field or 'key'} is {some.what!r} in {some['count']:,} records, the first "
                f"at partition {some.first.partition} offset {some.first.offset:,}",
            )
            for some in row.found
        ]
        yield Breach(rule.name, rule.check, row.topic, row["count"], examples)


def queries(rules: Sequence[Rule]) -> int:
    """How often all records are read for these rules."""
    return 1 + sum(rule.check == UNIQUE for rule in rules)


def _condition(rows: Rows, rule: Rule) -> tuple[Column, Column]:
    """Whether a record breaks the rule, and what it has instead of what is wanted."""
    from pyspark.sql import functions as F

    if rule.check == JSON:
        text = F.make_valid_utf8(F.col("value").cast("string")) if rows.are_json else F.lit("")
        return rows.has_value & ~rows.is_json, text
    assert rule.field is not None
    text = rows.text(rule.field)
    if rule.check == REQUIRED:
        return rows.has_value & text.isNull(), text
    if rule.check == VALUES:
        return text.isNotNull() & ~text.isin(list(rule.values)), text
    number = rows.number(rule.field)
    outside = number.isNull() | F.isnan(number)
    if rule.least is not None:
        outside = outside | (number < rule.least)
    if rule.most is not None:
        outside = outside | (number > rule.most)
    return text.isNotNull() & outside, text


def _is_of(rows: Rows, rule: Rule) -> Column:
    from pyspark.sql import functions as F

    if rule.topics is None:
        return F.lit(True)
    return rows.kafkas("topic").rlike(f"^(?:{rule.topics})$")


def _example(rule: Rule, place: Row) -> Example:
    if rule.check == REQUIRED:
        found = f"{rule.field} is not there, or null"
    elif rule.check == JSON:
        found = f"the value is no JSON: {place.found!r}"
    else:
        found = f"{rule.field} is {place.found!r}"
    return Example(place.partition, place.offset, found)
