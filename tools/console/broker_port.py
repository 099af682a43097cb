"""What no Kafka client is told, asked of the port that the broker has opened for its console."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

TIMEOUT_S = 10.0
THERE_WITHIN_S = 1.0
"""For a word of a process whose loop turns."""
ANSWER_BYTES_MAX = 64 << 20


class NoAnswer(Exception):
    """The broker has not answered; the text says why."""


class Broker(Protocol):
    """What the pages ask."""

    @property
    def away(self) -> Collection[int]:
        """Of several processes those that did not answer last, by their ids as brokers."""

    def ask(self, path: str) -> Any:
        """What the page says. Raises NoAnswer."""


class BrokerPort:
    """Pages of the broker in JSON, each over a connection of its own."""

    away: Collection[int] = ()

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token

    def require_there(self) -> None:
        """Raises NoAnswer if its loop does not turn. A page may take a while, this does not."""
        self._body("/healthz", THERE_WITHIN_S)

    def ask(self, path: str) -> Any:
        """What the page says. Raises NoAnswer."""
        body = self._body(path, TIMEOUT_S)
        try:
            return json.loads(body)
        except ValueError:
            raise NoAnswer(
                f"the broker's page {path} is no JSON, or has more than {ANSWER_BYTES_MAX:,} bytes"
            ) from None

    def _body(self, path: str, timeout_s: float) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout_s)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"the broker does not answer: {error}") from None
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise NoAnswer(f"the broker says: {body[:200].decode(errors='replace').strip()}")
        return body
