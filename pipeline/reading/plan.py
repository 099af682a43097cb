"""From options to ranges of offsets: where to begin, where to end, and who reads what.

The rules are those of Spark's own Kafka connector (Structured Streaming + Kafka Integration
Guide), so that a query can change from one to the other. Two things differ:

A partition that a running stream meets for the first time begins at its earliest offset, as there.
That offset is put into the stream's checkpoint, as the end of a range without any, before anything
is read from it: so a micro-batch that is repeated has the same ranges, whatever retention has
deleted in between.

Nothing is read from a partition whose log now ends before the offset that was reached in it, and
with onGap=skip reading goes on from that end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from client.cluster import EARLIEST, LATEST, TopicPartition
from pipeline.errors import NoSuchTopic, OffsetsGone, WrongUse
from pipeline.reading.source import Bound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipeline.reading.options import SourceOptions
    from pipeline.reading.source import Source

Offsets = dict[TopicPartition, int]
"""The next offset to read, or not to read any more, of each partition."""

OFFSET_MAX = 2**63 - 1
TOPIC_IDS = "@topic-ids"
"""Beside the topics in an offset of a stream, and no topic's name: {"orders": "5f0c..."}."""
NAMED_MAX = 5
"""So many topics or partitions are named in a message; of the others it gives the number."""


class Range(NamedTuple):
    """The offsets of a partition from `start` up to, and without, `end`."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    """The topic's id when this was planned, in hexadecimal, of brokers that have any: one that was
    made again since is not read in its place."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """In offsets: with compaction or transactions there may be fewer records."""
        return self.end - self.start


def starting_offsets(source: Source, partitions: Iterable[TopicPartition], bound: Bound) -> Offsets:
    """The offsets to begin at. Raises WrongUse if the bound leaves out a partition, names one that
    is not read, or is a time after a partition's last record."""
    wanted = sorted(partitions)
    offsets = _resolved(source, wanted, bound)
    if bound.is_time and not bound.or_latest:
        # Asked for after the time was: an offset at the end is then that of no record.
        ends = source.offsets(wanted, LATEST)
        late = [partition for partition in wanted if offsets[partition] >= ends[partition]]
        if late:
            raise WrongUse(
                f"{bound.option}: {_named(late)} has no record at or after the time: use an earlier"
                " one, or begin there at the end with startingOffsetsByTimestampStrategy=latest"
            )
    return offsets


def ending_offsets(
    source: Source,
    partitions: Iterable[TopicPartition],
    bound: Bound | None = None,
    *,
    committed_only: bool = False,
) -> Offsets:
    """The offsets to end at; without a bound, the ends of the log.

    With `committed_only` the log ends where the first open transaction begins. Raises WrongUse if
    the bound leaves out a partition or names one that is not read.
    """
    wanted = sorted(partitions)
    bound = bound or Bound("endingOffsets", LATEST)
    offsets = _resolved(source, wanted, bound, committed_only=committed_only)
    if committed_only and bound.each:
        for partition, end in source.offsets(wanted, LATEST, committed_only=True).items():
            offsets[partition] = min(offsets[partition], end)
    return offsets


def _resolved(
    source: Source, partitions: list[TopicPartition], bound: Bound, *, committed_only: bool = False
) -> Offsets:
    if not partitions:
        return {}
    if not bound.each:
        return source.offsets(partitions, bound.everywhere, committed_only=committed_only)
    missing = sorted(set(partitions) - set(bound.each))
    strange = sorted(set(bound.each) - set(partitions))
    if missing:
        raise WrongUse(
            f"{bound.option} says nothing of {_named(missing)}: it has to name every partition"
            + ("" if bound.is_time else "; -2 is for the earliest offset, -1 for the latest")
        )
    if strange:
        raise WrongUse(f"{bound.option} names {_named(strange)}, which is not there or not read")
    offsets = {partition: bound.each[partition] for partition in partitions}
    asked: dict[int, list[TopicPartition]] = {}
    for partition, value in offsets.items():
        if bound.is_time or value < 0:
            asked.setdefault(value, []).append(partition)
    for value, some in asked.items():
        offsets.update(source.offsets(some, value))
    return offsets


Narrowed = Callable[["Source", Offsets, Offsets], tuple[Offsets, Offsets]]
"""From the starts and ends of partitions to those that are left, and of what is left of them."""


def batch_ranges(
    source: Source, options: SourceOptions, narrowed: Narrowed | None = None
) -> list[Range]:
    """All that a bounded read has to do. Raises WrongUse, NoSuchTopic, OffsetsGone."""
    partitions = options.select(source)
    if not partitions:
        raise NoSuchTopic(f"no topic matches subscribePattern {options.pattern!r}")
    starts = starting_offsets(source, partitions, options.starting)
    ends = ending_offsets(source, partitions, options.ending, committed_only=options.committed_only)
    if options.starting.each and options.ending.each:
        for partition in partitions:
            if starts[partition] > ends[partition]:
                raise WrongUse(
                    f"{partition} is to be read from offset {starts[partition]:,}, but only up to "
                    f"{ends[partition]:,}: {options.starting.option} and {options.ending.option} "
                    "contradict each other"
                )
    if options.on_gap == "fail":
        _expect_there(source, options, starts, ends)
    if narrowed is not None:
        starts, ends = narrowed(source, starts, ends)
    return split(starts, ends, options.min_partitions, options.max_records_per_partition)


