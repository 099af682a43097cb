"""Offsets of a group moved: what would change is shown, and what was shown is what is set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from protocol.partitions import TopicPartition
from tools.console.pages.records import moment_of
from tools.console.visit import Moved, NotThere, Shown, WrongQuestion, number, require_writable
from tools.errors import NotDone
from tools.groups.committed import commit, committed_offsets
from tools.groups.membership import group_of
from tools.groups.reset import Target, plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.console.visit import Visit

TARGETS = {
    "earliest": "the first record",
    "latest": "the end",
    "time": "a time",
    "offset": "an offset",
    "shift": "some records on or back",
}
MOVES_SHOWN = 500


def preview(visit: Visit) -> Shown:
    """What would be set. Raises NotThere, WrongQuestion."""
    name, query = visit.query.get("id", ""), visit.query
    found = group_of(visit.cluster, name) if name else None
    committed = committed_offsets(visit.cluster, name) if name else {}
    if not committed:
        raise NotThere(f"group '{name}' has committed nothing that could be moved")
    topics = sorted({place.topic for place in committed})
    topic = query.get("topic", "")
    if topic and topic not in topics:
        raise WrongQuestion(f"group '{name}' has committed nothing of topic '{topic}'")
    places = [place for place in committed if topic in ("", place.topic)]
    target = _target(query, visit.now_ms)
    moves = [] if target is None else plan(visit.cluster, places, committed, target)
    new = [[*move.place, move.new] for move in moves if move.new is not None]
    return Shown(
        "reset.html",
        {
            "name": name,
            "members": len(found.members) if found else 0,
            "topics": topics,
            "targets": TARGETS,
            "moves": moves[:MOVES_SHOWN],
            "more": max(0, len(moves) - MOVES_SHOWN),
            "new": json.dumps(new) if new else "",
        },
    )


def reset(visit: Visit) -> Moved:
    """Set what the preview has shown. Raises NotAllowed, NotDone, WrongQuestion."""
    require_writable(visit)
    name = visit.query.get("id", "")
    offsets = _moves(visit.query.get("moves", ""))
    members = len(group_of(visit.cluster, name).members)
    if members:
        raise NotDone(f"group '{name}' has {members} members: stop them first; nothing was changed")
    commit(visit.cluster, name, offsets)
    return Moved(f"/group?id={quote(name, safe='')}")


def _target(query: Mapping[str, str], now_ms: int) -> Target | None:
    """None where nothing is asked for yet. Raises WrongQuestion."""
    kind, value = query.get("to", ""), query.get("value", "")
    if not kind:
        return None
    if kind not in TARGETS:
        raise WrongQuestion(f"to: wanted {', '.join(TARGETS)}, found '{kind[:40]}'")
    if kind == "time":
        return Target(kind, moment_of(value, now_ms))
    if kind == "offset":
        return Target(kind, number(query, "value", 0))
    if kind == "shift":
        return Target(kind, number(query, "value", 0, least=-(1 << 62), most=1 << 62))
    return Target(kind)


def _moves(text: str) -> dict[TopicPartition, int]:
    """Raises WrongQuestion for what no preview has made."""
    try:
        found = {
            TopicPartition(str(topic), int(partition)): int(offset)
            for topic, partition, offset in json.loads(text)
        }
    except (TypeError, ValueError):
        found = {}
    if not found or any(offset < 0 for offset in found.values()):
        raise WrongQuestion("there is no offset to set: look at the preview again")
    return found
