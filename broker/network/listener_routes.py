"""Which APIs are served on a listener: all that there are, those of another release of Kafka (where
the settings name one), or those of the controller."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from broker.network.dispatch import HANDLERS, served
from protocol.connection import Routes
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.current_settings import CurrentSettings
    from broker.handlers.context import Context
    from broker.network.dispatch import Handler
    from broker.network.rehearsals import Rehearsals
    from config import BrokerSettings
    from protocol.connection import Request


OF_CONTROLLER = (19, 22)
"""Keys of what a process asks of the controller as a client does: CreateTopics for topics that are
made by their first use, InitProducerId for an id."""
OF_PARTITIONS = (9, 16, 24, 27)
"""Keys of what it asks of those who lead partitions: OffsetFetch and ListGroups for metrics,
AddPartitionsToTxn of coordinators, WriteTxnMarkers."""


class ListenerRoutes:
    """Belongs to the loop. `of_clients` and `of_controller` are the tables, whose use the metrics
    show."""

    def __init__(
        self,
        settings: CurrentSettings,
        faulted: Callable[[dict[int, Handler]], dict[int, Handler]] | None = None,
    ) -> None:
        """`faulted` makes a table of handlers of another one, where a test asks for faults."""
        self._settings = settings
        now = settings.current
        self.of_clients = _routes(HANDLERS, now, faulted)
        self.of_controller = _routes_of_controller(now)

    @cached_property
    def internal(self) -> Routes:
        """What is served to the other processes of this directory."""
        from broker.network.controller_handlers import CONTROLLER_HANDLERS  # most are alone
        from broker.network.forwarding import ENVELOPE_KEY, Envelopes

        handlers = {
            **CONTROLLER_HANDLERS,
            **{key: HANDLERS[key] for key in OF_CONTROLLER},
            **{key: _when_open(HANDLERS[key]) for key in OF_PARTITIONS},
            ENVELOPE_KEY: Envelopes(self.of_clients).handler,
        }
        return Routes(served(handlers))

    def of(self, listener: str) -> Routes:
        """What is served on the listener of this name to connections that begin now."""
        settings = self._settings.current
        if any(one.name == listener for one in settings.controller_listeners):
            return self.of_controller
        if not settings.rehearses:
            return self.of_clients
        return self._rehearsals.routes_of(listener)

    @cached_property
    def _rehearsals(self) -> Rehearsals:
        from broker.network.rehearsals import Rehearsals  # few brokers answer as another release

        return Rehearsals(self.of_clients, self._settings)


def _when_open(handler: Handler) -> Handler:
    """The handler of a request about partitions, which are known when all logs are open. The
    controller serves its log before that."""

    def handle(request: Request, ctx: Context) -> Any:
        if not ctx.topics.are_open:
            raise KafkaError(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return handler(request, ctx)

    return handle


def _routes(
    handlers: dict[int, Handler],
    settings: BrokerSettings,
    faulted: Callable[[dict[int, Handler]], dict[int, Handler]] | None = None,
) -> Routes:
    """The APIs of a table, with checks of access before them where access is checked, and faults
    before these where a test asks for some."""
    if settings.authorizer_class_name:
        from broker.handlers.access import guarded  # most brokers are open

        handlers = guarded(handlers)
    if faulted is not None:
        handlers = faulted(handlers)
    return Routes(served(handlers))


def _routes_of_controller(settings: BrokerSettings) -> Routes:
    """The APIs on the listeners of the controller, if there are any."""
    if not settings.controller_listeners:
        return Routes({})
    from broker.network.controller_handlers import CONTROLLER_HANDLERS  # most brokers don't need it

    return _routes(CONTROLLER_HANDLERS, settings)
