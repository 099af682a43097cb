"""A group: its members and what they are assigned, and how far behind it is in each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from protocol.partitions import TopicPartition
from tools.console.listing import Column, listing
from tools.console.visit import NotThere, Shown
from tools.groups.committed import committed_offsets
from tools.groups.lag import Age, lag_of_group
from tools.groups.membership import group_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.console.visit import Visit

MEMBERS_SHOWN = 100
ASSIGNED_SHOWN = 50
"""Partitions of a member that are named."""

COLUMNS = {
    "partition": Column(lambda row: row.place),
    "committed": Column(lambda row: row.committed and row.committed.offset, largest_first=True),
    "end": Column(lambda row: row.end, largest_first=True),
    "records": Column(lambda row: row.lag, largest_first=True),
    "seconds": Column(lambda row: row.lag_ms, largest_first=True),
}


def group(visit: Visit) -> Shown:
    """Raises NotThere."""
    name = visit.query.get("id", "")
    if not name:
        raise NotThere("there is no group without a name")
    found = group_of(visit.cluster, name)
    committed = committed_offsets(visit.cluster, name)
    if not found.exists and not committed:
        raise NotThere(f"there is no group '{name}'")
    lags = lag_of_group(
        visit.cluster,
        committed,
        found.members,
        visit.now_ms,
        ages=lambda behind: _ages(visit, name, behind),
    )
    return Shown(
        "group.html",
        {
            "group": found,
            "line": visit.lags.line(name),
            "lag": sum(row.lag or 0 for row in lags),
            "lag_ms": max((row.lag_ms for row in lags if row.lag_ms is not None), default=None),
            "listing": listing(
                lags,
                visit.query,
                name=lambda row: f"{row.place.topic}-{row.place.partition}",
                columns=COLUMNS,
                sort="seconds",
            ),
            "members": found.members[:MEMBERS_SHOWN],
            "assigned_shown": ASSIGNED_SHOWN,
        },
    )


def _ages(
    visit: Visit, name: str, behind: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Age]:
    """As the broker has them, which knows when a record came in and reads none for it. What it may
    be asked for are the partitions that the user was told of."""
    told = visit.broker.ask(f"/groups?group={quote(name, safe='')}")
    ages = {
        TopicPartition(topic, partition): Age(round(1000 * seconds))
        for topic, partition, _, seconds in told["lags"]
    }
    return {place: age for place, age in ages.items() if place in behind}
