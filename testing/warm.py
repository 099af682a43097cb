"""Brokers that are started before they are asked for, so that a test does not wait for its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testing.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Mapping


class WarmBrokers:
    """At most one broker waits here, empty and never used."""

    def __init__(self, *, memory: bool | int) -> None:
        self._memory = memory
        self._next: tuple[dict[str, str], Broker] | None = None

    def take(self, settings: Mapping[str, str], *, another: bool) -> Broker:
        """A broker that is ready, and with `another` begin the next one with these settings.
        Raises BrokerFailed."""
        wanted = dict(settings)
        if self._next is not None and self._next[0] == wanted:
            broker, self._next = self._next[1], None
        else:
            self.close()
            broker = self._begun(wanted)
        try:
            broker.wait_until_ready()
        except BaseException:
            broker.discard()
            raise
        if another:
            self._next = wanted, self._begun(wanted)
        return broker

    def close(self) -> None:
        """Discard the one that waits."""
        if self._next is not None:
            self._next[1].discard()
            self._next = None

    def _begun(self, settings: Mapping[str, str]) -> Broker:
        broker = Broker(settings, memory=self._memory)
        broker.begin()
        return broker
