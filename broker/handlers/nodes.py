"""The brokers of the cluster, as clients are told of them: this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.handlers.context import Context


class Node(NamedTuple):
    """A broker and the address under which the client of a connection reaches it."""

    node_id: int
    host: str
    port: int
    rack: str | None


def this_node(ctx: Context) -> Node:
    """This broker."""
    host, port = ctx.advertised()
    return Node(ctx.node_id, host, port, ctx.settings.current.broker_rack)


def node(node_id: int, ctx: Context) -> Node:
    """The broker of this id. Raises KafkaError, COORDINATOR_NOT_AVAILABLE, if there is none."""
    if node_id == ctx.node_id:
        return this_node(ctx)
    for one in nodes(ctx):
        if one.node_id == node_id:
            return one
    raise KafkaError(f"there is no broker {node_id}", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


def nodes(ctx: Context) -> list[Node]:
    """All brokers."""
    return [this_node(ctx)]


def can_lead(replicas: Sequence[int], ctx: Context) -> bool:
    """Whether a partition can be kept by these brokers: by one of those there are."""
    return list(replicas) == [ctx.node_id]


def there_is(ctx: Context) -> str:
    """Which brokers there are, for the message to whoever assigns partitions to others."""
    return f"there is only broker {ctx.node_id}"
