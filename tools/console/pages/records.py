"""The records of a topic: the newest, or those from an offset or a time on; and a single value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.clock import monotonic_s
from protocol.errors import ErrorCode
from protocol.partitions import TopicPartition
from tools.cluster import EARLIEST, LATEST
from tools.console.content import VIEWS, Content, content
from tools.console.reading import Budget, Reading
from tools.console.visit import Bytes, NotThere, Shown, WrongQuestion, number
from tools.selection import require_topics
from tools.times import duration_ms, moment_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.console.reading import StoredRecord
    from tools.console.visit import Visit

LIMITS = (20, 50, 100, 500)
PARTITIONS_MAX = 64
"""Partitions that are read for one page; of a topic with more, one has to be chosen."""
STARTS = ("end", "start", "offset", "time")
SHOWN_BYTES_MAX = 1 << 20
"""Of all contents on a page; those behind are shown by their beginnings."""
PREVIEW_BYTES = 512


class ShownHeader(NamedTuple):
    """A header; its name may be no UTF-8, and then shows that."""

    name: str
    value: Content


class ShownRecord(NamedTuple):
    """A record as the page shows it."""

    stored: StoredRecord
    key: Content
    value: Content
    headers: list[ShownHeader]


class Asked(NamedTuple):
    """Which records: of these partitions, from a place on (`start`, one of STARTS; `at` is an
    offset, or ms since 1970)."""

    places: list[TopicPartition]
    start: str
    at: int
    limit: int
    wanted: bytes


def records(visit: Visit) -> Shown:
    """Raises NoSuchTopic, WrongQuestion."""
    name, query = visit.path["topic"], visit.query
    partitions = _partitions(visit, name)
    asked = _asked(name, partitions, query, visit.now_ms)
    view = query.get("view", "auto")
    if view not in VIEWS:
        raise WrongQuestion(f"view: wanted {', '.join(VIEWS)}, found '{view[:40]}'")
    budget = Budget(monotonic_s)
    found, notes, ahead = _found(visit, asked, budget)
    newest_first = asked.start == "end"
    found.sort(key=lambda one: (one.timestamp_ms, one.place, one.offset), reverse=newest_first)
    if len(asked.places) == 1:
        found.sort(key=lambda one: one.offset, reverse=newest_first)
    del found[asked.limit :]
    return Shown(
        "records.html",
        {
            "topic": name,
            "partitions": partitions,
            "records": _shown(found, view),
            "asked": asked,
            "view": view,
            "views": VIEWS,
            "limits": LIMITS,
            "notes": notes,
            "ahead": ahead,
            "looked_at": budget.looked_at,
            "spent": budget.spent if len(found) < asked.limit else "",
        },
    )


def value(visit: Visit) -> Bytes:
    """The whole value of one record. Raises NotThere, NoSuchTopic, WrongQuestion."""
    partition = number(visit.path, "partition", 0, most=(1 << 31) - 1)
    offset = number(visit.path, "offset", 0)
    require_topics(visit.cluster, [visit.path["topic"]])
    place = TopicPartition(visit.path["topic"], partition)
    reading = Reading(visit.cluster, place, Budget(monotonic_s))
    for record in reading.forwards(offset, offset + 1, 1):
        if record.value is not None:
            return Bytes(f"{place.topic}-{partition}-{offset}.bin", record.value)
    raise NotThere(reading.problem or f"{place} has no value at offset {offset}")


def _partitions(visit: Visit, name: str) -> list[int]:
    require_topics(visit.cluster, [name])
    return sorted(visit.cluster.topics([name])[name].leaders)


def _asked(name: str, partitions: list[int], query: Mapping[str, str], now_ms: int) -> Asked:
    chosen = query.get("partition", "")
    if chosen in ("", "all"):
        wanted = partitions[:PARTITIONS_MAX]
    else:
        wanted = [number(query, "partition", 0)]
        if wanted[0] not in partitions:
            raise WrongQuestion(
                f"topic '{name}' has no partition {wanted[0]}, but {len(partitions)} counted from 0"
            )
    start = query.get("from", "offset" if query.get("offset") else "end")
    if start not in STARTS:
        raise WrongQuestion(f"from: wanted {', '.join(STARTS)}, found '{start[:40]}'")
    at = 0
    if start == "offset":
        at = number(query, "offset", 0)
    elif start == "time":
        at = _moment_ms(query.get("time", ""), now_ms)
    return Asked(
        [TopicPartition(name, one) for one in wanted],
        start,
        at,
        number(query, "limit", LIMITS[1], least=1, most=LIMITS[-1]),
        query.get("contains", "")[:1_000].encode("utf-8", "surrogatepass"),
    )


def _moment_ms(text: str, now_ms: int) -> int:
    """A moment, or a duration before now."""
    text = text.strip()
    try:
        return now_ms - duration_ms(text)
    except ValueError:
        pass
    try:
        return moment_ms(text)
    except ValueError:
        raise WrongQuestion(
            "time: wanted how long ago, as 15m or 2h, or a moment as 2026-01-31T12:00:00Z, found "
            f"'{text[:40]}'"
        ) from None


def _found(
    visit: Visit, asked: Asked, budget: Budget
) -> tuple[list[StoredRecord], list[str], dict[int, int]]:
    """The records of each partition, what there is to say, and where to go on reading."""
    cluster = visit.cluster
    starts, ends = cluster.offsets(asked.places, EARLIEST), cluster.offsets(asked.places, LATEST)
    times = cluster.offsets(asked.places, asked.at) if asked.start == "time" else {}
    found: list[StoredRecord] = []
    notes: list[str] = []
    ahead: dict[int, int] = {}
    for place in asked.places:
        start, end = starts[place], ends[place]
        if isinstance(start, ErrorCode) or isinstance(end, ErrorCode):
            notes.append(f"{place} cannot be read: its leader does not tell where it begins")
            continue
        first = start
        if asked.start == "offset":
            first = asked.at
        elif asked.start == "time":
            told = times[place]
            first = end if isinstance(told, ErrorCode) or told < 0 else told
        if first < start or (asked.start == "offset" and first >= end):
            notes.append(_outside(place, first, start, end))
        reading = Reading(cluster, place, budget, wanted=asked.wanted)
        read = reading.backwards if asked.start == "end" else reading.forwards
        found += read(max(first, start), end, asked.limit)
        ahead[place.partition] = reading.next_offset
        if reading.problem:
            notes.append(reading.problem)
    return found, notes, ahead


def _outside(place: TopicPartition, offset: int, start: int, end: int) -> str:
    if start == end:
        return f"{place} is empty; the next record gets offset {end}"
    return f"{place} has no offset {offset}: it has {start} to {end - 1}"


def _shown(found: list[StoredRecord], view: str) -> list[ShownRecord]:
    """With as much of their contents as a page has room for."""
    room = SHOWN_BYTES_MAX
    shown = []

    def seen(data: bytes | None) -> Content:
        nonlocal room
        one = content(data, view, most=PREVIEW_BYTES if room <= 0 else None)
        room -= len(one.text)
        return one

    for record in found:
        headers = [
            ShownHeader(
                name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), seen(data)
            )
            for name, data in record.headers
        ]
        shown.append(ShownRecord(record, seen(record.key), seen(record.value), headers))
    return shown
