"""Requests that a group parks: JoinGroup and SyncGroup wait for the other members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.pending import Waiting
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.pending import Requester
    from protocol.connection import Request


class GroupWait(Waiting):
    """One parked request. It may be answered before the connection has taken note of it."""

    __slots__ = ("_gone", "_requester", "_response")

    def __init__(self, request: Request) -> None:
        self.request = request
        self._requester: Requester | None = None
        self._response: Any = None
        self._gone = False

    def result(self) -> Any:
        """The handler's result: the answer if there is one by now, else this."""
        return self if self._response is None else self._response

    def answer(self, response: Any) -> None:
        """The group has decided."""
        if self._gone:
            return
        if self._requester is None:
            self._response = response
        else:
            self._gone = True
            self._requester.finish_waiting(self.request, response)

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error of the whole request."""
        request = self.request
        self.answer(request.route.api.refused(request.message, code))

    def start(self, connection: Requester, request: Request) -> None:
        self._requester = connection
        self.request = request

    def finish(self) -> None:
        """The broker stops; the client is to look for the coordinator again."""
        self.refuse(ErrorCode.NOT_COORDINATOR)

    def cancel(self) -> None:
        """The client is gone. As with Kafka its member stays until its session has expired, for it
        may only have lost the connection."""
        self._gone = True
