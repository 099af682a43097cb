"""All topics: how large they are, how fast they grow, and the settings that decide what stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tools.console.figures import Rates
from tools.console.listing import Column, listing
from tools.console.settings_of_topics import settings_of_topics
from tools.console.visit import Shown

if TYPE_CHECKING:
    from tools.console.figures import TopicFigures
    from tools.console.visit import Visit

SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")


class Row(NamedTuple):
    """A topic. `figures` is None while the broker has not told any."""

    name: str
    partitions: int
    is_internal: bool
    figures: TopicFigures | None
    rates: Rates


COLUMNS = {
    "name": Column(lambda row: row.name),
    "partitions": Column(lambda row: row.partitions, largest_first=True),
    "records": Column(lambda row: row.figures and row.figures.records, largest_first=True),
    "size": Column(lambda row: row.figures and row.figures.byte_size, largest_first=True),
    "in": Column(lambda row: row.rates.bytes_in, largest_first=True),
    "records_in": Column(lambda row: row.rates.records_in, largest_first=True),
    "out": Column(lambda row: row.rates.bytes_out, largest_first=True),
}


def topics(visit: Visit) -> Shown:
    """The fastest growing first, unless another order is asked for."""
    visible = visit.topics(visit.figures.fresh().keys())
    figures = visit.figures.fresh(visible)
    rows = [
        Row(
            name,
            topic.partitions,
            topic.is_internal,
            figures.get(name),
            visit.figures.rates(name),
        )
        for name, topic in visible.items()
    ]
    internal = sum(row.is_internal for row in rows)
    if not visit.query.get("internal"):
        rows = [row for row in rows if not row.is_internal]
    shown = listing(rows, visit.query, name=lambda row: row.name, columns=COLUMNS, sort="in")
    names = [row.name for row in shown.rows]
    return Shown(
        "topics.html",
        {
            "listing": shown,
            "internal": internal,
            "lines": {name: visit.figures.line(name) for name in names},
            "settings": settings_of_topics(visit.cluster, names, SETTINGS),
        },
    )
