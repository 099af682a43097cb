"""The table of handlers for the listeners of the controller; that for clients is in
broker.network.dispatch.

A module of its own, because most brokers have no such listener and every import delays the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.describe_cluster import describe_controllers
from broker.handlers.fetch_metadata import fetch_metadata
from broker.handlers.fetch_snapshot import fetch_snapshot
from broker.network.dispatch import HANDLERS

if TYPE_CHECKING:
    from broker.network.dispatch import Handler

OF_BOTH = (17, 18, 29, 30, 31, 32, 33, 36, 43, 44, 45, 46, 49, 50, 51, 55, 57, 64)
"""Keys of the APIs that clients' listeners have as well."""

CONTROLLER_HANDLERS: dict[int, Handler] = {
    1: fetch_metadata,
    59: fetch_snapshot,
    60: describe_controllers,
    **{key: HANDLERS[key] for key in OF_BOTH},
}
"""For those who follow the metadata log, and for what Kafka's tools ask of a controller
(`--bootstrap-controller`, KIP-919). ApiVersions on these listeners says just this."""
