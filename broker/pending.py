"""Results of handlers other than an answer.

A plain answer (a Message) is sent when the appends of its burst are in the files.
Everything else is one of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker import logs
from broker.slicing import Slicer
from protocol.eras import code_for
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Container, Generator, Iterator, Sequence

    from broker.partitions.topic import Partition
    from protocol.connection import Request
    from storage.log import Log

    Refuse = Callable[["Request", "Durable", Container[Log]], Any]
    """Makes the answer to a request whose sync failed for some logs."""


class Requester(Protocol):
    """A connection, as far as a request that waits has to know it."""

    def finish_waiting(self, request: Request, result: Any) -> None:
        """The request has its result: an answer, or another of these."""


class Durable:
    """An answer to be sent when everything these partitions hold now is on disk (acks=all).

    If that fails, `refuse(request, durable, failed)` makes the answer that is sent instead.
    """

    __slots__ = ("partitions", "refuse", "response")

    def __init__(self, response: Any, partitions: Sequence[Partition], refuse: Refuse) -> None:
        self.response = response
        self.partitions = partitions
        self.refuse = refuse


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

    connection: Requester
    request: Request

    def start(self, connection: Requester, request: Request) -> None:
        """The connection took note: begin to wait."""
        self.connection = connection
        self.request = request

    def worked(self, seconds: float) -> None:
        """So long was worked for the request, which counts for request_percentage."""
        self.request.worked_s = getattr(self.request, "worked_s", 0.0) + seconds

    def finish(self) -> None:
        """Answer with what there is now."""
        raise NotImplementedError

    def cancel(self) -> None:
        """The client is gone: forget about it."""
        raise NotImplementedError


class Later(Waiting):
    """A request whose answer somebody else gives, by `answer`."""

    __slots__ = ("_begin", "_given_up", "_gone")

    def __init__(
        self, begin: Callable[[Later], None], *, gone: Callable[[], None] | None = None
    ) -> None:
        """`begin` is called when the connection has taken note, `gone` when nobody waits for the
        answer any more."""
        self._begin = begin
        self._gone = gone
        self._given_up = False

    def start(self, connection: Requester, request: Request) -> None:
        super().start(connection, request)
        self._begin(self)

    def answer(self, result: Any) -> None:
        """This is the answer; None is none. Too late if the client is gone."""
        if not self._given_up:
            self._given_up = True
            self.connection.finish_waiting(self.request, result)

    def finish(self) -> None:
        if self._gone is not None:
            self._gone()
        self.answer(None)

    def cancel(self) -> None:
        self._given_up = True
        if self._gone is not None:
            self._gone()


class AskedFirst(Exception):
    """A request has to be handled again, from the beginning, when another process has answered. It
    has changed nothing. `ask` calls what it is given then."""

    def __init__(self, ask: Callable[[Callable[[], None]], None]) -> None:
        super().__init__("another process is asked first")
        self.ask = ask


SLICE_S, PAUSE_S = 0.002, 0.001


class Sliced(Waiting):
    """A request whose answer takes long to be worked out: on the loop, and in slices, between which
    others are served."""

    __slots__ = ("_address", "_answer", "_slicer", "_steps", "_stopped")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        steps: Generator[None, None, Any],
        stopped: Any,
        *,
        address: str,
    ) -> None:
        """`steps` returns the answer, and raises what `error_answer` takes; `stopped` is the answer
        of a broker that stops meanwhile; `address` is the client's."""
        self._slicer = Slicer(loop, "requests", slice_s=SLICE_S, pause_s=PAUSE_S)
        self._steps = steps
        self._stopped = stopped
        self._address = address
        self._answer: Any = None

    def start(self, connection: Requester, request: Request) -> None:
        super().start(connection, request)
        self._slicer.run(self._work(), self._done, self._failed)

    def finish(self) -> None:
        self._slicer.stop()
        self.connection.finish_waiting(self.request, self._stopped)

    def cancel(self) -> None:
        self._slicer.stop()

    def _work(self) -> Iterator[None]:
        self._answer = yield from self._steps

    def _done(self) -> None:
        self.connection.finish_waiting(self.request, self._answer)

    def _failed(self, error: Exception) -> None:
        answer = error_answer(self.request, error, address=self._address)
        self.connection.finish_waiting(self.request, answer)


def error_answer(request: Request, error: Exception, *, address: str) -> Any:
    """The answer in which everything asked for meets the code of a KafkaError. Any other exception
    is a fault of ours: logged with its trace, answered with UNKNOWN_SERVER_ERROR."""
    api, code = request.route.api, ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(error, KafkaError):
        code = error.code
    else:
        logs.fault_once_a_minute(
            "a handler failed",
            error,
            f"{api.name} v{request.version}",
            address=address,
            client_id=request.client_id,
        )
    return api.refused(request.general_message(), code)


def coordinator_not_available(request: Request, durable: Durable, failed: Container[Log]) -> Any:
    """The refusal of a request about a group whose records could not be synced: the client looks
    for the coordinator again and repeats it."""
    code = code_for(request.route.api.key, request.version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return request.route.api.refused(request.message, code)
