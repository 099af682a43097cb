"""A table of newest values beside its topic: where they differ, in rows, and why.

The table answers for the offsets below an end that it tells of each partition itself. The topic may
have gone on since; what it has written over is not there any more, and is not judged.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.reading.ranges import records_of
from pipeline.upserting.debezium import DEBEZIUM, rows_of_events
from pipeline.upserting.newest import Counted, newest_of, with_keys

if TYPE_CHECKING:
    from pipeline.left_out import LeftOut
    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Range

EXAMPLES_MAX = 5
"""Of keys that differ; all are counted."""
_KEY_SHOWN_MAX = 40
_COMPARED = ("offset", "value", "timestamp")


@dataclass
class Comparison:
    """The rows of one partition, counted."""

    topic: str
    partition: int
    end: int
    """The offset up to which the table has the partition."""
    records: int = 0
    """Of the topic, that were read for it."""
    equal: int = 0
    missing: int = 0
    """Keys with a value in the topic, and no row."""
    different: int = 0
    """Rows with another offset, value or timestamp than the newest record has."""
    undeleted: int = 0
    """Rows whose newest record is a tombstone."""
    unknown: int = 0
    """Rows of keys that the topic does not have at all, though it goes back as far."""
    written_over: int = 0
    """Rows whose key has a newer record at, or behind, `end`."""
    before_start: int = 0
    """Rows whose record was deleted from the topic by retention or on request."""
    examples: list[str] = field(default_factory=list)

    @property
    def differences(self) -> int:
        """The number of keys with which the table is wrong."""
        return self.missing + self.different + self.undeleted + self.unknown

    def as_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return {**asdict(self), "differences": self.differences}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Comparison:
        """The inverse of `as_json`."""
        return cls(**{name: value[name] for name in cls.__dataclass_fields__})


def compare(rows: pa.Table, newest: pa.Table, range_: Range, end: int) -> Comparison:
    """Compare a partition's `rows` with its `newest` records, which are those of `range_`."""
    found = Comparison(range_.topic, range_.partition, end)
    judged = newest.filter(pc.less(newest["offset"], end))
    later = newest.filter(pc.greater_equal(newest["offset"], end))
    live = judged.filter(pc.is_valid(judged["value"]))
    dead = judged.filter(pc.is_null(judged["value"]))
    at = pc.index_in(live["key"], value_set=rows["key"].combine_chunks())
    _count(found, "missing", live.filter(pc.is_null(at)))
    there = live.filter(pc.is_valid(at))
    same = _same(there, rows.take(at.drop_null()))
    found.equal = pc.sum(same).as_py() or 0
    _count(found, "different", there.filter(pc.invert(same)))
    _count(found, "undeleted", rows.filter(_is_in(rows, dead)))
    over = _is_in(rows, later)
    found.written_over = pc.sum(over).as_py() or 0
    gone = rows.filter(pc.invert(pc.or_(over, _is_in(rows, judged))))
    _count(found, "unknown", gone.filter(pc.greater_equal(gone["offset"], range_.start)))
    found.before_start = gone.num_rows - found.unknown
    return found


def compare_range(
    options: SourceOptions,
    range_: Range,
    rows: pa.Table,
    end: int,
    left_out: LeftOut,
    envelope: str | None = None,
) -> Comparison:
    """Read a partition's records and compare. Raises what reading raises."""
    with contextlib.closing(options.source()) as source:
        records = records_of(
            source,
            range_,
            headers=True,
            on_gap=options.on_gap,
            on_corrupt=options.on_corrupt,
            committed_only=options.committed_only,
            left_out=left_out,
            fetch_bytes=options.fetch_bytes,
        )
        counted = Counted(records)
        newest = newest_of(with_keys(counted, range_, left_out))
    if envelope == DEBEZIUM:
        newest = rows_of_events(newest, range_, left_out)
    found = compare(rows, newest, range_, end)
    found.records = counted.rows
    return found


def _same(one: pa.Table, other: pa.Table) -> pa.ChunkedArray:
    """For each row, whether it has the same content in both."""
    same = pa.chunked_array([pa.array([True] * one.num_rows, pa.bool_())])
    for name in _COMPARED:
        equal = pc.fill_null(pc.equal(one[name], other[name]), False)
        both_null = pc.and_(pc.is_null(one[name]), pc.is_null(other[name]))
        same = pc.and_(same, pc.or_(equal, both_null))
    return same


def _is_in(rows: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    return pc.is_in(rows["key"], value_set=others["key"].combine_chunks())


def _count(found: Comparison, kind: str, rows: pa.Table) -> None:
    setattr(found, kind, rows.num_rows)
    for key, offset in zip(
        rows["key"][:EXAMPLES_MAX].to_pylist(), rows["offset"].to_pylist(), strict=False
    ):
        if len(found.examples) < EXAMPLES_MAX:
            found.examples.append(f"key {_shown(key)}, offset {offset:,}: {kind}")


def _shown(key: bytes) -> str:
    return repr(key[:_KEY_SHOWN_MAX])[1:] + ("..." if len(key) > _KEY_SHOWN_MAX else "")
