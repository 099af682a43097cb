"""The segments of a topic, and what retention and compaction will do next with each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tools.console.listing import Column, listing
from tools.console.settings_of_topics import settings_of_topics
from tools.console.visit import Shown
from tools.selection import require_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from tools.console.visit import Visit

SETTINGS = (
    "cleanup.policy", "retention.ms", "retention.bytes", "retention.wait.groups",
    "min.cleanable.dirty.ratio", "segment.bytes", "segment.ms",
)  # fmt: skip
NO_LIMIT = -1


class Rules(NamedTuple):
    """What a topic's settings say of its segments; -1 is no limit."""

    deletes: bool
    compacts: bool
    retention_ms: int
    retention_bytes: int
    dirty_ratio: float

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Rules:
        """Of settings as DescribeConfigs tells them."""
        policy = settings.get("cleanup.policy", "delete")
        return cls(
            "delete" in policy,
            "compact" in policy,
            int(settings.get("retention.ms", NO_LIMIT)),
            int(settings.get("retention.bytes", NO_LIMIT)),
            float(settings.get("min.cleanable.dirty.ratio", 0.5)),
        )


class Segment(NamedTuple):
    """A segment. `goes_in_s` is in how many seconds its last record is too old, 0 for now, None for
    never; `next` says what will happen to it."""

    partition: int
    base_offset: int
    end_offset: int
    byte_size: int
    last_came_ms: int
    is_active: bool
    is_clean: bool
    goes_in_s: float | None
    next: str


COLUMNS = {
    "partition": Column(lambda row: (row.partition, row.base_offset)),
    "size": Column(lambda row: row.byte_size, largest_first=True),
    "goes": Column(lambda row: row.goes_in_s),
}


def storage(visit: Visit) -> Shown:
    """Raises NoSuchTopic."""
    name = visit.path["topic"]
    require_topics(visit.cluster, [name])
    told = visit.broker.ask(f"/segments?topic={quote(name, safe='')}")
    settings = settings_of_topics(visit.cluster, [name], SETTINGS).get(name, {})
    rules = Rules.of(settings)
    rows = [row for one in told["partitions"] for row in segments_of(one, rules, told["now_ms"])]
    return Shown(
        "storage.html",
        {
            "topic": name,
            "settings": settings,
            "rules": rules,
            "byte_size": sum(row.byte_size for row in rows),
            "left_out": told["left_out"],
            "dirty": list(_dirty(told["partitions"])) if rules.compacts else [],
            "listing": listing(
                rows,
                visit.query,
                name=lambda row: f"{row.partition}-{row.base_offset}",
                columns=COLUMNS,
                sort="partition",
            ),
        },
    )


def segments_of(told: Mapping[str, Any], rules: Rules, now_ms: int) -> Iterator[Segment]:
    """The segments of a partition, the oldest first; `told` as in `broker.metrics.segments`."""
    rows = told["segments"]
    cleaned_to = told["cleaned_to"] or 0
    over = _over_the_size(rows, rules)
    for number, (base, end, size, came_ms) in enumerate(rows):
        is_active = number == len(rows) - 1
        goes_in_s = None
        if rules.deletes and rules.retention_ms != NO_LIMIT and size:
            goes_in_s = max(0, came_ms + rules.retention_ms - now_ms) / 1000
        what = []
        if number < over:
            goes_in_s = 0
            what.append("goes: the partition has more than retention.bytes without it")
        elif goes_in_s == 0:
            what.append("goes: all its records are older than retention.ms")
        elif end <= told["start"]:
            what.append("goes: it lies below the first offset")
        elif is_active:
            what.append("is written to")
        if rules.compacts and not is_active and base >= cleaned_to:
            what.append("has to be compacted")
        elif rules.compacts and not is_active:
            what.append("was compacted")
        if not what:
            what.append("stays" if goes_in_s is None else "goes by age")
        yield Segment(
            told["partition"], base, end, size, came_ms, is_active, end <= cleaned_to, goes_in_s,
            "; ".join(what),
        )  # fmt: skip


def _over_the_size(rows: list[list[int]], rules: Rules) -> int:
    """How many of the oldest go by size: as long as what remains is not below the limit."""
    if not rules.deletes or rules.retention_bytes == NO_LIMIT:
        return 0
    excess = sum(size for _, _, size, _ in rows) - rules.retention_bytes
    for number, (_, _, size, _) in enumerate(rows):
        excess -= size
        if excess < 0:
            return number
    return len(rows)


class Dirty(NamedTuple):
    """How much of a partition's sealed segments compaction has not seen."""

    partition: int
    dirty_bytes: int
    ratio: float


def _dirty(partitions: Iterable[Mapping[str, Any]]) -> Iterator[Dirty]:
    """The dirtiest first."""
    found = []
    for told in partitions:
        sealed = told["segments"][:-1]
        cleaned_to = told["cleaned_to"] or 0
        whole = sum(size for _, _, size, _ in sealed)
        dirty = sum(size for base, _, size, _ in sealed if base >= cleaned_to)
        found.append(Dirty(told["partition"], dirty, dirty / whole if whole else 0.0))
    yield from sorted(found, key=lambda one: one.ratio, reverse=True)
