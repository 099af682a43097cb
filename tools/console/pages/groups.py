"""All groups: their states, and how far each is behind, in time and in records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tools.console.listing import Column, listing
from tools.console.visit import Shown
from tools.groups.membership import list_groups

if TYPE_CHECKING:
    from tools.console.figures import GroupFigures
    from tools.console.visit import Visit


class Row(NamedTuple):
    """A group. `figures` is None of one that has neither members nor offsets."""

    name: str
    kind: str
    state: str
    figures: GroupFigures | None


COLUMNS = {
    "name": Column(lambda row: row.name),
    "state": Column(lambda row: row.state),
    "kind": Column(lambda row: row.kind),
    "members": Column(lambda row: row.figures and row.figures.members, largest_first=True),
    "partitions": Column(lambda row: row.figures and row.figures.partitions, largest_first=True),
    # Of those that are behind as long, the one with more to do.
    "seconds": Column(
        lambda row: row.figures and (row.figures.seconds, row.figures.records), largest_first=True
    ),
    "records": Column(lambda row: row.figures and row.figures.records, largest_first=True),
}


def groups(visit: Visit) -> Shown:
    """The one that is furthest behind in time first, unless another order is asked for."""
    found = list_groups(visit.cluster, but=visit.broker.away)
    figures = visit.lags.fresh([one.group_id for one in found])
    rows = [Row(one.group_id, one.kind, one.state, figures.get(one.group_id)) for one in found]
    shown = listing(rows, visit.query, name=lambda row: row.name, columns=COLUMNS, sort="seconds")
    return Shown(
        "groups.html",
        {"listing": shown, "lines": {row.name: visit.lags.line(row.name) for row in shown.rows}},
    )
