"""The settings of the broker, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.configs.settings import Resource, settings_of
from tools.console.visit import NotAllowed, NotThere, Shown, number
from tools.errors import NotDone

if TYPE_CHECKING:
    from tools.console.visit import Visit


def settings(visit: Visit) -> Shown:
    """Of several brokers those of the first, or of the one asked for. Raises NotAllowed, NotThere,
    WrongQuestion."""
    node_ids = visit.cluster.node_ids()
    node_id = number(visit.query, "broker", node_ids[0])
    if node_id not in node_ids:
        raise NotThere(f"there is no broker {node_id}")
    try:
        found = settings_of(visit.cluster, Resource("broker", str(node_id)))
    except NotDone as error:
        raise NotAllowed(f"{error}: this takes DESCRIBE_CONFIGS on the cluster") from None
    return Shown("settings.html", {"node_id": node_id, "node_ids": node_ids, "settings": found})
