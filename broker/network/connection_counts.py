"""Counts of connections, in all and from each address, against the limits that close further ones.

Those of max.connections wait instead (broker.network.admission).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.network.descriptors import Descriptors
    from config import BrokerSettings


class ConnectionCounts:
    """Counts what comes and goes. An address without connections takes no memory."""

    __slots__ = ("_by_address", "_descriptors", "_opened", "_total")

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self._opened = 0

    def over_limit(self, address: str, settings: BrokerSettings) -> str | None:
        """Count a new connection; why it has to be closed, or None if it may stay.

        `gone` is to be called for it in either case.
        """
        self._total += 1
        self._opened += 1
        self._by_address[address] += 1
        scarcity = self._descriptors.refusal(self._total)
        if scarcity is not None:
            return scarcity
        limit, name = settings.max_connections_per_ip, "max.connections.per.ip"
        for one, count in settings.max_connections_per_ip_overrides:
            if one == address:
                limit, name = count, f"{name}.overrides"
        if self._by_address[address] > limit:
            return f"more than {limit} from one address ({name})"
        return None

    def opened(self) -> int:
        """All that have come since the start."""
        return self._opened

    def gone(self, address: str) -> None:
        """A connection that was counted is closed."""
        self._total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
