"""The records of a topic: the newest, or those from an offset or a time on; and a single value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.clock import monotonic_s
from protocol.errors import ErrorCode
from protocol.partitions import TopicPartition
from tools.cluster import EARLIEST, LATEST
from tools.console.content import SHOWN_BYTES, VIEWS, Content, content
from tools.console.reading import Budget, Reading
from tools.console.visit import Bytes, NotThere, Shown, WrongQuestion, number
from tools.selection import require_topics
from tools.times import duration_ms, moment_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.console.content import Kept
    from tools.console.reading import StoredRecord
    from tools.console.visit import Visit

LIMITS = (20, 50, 100, 500)
PARTITIONS_MAX = 64
"""Partitions that are read for one page; of a topic with more, one has to be chosen."""
TEXT_CHARACTERS_MAX = 1_000
"""Of a text that is looked for."""
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
    partitions = partitions_of(visit, name)
    asked = _asked(name, partitions, query, visit.now_ms)
    view = view_of(query)
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
            "records": shown(found, view),
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
    reading = Reading(visit.cluster, place, Budget(monotonic_s), visit.turn)
    found = reading.whole_value(offset)
    if found is None:
        raise NotThere(reading.problem or f"{place} has no value at offset {offset}")
    return Bytes(f"{place.topic}-{partition}-{offset}.bin", found)


def partitions_of(visit: Visit, name: str) -> list[int]:
    """Those of a topic. Raises NoSuchTopic."""
    require_topics(visit.cluster, [name])
    return sorted(visit.cluster.topics([name])[name].leaders)


def places_of(name: str, partitions: list[int], query: Mapping[str, str]) -> list[TopicPartition]:
    """The partition that a query names, or all. Raises WrongQuestion."""
    if query.get("partition", "") in ("", "all"):
        return [TopicPartition(name, one) for one in partitions[:PARTITIONS_MAX]]
    wanted = number(query, "partition", 0)
    if wanted not in partitions:
        raise WrongQuestion(
            f"topic '{name}' has no partition {wanted}, but {len(partitions)} counted from 0"
        )
    return [TopicPartition(name, wanted)]


def view_of(query: Mapping[str, str]) -> str:
    """One of VIEWS. Raises WrongQuestion."""
    view = query.get("view", VIEWS[0])
    if view not in VIEWS:
        raise WrongQuestion(f"view: wanted {', '.join(VIEWS)}, found '{view[:40]}'")
    return view


def text_of(query: Mapping[str, str]) -> bytes:
    """The text that records have to have."""
    return query.get("contains", "")[:TEXT_CHARACTERS_MAX].encode("utf-8", "surrogatepass")


def _asked(name: str, partitions: list[int], query: Mapping[str, str], now_ms: int) -> Asked:
    places = places_of(name, partitions, query)
    start = query.get("from", "offset" if query.get("offset") else "end")
    if start not in STARTS:
        raise WrongQuestion(f"from: wanted {', '.join(STARTS)}, found '{start[:40]}'")
    at = 0
    if start == "offset":
        at = number(query, "offset", 0)
    elif start == "time":
        at = moment_of(query.get("time", ""), now_ms)
    limit = number(query, "limit", LIMITS[1], least=1, most=LIMITS[-1])
    return Asked(places, start, at, limit, text_of(query))


def moment_of(text: str, now_ms: int) -> int:
    """A moment (ms since 1970), or a duration before now. Raises WrongQuestion."""
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
        reading = Reading(cluster, place, budget, visit.turn, wanted=asked.wanted)
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


def shown(found: list[StoredRecord], view: str) -> list[ShownRecord]:
    """With as much of their contents as a page has room for."""
    room = SHOWN_BYTES_MAX
    shown = []

    def seen(some: Kept | None) -> Content:
        nonlocal room
        one = content(some, view, most=PREVIEW_BYTES if room <= 0 else SHOWN_BYTES)
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