def _expect_there(source: Source, options: SourceOptions, starts: Offsets, ends: Offsets) -> None:
    """Whether offsets that were asked for by number are in the log."""
    if options.starting.each and not options.starting.is_time:
        for partition, first in source.offsets(starts, EARLIEST).items():
            following = min(first, ends[partition])
            if starts[partition] < following:
                raise deleted(partition, starts[partition], following)
    for partition, last in source.offsets(ends, LATEST).items():
        if max(starts[partition], ends[partition]) > last:
            raise beyond(partition, last, max(starts[partition], ends[partition]))


def latest_offsets(source: Source, options: SourceOptions, start: Offsets) -> Offsets:
    """The offsets up to which a stream that is at `start` can read now.

    New partitions have their earliest offset here, for the first range that has them is to be
    empty. Raises OffsetsGone, unless onGap is skip: for a partition that is not there any more, and
    for one whose log ends before `start`.
    """
    partitions = options.select(source, known=start)
    gone = sorted(set(start) - set(partitions))
    if gone and options.on_gap == "fail":
        raise OffsetsGone(
            f"{_named(gone)} is in the checkpoint and not read any more: it was deleted, or the "
            "options name other topics now; go on without it with onGap=skip (--on-gap skip)"
        )
    known = [partition for partition in partitions if partition in start]
    ends = ending_offsets(source, known, committed_only=options.committed_only)
    behind = [partition for partition, end in ends.items() if end < start[partition]]
    for partition, end in source.offsets(behind, LATEST).items():
        if end >= start[partition]:
            # It was told to begin beyond a transaction that is open.
            ends[partition] = start[partition]
        elif options.on_gap == "fail":
            raise beyond(partition, end, start[partition])
    new = [partition for partition in partitions if partition not in start]
    return ends | starting_offsets(source, new, Bound("startingOffsets", EARLIEST))


def limited(start: Offsets, latest: Offsets, limit: int | None) -> Offsets:
    """The ends of the next read: `limit` offsets in all, shared out in proportion to what there is.

    Every partition that has something gets at least one offset, so all may get a little more.
    """
    backlog = {
        partition: end - start[partition]
        for partition, end in latest.items()
        if end > start.get(partition, end)
    }
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return dict(latest)
    shares = {
        partition: start[partition] + max(limit * size // total, 1)
        for partition, size in backlog.items()
    }
    return latest | shares


def stream_ranges(options: SourceOptions, start: Offsets, end: Offsets) -> list[Range]:
    """The ranges of a micro-batch, which follow from its two offsets alone.

    A partition that only `end` has was new, one that only `start` has was deleted: neither is read.
    """
    known = {partition: offset for partition, offset in end.items() if partition in start}
    return split(start, known, options.min_partitions, options.max_records_per_partition)


def split(
    starts: Offsets,
    ends: Offsets,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[Range]:
    """One range for each partition that has anything; more if these are fewer than
    `min_partitions`, or larger than `max_records` offsets.

    As with the connector, `min_partitions` is a hint: the large ranges are cut in proportion to
    their sizes, the small ones are left whole, and the sum is about that number.
    """
    ranges = [
        Range(*partition, starts[partition], end)
        for partition, end in sorted(ends.items())
        if end > starts[partition]
    ]
    if max_records is not None:
        ranges = [
            piece for range_ in ranges for piece in _cut(range_, -(-range_.size // max_records))
        ]
    if min_partitions is None or len(ranges) >= min_partitions:
        return ranges
    total = sum(range_.size for range_ in ranges)
    large = {range_ for range_ in ranges if _share(range_.size, total, min_partitions) > 1}
    rest = sum(range_.size for range_ in large)
    wanted = max(min_partitions - (len(ranges) - len(large)), 1)
    return [
        piece
        for range_ in ranges
        for piece in _cut(range_, _share(range_.size, rest, wanted) if range_ in large else 1)
    ]


def _share(size: int, total: int, pieces: int) -> int:
    """The part of `pieces` that falls to `size` of `total`, rounded; at least 1."""
    return max((2 * size * pieces + total) // (2 * total), 1)


def _cut(range_: Range, pieces: int) -> list[Range]:
    pieces = min(pieces, range_.size)
    edges = [range_.start + range_.size * index // pieces for index in range(pieces + 1)]
    return [range_._replace(start=edges[index], end=edges[index + 1]) for index in range(pieces)]


def deleted(partition: TopicPartition, first: int, following: int) -> OffsetsGone:
    """The failure that offsets `first` up to, and without, `following` are not there any more."""
    return OffsetsGone(
        f"{partition}: offsets {first:,} to {following - 1:,} were deleted before they were read; "
        "go on without them with onGap=skip (--on-gap skip)"
    )


def made_again(topics: list[str]) -> OffsetsGone:
    """The failure that topics are not those any more that were read until now."""
    return OffsetsGone(
        f"topic {_listed(topics)} was deleted, and made again, since it was read: what was left of "
        "it is gone; go on with the new one from its start with onGap=skip (--on-gap skip)"
    )


def beyond(partition: TopicPartition, log_end: int, wanted: int) -> OffsetsGone:
    """The failure that a log ends at `log_end`, before an offset that was there or asked for."""
    return OffsetsGone(
        f"{partition} ends at offset {log_end:,}, but is to be read up to {wanted:,}: it was made "
        "again or cut, or never had them; go on with what there is with onGap=skip (--on-gap skip)"
    )


def _named(partitions: list[TopicPartition]) -> str:
    return _listed([str(partition) for partition in partitions])


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    listed = ", ".join(names[:NAMED_MAX])
    return f"{listed} and {more} more" if more > 0 else listed


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """As the connector writes them into its checkpoints: {"orders": {"0": 5}}, in order."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def offsets_from_json(value: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Without the ids of topics, which may be beside them."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        if topic != TOPIC_IDS
        for partition, offset in partitions.items()
    }
