"""The names of topics, for a shell that completes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.errors import Failure
from tools.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.security import ClientSecurity

CLIENT_ID = b"triglot-completion"
PATIENCE_S = 1.0
"""For a broker, while somebody waits."""


def topic_names(
    host: str, port: int, security_of: Callable[[], ClientSecurity | None]
) -> list[str]:
    """Those of a broker, sorted; none if it does not answer, or has no rights for this user."""
    try:
        security = security_of()
        with Cluster(
            host, port, timeout_s=PATIENCE_S, client_id=CLIENT_ID, security=security
        ) as cluster:
            return sorted({place.topic for place in cluster.all_partitions()})
    except Failure:
        return []
