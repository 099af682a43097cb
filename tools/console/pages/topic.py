"""A topic: its partitions, and its settings with where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.configs.settings import Resource, settings_of
from tools.console.visit import Shown
from tools.errors import NotDone
from tools.topics.described import described

if TYPE_CHECKING:
    from tools.console.visit import Visit


def topic(visit: Visit) -> Shown:
    """Raises NoSuchTopic."""
    name = visit.path["topic"]
    (found,) = described(visit.cluster, [name])
    settings, why_none = [], ""
    try:
        settings = settings_of(visit.cluster, Resource("topic", name))
    except NotDone as error:
        why_none = str(error)
    return Shown(
        "topic.html",
        {
            "topic": found,
            "figures": visit.figures.fresh([name]).get(name),
            "rates": visit.figures.rates(name),
            "line": visit.figures.line(name),
            "settings": settings,
            "no_settings": why_none,
        },
    )
