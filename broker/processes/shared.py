"""What processes have from their supervisor."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

from broker.neighbours import Neighbours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.network.listening import Bound
    from broker.security.credentials import NewCredential
    from config import BrokerSettings
    from storage.identity import MetaProperties


class Shared(NamedTuple):
    """What processes have from their supervisor."""

    settings: BrokerSettings
    identity: MetaProperties
    credentials: Sequence[NewCredential]
    bound: list[Bound]
    """Sockets of clients' listeners, by process."""
    internal: list[socket.socket]
    """Those for each other, by process."""

    @property
    def processes(self) -> int:
        return len(self.bound)

    @property
    def neighbours(self) -> Neighbours:
        names = [one.name for one in self.bound[0]]
        ports = {
            name: [one.port for bound in self.bound for one in bound if one.name == name]
            for name in names
        }
        return Neighbours(self.settings.node_id, ports)
