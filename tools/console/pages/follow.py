"""A page that shows the records of a topic as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tools.console.content import VIEWS
from tools.console.pages.records import partitions_of, places_of, text_of, view_of
from tools.console.tail import Tail
from tools.console.visit import Shown

if TYPE_CHECKING:
    from tools.console.visit import Visit


class Followed(NamedTuple):
    """What a page follows, and how contents are shown there."""

    topic: str
    tail: Tail
    view: str


def follow(visit: Visit) -> Shown:
    """The page, which then asks for the records. Raises NoSuchTopic, WrongQuestion."""
    name = visit.path["topic"]
    partitions = partitions_of(visit, name)
    return Shown(
        "follow.html",
        {
            "topic": name,
            "partitions": partitions,
            "places": places_of(name, partitions, visit.query),
            "view": view_of(visit.query),
            "views": VIEWS,
        },
    )


def followed(visit: Visit) -> Followed:
    """What the page with this query follows. Raises NoSuchTopic, WrongQuestion."""
    name = visit.path["topic"]
    places = places_of(name, partitions_of(visit, name), visit.query)
    tail = Tail(places, text_of(visit.query), visit.turn)
    return Followed(name, tail, view_of(visit.query))
