"""The lag of a group: in records, and in the age of the oldest record it has not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.client import said
from protocol.errors import ErrorCode
from tools.cluster import EARLIEST, LATEST
from tools.fetched import first_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tools.cluster import Cluster, TopicPartition
    from tools.groups.committed import Committed
    from tools.groups.membership import Member

    Ages = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, "Age"]]

TOGETHER_BYTES = 65_536
"""Of each partition, when all are asked at once: a batch of an ordinary producer."""
ALONE_BYTES = 1 << 20
MAX_BYTES = 32 << 20
AHEAD_MS = 1000
"""By so much a producer's clock may be ahead of ours without a word: the age is 0 then."""

GONE = "the partition does not exist any more"
NO_TIMESTAMP = "the next record has no timestamp"
FORMAT_0 = "the next record is stored without a timestamp (format 0)"
ONLY_MARKERS = "only markers of transactions are left to read"


class PartitionLag(NamedTuple):
    """One partition of a group.

    `lag` counts offsets from the committed one, or the log's start if that is higher, to the log's
    end. `lag_ms` is the age of the record there: now less its timestamp; 0 when nothing is left.
    None is what cannot be said; `notes` say why.
    """

    place: TopicPartition
    committed: Committed | None
    start: int | None
    end: int | None
    lag: int | None
    lag_ms: int | None
    owner: Member | None
    notes: list[str]


class Age(NamedTuple):
    """The age of a record (ms), or why it has none."""

    ms: int | None
    note: str = ""


def lag_of_group(
    cluster: Cluster,
    committed: Mapping[TopicPartition, Committed],
    members: Iterable[Member],
    now_ms: int,
    *,
    ages: Ages | None = None,
) -> list[PartitionLag]:
    """Every partition that the group has committed or that a member has, sorted. `ages` tells how
    old the records at offsets are; without, they are read."""
    owners = {place: member for member in members for place in member.assigned or ()}
    places = sorted({*committed, *owners})
    starts = cluster.offsets(places, EARLIEST)
    ends = cluster.offsets(places, LATEST)
    rows = [
        _without_age(place, committed.get(place), owners.get(place), starts[place], ends[place])
        for place in places
    ]
    behind = {
        row.place: max(row.committed.offset, row.start)
        for row in rows
        if row.lag and row.committed is not None and row.start is not None
    }
    found = ages_of(cluster, behind, now_ms) if ages is None else ages(behind)
    return [_with_age(row, found.get(row.place)) for row in rows]


def ages_of(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], now_ms: int
) -> dict[TopicPartition, Age]:
    """The age of the first record at or after each offset, read from the batch it is in.

    That is exact, and a batch costs less than the search by time that would answer the reverse
    question: at which offset a time is.
    """
    ages: dict[TopicPartition, Age] = {}
    left = dict(offsets)
    if left:
        answers = cluster.fetch(left, partition_bytes=TOGETHER_BYTES, max_bytes=MAX_BYTES)
        for place, answer in answers.items():
            age = _age(answer, left, place, now_ms)
            if age is not None:
                ages[place] = age
                del left[place]
    for place in list(left):
        ages[place] = _age_alone(cluster, left, place, now_ms)
    return ages


def _age_alone(
    cluster: Cluster, left: dict[TopicPartition, int], place: TopicPartition, now_ms: int
) -> Age:
    """A partition asked alone gets a whole batch, however large it is."""
    while True:
        asked = left[place]
        answers = cluster.fetch({place: asked}, partition_bytes=ALONE_BYTES, max_bytes=MAX_BYTES)
        age = _age(answers[place], left, place, now_ms)
        if age is not None:
            return age
        if left[place] == asked:
            # What lies beyond the last offset is no reason to wait: it was counted before.
            return Age(0, ONLY_MARKERS)


def _age(
    answer: bytes | ErrorCode, left: dict[TopicPartition, int], place: TopicPartition, now_ms: int
) -> Age | None:
    """None if there is no record in the answer; `left` then has the offset to go on from."""
    if isinstance(answer, ErrorCode):
        return Age(None, f"cannot be read: {said(answer)}")
    found = first_record(answer, left[place])
    if found.problem:
        return Age(None, found.problem)
    if found.record is None:
        left[place] = found.offset
        return None
    timestamp_ms = found.record.timestamp_ms
    if timestamp_ms < 0:
        return Age(None, NO_TIMESTAMP if found.magic else FORMAT_0)
    if timestamp_ms > now_ms + AHEAD_MS:
        ahead_s = (timestamp_ms - now_ms) / 1000
        return Age(None, f"the timestamp of the next record is {ahead_s:.1f} s in the future")
    return Age(max(0, now_ms - timestamp_ms))


def _without_age(
    place: TopicPartition,
    committed: Committed | None,
    owner: Member | None,
    start: int | ErrorCode,
    end: int | ErrorCode,
) -> PartitionLag:
    for answer in (start, end):
        if isinstance(answer, ErrorCode):
            gone = answer == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            note = GONE if gone else said(answer)
            return PartitionLag(place, committed, None, None, None, None, owner, [note])
    notes: list[str] = []
    lag: int | None
    if committed is None:
        notes.append("nothing committed")
        lag = None
    elif committed.offset > end:
        notes.append(f"{committed.offset - end} above the log's end")
        lag = None
    else:
        if committed.offset < start:
            notes.append(f"{start - committed.offset} below the log's start {start}")
        lag = end - max(committed.offset, start)
    return PartitionLag(place, committed, start, end, lag, None, owner, notes)


def _with_age(row: PartitionLag, age: Age | None) -> PartitionLag:
    if row.lag == 0:
        return row._replace(lag_ms=0)
    if age is None:
        return row
    return row._replace(lag_ms=age.ms, notes=[*row.notes, *filter(None, [age.note])])
