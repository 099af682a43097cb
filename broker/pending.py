"""What a handler may return besides an answer.

A plain answer (a Message) is sent when the appends of the burst it belongs to are in the files.
Everything else is one of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.network.connection import Connection
    from broker.partitions.partition import Partition
    from protocol.connection import Request


class Requester(Protocol):
    """The connection that a waiting request came on."""

    def finish_waiting(self, request: Request, result: Any) -> None: ...


class Durable:
    """An answer to be sent when everything these partitions hold now is on disk (acks=all).

    If that fails, `refused` makes the answer that is sent instead; without it, it is a produce
    answer whose entries become errors.
    """

    __slots__ = ("partitions", "refused", "response")

    def __init__(
        self,
        response: Any,
        partitions: list[Partition],
        refused: Callable[[], Any] | None = None,
    ) -> None:
        self.response = response
        self.partitions = partitions
        self.refused = refused


class Silent:
    """Produce with acks=0: no answer; `response` only tells whether something failed, and then
    the connection is closed, the one signal that such a producer can see."""

    __slots__ = ("response",)

    def __init__(self, response: Any) -> None:
        self.response = response


class Waiting:
    """A request that waits (a fetch below its minimum of bytes). The connection's next request is
    not started before this one is answered, as with Apache Kafka."""

    __slots__ = ("connection", "request")

    connection: Connection
    request: Request

    def start(self, connection: Connection, request: Request) -> None:
        """The connection took note: begin to wait."""
        self.connection = connection
        self.request = request

    def finish(self) -> None:
        """Answer with what there is now."""
        raise NotImplementedError

    def cancel(self) -> None:
        """The client is gone: forget about it."""
        raise NotImplementedError
