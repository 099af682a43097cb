"""Whoever looks on while frames pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker.faults.proxy.frames import RequestHead


class Observer(Protocol):
    """Told of all that passes, in the order in which it does; frames are without their length.

    `peer` is host:port of the client, of which each connection has its own. `head` is None for
    bytes that are not understood, as the tokens of SASL that have no header.
    """

    def opened(self, peer: str, broker: str) -> None:
        """A client has connected, and is led to this broker."""

    def asked(self, peer: str, head: RequestHead | None, frame: bytes) -> None:
        """It sends this."""

    def answered(self, peer: str, head: RequestHead | None, frame: bytes) -> None:
        """It gets this, with the addresses of the proxy in place of the brokers'. `head` is that of
        the request."""

    def closed(self, peer: str) -> None:
        """The connection has ended."""
