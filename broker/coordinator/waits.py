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

    __slots__ = ("_asked", "_gone", "_response", "_started")

    def __init__(self, request: Request) -> None:
        self._asked = request
        self._response: Any = None
        self._started = False
        self._gone = False

    def result(self) -> Any:
        """What the handler returns: the answer if there is one by now, else this."""
        return self if self._response is None else self._response

    def answer(self, response: Any) -> None:
        """The group has decided."""
        if self._gone:
            return
        if self._started:
            self._gone = True
            self.connection.finish_waiting(self.request, response)
        else:
            self._response = response

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error of the whole request."""
        asked = self._asked
        self.answer(asked.route.api.refused(asked.message, code))

    def start(self, connection: Requester, request: Request) -> None:
        super().start(connection, request)
        self._started = True

    def finish(self) -> None:
        """The broker stops; the client is to look for the coordinator again."""
        self.refuse(ErrorCode.NOT_COORDINATOR)

    def cancel(self) -> None:
        """The client is gone. As with Kafka its member stays until its session has expired, for it
        may only have lost the connection."""
        self._gone = True
