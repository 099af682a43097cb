"""The broker as a whole: what it does now, and a line for each figure over the last hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tools.console.rights import require_describe_cluster
from tools.console.visit import Shown

if TYPE_CHECKING:
    from tools.console.visit import Visit


class Figure(NamedTuple):
    """A number that is followed; `shown_as` is the filter that writes it."""

    title: str
    value: float | None
    shown_as: str
    line: list[float | None]


TITLES = {
    "bytes_in": ("Bytes in", "byte_rate"),
    "bytes_out": ("Bytes out", "byte_rate"),
    "records_in": ("Records in", "rate"),
    "byte_size": ("Size of all logs", "size"),
    "records": ("Records in all logs", "count"),
    "topics": ("Topics", "count"),
}
OF_GROUPS = {
    "seconds": ("Furthest behind in time", "duration"),
    "lag": ("Records behind, all groups", "count"),
    "groups": ("Groups", "count"),
}


def overview(visit: Visit) -> Shown:
    """Raises NotAllowed."""
    require_describe_cluster(visit.cluster)
    visit.figures.fresh()
    visit.lags.fresh()
    figures = [
        Figure(title, visit.figures.total(name), shown_as, visit.figures.total_line(name))
        for name, (title, shown_as) in TITLES.items()
    ]
    figures += [
        Figure(title, visit.lags.total(name), shown_as, visit.lags.total_line(name))
        for name, (title, shown_as) in OF_GROUPS.items()
    ]
    return Shown("overview.html", {"figures": figures})
