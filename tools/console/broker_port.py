"""What no Kafka client is told, asked of the port that the broker has opened for its console."""

from __future__ import annotations

import http.client
import json
from typing import Any

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 << 20


class NoAnswer(Exception):
    """The broker has not answered; the text says why."""


class BrokerPort:
    """Pages of the broker in JSON, each over a connection of its own."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token

    def ask(self, path: str) -> Any:
        """What the page says. Raises NoAnswer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
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
        try:
            return json.loads(body)
        except ValueError:
            raise NoAnswer(
                f"the broker's page {path} is no JSON, or has more than {ANSWER_BYTES_MAX:,} bytes"
            ) from None
