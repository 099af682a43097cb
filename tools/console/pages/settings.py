"""The settings of the broker, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.configs.settings import Resource, settings_of
from tools.console.visit import NotAllowed, Shown
from tools.errors import NotDone

if TYPE_CHECKING:
    from tools.console.visit import Visit


def settings(visit: Visit) -> Shown:
    """Raises NotAllowed."""
    (node_id,) = visit.cluster.node_ids()
    try:
        found = settings_of(visit.cluster, Resource("broker", str(node_id)))
    except NotDone as error:
        raise NotAllowed(f"{error}: this takes DESCRIBE_CONFIGS on the cluster") from None
    return Shown("settings.html", {"node_id": node_id, "settings": found})
