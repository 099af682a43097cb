"""The control port of a broker under test, as Python calls it."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[str, str, bytes], tuple[int, Any]]
    """Method, path with its query, body; the status of HTTP, and what the answer's JSON is."""

ANSWER_WITHIN_S = 30.0
"""An answer takes milliseconds; after a large jump of the clock, as long as what fell due."""
FIRST_ERROR = 400


class ControlError(Exception):
    """The broker refused what a test asked of its control port, or did not answer; one line."""


class Control:
    """Calls of one broker's control port (docs/faults.md)."""

    def __init__(self, call: Call) -> None:
        """`call` makes one call: `Control.at` has it go over HTTP."""
        self._call = call

    @classmethod
    def at(cls, address: str) -> Control:
        """The control port at host:port."""
        return cls(lambda method, path, body: _over_http(address, method, path, body))

    def get(self, path: str) -> Any:
        """Raises ControlError, as the others do."""
        return self._answer("GET", path)

    def post(self, path: str, value: Any = None) -> Any:
        return self._answer("POST", path, value)

    def delete(self, path: str) -> Any:
        return self._answer("DELETE", path)

    def _answer(self, method: str, path: str, value: Any = None) -> Any:
        body = b"" if value is None else json.dumps(value).encode()
        status, answer = self._call(method, path, body)
        if status >= FIRST_ERROR:
            raise ControlError(answer["error"])
        return answer


def _over_http(address: str, method: str, path: str, body: bytes) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=ANSWER_WITHIN_S)
    try:
        connection.request(method, path, body or None)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ControlError(f"the control port {address} did not answer: {error}") from error
    finally:
        connection.close()
