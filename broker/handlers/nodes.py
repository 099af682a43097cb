"""The brokers of the cluster, as clients are told of them."""

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
    """All brokers: one, or the processes that serve the directory. These listen on ports of their
    own; where an address is advertised, their ports are counted up from that."""
    neighbours, this = ctx.neighbours, this_node(ctx)
    if neighbours is None:
        return [this]
    own = ctx.node_id - neighbours.first_id
    if ctx.settings.current.advertised_listener(ctx.listener) is not None:
        return [
            this._replace(node_id=node_id, port=this.port + number - own)
            for number, node_id in enumerate(neighbours.ids)
        ]
    ports = neighbours.ports[ctx.listener]
    return [
        this._replace(node_id=node_id, port=port)
        for node_id, port in zip(neighbours.ids, ports, strict=True)
    ]


def process_of(replicas: Sequence[int], ctx: Context) -> int | None:
    """The number of the process that can keep a partition of these replicas, 0 where there is one
    alone. None unless they are one broker, which is there and serves."""
    neighbours, moves = ctx.neighbours, ctx.moves
    if neighbours is None:
        return 0 if list(replicas) == [ctx.node_id] else None
    if moves is None or len(replicas) != 1:
        return None
    number = neighbours.process_of(replicas[0])
    return number if replicas[0] in neighbours.ids and moves.serves(number) else None


def there_is(ctx: Context) -> str:
    """Which brokers there are, for the message to whoever assigns partitions to others."""
    neighbours = ctx.neighbours
    if neighbours is None:
        return f"there is only broker {ctx.node_id}"
    ids = neighbours.ids
    return f"each partition is kept by one of the brokers {ids[0]} to {ids[-1]}, while that serves"
