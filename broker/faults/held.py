"""A handler's result on its way to an answer, while its connection starts no other request.

What a connection does with a result (`broker.pending`) before it sends an answer is done here for
one that a fault holds: it waits for the disk, for members of a group, for bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Durable, Later, Silent, Waiting
from broker.producing.failures import translate
from protocol.connection import PRODUCE_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.handlers.context import Context
    from protocol.connection import Request
    from storage.log import Log

    Finished = Callable[[Later, Any], None]
    """Called with the answer; None is none (a produce with acks=0)."""


class Held:
    """One result. It stands where the connection would for what the result waits for."""

    def __init__(
        self, ctx: Context, result: Any, finished: Finished, *, at_once: bool = False
    ) -> None:
        """`at_once` answers with what there is now, without waiting for more of it."""
        self._ctx = ctx
        self._result = result
        self._finished = finished
        self._at_once = at_once
        self._waiting: Waiting | None = None
        self._later: Later

    def later(self) -> Later:
        """What the connection waits for."""
        return Later(self._begin, gone=self._gone)

    def finish_waiting(self, request: Request, result: Any) -> None:
        """What the result waited for has come (see `broker.pending.Requester`)."""
        self._waiting = None
        self._ctx.appends.write()
        self._take(request, result)

    def _begin(self, later: Later) -> None:
        self._later = later
        self._take(later.request, self._result)

    def _gone(self) -> None:
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.cancel()

    def _take(self, request: Request, result: Any) -> None:
        if isinstance(result, Durable):
            self._wait_for_disk(request, result)
        elif isinstance(result, Silent):
            self._finished(self._later, None)
        elif isinstance(result, Waiting):
            self._waiting = result
            result.start(self, request)
            if self._at_once and self._waiting is result:
                result.finish()
        else:
            self._finish(request, result)

    def _wait_for_disk(self, request: Request, durable: Durable) -> None:
        def done(failed: dict[Log, str]) -> None:
            refused = durable.refuse(request, durable, failed) if failed else durable.response
            self._finish(request, refused)

        self._ctx.group_commit.wait({one.log for one in durable.partitions}, done)

    def _finish(self, request: Request, response: Any) -> None:
        if request.route.api.key == PRODUCE_KEY and response is not None:
            translate(response, request.version)
        self._finished(self._later, response)


def changed(ctx: Context, result: Any, change: Callable[[Any], Any]) -> Any:
    """The result with another answer in it, made by `change` of its own."""
    if isinstance(result, Durable):
        return Durable(change(result.response), result.partitions, result.refuse)
    if isinstance(result, Silent):
        return Silent(change(result.response))
    if isinstance(result, Waiting):
        return Held(ctx, result, lambda later, response: later.answer(change(response))).later()
    return change(result)
