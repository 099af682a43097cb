"""Facts about a range of offsets, added up from the headers of stored batches.

A task makes the facts of its range, column by column; the driver puts those of a partition together
in the order of their offsets. No record is looked at and nothing is decompressed, but for a batch
that has deleted records in it (`reading.edge_entries`), which do not count.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.jobs.audit_times import Gap, TimeCounts, following, gaps_between, longest
from pipeline.left_out import LeftOut

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

PRODUCERS_MAX = 1000
"""So many producer ids are told apart in a partition; more are that many or more."""


@dataclass
class Facts:
    """Of one partition, or of a part of it. Picklable, and JSON by `as_json`."""

    topic: str
    partition: int
    entries: int = 0
    """Batches of format 2, messages and wrappers of formats 0 and 1."""
    records: int = 0
    """Without the markers of transactions."""
    unopened: int = 0
    """Wrappers: how many records are in one is not said outside."""
    bytes: int = 0
    formats: dict[str, int] = field(default_factory=dict)
    """Entries by format: {"2": 17}."""
    format_bytes: dict[str, int] = field(default_factory=dict)
    codecs: dict[str, int] = field(default_factory=dict)
    """Entries by codec: {"lz4": 17}."""
    first_offset: int | None = None
    """None where the first entry is a wrapper, whose first offset is not said outside."""
    last_offset: int | None = None
    last_format: int | None = None
    """The format of the last entry: that of who produces there today."""
    holes: int = 0
    """How often offsets are missing between two entries, as compaction leaves them."""
    offsets_in_holes: int = 0
    backwards: int = 0
    """Entries whose newest record is older than that of an entry before them, as far as one task
    has read both: where a partition was shared out, a few more may be."""
    backwards_ms: int = 0
    """By how much at most, over the whole partition."""
    without_time: int = 0
    earliest_ms: int | None = None
    """The oldest of the entries' largest timestamps."""
    latest_ms: int | None = None
    first_ms: int | None = None
    """The first time in the first entry that has one."""
    times: TimeCounts = field(default_factory=TimeCounts)
    """Records by their entries' largest timestamps; a wrapper counts as one."""
    gaps: list[Gap] = field(default_factory=list)
    """The longest times without a record, the longest first: up to the first time in an entry from
    the largest before it."""
    log_append_time: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    """Entries by the greatest power of two that their bytes reach: {"1024": 17}."""
    largest: int = 0
    """Bytes of the largest entry."""
    producers: list[int] = field(default_factory=list)
    """Ids of idempotent and transactional producers, up to PRODUCERS_MAX."""
    transactional: int = 0
    control: int = 0
    too_old: int = 0
    """Entries whose records are all older than the limit that was asked for."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """Corrupt entries, and offsets that were there when the audit was planned and not any more."""

    def add(self, batches: pa.RecordBatch, *, old_before_ms: int | None = None) -> None:
        """Count entries, the next ones in the log; columns as `pipeline.schemas.BATCHES`."""
        import numpy as np

        if not batches.num_rows:
            return
        magic = batches.column("magic").to_numpy(zero_copy_only=False)
        sizes = batches.column("size").to_numpy(zero_copy_only=False)
        self.entries += len(sizes)
        self.bytes += int(sizes.sum())
        self.largest = max(self.largest, int(sizes.max()))
        powers, counts = np.unique(np.floor(np.log2(sizes)).astype(np.int64), return_counts=True)
        for power, count in zip(powers.tolist(), counts.tolist(), strict=True):
            _count(self.sizes, str(1 << power), count)
        for number in np.unique(magic):
            one = magic == number
            _count(self.formats, str(number), int(one.sum()))
            _count(self.format_bytes, str(number), int(sizes[one].sum()))
        for value in batches.column("codec").value_counts():
            _count(self.codecs, value["values"].as_py(), value["counts"].as_py())
        self.last_format = int(magic[-1])
        records = batches.column("records")
        self.unopened += records.null_count
        marker = batches.column("control").to_numpy(zero_copy_only=False)
        self.records += int(records.fill_null(0).to_numpy(zero_copy_only=False)[~marker].sum())
        for name in ("transactional", "control"):
            set_ = int(batches.column(name).to_numpy(zero_copy_only=False).sum())
            setattr(self, name, getattr(self, name) + set_)
        kinds = batches.column("timestamp_type").to_numpy(zero_copy_only=False)
        self.log_append_time += int((kinds == 1).sum())
        ids = batches.column("producer_id").drop_null().unique().to_pylist()
        self.producers = sorted({*self.producers, *ids})[:PRODUCERS_MAX]
        self._add_offsets(batches)
        self._add_times(batches, old_before_ms)

    def _add_offsets(self, batches: pa.RecordBatch) -> None:
        import numpy as np

        last = batches.column("last_offset").to_numpy(zero_copy_only=False)
        bases = batches.column("base_offset")
        known = bases.is_valid().to_numpy(zero_copy_only=False)
        base = bases.fill_null(0).to_numpy(zero_copy_only=False)
        if self.last_offset is None:
            self.first_offset = int(base[0]) if known[0] else None
            before = base[:1] - 1
        else:
            before = np.array([self.last_offset])
        expected = np.concatenate((before, last[:-1])) + 1
        missing = np.where(known, base - expected, 0)
        self.holes += int((missing > 0).sum())
        self.offsets_in_holes += int(missing[missing > 0].sum())
        self.last_offset = int(last[-1])

    def _add_times(self, batches: pa.RecordBatch, old_before_ms: int | None) -> None:
        import numpy as np
        import pyarrow.compute as pc

        self.without_time += batches.column("max_timestamp").null_count
        timed = batches.filter(batches.column("max_timestamp").is_valid())
        if not timed.num_rows:
            return
        times = _milliseconds(timed.column("max_timestamp"))
        firsts = _milliseconds(
            pc.coalesce(timed.column("first_timestamp"), timed.column("max_timestamp"))
        )
        highest = np.maximum.accumulate(times)
        if self.latest_ms is not None:
            highest = np.maximum(highest, self.latest_ms)
        if self.first_ms is None:
            self.first_ms = int(firsts[0])
        before = self.first_ms if self.latest_ms is None else self.latest_ms
        gaps = gaps_between(firsts, np.concatenate(([before], highest[:-1])))
        self.gaps = longest([*self.gaps, *gaps])
        records = pc.fill_null(timed.column("records"), 1).to_numpy(zero_copy_only=False)
        marker = timed.column("control").to_numpy(zero_copy_only=False)
        self.times.add(times[~marker], records[~marker])
        late = highest - times
        self.backwards += int((late > 0).sum())
        self.backwards_ms = max(self.backwards_ms, int(late.max()))
        earliest = int(times.min())
        self.earliest_ms = earliest if self.earliest_ms is None else min(self.earliest_ms, earliest)
        self.latest_ms = int(highest[-1])
        if old_before_ms is not None:
            self.too_old += int((times < old_before_ms).sum())

    def as_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


_SUMS = (
    *("entries", "records", "unopened", "bytes", "holes", "offsets_in_holes", "backwards"),
    *("without_time", "log_append_time", "transactional", "control", "too_old"),
)
_COUNTS = ("formats", "format_bytes", "codecs", "sizes")


def joined(parts: Iterable[Facts]) -> Facts:
    """The facts of a partition from those of its parts, in the order of their offsets."""
    first, *rest = parts
    total = of_json(first.as_json())
    for part in rest:
        _join(total, part)
    return total


def _join(total: Facts, part: Facts) -> None:
    for name in _SUMS:
        setattr(total, name, getattr(total, name) + getattr(part, name))
    for name in _COUNTS:
        for key, count in getattr(part, name).items():
            _count(getattr(total, name), key, count)
    if part.last_offset is not None:
        if total.last_offset is None:
            total.first_offset = part.first_offset
        elif part.first_offset is not None and part.first_offset > total.last_offset + 1:
            total.holes += 1
            total.offsets_in_holes += part.first_offset - total.last_offset - 1
        total.last_offset, total.last_format = part.last_offset, part.last_format
    if part.latest_ms is not None and part.earliest_ms is not None:
        _join_gaps(total, part)
        if total.latest_ms is None or total.earliest_ms is None:
            total.earliest_ms, total.latest_ms = part.earliest_ms, part.latest_ms
            total.backwards_ms = part.backwards_ms
        else:
            behind = total.latest_ms - part.earliest_ms
            total.backwards_ms = max(total.backwards_ms, part.backwards_ms, behind)
            total.earliest_ms = min(total.earliest_ms, part.earliest_ms)
            total.latest_ms = max(total.latest_ms, part.latest_ms)
    total.times.join(part.times)
    total.largest = max(total.largest, part.largest)
    total.producers = sorted({*total.producers, *part.producers})[:PRODUCERS_MAX]
    total.left_out.add(part.left_out)


def _join_gaps(total: Facts, part: Facts) -> None:
    gaps = part.gaps
    if total.latest_ms is None:
        total.first_ms = part.first_ms
    else:
        assert part.first_ms is not None
        edge = (total.latest_ms, part.first_ms)
        gaps = following([edge, *part.gaps], total.latest_ms)
    total.gaps = longest([*total.gaps, *gaps])


def of_json(value: dict[str, Any]) -> Facts:
    """The facts in the output of `as_json`."""
    times = value["times"]
    counts = {int(stretch): count for stretch, count in times["counts"].items()}
    return Facts(
        **{
            **value,
            "times": TimeCounts(times["width_ms"], counts),
            "gaps": [tuple(gap) for gap in value["gaps"]],
            "left_out": LeftOut.of_json(value["left_out"]),
        }
    )


def _milliseconds(times: pa.Array) -> Any:
    import pyarrow as pa

    return times.cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000


def _count(counts: dict[str, int], key: str, more: int) -> None:
    counts[key] = counts.get(key, 0) + more
