"""A client of an `InProcessBroker` whose answers are decoded.

asker = Asker(broker)
asker.send(CreateTopicsRequest(...))
broker.turn_until(lambda: asker.answers())
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from protocol.registry import APIS
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from protocol.registry import Api
    from protocol.schema import Message
    from tests.support.fake_connection import InProcessBroker


class Asker:
    """One connection; answers come in the order of the requests."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.fake = broker.connect()
        self._broker = broker
        self._frames = WireClient.__new__(WireClient)
        self._frames.client_id = "fake"
        self._asked: list[tuple[Api, int]] = []

    def send(self, request: Message, version: int | None = None) -> None:
        """The request arrives; the loop does not turn."""
        api = APIS[type(request).key]
        chosen = api.max_version if version is None else version
        self._asked.append((api, chosen))
        self.fake.feed(self._frames.frame(request, chosen, len(self._asked)))

    def answers(self) -> list[Any]:
        """All that were written so far."""
        sent = b"".join(self.fake.writes)
        found, position = [], 0
        while position < len(sent):
            size, correlation_id = struct.unpack_from(">ii", sent, position)
            api, version = self._asked[correlation_id - 1]
            body = position + 8 + (version >= api.first_flexible and api.key != 18)
            found.append(api.response.decode(version, sent[body : position + 4 + size]))
            position += 4 + size
        return found

    def call(self, request: Message, version: int | None = None) -> Any:
        """The answer, after as many turns of the loop as it takes."""
        self.send(request, version)
        count = len(self._asked)
        self._broker.turn_until(lambda: len(self.answers()) >= count)
        return self.answers()[-1]
