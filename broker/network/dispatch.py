"""The table of handlers, and how a handler is called.

The table is written out, in order; nothing registers itself. What stands here is what ApiVersions
advertises: a key without a handler is declared in `protocol` and not offered. The listeners of the
controller have a table of their own (broker.network.controller_handlers).

Handlers of what administrators ask are imported with the first request for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from broker import handlers
from broker.clock import monotonic_s
from broker.coordinator.needs import NeededFirst
from broker.handlers.api_versions import api_versions
from broker.handlers.consumer_group_heartbeat import consumer_group_heartbeat
from broker.handlers.fetch import fetch
from broker.handlers.find_coordinator import find_coordinator
from broker.handlers.heartbeat import heartbeat
from broker.handlers.init_producer_id import init_producer_id
from broker.handlers.join_group import join_group
from broker.handlers.leave_group import leave_group
from broker.handlers.list_offsets import list_offsets
from broker.handlers.metadata import metadata
from broker.handlers.offset_commit import offset_commit
from broker.handlers.offset_fetch import offset_fetch
from broker.handlers.produce import produce
from broker.handlers.sync_group import sync_group
from broker.metadata.changes import ChangeWait
from broker.pending import AskedFirst, Later, error_answer
from broker.request_times import ALL_TIMED, TIMED_EVERY, TimedRequest, next_timed
from protocol import registry
from protocol.connection import Served

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.handlers.context import Context
    from protocol.connection import Request

    Handler = Callable[[Request, Context], Any]


class CloseConnection(Exception):
    """No answer is possible: the connection is closed when all before has been answered."""

    def __init__(self, why: str, *, quiet: bool = False) -> None:
        super().__init__(why)
        self.quiet = quiet


class LazyHandler:
    """A handler whose module is imported at its first request.

    With its declaration a module takes a millisecond, and most starts are not followed by any
    administration.
    """

    def __init__(self, key: int) -> None:
        """`key` is that of an API; module and function are named as in the registry."""
        self.__name__ = registry.APIS[key].module
        self.__module__ = f"{handlers.__name__}.{self.__name__}"
        self._handler: Handler | None = None

    def __call__(self, request: Request, ctx: Context) -> Any:
        if self._handler is None:
            self._handler = getattr(import_module(self.__module__), self.__name__)
        return self._handler(request, ctx)


LAZY = (
    *(*range(15, 18), *range(19, 22), *range(23, 52)),
    *(55, 57, 60, 61, 64, 65, 66, 69, 71, 72, 74, 75),
)
"""The APIs of administration and of transactions, and those that are only refused."""

HANDLERS: dict[int, Handler] = {
    0: produce,
    1: fetch,
    2: list_offsets,
    3: metadata,
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    18: api_versions,
    22: init_producer_id,
    68: consumer_group_heartbeat,
    **{key: LazyHandler(key) for key in LAZY},
}
"""The handlers of the APIs that clients are served."""


def served(handlers: dict[int, Handler] = HANDLERS) -> dict[int, Served]:
    """The APIs of a table of handlers with their versions, for connections and for ApiVersions."""
    apis = registry.APIS
    return {
        key: Served(apis[key], handler, apis[key].min_version, apis[key].max_version)
        for key, handler in handlers.items()
    }


def answer(request: Request, ctx: Context) -> Any:
    """Call the handler; its result is an answer, or one of broker.pending."""
    route = request.route
    number = route.requests
    route.requests = number + 1
    if route not in ctx.used:
        ctx.census.used(ctx, request)
    if number >= route.next_timed:
        stands_for = 1 if number < ALL_TIMED else TIMED_EVERY
        route.next_timed = next_timed(number)
        ctx.timed.append(TimedRequest(request, stands_for, monotonic_s()))
    try:
        return route.handler(request, ctx)
    except Exception as error:
        return told(error, route.handler, request, ctx)


def _again(handler: Handler, request: Request, ctx: Context) -> Any:
    """The result of a request that is handled again."""
    ctx.now_ms = ctx.clock_ms()
    try:
        return handler(request, ctx)
    except Exception as error:
        return told(error, handler, request, ctx)


def told(error: Exception, handler: Handler, request: Request, ctx: Context) -> Any:
    """The result of a handler that has raised this.

    A KafkaError becomes the answer in which everything asked for meets its code, any other
    exception one with UNKNOWN_SERVER_ERROR. A request that needs a state topic, or producer ids,
    which are not there yet, is handled again when they have been made.
    """
    if isinstance(error, NeededFirst):
        made = error.need.met(lambda: handler(request, ctx))
        return ChangeWait(ctx.changes, made, ctx.peer_host)
    if isinstance(error, AskedFirst):
        ask = error.ask
        return Later(lambda later: ask(lambda: later.answer(_again(handler, request, ctx))))
    if request.message is None:
        name = request.route.api.name
        raise CloseConnection(f"{name} of an unknown version could not be answered") from error
    return error_answer(request, error, address=ctx.peer_host)
