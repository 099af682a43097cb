"""What each client has sent lately, decoded, and as text to compare with in a test."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import ErrorCode
from protocol.registry import APIS
from protocol.schema import SECRET, ZERO_UUID, Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.faults.places import NameOf

REQUESTS_MAX = 2_000
"""Requests that are remembered; the oldest go first."""
TEXT_MAX = 4_000
"""Characters of a request's text; the rest is cut off."""


ERROR_NAMES = {int(code): code.name for code in ErrorCode}


class Sent(NamedTuple):
    """A request that a client has sent. `text` has its fields; `fault` tells which one it met, and
    is empty for none; `time_ms` is the broker's clock."""

    number: int
    time_ms: int
    client: str
    address: str
    api: str
    version: int
    text: str
    fault: str

    def __str__(self) -> str:
        met = f" (fault {self.fault})" if self.fault else ""
        return f"{self.client}: {self.api} v{self.version} {self.text}{met}"


class Conversations:
    """The last requests of all clients, in the order in which they were handled."""

    def __init__(self) -> None:
        self._entries: deque[Sent] = deque(maxlen=REQUESTS_MAX)
        self._count = 0

    def add(
        self, *, time_ms: int, client: str, address: str, api: str, version: int, text: str
    ) -> None:
        self._count += 1
        self._entries.append(
            Sent(self._count, time_ms, client, address, api, version, text, fault="")
        )

    def note_fault(self, fault: str) -> None:
        """The request that was added last meets this fault."""
        self._entries.append(self._entries.pop()._replace(fault=fault))

    def clear(self) -> None:
        self._entries.clear()

    def entries(
        self, *, client: str | None = None, api: str | None = None, after: int = 0
    ) -> list[Sent]:
        """Those of a client and of an API, with numbers above `after`."""
        return [
            entry
            for entry in self._entries
            if entry.number > after
            and (client is None or entry.client == client)
            and (api is None or entry.api == api)
        ]


def size_text(data: bytes | bytearray | memoryview) -> str:
    """Bytes, told by their number."""
    return f"<{len(data)} bytes>"


def text_of(
    message: Any,
    version: int,
    name_of: NameOf,
    *,
    records_text: Callable[[memoryview], str] = size_text,
    limit: int = TEXT_MAX,
) -> str:
    """The fields that this version has, on one line: `{acks: -1, topic_data: [{name: orders}]}`.
    Errors and APIs are told by their names, ids of topics by the topic's, passwords not at all, and
    records by `records_text`."""
    text = _Fields(version, name_of, records_text).text(message)
    return text if len(text) <= limit else f"{text[:limit]}..."


class _Fields(NamedTuple):
    """What makes text of the fields of a message."""

    version: int
    name_of: NameOf
    records_text: Callable[[memoryview], str]

    def text(self, value: Any) -> str:
        if isinstance(value, Struct):
            fields = (
                f"{field.name}: {self._field(field.name, getattr(value, field.name))}"
                for field in type(value)._fields
                if field.versions.holds(self.version)
            )
            return f"{{{', '.join(fields)}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, bytes | bytearray | memoryview):
            return size_text(value)
        if value is None or isinstance(value, bool):
            return str(value).lower() if value is not None else "null"
        return str(value)

    def _field(self, name: str, value: Any) -> str:
        if name in SECRET:
            return "..."
        if name == "topic_id":
            return self.name_of(value) if value != ZERO_UUID else "none"
        if name == "records" and isinstance(value, memoryview):
            return self.records_text(value)
        if name == "api_key" and value in APIS:
            return APIS[value].name
        if name.endswith("error_code"):
            return ERROR_NAMES.get(value, str(value))
        return self.text(value)
