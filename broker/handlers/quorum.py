"""Shared by the requests about the metadata log: its name, its leader, and the leader's address.

The metadata log has one partition and a fixed id (KIP-516, KIP-595). The node that leads it need
not be the one that is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.listeners import UNROUTABLE_HOSTS, Listener
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.controller import Controller
    from broker.metadata.controller_view import ControllerView


class Endpoint(NamedTuple):
    """A node and its address."""

    node_id: int
    host: str
    port: int


def leader_fault(controller: ControllerView, node_id: int, epoch: int) -> ErrorCode | None:
    """Why a request made for the leader of this epoch is not answered by node `node_id`.

    There is no "any epoch" in these requests: who follows the metadata log learns the epoch from a
    refusal, which names leader and epoch.
    """
    if epoch < controller.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > controller.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if controller.leader_id != node_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return None


def metadata_leader(ctx: Context) -> Controller:
    """The controller, where these requests are served: in the process that leads the log."""
    assert ctx.metadata_leader is not None
    return ctx.metadata_leader


def is_other_cluster(ctx: Context, cluster_id: str | None) -> bool:
    """Whether a request is meant for another cluster; null is for any."""
    return cluster_id is not None and cluster_id != ctx.cluster_id


def controller_listeners(ctx: Context) -> list[Listener]:
    """Addresses of this node's controller for this client, listener by listener: what is
    advertised, else what it listens on. One that listens everywhere is told the address that the
    client has dialled."""
    settings = ctx.settings.current
    found = []
    for listener in settings.controller_listeners:
        told = settings.advertised_listener(listener.name) or listener
        host = ctx.local_host if told.host in UNROUTABLE_HOSTS else told.host
        port = told.port or ctx.port_of(listener.name)
        found.append(Listener(listener.name, host, port))
    return found


def leader_endpoint(ctx: Context) -> Endpoint | None:
    """The address of the metadata log's leader, for a client on its listener; None where it is
    not known here."""
    if ctx.controller.leader_id != ctx.node_id:
        return None
    return Endpoint(ctx.node_id, *ctx.advertised())
