"""Topics and partitions: what goes in and out, and how much there is.

Each family has at most `ROWS_MAX` rows; how many it would have beyond that is told.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from broker.metrics.text import Family, labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker.background.log_starts import LogStarts
    from broker.metrics.text import Row
    from broker.partitions.topic import Partition, Topic
    from broker.partitions.topics import Topics

ROWS_MAX = 5000
"""Scrapers take a few ten thousand rows without complaint, and this page has five such families."""


def partition_families(topics: Topics) -> Iterator[Family]:
    every = list(topics)
    partitions = [one for topic in every for one in topic.partitions if not one.led_elsewhere]
    for way, meaning in (
        ("in", "Bytes of batches written to a topic since the start."),
        ("out", "Bytes of records that answers to fetches have had of a topic since the start."),
    ):
        rows = _topic_rows(every, f"bytes_{way}")
        yield Family(f"topic_bytes_{way}_total", "counter", meaning, rows)
    starts = ((_place(one), one.log.start_offset) for one in islice(partitions, ROWS_MAX))
    start = "The first offset that can be read."
    yield Family("partition_log_start_offset", "gauge", start, starts)
    ends = ((_place(one), one.log.written_offset) for one in islice(partitions, ROWS_MAX))
    end = "The offset that the next record gets; its rate is that of records."
    yield Family("partition_log_end_offset", "gauge", end, ends)
    sizes = ((_place(one), byte_size(one)) for one in islice(partitions, ROWS_MAX))
    yield Family("partition_log_bytes", "gauge", "Bytes of the segments.", sizes)
    left = "Topics and partitions that have no row of their own, because there are too many."
    counts = (("topics", len(every)), ("partitions", len(partitions)))
    hidden = [(labels(what=what), max(0, count - ROWS_MAX)) for what, count in counts]
    yield Family("rows_left_out", "gauge", left, hidden)


def removal_families(log_starts: LogStarts) -> Iterator[Family]:
    for what, count in (
        ("segments", log_starts.deleted_segments),
        ("bytes", log_starts.deleted_bytes),
    ):
        meaning = f"{what.capitalize()} that retention and DeleteRecords have deleted."
        yield Family(f"deleted_{what}_total", "counter", meaning, [("", count)])


def _topic_rows(topics: Iterable[Topic], counter: str) -> Iterator[Row]:
    for topic in islice(topics, ROWS_MAX):
        total = sum(getattr(one, counter) for one in topic.partitions)
        yield labels(topic=topic.name), total


def _place(partition: Partition) -> str:
    return labels(topic=partition.topic.name, partition=partition.index)


def byte_size(partition: Partition) -> int:
    """0 of a log that can't be read."""
    try:
        return sum(segment.byte_size() for segment in partition.log.segments)
    except OSError:
        return 0
