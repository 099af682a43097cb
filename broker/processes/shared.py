"""What processes have from their supervisor."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.network.listening import Bound
    from broker.security.credentials import NewCredential
    from config import BrokerSettings
    from storage.identity import MetaProperties


class Figures(NamedTuple):
    """Where the console asks processes for their figures: a socket of each, and what a request has
    to have."""

    sockets: list[socket.socket]
    token: str


class Shared(NamedTuple):
    """What processes have from their supervisor."""

    settings: BrokerSettings
    identity: MetaProperties
    credentials: Sequence[NewCredential]
    bound: list[Bound]
    """Sockets of clients' listeners, by process."""
    internal: list[socket.socket]
    """Those for each other, by process."""
    addresses: list[bytes]
    """The addresses of these."""

    figures: Figures | None
    """None where there is no console."""

    @property
    def processes(self) -> int:
        return len(self.bound)

    @property
    def ports(self) -> dict[str, list[int]]:
        """Those of clients' listeners by their names, each with one of every process."""
        return {
            named.name: [
                one.port for bound in self.bound for one in bound if one.name == named.name
            ]
            for named in self.bound[0]
        }
